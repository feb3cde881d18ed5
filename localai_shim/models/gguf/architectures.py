"""Architectures of GGUF files: mlx-lm's classes, and its names of their weights."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...types import ModelLoadError
from .header import Header

ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
FACTORS = (ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS)
"""Tensors that belong to no layer: factors of the rotation."""
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_DENSE = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_LAYER = {**_ATTENTION, "ffn_norm": "post_attention_layernorm", **_DENSE}
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
_POST_ATTENTION = {"post_attention_norm": "post_attention_layernorm"}
_DELTA_NET = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
}
_SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_QWEN3_5 = {**_ATTENTION, **_HEAD_NORMS, **_POST_ATTENTION, **_DELTA_NET, **_DENSE, **_EXPERTS, **_SHARED_EXPERT}
_GPT_OSS = {
    **_ATTENTION,
    **_POST_ATTENTION,
    "attn_sinks.weight": "self_attn.sinks",
    "ffn_gate_inp": "mlp.router",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_PHI3 = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLM4_MOE = {
    **_ATTENTION,
    **_HEAD_NORMS,
    **_POST_ATTENTION,
    **_DENSE,
    **_EXPERTS,
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_GEMMA4 = {
    **_ATTENTION,
    **_HEAD_NORMS,
    **_FOUR_NORMS,
    **_DENSE,
    "layer_output_scale.weight": "layer_scalar",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "ffn_gate_inp": "router.proj",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps": "experts.switch_glu.gate_up_proj",
    "ffn_down_exps": "experts.switch_glu.down_proj",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
}
_GEMMA4_TOP = {
    **_TOP,
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}


class Architecture(NamedTuple):
    """One `general.architecture`.

    Attributes:
        model_type: mlx-lm's name.
        layer: names of weights in a layer, by llama.cpp's names with or without their ending.
        top: names of weights outside of layers.
        prefix: of all names.
        rotates_pairs: rows of q and k are stored in another order, for a rotation of neighboring values.
        norms_plus_one: 1 was added to the norms' weights.
        tiles_heads: value heads of linear attention are stored in another order, one of each key head in turn.
        rotates_part: not all dimensions of a head have to be rotated.
    """

    model_type: str
    layer: dict[str, str]
    top: dict[str, str] = _TOP
    prefix: str = ""
    rotates_pairs: bool = False
    norms_plus_one: bool = False
    tiles_heads: bool = False
    rotates_part: bool = False


ARCHITECTURES = {
    "gemma3": Architecture("gemma3_text", {**_LAYER, **_HEAD_NORMS, **_FOUR_NORMS}, norms_plus_one=True),
    "gemma4": Architecture("gemma4_text", _GEMMA4, _GEMMA4_TOP, rotates_part=True),
    "glm4moe": Architecture("glm4_moe", _GLM4_MOE, rotates_part=True),
    "gpt-oss": Architecture("gpt_oss", _GPT_OSS),
    "llama": Architecture("llama", _LAYER, rotates_pairs=True),
    "mistral3": Architecture("ministral3", _LAYER, rotates_pairs=True),
    "phi3": Architecture("phi3", _PHI3, rotates_part=True),
    "qwen2": Architecture("qwen2", _LAYER),
    "qwen2vl": Architecture("qwen2", _LAYER),
    "qwen3": Architecture("qwen3", {**_LAYER, **_HEAD_NORMS}),
    "qwen35": Architecture("qwen3_5", _QWEN3_5, prefix="language_model.", tiles_heads=True, rotates_part=True),
    "qwen35moe": Architecture("qwen3_5", _QWEN3_5, prefix="language_model.", tiles_heads=True, rotates_part=True),
    "qwen3moe": Architecture("qwen3_moe", {**_LAYER, **_HEAD_NORMS, **_EXPERTS}),
    "qwen3vl": Architecture("qwen3", {**_LAYER, **_HEAD_NORMS}),
    "qwen3vlmoe": Architecture("qwen3_moe", {**_LAYER, **_HEAD_NORMS, **_EXPERTS}),
    "qwen3next": Architecture("qwen3_5", _QWEN3_5, prefix="language_model.", rotates_part=True),
}
"""By llama.cpp's names.

Of models that see, the class for texts, whose tokens have one position each. Qwen3-Next takes the class of Qwen
3.5, whose layers are split as those of the files are.
"""
MTP_LAYER = "MTP layer"
_NEXTN = {
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.eh_proj": "eh_proj",
    "nextn.shared_head_norm": "shared_head.norm",
    "nextn.shared_head_head": "shared_head.head",
    "nextn.embed_tokens": "embed_tokens",
}
"""Tensors around the layer of a head, with their names in checkpoints of GLM and DeepSeek."""
_NAME = re.compile(r"(?:blk\.(\d+)\.)?([\w.]+)")
_ENDINGS = ("weight", "bias")
_ENCODERS = ("v.", "a.", "mm.")


def architecture_of(header: Header) -> Architecture:
    """Architecture of a file.

    Raises:
        ModelLoadError: it is none of those that can be read.
    """
    name = header.get("general.architecture", "")
    if name == "clip":
        raise ModelLoadError(
            f"'{header.path}' is only the vision encoder of a model (mmproj). Pass the model's own GGUF file."
        )
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
    """mlx-lm's name of a tensor; None: it has none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    layer, rest = found.groups()
    table = architecture.top if layer is None else architecture.layer
    stem, _, ending = rest.rpartition(".")
    if rest in table:
        known = table[rest]
    elif stem in table and ending in _ENDINGS:
        known = f"{table[stem]}.{ending}"
    else:
        return None
    return architecture.prefix + (known if layer is None else f"model.layers.{layer}.{known}")


def layer_of(name: str) -> int | None:
    """Number of the layer that a tensor belongs to."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found is not None and found[1] else None


def head_name(architecture: Architecture, name: str) -> str | None:
    """Name of an MTP layer's tensor in that layer; None: it has none."""
    known = weight_name(architecture._replace(layer={**architecture.layer, **_NEXTN}, prefix=""), name)
    return known and known.split(".", 3)[-1]


def needless(header: Header, name: str) -> str:
    """Part of a checkpoint that a tensor belongs to and the model does not need; empty for all other tensors."""
    prefix = header.get("general.architecture", "")
    if name.startswith(_ENCODERS):
        return "vision or audio encoder"
    layers, drafting = header.get(f"{prefix}.block_count", 0), header.get(f"{prefix}.nextn_predict_layers", 0)
    layer = layer_of(name)
    if layer is not None and layers - drafting <= layer < layers and drafting > 0:
        return MTP_LAYER
    if name == ROPE_FACTORS and prefix == "gemma4":  # they say which dimensions rotate, as its class knows
        return "table of rotations"
    return ""
