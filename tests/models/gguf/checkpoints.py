"""What tiny checkpoints for the converter have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROMPT = [(7 * i) % 300 + 2 for i in range(90)]
"""Longer than the windows, and than the context before it was stretched."""
PLACES = [0, 16, 89]
"""Tokens of the prompt whose logits are kept."""
SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
HYBRID = {
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOWS = ["sliding_attention", "full_attention"]
GEMMA4 = {
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "global_head_dim": 64,
    "sliding_window": 16,
    "use_double_wide_mlp": False,
    "vocab_size_per_layer_input": 400,
    "tie_word_embeddings": True,
    "layer_types": WINDOWS * 2,
}
ROPE = {"rope_type": "default", "rope_theta": 5000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_parameters": ROPE}),
    "llama-3": (
        "Llama",
        {
            "rope_parameters": {
                **ROPE,
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "qwen2": ("Qwen2", {"head_dim": 16, "rope_parameters": ROPE}),
    "qwen3": ("Qwen3", {"rope_parameters": ROPE}),
    "qwen2vl": (
        "Qwen2_5_VL",
        {
            "text_config": {**SIZES, "head_dim": 16, "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]}},
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
            },
        },
    ),
    "qwen3vl": (
        "Qwen3VL",
        {
            "text_config": {
                **SIZES,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
            },
        },
    ),
    "qwen3vlmoe": (
        "Qwen3VLMoe",
        {
            "text_config": {
                **SIZES,
                **EXPERTS,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 32,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
            },
        },
    ),
    "qwen3-yarn": ("Qwen3", {"rope_parameters": {**ROPE, **YARN}}),
    "qwen3moe": ("Qwen3Moe", {**EXPERTS, "rope_parameters": ROPE, "norm_topk_prob": True}),
    "gemma3": (
        "Gemma3Text",
        {
            "num_hidden_layers": 7,
            "sliding_window": 16,
            "layer_types": [WINDOWS[0]] * 5 + WINDOWS[::-1],
            "query_pre_attn_scalar": 32,
        },
    ),
    "qwen3next": (
        "Qwen3Next",
        {
            **HYBRID,
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "norm_topk_prob": True,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25},
        },
    ),
    "qwen35": ("Qwen3_5Text", {**HYBRID, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}}),
    "qwen35moe": (
        "Qwen3_5MoeText",
        {
            **HYBRID,
            **EXPERTS,
            "shared_expert_intermediate_size": 32,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25},
        },
    ),
    "gpt-oss": (
        "GptOss",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "layer_types": WINDOWS * 2,
            "rope_parameters": {**ROPE, **YARN},
        },
    ),
    "mistral3": (
        "Ministral3",
        {
            "rope_parameters": {
                **ROPE,
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            "sliding_window": None,
        },
    ),
    "phi3": ("Phi3", {"head_dim": 16, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}}),
    "phi3-longrope": (
        "Phi3",
        {
            "head_dim": 16,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                **ROPE,
                "rope_type": "longrope",
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "glm4moe": (
        "Glm4Moe",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "use_qk_norm": True,
            "attention_bias": True,
            "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "gemma4": ("Gemma4Text", GEMMA4),
    "gemma4-e2b": (
        "Gemma4Text",
        {
            **GEMMA4,
            "hidden_size_per_layer_input": 32,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "num_hidden_layers": 6,
            "layer_types": WINDOWS * 3,
        },
    ),
    "gemma4-31b": (
        "Gemma4Text",
        {**GEMMA4, "num_key_value_heads": 2, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ),
    "gemma4-26b": (
        "Gemma4Text",
        {
            **GEMMA4,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
    ),
}
"""Names, and transformers' class and settings."""


def as_published(file: Path, kind: str) -> None:
    """Give tensors that transformers 5 saves otherwise the names and layout of checkpoints on the hub."""
    from safetensors.torch import load_file, save_file

    weights = load_file(file)
    if kind == "Gemma3":
        encoder = "vision_tower."
        weights = {key.replace(encoder, f"{encoder}vision_model."): value for key, value in weights.items()}
    if kind == "InternVL":
        parts = ("vision_tower.", "multi_modal_projector.")
        weights = {f"model.{key}" if key.startswith(parts) else key: value for key, value in weights.items()}
    if kind == "Qwen3VLMoe":
        weights = {
            key: value.transpose(1, 2).contiguous() if ".experts." in key else value for key, value in weights.items()
        }
    if kind == "Qwen3OmniMoeThinker":
        # Names as published, of which the converter reads those of the encoder only without their prefix.
        weights = {key if key.startswith("visual.") else f"thinker.{key}": value for key, value in weights.items()}
        config = file.with_name("config.json")
        whole = {"model_type": "qwen3_omni_moe", "architectures": ["Qwen3OmniMoeForConditionalGeneration"]}
        config.write_text(json.dumps({**whole, "thinker_config": json.loads(config.read_text())}))
    save_file(weights, file)


def add_drafting_layer(folder: Path) -> None:
    """Add an MTP layer, which transformers neither has nor saves, and the converter asks for."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    inner = "model.language_model." if "model.language_model.norm.weight" in weights else "model."
    last = f"{inner}layers.3."
    layer = {key.replace(last, "mtp.layers.0."): value + 0 for key, value in weights.items() if key.startswith(last)}
    size = weights[f"{inner}norm.weight"].shape[0]
    norms = {f"mtp.{key}.weight": torch.ones(size) for key in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    save_file({**weights, **layer, **norms, "mtp.fc.weight": torch.ones(size, 2 * size)}, folder / "model.safetensors")
