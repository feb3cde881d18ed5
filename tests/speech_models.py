"""Tiny Whisper models with random weights, in the forms of folders that are published, and sounds for them."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Form = Literal["mlx", "transformers"]
MELS = 80


class Shape(NamedTuple):
    """Sizes of encoder and decoder."""

    width: int = 64
    layers: int = 2
    heads: int = 2


SMALL, AS_TINY = Shape(), Shape(384, 4, 6)
_TEXT = {True: 50_257, False: 50_256}
"""Tokens before `<|endoftext|>`: of models that hear many languages, and of those that hear English."""
VOCABULARY = {True: 51_865, False: 51_864}
_BACK = (
    ("attn_ln.", "self_attn_layer_norm."),
    ("cross_self_attn_layer_norm.", "encoder_attn_layer_norm."),
    ("cross_attn.", "encoder_attn."),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    (".mlp1.", ".fc1."),
    (".mlp2.", ".fc2."),
    (".mlp_ln.", ".final_layer_norm."),
    (".blocks.", ".layers."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
    ("decoder.token_embedding.", "decoder.embed_tokens."),
    ("decoder.positional_embedding", "decoder.embed_positions.weight"),
)
"""Names of tensors, as MLX's form has them and as transformers has them."""


@functools.cache
def whisper(
    form: Form = "mlx", *, multilingual: bool = True, bits: int | None = None, seed: int = 0, shape: Shape = SMALL
) -> Path:
    """The folder of a model; equal arguments give the same weights in each form."""
    folder = Path(tempfile.mkdtemp(prefix="whisper-")) / "tiny-whisper"
    folder.mkdir()
    weights = tensors(multilingual=multilingual, seed=seed, shape=shape)
    config = mlx_config(multilingual=multilingual, shape=shape)
    if form == "transformers":
        write_transformers(folder, weights, multilingual=multilingual, shape=shape)
    else:
        _write_mlx(folder, weights, config, bits)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(multilingual=multilingual)), encoding="utf-8")
    return folder


def mlx_config(*, multilingual: bool = True, shape: Shape = SMALL) -> dict[str, Any]:
    return {
        "n_mels": MELS, "n_audio_ctx": 1500, "n_audio_state": shape.width, "n_audio_head": shape.heads,
        "n_audio_layer": shape.layers,
        "n_vocab": VOCABULARY[multilingual], "n_text_ctx": 448, "n_text_state": shape.width,
        "n_text_head": shape.heads, "n_text_layer": shape.layers,
    }  # fmt: skip


def transformers_config(*, multilingual: bool = True, shape: Shape = SMALL) -> dict[str, Any]:
    return {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "num_mel_bins": MELS,
        "max_source_positions": 1500, "d_model": shape.width, "encoder_attention_heads": shape.heads,
        "encoder_layers": shape.layers,
        "encoder_ffn_dim": 4 * shape.width, "vocab_size": VOCABULARY[multilingual], "max_target_positions": 448,
        "decoder_attention_heads": shape.heads, "decoder_layers": shape.layers, "decoder_ffn_dim": 4 * shape.width,
        "activation_function": "gelu", "scale_embedding": False, "bos_token_id": _TEXT[multilingual],
        "eos_token_id": _TEXT[multilingual], "pad_token_id": _TEXT[multilingual],
        "decoder_start_token_id": _TEXT[multilingual] + 1,
    }  # fmt: skip


def tensors(*, multilingual: bool = True, seed: int = 0, shape: Shape = SMALL) -> dict[str, npt.NDArray[np.float32]]:
    """Random weights, by the names of mlx-audio's model."""
    from mlx.utils import tree_flatten
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    model = Model(ModelDimensions.from_dict(mlx_config(multilingual=multilingual, shape=shape)))
    rng = np.random.default_rng(seed)
    made = {}
    for name, array in sorted(tree_flatten(model.parameters())):
        drawn = rng.standard_normal(array.shape, np.float32)
        if "ln" in name.split(".")[-2]:
            drawn = 0.1 * drawn + name.endswith("weight")
        elif name.endswith("bias"):
            drawn *= 0.1
        elif "positional" in name:
            drawn *= 0.5
        else:
            gain = 4.0 if "cross_attn" in name else 1.6  # so that what is heard matters
            drawn *= gain * float(np.prod(array.shape[1:])) ** -0.5
        made[name] = drawn.astype(np.float32)
    return made


def _write_mlx(
    folder: Path, weights: dict[str, npt.NDArray[np.float32]], config: dict[str, Any], bits: int | None
) -> None:
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    arrays = {name: mx.array(array) for name, array in weights.items()}
    if bits is not None:
        model = Model(ModelDimensions.from_dict(config), mx.float32)
        model.load_weights(list(arrays.items()))
        nn.quantize(model, 32, bits)
        arrays = dict(tree_flatten(model.parameters()))
        config = {**config, "quantization": {"group_size": 32, "bits": bits}}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write_transformers(
    folder: Path, weights: dict[str, npt.NDArray[np.float32]], *, multilingual: bool = True, shape: Shape = SMALL
) -> None:
    """Write weights as transformers does, under its names."""
    import mlx.core as mx
    from mlx_audio.stt.models.whisper.whisper import sinusoids

    named = {}
    for name, array in weights.items():
        for ours, theirs in _BACK:
            name = name.replace(ours, theirs)
        if re.search(r"conv\d\.weight", name):
            array = np.ascontiguousarray(array.transpose(0, 2, 1))
        named[f"model.{name}"] = mx.array(array)
    named["model.encoder.embed_positions.weight"] = sinusoids(1500, shape.width)
    mx.save_safetensors(str(folder / "model.safetensors"), named, metadata={"format": "pt"})
    config = transformers_config(multilingual=multilingual, shape=shape)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@functools.cache
def tokenizer(*, multilingual: bool = True) -> dict[str, Any]:
    """A tokenizer.json of bytes, filled up to the ids that Whisper's special tokens have."""
    from mlx_audio.stt.models.whisper.tokenizer import LANGUAGES
    from tokenizers.pre_tokenizers import ByteLevel

    count = _TEXT[multilingual]
    vocabulary = {each: i for i, each in enumerate(sorted(ByteLevel.alphabet()))}
    vocabulary |= {f"filled{i}": i for i in range(len(vocabulary), count)}
    names = [
        "endoftext", "startoftranscript", *[*LANGUAGES][:99], "translate", "transcribe", "startoflm", "startofprev",
        "nospeech", "notimestamps", *(f"{i / 50:.2f}" for i in range(1501)),
    ]  # fmt: skip
    added = [
        {"id": count + i, "content": f"<|{name}|>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, name in enumerate(names)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": []},
    }  # fmt: skip


def sound(number: int, seconds: float = 6.0, rate: int = 16_000) -> npt.NDArray[np.float32]:
    """Tones and noise, which differ by their number."""
    rng = np.random.default_rng(number)
    time = np.arange(int(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * rng.uniform(100, 3000) * time + rng.uniform(0, 6)) for _ in range(4))
    gate = np.sin(2 * np.pi * rng.uniform(0.3, 3) * time) > rng.uniform(-0.5, 0.5)
    return np.asarray(0.1 * tones * gate + 0.02 * rng.standard_normal(len(time)), np.float32)
