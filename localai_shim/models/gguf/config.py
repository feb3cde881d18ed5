"""Config of a GGUF file's model, as mlx-lm's classes take it, and names of its weights."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ...types import Json, ModelLoadError
from .header import Header

ROPE_FACTORS = "rope_freqs.weight"
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
}
_FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


class Architecture(NamedTuple):
    """One `general.architecture`.

    Attributes:
        model_type: mlx-lm's name.
        layer: names of weights in a layer.
        rotates_pairs: rows of q and k are stored in another order, for a rotation of neighbouring values.
        norms_plus_one: 1 was added to the norms' weights.
    """

    model_type: str
    layer: dict[str, str]
    rotates_pairs: bool = False
    norms_plus_one: bool = False


ARCHITECTURES = {
    "gemma3": Architecture("gemma3_text", {**_LAYER, **_HEAD_NORMS, **_FOUR_NORMS}, norms_plus_one=True),
    "llama": Architecture("llama", _LAYER, rotates_pairs=True),
    "qwen2": Architecture("qwen2", _LAYER),
    "qwen3": Architecture("qwen3", {**_LAYER, **_HEAD_NORMS}),
    "qwen3moe": Architecture("qwen3_moe", {**_LAYER, **_HEAD_NORMS, **_EXPERTS}),
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LAYERS_OF_GEMMA_27B = 62  # whose queries are scaled otherwise, which no key says
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(\w+)")
_MAX_NUMBER = (1 << 31) - 1  # as MLX counts
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def architecture_of(header: Header) -> Architecture:
    """Architecture of a file.

    Raises:
        ModelLoadError: it is none of those that can be read.
    """
    name = header.get("general.architecture", "")
    if name not in ARCHITECTURES:
        raise ModelLoadError(
            f"'{header.path}' is of the architecture '{name[:100]}'. GGUF files of these can be read: "
            f"{', '.join(ARCHITECTURES)}. Others are served from a folder (safetensors)."
        )
    if (parts := header.get("split.count", 0)) > 1:
        raise ModelLoadError(
            f"'{header.path}' is one of {parts} parts. Make one file of them: `llama-gguf-split --merge FIRST NEW`."
        )
    return ARCHITECTURES[name]


def weight_name(architecture: Architecture, name: str) -> str | None:
    """mlx-lm's name of a weight; None: it has none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    layer, stem, suffix = found.groups()
    known = (_TOP if layer is None else architecture.layer).get(stem)
    if known is None:
        return None
    return f"{known}.{suffix}" if layer is None else f"model.layers.{layer}.{known}.{suffix}"


def read_config(header: Header) -> Json:
    """The config of a file's model.

    Raises:
        ModelLoadError: it has what mlx-lm's class does not compute, or lacks what that needs.
    """
    architecture, prefix = architecture_of(header), header.get("general.architecture", "")
    if unknown := [name for name in header.tensors if not (name == ROPE_FACTORS or weight_name(architecture, name))]:
        raise ModelLoadError(f"'{header.path}': tensor '{unknown[0]}' is not known in the architecture '{prefix}'.")
    if "token_embd.weight" not in header.tensors:
        raise ModelLoadError(f"'{header.path}' has no tensor 'token_embd.weight': it is not a whole model.")

    def number(key: str, default: int = 0) -> int:
        value = header.get(f"{prefix}.{key}", default)
        if not value:
            raise ModelLoadError(f"'{header.path}': the metadata lacks '{prefix}.{key}', or it is 0.")
        if not 0 < value <= _MAX_NUMBER:
            raise ModelLoadError(f"'{header.path}': the metadata's '{prefix}.{key}' is {value}.")
        return value

    def real(key: str, default: float) -> float:
        value = header.get(f"{prefix}.{key}", default)
        if not 0 < value < math.inf:
            raise ModelLoadError(f"'{header.path}': the metadata's '{prefix}.{key}' is {value}.")
        return value

    heads, width, layers = number("attention.head_count"), number("embedding_length"), number("block_count")
    if layers != (there := _layers(header)):
        raise ModelLoadError(
            f"'{header.path}': the metadata's '{prefix}.block_count' is {layers}, but there are tensors of {there} "
            "layers."
        )
    head_dim = number("attention.key_length", width // heads)
    if (rotated := number("rope.dimension_count", head_dim)) != head_dim:
        raise ModelLoadError(f"'{header.path}': Partial RoPE ({rotated} of {head_dim} dims) is not supported.")
    if ROPE_FACTORS in header.tensors and (shape := header.tensors[ROPE_FACTORS].shape) != (head_dim // 2,):
        raise ModelLoadError(
            f"'{header.path}': tensor '{ROPE_FACTORS}' has the shape {list(shape)}, not [{head_dim // 2}]."
        )
    config: Json = {
        "model_type": architecture.model_type,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": number("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": real("attention.layer_norm_rms_epsilon", 1e-6),
        "rope_theta": real("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(header, prefix),
        "max_position_embeddings": number("context_length"),
        "vocab_size": header.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_output.bias" in header.tensors,
        "intermediate_size": number("feed_forward_length", 1 if architecture.layer.keys() & _EXPERTS.keys() else 0),
    }
    if prefix == "qwen3moe":
        config |= {
            "num_experts": number("expert_count"),
            "num_experts_per_tok": number("expert_used_count"),
            "moe_intermediate_size": number("expert_feed_forward_length"),
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        }
    elif prefix == "gemma3":
        config |= {
            "sliding_window": number("attention.sliding_window"),
            "sliding_window_pattern": number("attention.sliding_window_pattern", 6),
            "rope_local_base_freq": real("rope.freq_base_swa", 10000.0),
            "rope_theta": real("rope.freq_base", 1000000.0),
            "query_pre_attn_scalar": width // heads if layers == _LAYERS_OF_GEMMA_27B else head_dim,
        }
    return config


def _layers(header: Header) -> int:
    """Number of layers that a file has tensors of."""
    found = (_NAME.fullmatch(name) for name in header.tensors)
    return len({name[1] for name in found if name is not None and name[1]})


def read_sampling(header: Header) -> Json:
    """Sampling that a file recommends, by the names of a generation_config.json."""
    found = {name: header.metadata.get(f"general.sampling.{key}") for key, name in _SAMPLING.items()}
    return {name: value for name, value in found.items() if value is not None}


def _rope_scaling(header: Header, prefix: str) -> Json | None:
    kind = header.get(f"{prefix}.rope.scaling.type", "none")
    factor = header.get(f"{prefix}.rope.scaling.factor", 1.0)
    if ROPE_FACTORS in header.tensors:  # they replace what follows from these
        return dict(_LLAMA3)
    if kind == "none" or (kind == "linear" and factor == 1):
        return None
    if kind not in ("linear", "yarn"):
        raise ModelLoadError(f"'{header.path}': rope scaling '{kind[:100]}' is not supported.")
    if not 0 < factor < math.inf:
        raise ModelLoadError(f"'{header.path}': the metadata's '{prefix}.rope.scaling.factor' is {factor}.")
    original = header.get(f"{prefix}.rope.scaling.original_context_length", 0)
    return {"rope_type": kind, "factor": factor} | ({"original_max_position_embeddings": original} if original else {})
