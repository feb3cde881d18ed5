"""Families that transformers saves with other keys in their configs than published checkpoints have.

Most tensors have the published names: transformers' `conversion_mapping` is applied when it saves.
"""

from __future__ import annotations

from tests.reference.cases import Config
from tests.reference.pictures import END, IMAGE, START, overview, patches, square
from tests.reference.vision_case import VisionCase, mrope


def _ernie(config: Config) -> Config:
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


def _unlimited_ocr(config: Config) -> Config:
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


def _deepseek_ocr2(config: Config) -> Config:
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


def _molmo2(config: Config) -> Config:
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


def _got(config: Config) -> Config:
    """StepFun's: all its language model's keys stand at the top, and its encoder's sizes in mlx-vlm's code."""
    text, vision = config.pop("text_config"), config.pop("vision_config")
    return {
        **config,
        **text,
        "model_type": "got",
        "rope_theta": text["rope_parameters"]["rope_theta"],
        "im_patch_token": config["image_token_index"],
        "vision_config": {
            "img_size": vision["image_size"],
            "patch_size": vision["patch_size"],
            "embed_dim": vision["hidden_size"],
            "depth": vision["num_hidden_layers"],
            "num_heads": vision["num_attention_heads"],
            "mlp_ratio": vision["mlp_dim"] / vision["hidden_size"],
            "out_chans": vision["output_channels"],
            "out_dim": text["hidden_size"],
            "window_size": vision["window_size"],
            "global_attn_indexes": vision["global_attn_indexes"],
        },
    }


_GOT = {
    r"^language_model\.(?=lm_head)": "",
    r"^language_model\.model\.": "model.",
    r"^multi_modal_projector\.conv_upsampler1\.": "model.vision_tower_high.net_2.",
    r"^multi_modal_projector\.conv_upsampler2\.": "model.vision_tower_high.net_3.",
    r"^multi_modal_projector\.multimodal_projector\.": "model.mm_projector_vary.",
    r"^vision_tower\.": "model.vision_tower_high.",
    r"_high\.layers\.": "_high.blocks.",
    r"\.patch_embed\.projection\.": ".patch_embed.proj.",
    r"\.neck\.conv1\.": ".neck.0.",
    r"\.neck\.layer_norm1\.": ".neck.1.",
    r"\.neck\.conv2\.": ".neck.2.",
    r"\.neck\.layer_norm2\.": ".neck.3.",
    r"\.layer_norm(?=[12]\.)": ".norm",
}
"""Names of tensors as transformers saves them, and as StepFun has published them."""


def _fastvlm(config: Config) -> Config:
    """Apple's: its language model's keys stand at the top, and its encoder's sizes in mlx-vlm's code."""
    text = config.pop("text_config")
    return {
        **{key: value for key, value in config.items() if key != "vision_config"},
        **text,
        "model_type": "llava_qwen2",
        "mm_hidden_size": 3072,
        "mm_projector_type": "mlp2x_gelu",
        "rope_theta": text["rope_parameters"]["rope_theta"],
    }


_TOWER = "model.vision_tower.vision_tower.model."
_FASTVLM = {
    r"^model\.language_model\.": "model.",
    r"^model\.multi_modal_projector\.linear_1\.": "model.mm_projector.0.",
    r"^model\.multi_modal_projector\.linear_2\.": "model.mm_projector.2.",
    r"^model\.vision_tower\.timm_model\.stem\.": f"{_TOWER}patch_embed.",
    r"^model\.vision_tower\.timm_model\.final_conv\.": f"{_TOWER}conv_exp.",
    r"^model\.vision_tower\.timm_model\.": _TOWER,
    r"\.se\.fc1\.": ".se.reduce.",
    r"\.se\.fc2\.": ".se.expand.",
    **{rf"\.stages\.{i}\.blocks\.": f".network.{place}." for i, place in enumerate((0, 2, 4, 7, 10))},
    **{rf"\.stages\.{i}\.downsample\.": f".network.{place}." for i, place in ((1, 1), (2, 3), (3, 5), (4, 8))},
    **{rf"\.stages\.{i}\.pos_emb\.": f".network.{place}." for i, place in ((3, 6), (4, 9))},
    r"\.proj\.0\.reparam_conv\.": ".proj.0.lkb_reparam.",
    r"(?<=\d)\.mlp\.(?=conv|fc\d\.\w+$)": ".convffn.",
    r"\.gamma$": "",
}
"""Names of tensors as transformers saves them, and as Apple has published them."""

PUBLISHED: dict[str, dict[str, VisionCase]] = {
    "fastvlm": {
        "plain": VisionCase(
            "fast_vlm",
            None,
            {"model_type": "qwen2"},
            {
                "model_type": "timm_wrapper",
                "architecture": "fastvit_mci3",
                "hidden_size": 3072,
                "do_pooling": True,
                "global_pool": "avg",
                "model_args": {"inference_mode": True},
            },
            published=_fastvlm,
            renamed=_FASTVLM,
            added={f"{_TOWER}head.proj": (3072, 768)},  # not used
            encoder_spread=0.02,
        )
    },
    "ernie4_5_moe_vl": {
        "plain": VisionCase(
            "ernie4_5_vl_moe",
            lambda: patches(times=1),
            {**mrope([3, 3, 2]), "moe_intermediate_size": [32, 24], "hidden_size": 64},
            {"intermediate_size": 64},
            {"image_start_token_id": START, "image_end_token_id": END, "video_token_id": 393},
            published=_ernie,
        )
    },
    "molmo2": {
        "plain": VisionCase(
            "molmo2",
            None,
            {"additional_vocab_size": 400},  # transformers saves two halves of all embeddings
            {"image_size": [56, 56], "num_position_embeddings": 16},
            {
                "adapter_config": {
                    "vision_feature_layer": [-1, -2],
                    "hidden_size": 32,
                    "num_attention_heads": 2,
                    "num_key_value_heads": 2,
                    "head_dim": 16,
                    "intermediate_size": 48,
                    "text_hidden_size": 64,
                },
                "image_patch_id": IMAGE,
            },
            published=_molmo2,
        )
    },
    "unlimited_ocr": {
        "plain": VisionCase(
            "unlimited_ocr",
            lambda: overview(256),
            {"num_key_value_heads": 4, "sliding_window": 128, "head_dim": 16},
            {"encoder_config": {"num_hidden_layers": 3}},
            published=_unlimited_ocr,
            encoder_spread=0.02,
        )
    },
    "got": {
        "plain": VisionCase(
            "got_ocr2",
            square(16, size=256, channels_last=True),
            {"model_type": "qwen2"},
            {"output_channels": 16, "image_size": 256, "patch_size": 16, "mlp_dim": 128, "global_attn_indexes": [1]},
            {},
            published=_got,
            renamed=_GOT,
        )
    },
    "deepseekocr_2": {
        "plain": VisionCase(
            "deepseek_ocr2",
            None,
            {"num_key_value_heads": 4, "head_dim": 16, "mlp_layer_types": ["dense", *["sparse"] * 3]},
            {
                "encoder_config": {
                    "hidden_size": 896,
                    "intermediate_size": 4864,
                    "num_hidden_layers": 24,
                    "num_attention_heads": 14,
                    "num_key_value_heads": 2,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
                }
            },
            published=_deepseek_ocr2,
            encoder_spread=0.02,
        )
    },
}
