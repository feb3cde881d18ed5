"""Tiny models of speech with random weights, in mlx-audio's own formats. Whatever is drawn is the same each time."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny import VOCABULARY, make_tokenizer

_PAD = 2
"""`<|endoftext|>` of the tokenizer: what ends Soprano's speech."""
_LANGUAGE_MODEL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
}
SOPRANO = {
    **_LANGUAGE_MODEL,
    "model_type": "soprano",
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "sample_rate": 32_000,
}
_TALKER = {
    **_LANGUAGE_MODEL,
    "vocab_size": 1100,
    "text_hidden_size": 32,
    "text_vocab_size": VOCABULARY,
    "num_code_groups": 4,
    "rope_scaling": {"interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
    "codec_eos_token_id": 1090,
    "codec_think_id": 1091,
    "codec_nothink_id": 1092,
    "codec_think_bos_id": 1093,
    "codec_think_eos_id": 1094,
    "codec_pad_id": 1095,
    "codec_bos_id": 1096,
    "codec_language_id": {"english": 1097},
    "spk_id": {"vivian": 1080, "ryan": 1081},
    "code_predictor_config": {**_LANGUAGE_MODEL, "vocab_size": 64, "num_code_groups": 4},
}
QWEN3_TTS = {
    "model_type": "qwen3_tts",
    "tts_model_type": "custom_voice",
    "tts_model_size": "1b7",
    "talker_config": _TALKER,
    "im_start_token_id": 0,
    "im_end_token_id": 1,
    "tts_pad_token_id": 2,
    "tts_bos_token_id": 3,
    "tts_eos_token_id": 4,
    "sample_rate": 24_000,
}
_SPEECH_TOKENIZER = {
    "decode_upsample_rate": 16,
    # mlx-audio tells PyTorch's convolutions from its own by channels: those with one tap need more than 64.
    "decoder_config": {
        "latent_dim": 72,
        "codebook_dim": 144,
        "codebook_size": 128,
        "decoder_dim": 144,
        "hidden_size": 16,
        "intermediate_size": 32,
        "head_dim": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "num_quantizers": 4,
        "semantic_codebook_size": 2048,
        "upsample_rates": [4],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": 144,
    },
}
MOONSHINE = {
    "model_type": "moonshine",
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "encoder_num_hidden_layers": 1,
    "decoder_num_hidden_layers": 1,
    "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
    "eos_token_id": 1,
}
_LETTERS = ["▁", *"ab!de!gh!jk!mn!pq!st!vw!yz."]
PARAKEET = {
    "target": "nemo.collections.asr.models.ctc_bpe_models.EncDecCTCModelBPE",
    "preprocessor": {
        "sample_rate": 16_000,
        "normalize": "per_feature",
        "window_size": 0.025,
        "window_stride": 0.01,
        "window": "hann",
        "features": 80,
        "n_fft": 512,
        "dither": 1e-5,
    },
    "encoder": {
        "feat_in": 80,
        "n_layers": 1,
        "d_model": 32,
        "n_heads": 2,
        "ff_expansion_factor": 2,
        "subsampling_factor": 8,
        "self_attention_model": "rel_pos",
        "subsampling": "dw_striding",
        "conv_kernel_size": 9,
        "subsampling_conv_channels": 16,
        "pos_emb_max_len": 512,
    },
    "decoder": {"feat_in": 32, "num_classes": len(_LETTERS), "vocabulary": _LETTERS},
    "decoding": {"greedy": None},
}


def _draw(model: Any) -> dict[str, Any]:
    """Random weights of a model's shapes: vectors that are constant stay, such as those of norms."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    rng = np.random.default_rng(0)
    drawn = {}
    for name, array in tree_flatten(model.parameters()):
        if array.ndim > 1 or len(np.unique(np.array(array))) > 1:
            drawn[name] = mx.array(rng.normal(size=array.shape, scale=array.shape[-1] ** -0.5).astype(np.float32))
        else:
            drawn[name] = array.astype(mx.float32)
    return drawn


def _save(folder: Path, config: Mapping[str, object], weights: dict[str, Any], tokenizer: bool = True) -> Path:
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer:
        make_tokenizer(folder, template=None)
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _end_soon(embedding: Any, head: Any, end: int, strength: float) -> tuple[Any, Any]:
    """Weights of which any text makes the end likely: one number of each embedding is constant."""
    import mlx.core as mx

    embedding, head = np.array(embedding), np.array(head) * 0.1
    embedding[:, 0], head[end, 0] = 4.0, strength
    return mx.array(embedding), mx.array(head)


def _make_soprano(folder: Path, **changes: Any) -> Path:
    from mlx_audio.tts.models.soprano import soprano

    config = {**SOPRANO, **changes}
    model = soprano.Model(soprano.ModelConfig.from_dict({**config, "model_path": str(folder)}))
    weights = _draw(model)
    embedding, head = "language_model.embed_tokens.weight", "language_model.lm_head.weight"
    weights[embedding], weights[head] = _end_soon(weights[embedding], weights[head], _PAD, 0.8)
    return _save(folder, config, weights)


def _make_qwen3_tts(folder: Path, **changes: Any) -> Path:
    import mlx.core as mx
    from mlx_audio.tts.models.qwen3_tts import qwen3_tts, speech_tokenizer
    from mlx_audio.tts.models.qwen3_tts.config import ModelConfig, Qwen3TTSTokenizerConfig

    config = {**QWEN3_TTS, **changes}
    weights = _draw(qwen3_tts.Model(ModelConfig.from_dict(copy.deepcopy(config))))
    head = np.array(weights["talker.codec_head.weight"]) * 3
    head[_TALKER["codec_eos_token_id"]] = 0  # others are likelier: it speaks until its most tokens
    _save(folder, config, {**weights, "talker.codec_head.weight": mx.array(head)})
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 60}))
    decoder = folder / "speech_tokenizer"
    decoder.mkdir()
    (decoder / "config.json").write_text(json.dumps(_SPEECH_TOKENIZER))
    made = speech_tokenizer.Qwen3TTSSpeechTokenizer(
        Qwen3TTSTokenizerConfig(**json.loads(json.dumps(_SPEECH_TOKENIZER)))
    )
    mx.save_safetensors(str(decoder / "model.safetensors"), _draw(made))
    return folder


def _make_moonshine(folder: Path, **changes: Any) -> Path:
    from mlx_audio.stt.models.moonshine import moonshine
    from mlx_audio.stt.models.moonshine.config import ModelConfig

    config = {**MOONSHINE, **changes}
    weights = _draw(moonshine.Model(ModelConfig.from_dict(config)))
    weights = {name: array.transpose(0, 2, 1) if "conv" in name and array.ndim == 3 else array
               for name, array in weights.items()}  # fmt: skip
    return _save(folder, config, weights)


def _make_parakeet(folder: Path, **changes: Any) -> Path:
    from mlx_audio.stt.models.parakeet.parakeet import Model

    config = {**PARAKEET, **changes}
    return _save(folder, config, _draw(Model.from_config(copy.deepcopy(config))), tokenizer=False)


_MAKERS: dict[str, Callable[..., Path]] = {
    "soprano": _make_soprano,
    "qwen3_tts": _make_qwen3_tts,
    "moonshine": _make_moonshine,
    "parakeet": _make_parakeet,
}
VOICES, RECOGNIZERS = ("soprano", "qwen3_tts"), ("moonshine", "parakeet")


def make_speech_model(folder: Path, family: str, **changes: Any) -> Path:
    """Write a tiny model into a folder that is not there yet; `changes` are fields of its config."""
    return _MAKERS[family](folder, **changes)


@functools.cache
def tiny_speech(family: str) -> Path:
    """The folder of a tiny model; made once per test session."""
    return make_speech_model(Path(tempfile.mkdtemp(prefix="localai_shim-speech-")) / f"tiny-{family}", family)


def sound(seconds: float = 1.0, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Samples at 16 kHz that rise and fall, with noise: a stand-in for speech."""
    rng, times = np.random.default_rng(seed), np.arange(int(16_000 * seconds)) / 16_000
    tone = np.sin(2 * np.pi * 220 * times) * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * times))
    return (0.3 * tone + 0.05 * rng.normal(size=len(times))).astype(np.float32)
