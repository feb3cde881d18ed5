"""Configs as published checkpoints have them, of families that transformers saves with other keys.

Tensors have the published names already: transformers' `conversion_mapping` is applied when it saves.
"""

from __future__ import annotations

from tests.reference.cases import Config


def ernie(config: Config) -> Config:
    """Baidu's: its language model's keys stand at the top."""
    text, vision = config.pop("text_config"), config["vision_config"]
    kinds, count = text.pop("mlp_layer_types"), text.pop("moe_num_experts")
    rope = text.pop("rope_parameters")
    return {
        **config,
        **text,
        "model_type": "ernie4_5_moe_vl",
        "moe_num_experts": [count, count],
        "moe_layer_start_index": kinds.index("sparse"),
        "moe_layer_end_index": len(kinds) - 1,
        "moe_use_aux_free": True,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "default", "mrope_section": rope["mrope_section"]},
        "im_patch_id": config["image_token_id"],
        "pixel_hidden_size": vision["hidden_size"],
        "spatial_conv_size": vision["spatial_merge_size"],
        "temporal_conv_size": vision["temporal_merge_size"],
        "vision_config": {
            "model_type": "DFNRope_vision_transformer",
            **{key: vision[key] for key in ("depth", "hidden_size", "hidden_act", "num_heads", "in_channels")},
            **{key: vision[key] for key in ("patch_size", "spatial_merge_size")},
            "embed_dim": vision["hidden_size"],
            "mlp_ratio": vision["intermediate_size"] / vision["hidden_size"],
        },
    }


def unlimited_ocr(config: Config) -> Config:
    """Baidu's, with the names of DeepSeek-OCR."""
    text, encoder = config.pop("text_config"), config["vision_config"]["encoder_config"]
    dense = text.pop("mlp_layer_types").count("dense")
    return {
        **config,
        "image_token_index": config["image_token_id"],
        "language_config": {**text, "model_type": "deepseek_v2", "first_k_dense_replace": dense, **_FLAT_HEADS},
        "vision_config": {"model_type": "vision", "layers": encoder["num_hidden_layers"]},
        "projector_config": {"projector_type": "linear", "input_dim": 2048, "n_embed": text["hidden_size"]},
    }


_FLAT_HEADS: Config = {"qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "kv_lora_rank": None, "q_lora_rank": None}


def deepseek_ocr2(config: Config) -> Config:
    """DeepSeek's; the sizes of its encoder stand in mlx-vlm's code."""
    text = config.pop("text_config")
    dense = text.pop("mlp_layer_types").count("dense")
    return {
        **config,
        "model_type": "deepseekocr_2",
        "image_token_index": config["image_token_id"],
        "language_config": {**text, "model_type": "deepseek_v2", "first_k_dense_replace": dense, **_FLAT_HEADS},
        "vision_config": {"model_type": "vision", "width": {"qwen2-0-5b": {"dim": 896}}},
        "projector_config": {"projector_type": "linear", "input_dim": 896, "n_embed": text["hidden_size"]},
    }


def molmo2(config: Config) -> Config:
    """Ai2's."""
    text, vision, adapter = (config.pop(f"{part}_config") for part in ("text", "vision", "adapter"))
    rope = text.pop("rope_parameters")
    return {
        **config,
        "text_config": {
            **text,
            "rope_theta": rope["rope_theta"],
            "layer_norm_eps": text["rms_norm_eps"],
            "qkv_bias": text["attention_bias"],
            "use_qk_norm": True,
        },
        "vit_config": {
            **vision,
            "image_patch_size": vision["patch_size"],
            "image_num_pos": vision["num_position_embeddings"],
            "image_default_input_size": vision["image_size"],
        },
        "adapter_config": {**adapter, "vit_layers": adapter["vision_feature_layer"]},
    }
