"""Families with a vision encoder that transformers does not have, in tiny: as their authors publish them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from tests.models.gguf.image_parts import QWEN_PREPROCESSOR, SEEING_SIZES, Seeing, waves

Shapes = dict[str, tuple[int, ...]]


def layers(place: str, count: int, shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {f"{place}.{i}.{name}": shape for i in range(count) for name, shape in shapes.items()}


def with_bias(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


DOTS_TEXT: dict[str, Any] = {**SEEING_SIZES, "head_dim": 16, "rope_theta": 5000.0, "attention_bias": True}
DOTS_VISION = {
    "embed_dim": 32,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 7,
    "post_norm": True,
    "rms_norm_eps": 1e-5,
    "spatial_merge_size": 2,
    "temporal_patch_size": 1,
    "use_bias": False,
}
DOTS_TENSORS: Shapes = {
    "model.embed_tokens.weight": (416, 32),
    **layers(
        "model.layers",
        4,
        {
            "input_layernorm.weight": (32,),
            **with_bias("self_attn.q_proj", 32, 32),
            **with_bias("self_attn.k_proj", 16, 32),
            **with_bias("self_attn.v_proj", 16, 32),
            "self_attn.o_proj.weight": (32, 32),
            "post_attention_layernorm.weight": (32,),
            "mlp.gate_proj.weight": (64, 32),
            "mlp.up_proj.weight": (64, 32),
            "mlp.down_proj.weight": (32, 64),
        },
    ),
    "model.norm.weight": (32,),
    "lm_head.weight": (416, 32),
    "vision_tower.patch_embed.patchifier.proj.weight": (32, 3, 7, 7),
    "vision_tower.patch_embed.patchifier.proj.bias": (32,),
    "vision_tower.patch_embed.patchifier.norm.weight": (32,),
    **layers(
        "vision_tower.blocks",
        3,
        {
            "norm1.weight": (32,),
            "attn.qkv.weight": (96, 32),
            "attn.proj.weight": (32, 32),
            "norm2.weight": (32,),
            "mlp.fc1.weight": (48, 32),
            "mlp.fc2.weight": (32, 48),
            "mlp.fc3.weight": (48, 32),
        },
    ),
    "vision_tower.post_trunk_norm.weight": (32,),
    "vision_tower.merger.ln_q.weight": (32,),
    "vision_tower.merger.ln_q.bias": (32,),
    **with_bias("vision_tower.merger.mlp.0", 128, 128),
    **with_bias("vision_tower.merger.mlp.2", 32, 128),
}

PUBLISHED = {
    "dots-ocr": Seeing(
        "DotsOCR",
        {
            **DOTS_TEXT,
            "architectures": ["DotsOCRForCausalLM"],
            "model_type": "dots_ocr",
            "rms_norm_eps": 1e-6,
            "vision_config": DOTS_VISION,
        },
        {"image_token_id": "<|imgpad|>", "image_start_id": "<|img|>", "image_end_id": "<|endofimg|>"},
        ["<|img|>", *["<|imgpad|>"] * 6, "<|endofimg|>"],
        {"pixel_values": waves(24, 3 * 7 * 7), "image_grid_thw": numpy.array([[1, 4, 6]])},
        {
            **QWEN_PREPROCESSOR,
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": 3136,
            "max_pixels": 11289600,
            "patch_size": 7,
            "temporal_patch_size": 1,
            "merge_size": 2,
        },
        DOTS_TENSORS,
    ),
}
"""By name. The oracle is mlx-vlm, whose classes read the folder that the converter gets."""
