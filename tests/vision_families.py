"""Configs of small models that see, by family."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.vision_parts import (
    DEEPSEEK,
    EXPERTS,
    GEMMA_EDGES,
    GEMMA_WINDOW,
    ID,
    PIXTRAL,
    QWEN_IDS,
    QWEN_IMAGE,
    QWEN_PIXELS,
    QWEN_TOWER,
    QWEN_VIDEO,
    SIGLIP,
    TEXT,
    VOCABULARY,
    Family,
)


def _qwen(kind: str, sections: list[int], **tower: Any) -> Family:
    rope = {"type": "mrope", "mrope_section": sections}
    vision = {**QWEN_TOWER, "model_type": kind, **tower}
    if kind.startswith("qwen2"):
        config = {**TEXT, "rope_scaling": rope, "vision_config": vision}
    else:
        text = {**TEXT, "model_type": f"{kind}_text", "rope_scaling": rope}
        config = {"text_config": text, "vision_config": vision, "vocab_size": VOCABULARY}
    return Family({"model_type": kind, **config, **QWEN_IDS}, QWEN_PIXELS, {}, QWEN_IMAGE, QWEN_VIDEO)


def _qwen3_5() -> Family:
    text = {
        **TEXT,
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 4,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "head_dim": 16,
        "rope_parameters": {
            "type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 10000,
            "partial_rotary_factor": 0.5,
        },
    }
    like = _qwen("qwen3_vl", [2, 1, 1])
    vision = {**QWEN_TOWER, "model_type": "qwen3_5", "num_position_embeddings": 16, "deepstack_visual_indexes": []}
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": vision, "vocab_size": VOCABULARY}
    return Family({**config, **QWEN_IDS}, QWEN_PIXELS, {}, like.image, like.video)


def _gemma3() -> Family:
    text = {**TEXT, **GEMMA_WINDOW, "model_type": "gemma3_text", "query_pre_attn_scalar": 8, "mm_tokens_per_image": 4}
    text["rope_theta"] = 1000000.0  # mlx-vlm alone does not read it
    config = {
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": dict(SIGLIP),
        "image_token_index": ID["<image_soft_token>"],
        "hidden_size": 32,
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "mm_tokens_per_image": 4,
        "boi_token_index": ID["<start_of_image>"],
        "eoi_token_index": ID["<end_of_image>"],
    }
    return Family(
        config,
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}, "image_seq_length": 4},
        {"image_seq_length": 4, "processor_class": "Gemma3Processor"},
        "<start_of_image>",
        specials={"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
    )


def _gemma4(bidirectional: bool) -> Family:
    text = {
        **TEXT,
        "model_type": "gemma4_text",
        "global_head_dim": 8,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        **GEMMA_WINDOW,
        "tie_word_embeddings": True,
        **({"use_bidirectional_attention": "vision"} if bidirectional else {}),
    }
    del text["rope_theta"]  # its config has a base for each kind of layer
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": 8,
        "pooling_kernel_size": 2,
        "default_output_length": 4,
        "position_embedding_size": 64,
    }
    config: dict[str, Any] = {
        "model_type": "gemma4",
        "text_config": text,
        "vision_config": vision,
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "image_token_id": ID["<|image|>"],
        "video_token_id": ID["<|video|>"],
        "audio_token_id": ID["<|audio|>"],
        "boi_token_id": ID["<boi>"],
        "eoi_token_id": ID["<eoi>"],
        "vision_soft_tokens_per_image": 4,
    }
    if not bidirectional:
        config["audio_config"] = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "subsampling_conv_channels": [4, 4],
            "output_proj_dims": 32,
        }
    limits = {"patch_size": 8, "max_soft_tokens": 4, "pooling_kernel_size": 2}
    return Family(
        config,
        {"image_processor_type": "Gemma4ImageProcessor", **limits},
        {
            "processor_class": "Gemma4Processor",
            "image_processor": limits,
            "video_processor": {**limits, "max_soft_tokens": 70, "num_frames": 3},
        },
        "<|image|>",
        "<|video|>",
        "<|audio|>",
        specials={**{f"{kind}_token": f"<|{kind}|>" for kind in ("image", "audio", "video")}, **GEMMA_EDGES},
    )


def _idefics(kind: str, name: str) -> Family:
    config = {
        "model_type": kind,
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": dict(SIGLIP),
        "image_token_id": ID["<image>"],
        "scale_factor": 2,
        "vocab_size": VOCABULARY,
    }
    pixels = {
        "image_processor_type": f"{name}ImageProcessor",
        "size": {"longest_edge": 112},
        "max_image_size": {"longest_edge": 56},
        "do_image_splitting": True,
    }
    return Family(config, pixels, {"image_seq_len": 4, "processor_class": f"{name}Processor"})


def _llava() -> Family:
    vision = {**SIGLIP, "model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 32}
    config = {
        "model_type": "llava",
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {**vision, "vocab_size": VOCABULARY},
        "image_token_index": ID["<image>"],
        "vocab_size": VOCABULARY,
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
    }
    pixels = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 56},
        "crop_size": {"height": 56, "width": 56},
        "do_center_crop": True,
        "do_resize": True,
    }
    processor = {
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
        "processor_class": "LlavaProcessor",
    }
    return Family(config, pixels, processor)


def _pixtral(kind: str, merge: dict[str, int]) -> Family:
    config = {
        "model_type": kind,
        "text_config": {**TEXT, "model_type": "mistral"},
        "vision_config": dict(PIXTRAL),
        "image_token_index": ID["[IMG]"],
        "vocab_size": VOCABULARY,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        **merge,
    }
    pixels = {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 56}, "patch_size": 14}
    return Family(config, pixels, {"patch_size": 14, "processor_class": "PixtralProcessor", **merge}, "[IMG]")


def _paligemma() -> Family:
    config = {
        "model_type": "paligemma",
        "text_config": {**TEXT, "model_type": "gemma"},
        "vision_config": {**SIGLIP, "projection_dim": 32},
        "image_token_index": ID["<image>"],
        "hidden_size": 32,
        "projection_dim": 32,
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
    }
    pixels = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": 56, "width": 56},
        "image_seq_length": 16,
    }
    return Family(config, pixels, {"processor_class": "PaliGemmaProcessor"}, images=1, template=None)


def _internvl() -> Family:
    config = {
        "model_type": "internvl_chat",
        "text_config": {**TEXT, "model_type": "qwen3"},
        "vision_config": {**SIGLIP, "model_type": "intern_vit_6b"},
        "image_token_index": ID["<IMG_CONTEXT>"],
        "vocab_size": VOCABULARY,
        "max_dynamic_patch": 2,
    }
    # Nobody's token: the processor reads it as text.
    return Family(config, {"image_processor_type": "CLIPImageProcessor"}, {}, "<image>")


def _glm4v() -> Family:
    text = {
        **TEXT,
        "model_type": "glm4v_text",
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 0]},
        "eos_token_id": [ID["<eos>"]],
        "pad_token_id": 0,
    }
    config = {
        "model_type": "glm4v",
        "text_config": text,
        "vision_config": {**QWEN_TOWER, "model_type": "glm4v", "image_size": 56},
        "vocab_size": VOCABULARY,
        "image_token_id": ID["<|image|>"],
        "image_token_index": ID["<|image|>"],
        "video_token_id": ID["<|video|>"],
        "vision_start_token_id": ID["<|begin_of_image|>"],
        "vision_end_token_id": ID["<|end_of_image|>"],
    }
    pixels = {
        "image_processor_type": "Glm4vImageProcessor",
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 8},
    }
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    return Family(config, pixels, {"processor_class": "Glm4vProcessor"}, image, specials={"image_token": "<|image|>"})


def _glm_ocr() -> Family:
    like = _glm4v()
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0, "rope_theta": 10000}
    text = {**TEXT, "model_type": "glm_ocr_text", "rope_parameters": rope}
    del text["rope_theta"]  # its config takes no other names than its own
    vision = {**QWEN_TOWER, "model_type": "glm_ocr_vision", "image_size": 56}
    del vision["embed_dim"], vision["mlp_ratio"]
    ids = {"image_start_token_id": ID["<|begin_of_image|>"], "image_end_token_id": ID["<|end_of_image|>"]}
    config = {**like.config, "model_type": "glm_ocr", "text_config": text, "vision_config": vision, **ids}
    return dataclasses.replace(like, config=config)


def _glm4v_moe() -> Family:
    like = _glm4v()
    text = {
        **TEXT,
        **EXPERTS,
        "model_type": "glm4v_moe_text",
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "first_k_dense_replace": 1,
        "use_qk_norm": False,
        "attention_bias": False,
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"type": "default", "mrope_section": [1, 1, 0]},
    }
    vision = {**like.config["vision_config"], "model_type": "glm4v_moe"}
    config = {**like.config, "model_type": "glm4v_moe", "text_config": text, "vision_config": vision}
    return dataclasses.replace(like, config=config)


def _paddleocr() -> Family:
    config = {
        **TEXT,
        "hidden_size": 1024,  # the number stands in its code
        "model_type": "paddleocr_vl",
        "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [1, 1, 2]},
        "hidden_act": "silu",
        "use_bias": False,
        "vision_config": {**SIGLIP, "model_type": "paddleocr_vl", "spatial_merge_size": 2},
        **QWEN_IDS,
        "eos_token_id": ID["<eos>"],
    }
    pixels = {**QWEN_PIXELS, "image_processor_type": "SiglipImageProcessor", "temporal_patch_size": 1}
    # Its own processor takes several images if they are of one size only.
    return Family(config, pixels, {}, QWEN_IMAGE, specials={"image_token": "<|image_pad|>"}, images=1)


def _kimi() -> Family:
    config = {
        "model_type": "kimi_vl",
        "text_config": {**DEEPSEEK, "model_type": "deepseek_v3", "n_group": 1, "topk_group": 1},
        "vision_config": {
            **QWEN_TOWER,
            "model_type": "moonvit",
            "init_pos_emb_height": 4,
            "init_pos_emb_width": 4,
            "num_channels": 3,
            "merge_kernel_size": [2, 2],
        },
        "vocab_size": VOCABULARY,
        "media_placeholder_token_id": ID["<|media_pad|>"],
    }
    return Family(config, {"image_processor_type": "CLIPImageProcessor"}, {}, "<|media_pad|>")


FAMILIES: dict[str, Family] = {
    "qwen2_vl": _qwen("qwen2_vl", [1, 1, 2]),
    "qwen2_5_vl": _qwen("qwen2_5_vl", [1, 1, 2], window_size=56, fullatt_block_indexes=[1]),
    "qwen3_vl": _qwen("qwen3_vl", [2, 1, 1], num_position_embeddings=16, deepstack_visual_indexes=[0]),
    "qwen3_5": _qwen3_5(),
    "gemma3": _gemma3(),
    "gemma4": _gemma4(False),
    "gemma4_bidirectional": _gemma4(True),
    "smolvlm": _idefics("smolvlm", "SmolVLM"),
    "idefics3": _idefics("idefics3", "Idefics3"),
    "llava": _llava(),
    "pixtral": _pixtral("pixtral", {}),
    "mistral3": _pixtral("mistral3", {"spatial_merge_size": 2}),
    "paligemma": _paligemma(),
    "internvl_chat": _internvl(),
    "glm4v": _glm4v(),
    "glm4v_moe": _glm4v_moe(),
    "glm_ocr": _glm_ocr(),
    "paddleocr_vl": _paddleocr(),
    "kimi_vl": _kimi(),
}


LIKE_OTHERS = {
    "qwen2_5_vl",
    "gemma4",
    "idefics3",
    "mistral3",
    "glm4v_moe",
    "glm_ocr",
    "paddleocr_vl",
    "kimi_vl",
}
"""Families whose code is nearly that of others here."""


def families() -> list[Any]:
    """The names of all families, as parameters of a test; those that are like others run in sweeps."""
    like = pytest.mark.exhaustive
    return [pytest.param(kind, marks=like if kind in LIKE_OTHERS else ()) for kind in FAMILIES]
