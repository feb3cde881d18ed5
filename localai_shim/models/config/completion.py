"""Settings that classes of mlx-lm and mlx-vlm require, and that transformers 5 does not write or writes otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from ...types import Json

_SLIDING = "sliding_attention"
_LINEAR = "linear_attention"
_SPARSE = "sparse"


def complete(config: Json, fields: Mapping[str, dataclasses.Field[object]], library: str) -> None:
    """Add settings that follow from others; those in the config stay.

    Args:
        config: changed in place.
        fields: arguments of the class that reads it.
        library: of the class.
    """
    make = DERIVED.get(library, {}).get(str(config.get("model_type")))
    made = {} if make is None else make(config)
    if _needs_head_size(config, fields) and (size := _head_size(config)) is not None:
        made["head_dim"] = size
    if config.get("model_type") == "mimo_v2_flash" and isinstance(config.get("sliding_window_size"), int):
        config["sliding_window_size"] += 1  # tokens before the query, of which mlx-lm's window is one
    for key, value in made.items():
        if key in fields and config.get(key) is None:
            config[key] = value


def _needs_head_size(config: Json, fields: Mapping[str, dataclasses.Field[object]]) -> bool:
    """True if the class does not derive the size of a head, and transformers' class only derives it."""
    from transformers import CONFIG_MAPPING

    kind, field = config.get("model_type"), fields.get("head_dim")
    is_fixed = field is not None and field.default is not None  # none at all, or one model's
    if not is_fixed or "head_dim" in config or kind not in CONFIG_MAPPING:
        return False
    return all(each.name != "head_dim" for each in dataclasses.fields(CONFIG_MAPPING[kind]))


def _head_size(config: Json) -> int | None:
    size, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return size // heads if isinstance(size, int) and isinstance(heads, int) and heads else None


def _kimi_linear(config: Json) -> Json:
    types = config.get("layer_types") or []
    return {
        "linear_attn_config": {
            "num_heads": config.get("linear_num_heads"),
            "head_dim": config.get("linear_head_dim"),
            "short_conv_kernel_size": config.get("linear_conv_kernel_dim"),
            "kda_layers": [i for i, kind in enumerate(types, 1) if kind == _LINEAR],
            "full_attn_layers": [i for i, kind in enumerate(types, 1) if kind != _LINEAR],
        },
        "rope_theta": 10000.0,  # not used: its full attention has no positions
        "mla_use_nope": True,
        "first_k_dense_replace": _dense(config),
    }


def _mimo_v2(config: Json) -> Json:
    types = config.get("layer_types") or []
    rope = config.get("rope_parameters") or {}
    heads, head_dim = config.get("num_attention_heads"), config.get("head_dim")
    return {
        "hybrid_layer_pattern": [int(kind == _SLIDING) for kind in types],
        "moe_layer_freq": [int(kind == _SPARSE) for kind in config.get("mlp_layer_types") or []],
        "n_shared_experts": None,
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "sliding_window_size": config.get("sliding_window"),
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "layernorm_epsilon": config.get("rms_norm_eps"),
        "rope_theta": rope.get("full_attention", {}).get("rope_theta"),
        "partial_rotary_factor": rope.get("full_attention", {}).get("partial_rotary_factor"),
        "swa_rope_theta": rope.get(_SLIDING, {}).get("rope_theta"),
        "swa_num_attention_heads": heads,
        "swa_num_key_value_heads": 2 * config.get("num_key_value_heads", 0),
        "swa_head_dim": head_dim,
        "swa_v_head_dim": config.get("v_head_dim"),
    }


def _minimax_m2(config: Json) -> Json:
    partial = (config.get("rope_parameters") or {}).get("partial_rotary_factor", 1.0)
    return {"shared_intermediate_size": 0, "rotary_dim": int(config.get("head_dim", 0) * partial)}


def _radio(config: Json) -> Json:
    tokens, registers = config.get("num_cls_tokens"), config.get("num_registers")
    if tokens is None or registers is None:  # as published, with `args`
        return {}
    return {
        "args": {
            "teachers": [{"name": str(i)} for i in range(tokens)],
            "register_multiple": tokens + registers,
            "cpe_max_size": config.get("max_img_size"),
        },
        "intermediate_size": int(config.get("hidden_size", 0) * config.get("mlp_ratio", 4)),
    }


def _dense(config: Json) -> int:
    """Number of layers before the first one with experts."""
    kinds = config.get("mlp_layer_types") or []
    return kinds.index(_SPARSE) if _SPARSE in kinds else len(kinds)


_TEXT: dict[str, Callable[[Json], Json]] = {
    "apertus": lambda config: {"mlp_bias": False, "post_norm": False, "qk_norm": True},
    "deepseek_v2": lambda config: {"rope_scaling": {"factor": 1.0, "mscale_all_dim": 0}},
    "exaone_moe": lambda config: {
        "is_moe_layer": [kind == _SPARSE for kind in config.get("mlp_layer_types") or []] or None
    },
    "falcon_h1": lambda config: {"head_dim": _head_size(config)},
    "glm_moe_dsa": lambda config: {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1},
    "gpt2": lambda config: {"n_ctx": config.get("n_positions")},
    "kimi_linear": _kimi_linear,
    "lfm2": lambda config: {"block_dim": config.get("hidden_size")},
    "longcat_flash": lambda config: {
        "attention_method": "MLA",
        "zero_expert_type": "identity",
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "mamba2": lambda config: {"intermediate_size": config.get("expand", 2) * config.get("hidden_size", 0)},
    "mimo_v2_flash": _mimo_v2,
    "minicpm3": lambda config: {
        "rope_scaling": {"original_max_position_embeddings": config.get("max_position_embeddings")}
    },
    "minimax_m2": _minimax_m2,
    "solar_open": lambda config: {
        "intermediate_size": config.get("moe_intermediate_size"),  # not used: each layer has experts
        "first_k_dense_replace": 0,
    },
}


def _deepseek_v4(config: Json) -> Json:
    rates, types, mlps = config.get("compress_rates") or {}, config.get("layer_types"), config.get("mlp_layer_types")
    return {
        "compress_ratios": types and [rates.get(kind, 0) for kind in types],
        "num_hash_layers": None if mlps is None else mlps.count("hash_moe"),
    }


def _inkling_text(config: Json) -> Json:
    if config.get("moe_intermediate_size") is None or config.get("dense_intermediate_size") is not None:
        return {}
    dense, config["intermediate_size"] = config.get("intermediate_size"), config["moe_intermediate_size"]
    return {"dense_intermediate_size": dense}


def _kimi_k25_vision(config: Json) -> Json:
    config["model_type"] = "moonvit"  # the name that the class asks for
    return {
        "depth": config.get("num_hidden_layers"),
        "embed_dim": config.get("hidden_size"),
        "num_heads": config.get("num_attention_heads"),
        "init_pos_emb_height": config.get("pos_emb_height"),
    }


def _step3p5(config: Json) -> Json:
    types, mlps = config.get("layer_types") or [], config.get("mlp_layer_types")
    if mlps is None:  # as its authors write it
        return {}
    heads = config.get("num_sliding_attention_heads")
    by_layer = {str(i): {"num_attention_heads": heads} for i, kind in enumerate(types) if kind == _SLIDING}
    if config.get("per_layer_config") == by_layer:
        config["per_layer_config"] = None
    rope = (config.get("rope_parameters") or {}).items()
    return {
        "attention_other_setting": {
            "num_attention_heads": heads,
            "num_attention_groups": config.get("num_key_value_heads"),
        },
        "moe_layers_enum": [i for i, kind in enumerate(mlps) if kind == _SPARSE],
        "use_head_wise_attn_gate": True,
        "yarn_only_types": [kind for kind, each in rope if each.get("rope_type") != "default"] or None,
    }


_SEEING: dict[str, Callable[[Json], Json]] = {
    "deepseek_v4": _deepseek_v4,
    "flint": lambda config: {
        "no_rope_layer_indices": [i for i, kind in enumerate(config.get("layer_types") or []) if kind != _SLIDING]
    },
    "gemma4_unified_vision": lambda config: {
        "model_patch_size": config.get("patch_size", 16) * config.get("pooling_kernel_size", 3)
    },
    "hy_v4": lambda config: {
        "first_k_dense_replace": _dense(config) if config.get("mlp_layer_types") else None,
    },
    "inkling_text": _inkling_text,
    "kimi_k25_vision": _kimi_k25_vision,
    "lfm2": _TEXT["lfm2"],
    "nemotron_h_omni": lambda config: {"ps_version": "v2"},
    "radio": _radio,
    "step3p5": _step3p5,
    "step3p5_vision": lambda config: {
        "width": config.get("hidden_size"),
        "layers": config.get("num_hidden_layers"),
        "heads": config.get("num_attention_heads"),
        "ls_init_value": config.get("layer_scale_init_value"),
    },
    "llama4_vision_model": lambda config: {"vision_feature_layer": -1},  # not used
}
DERIVED = {"mlx_lm": _TEXT, "mlx_vlm": _SEEING}
"""Settings that follow from a config's others, by library and `model_type`."""
