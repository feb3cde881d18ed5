"""Tiny language models with random weights of every family that only mlx-vlm defines, made in memory by its classes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any
from unittest import mock

import mlx.core as mx
from mlx import nn
from mlx_vlm.models.cache import make_prompt_cache

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.checkpoint.files import Checkpoint
from localai_shim.models.faults.vision import FAULTS
from localai_shim.models.misreading_layers import batch_attention
from localai_shim.models.vision.model import VisionModel
from localai_shim.options import LoadOptions
from tests.architectures import COMMON, GATED_DELTA, SPECIAL, WINDOW, randomise, tokenizer
from tests.engine.harness import quantised_by
from tests.tiny import VOCABULARY, tiny

_MROPE = {"type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "partial_rotary_factor": 1.0}
_QWEN = {"rope_scaling": _MROPE, "rope_parameters": _MROPE, "mrope_section": [4, 2, 2]}
_GLM = {"rope_scaling": _MROPE, "rope_parameters": _MROPE, "partial_rotary_factor": 1.0}
_QWEN35 = {**GATED_DELTA, "rope_parameters": _MROPE}
_NEMOTRON_H = {
    **SPECIAL["nemotron_h"],
    "layers_block_type": None,
    "model_type": "nemotron_h",
    "moe_shared_expert_intermediate_size": 32,
}
_CHANGES: dict[str, dict[str, Any]] = {
    "clef": _QWEN35,
    "cohere_compass": {
        "rope_parameters": {**_MROPE, "rope_type": "default"},
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": WINDOW,
    },
    "d1": SPECIAL["lfm2"],
    "deepseek_v41": {
        **SPECIAL["deepseek_v41"],
        "num_key_value_heads": 1,
        "q_lora_rank": 32,
        "o_lora_rank": 32,
        "engram_layer_ids": [1],
        "engram_num_embeddings": [256],
        "engram_max_ngram_size": 3,
        "engram_vocab_size": 50,
        "engram_n_heads": 2,
        "engram_head_dim": 16,
        "engram_compressed_vocab_size": VOCABULARY,
        "image_token_id": VOCABULARY - 1,
    },
    "deepseek_v4": {
        "head_dim": 32,
        "num_key_value_heads": 1,
        "qk_rope_head_dim": 8,
        "o_groups": 2,
        "o_lora_rank": 16,
        "scoring_func": "sqrtsoftplus",
        "num_hash_layers": 1,
        "compress_ratios": [0, 4, 4, 0],
        "index_block": 8,
        "index_keep": 2,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 2,
    },
    "step3p7": {**SPECIAL["step3p5"], "moe_num_experts": 4, "share_expert_dim": 32},
    "inkling": {
        "layer_types": ["hybrid_sliding", "hybrid_full"] * 2,
        "sliding_window_size": WINDOW,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "rel_extent": 24,
        "log_scaling_n_floor": 16,
        "dense_mlp_idx": 1,
        "dense_intermediate_size": 64,
        "intermediate_size": 32,
    },
    "limite": {
        "rope_n_pairs": 4,
        "ve_dim": 16,
        "attn_gate_channels": 16,
        "ve_gate_channels": 4,
        "ve_layers": [0, 2],
        "xsa_layers": [1, 2],
        "global_layers": [3],
        "mudd_tap_idx": {"2": [0, 1, 2]},
        "softcap_logits": {"kind": "sigmoid", "a": 20.0, "b": 0.0, "c": 4.0},
    },
    "longcat_flash_sparse": SPECIAL["longcat_flash"],
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35,
    "dots_ocr": {"rope_scaling": None},
    "ernie4_5_moe_vl": {
        **_QWEN,
        "rope_scaling": None,
        "rope_parameters": None,
        "rope_3d": True,
        "freq_allocation": 4,
        "mrope_section": [2, 2, 4],
    },
    "gemma3": {"num_hidden_layers": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "gemma3n": {**SPECIAL["gemma3n"], "intermediate_size": [128] * 4},
    "gemma4": {**SPECIAL["gemma4_text"], "sliding_window_pattern": 2, "num_experts": None},
    "gemma4_unified": {**SPECIAL["gemma4_text"], "sliding_window_pattern": 2, "num_experts": None},
    "glm4v": _GLM,
    "glm4v_moe": _GLM,
    "glm_ocr": _GLM,
    "glm5_next": {
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 0,
        "index_kpool": 4,
        "linear_head_dim": 16,
        "linear_num_heads": 4,
        "layer_types": ["linear_attention", "deepseek_sparse_attention"] * 2,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 2,
    },
    "hunyuan_vl": {
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "xdrope", "xdrope_section": [2, 2, 2, 2]},
        "attention_head_dim": 16,
    },
    "indic_ocr": _QWEN35,
    "jina_vlm": {"tie_word_embeddings": True},
    "lfm2_vl": SPECIAL["lfm2"],
    "llama4": SPECIAL["llama4"],
    "llava": {"model_type": "llama"},
    "llava_next": {"model_type": "llama"},
    "llmjpvl": {"model_type": "llama"},
    "multi_modality": {"model_type": "llama"},
    "mimo_v2": {**SPECIAL["mimo_v2_flash"], "sliding_window": WINDOW},
    "minicpmv4_6": _QWEN35,
    "minicpmv4_7": {**_QWEN35, "image_token_id": 10**6, "video_token_id": 10**6},
    "minimax_m3": SPECIAL["minimax_m3_vl"],
    "minimax_m3_vl": SPECIAL["minimax_m3_vl"],
    "molmo": {
        "d_model": 64,
        "n_heads": 4,
        "n_kv_heads": 2,
        "n_layers": 4,
        "mlp_hidden_size": 128,
        "embedding_size": VOCABULARY,
    },
    "moondream3": {"num_key_value_heads": 4, "moe_start_layer": 1, "rope_dim": 8},
    "muse_spark": SPECIAL["muse_spark"],
    "nemotron_h_nano_omni": _NEMOTRON_H,
    "paddleocr_vl": _QWEN,
    "paligemma": {"model_type": "gemma", "query_pre_attn_scalar": 16.0},
    "plamo2vl": {
        "model_type": "plamo2",
        "hidden_size_per_head": 16,
        "attention_window_size": WINDOW,
        "mamba_num_heads": 4,
        "mamba_d_state": 16,
    },
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": _QWEN,
    "qwen3_omni_moe": _QWEN,
    "qwen3_5": _QWEN35,
    "qwen3_5_moe": _QWEN35,
    "unlimited_ocr": {"sliding_window_size": 12},
    "qwen4_exp": {
        **_QWEN35,
        "layer_types": None,
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "ngram_vocab_size_base": 64,
        "split_ngram_parts": 1,
        "make_ngram_vocab_size_divisible_by": 1,
    },
}
_TOWER: dict[str, Any] = {
    "model_type": "",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_dim_out": 64,
    "out_hidden_size": 64,
    "spatial_merge_size": 2,
    "params": {},
}
_OUTER = ("vocab_size", "hidden_size", "image_token_id", "video_token_id")
_BY_TYPE = {"<class 'str'>": "", "<class 'bool'>": False, "<class 'float'>": 1.0}
_CONFIGS = {"qwen3_omni_moe": "ThinkerConfig"}
_PARTS = {"text_config": "TextConfig", "vision_config": "VisionConfig", "audio_config": "AudioConfig"}
_FLAT = ("hunyuan_vl", "phi4mm", "phi3_v")
"""Their language models are made of the whole config."""


def _folder() -> Path:
    import mlx_vlm.models

    return Path(mlx_vlm.models.__path__[0])


def families() -> list[str]:
    """The packages of mlx-vlm that are needed: they see or hear, or mlx-lm has no model of that name."""
    from mlx_lm.utils import MODEL_REMAPPING

    names = sorted(init.parent.name for init in _folder().glob("*/__init__.py"))
    alone = {"klear", "lille_130m", "nemotron_nas"}  # mlx-lm writes them otherwise
    lacking = [
        name
        for name in names
        if name not in alone
        and name not in MODEL_REMAPPING
        and importlib.util.find_spec(f"mlx_lm.models.{name}") is None
    ]
    return sorted({*lacking, *(name for name in names if sees(name) != "text")})


def sees(name: str) -> str:
    """What a family's own sources say that it reads beside text."""
    own = _source(name)
    found = []
    if re.search(r"VisionModel|VisionConfig|vision_config|vision_n_layers|vision_num_layers", own):
        found.append("images")
        if re.search(r"pixel_values_videos|video_grid_thw", "".join(map(_source, _packages(name)))):
            found.append("video")
    if re.search(r"audio_config|AudioConfig|AudioModel", own):
        found.append("audio")
    return ", ".join(found) or "text"


@functools.cache
def _source(name: str) -> str:
    return "".join(file.read_text(encoding="utf-8") for file in sorted((_folder() / name).glob("*.py")))


def _packages(name: str) -> set[str]:
    """The families whose model a family's derives from, itself included."""
    bases = re.findall(r"from \.\.(\w+)(?:\.\w+)? import[^=]*?Model\b", _source(name))
    derived = re.search(r"class Model\((?!nn\.)", _source(name))
    return {name, *(base for base in bases if derived and (_folder() / base).is_dir())}


def _found(name: str, what: str) -> Any:
    """A class of a family's, from whichever of its modules has it."""
    for module in ("", ".language", f".{name}", ".config"):
        try:
            found = getattr(importlib.import_module(f"mlx_vlm.models.{name}{module}"), what, None)
        except ModuleNotFoundError:
            continue
        if found is not None:
            return found
    raise LookupError(f"{name} has no {what}")


def _made(kind: Any, values: dict[str, Any]) -> Any:
    """A config of these values: its class's defaults where they say nothing, something small where it has none."""
    given = {}
    for field in dataclasses.fields(kind):
        if field.name in values:
            given[field.name] = values[field.name]
        elif field.default is field.default_factory is dataclasses.MISSING:
            given[field.name] = _BY_TYPE.get(str(field.type), 1)
    return kind(**given)


def _part(name: str, part: str, values: dict[str, Any]) -> Any:
    """The config of the language model, or of a tower, which is not built."""
    try:
        return _made(_found(name, _PARTS[part]), values if part == "text_config" else _TOWER)
    except LookupError:
        return None


def _configs(name: str, changes: dict[str, Any]) -> tuple[Any, Any]:
    """(of the language model, of all)"""
    values = {**COMMON, **SPECIAL.get(name, {}), "model_type": name, **_CHANGES.get(name, {}), **changes}
    kind = _found(name, _CONFIGS.get(name, "ModelConfig"))
    inside = [field.name for field in dataclasses.fields(kind) if field.name in _PARTS]
    if "text_config" not in inside:
        config = kind.from_dict(values)
        return config, config
    parts = {part: _part(name, part, values) for part in inside}
    outer = values if name in _FLAT else {key: values[key] for key in _OUTER if key in values}
    return parts["text_config"], _made(kind, {**outer, **parts, "model_type": name})


_MENDED_AS_WHOLE = (
    *("deepseekocr", "ernie4_5_moe_vl", "gemma4", "gemma4_unified", "glm4v", "glm4v_moe", "granite4_vision"),
    *("minicpmv4_6", "qwen3_omni_moe"),
)
"""Families whose mends concern images, and take the model with its encoder."""


def make(name: str, **changes: Any) -> Any:
    """A language model with random weights, the same each time. To be made on the thread that runs it."""
    its, config = _configs(name, changes)
    language = _found(name, "LanguageModel")
    mx.random.seed(0)
    if name == "phi3_v":
        model = _without_tower(config)
    elif name in _FLAT:
        model = language(config)
    else:
        takes = list(inspect.signature(language.__init__).parameters)[2:]
        model = language(its, config) if takes in (["config"], ["model_config"]) else language(its)
    if name == "cohere_compass":
        model._vision_config = config
    if name == "jina_vlm":  # its head is made where its tower is
        model.lm_head = nn.Linear(its.hidden_size, its.vocab_size, bias=False)
    randomise(model)
    if name == "deepseek_v41":  # a checkpoint's folder has the table of its tokens
        from mlx_vlm.models.deepseek_v41.engram import NgramHashState

        model.engram_hash = NgramHashState(config, model.layout, token_map=list(range(VOCABULARY)))
    if name not in _MENDED_AS_WHOLE:
        for fault in FAULTS.get(f"mlx_vlm.models.{name}.{name}", ()):
            fault.mend(model, {"model_type": name})  # as loading does
    return model


def _without_tower(config: Any) -> Any:
    """phi3_v's language model is not apart from its tower, which does not get smaller."""
    from mlx_vlm.models.phi3_v import phi3_v

    with mock.patch.object(phi3_v, "VisionModel", return_value=None):
        return phi3_v.Model(config)


def text_model(name: str, kv: Quantised | None = None, **changes: Any) -> VisionModel:
    """As a checkpoint would be loaded with `text_only`. To be called on the engine's thread."""
    config = {"model_type": name, "max_position_embeddings": 1024, **changes}
    options = LoadOptions(**quantised_by(kv), text_only=True)
    return VisionModel(Checkpoint(name, make(name, **changes), tokenizer(), config, tiny("qwen3"), options))


def engine_of(name: str, options: EngineOptions | None = None, **changes: Any) -> Engine[VisionModel]:
    """An engine of its own, which has loaded its model."""
    engine = Engine(lambda: text_model(name, **changes), options)
    engine.wait()
    return engine


class Alone:
    """mlx-vlm's language model, mended, with one prompt at a time, in one pass: what answers are held against."""

    def __init__(self, name: str) -> None:
        self._model = make(name)
        if name in ("gemma3n", "deepseek_v4"):
            batch_attention(self._model)  # mlx-vlm's own code is wrong for one row, too

    @functools.cache  # noqa: B019  # as long as the test module that made it
    def tokens(self, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
        for state in ("_rope_deltas", "_position_ids"):  # as mlx-vlm does between prompts
            if hasattr(self._model, state):
                setattr(self._model, state, None)
        cache, said, fed = make_prompt_cache(self._model), [], list(prompt)
        for _ in range(max_tokens):
            logits = self._model(mx.array([fed]), cache=cache).logits
            fed = [int(mx.argmax(logits[0, -1]).item())]
            said += fed
            if fed[0] in tokenizer().eos_token_ids:
                break
        return said
