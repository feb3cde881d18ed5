"""Families of mlx-vlm that are compared with transformers, with images."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from tests.reference.cases import LENGTH, SIZES, WINDOW, Config
from tests.reference.pictures import (
    END,
    IMAGE,
    START,
    Picture,
    chained,
    cut,
    folded,
    packed,
    patches,
    positioned,
    sized,
    square,
    tiled,
)
from tests.reference.sparse_settings import (
    DEEPSEEK_V4,
    GLM5_NEXT,
    HY_4,
    INKLING,
    MINIMAX_M3,
    QWEN_4,
    STEP_3,
)

_SIZES: Config = {**SIZES, "image_token_id": IMAGE, "image_token_index": IMAGE}
_TOWER: Config = {
    "hidden_size": 32,
    "embed_dim": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "depth": 3,
    "num_heads": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "patch_size": 14,
    "image_size": 56,
    "out_hidden_size": 64,
    "projection_dim": 64,
    "spatial_merge_size": 2,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
    "fullatt_block_indexes": [1],
    "vision_use_head": False,
    "window_size": 56,
}
"""Keys of which each class of configs gets those that it declares."""


@dataclass(frozen=True)
class VisionCase:
    """A model that is compared.

    Attributes:
        kind: `model_type`.
        pictures: makes two images of different sizes, if the family has that.
        text: what the config of its language model has besides `SIZES`.
        vision: what the config of its vision encoder has besides the usual sizes.
        top: what its config has besides.
        model_class: the class of transformers; that of `AutoModelForImageTextToText` if it is None.
        tolerance: how much logits may differ, as a part of their spread.
        join_axis: of the arrays of several images, or of some by name; others are joined along the first one.
        saved_as: `model_type` of checkpoints that mlx-vlm reads, if it is another.
        length: tokens of the prompt without images.
    """

    kind: str
    pictures: Callable[[], list[Picture]] | None = None
    text: Config = field(default_factory=dict)
    vision: Config = field(default_factory=dict)
    top: Config = field(default_factory=dict)
    model_class: str | None = None
    tolerance: float = 1e-3
    join_axis: int | dict[str, int] = 0
    saved_as: str | None = None
    length: int = LENGTH

    def config(self) -> Any:
        """The config, an object of transformers."""
        from transformers import CONFIG_MAPPING

        cls = CONFIG_MAPPING[self.kind]
        made = _usual(cls, _SIZES, self.top)
        parts = {"text_config": (SIZES, self.text), "vision_config": (_TOWER, self.vision)}
        defaults = getattr(cls, "sub_configs_defaults", {})
        for name, (usual, changes) in parts.items():
            part = defaults.get(name)
            kind = changes.get("model_type", getattr(part, "model_type", None))
            part = getattr(part, "config_class", part)
            if kind in CONFIG_MAPPING:
                part = CONFIG_MAPPING[kind]
            if part is not None:
                made[name] = _usual(part, usual, changes)
        return cls(**copy.deepcopy(made))


def _usual(cls: Any, usual: Config, changes: Config) -> Config:
    declared = {each.name for each in fields(cls)}
    return {**{key: value for key, value in usual.items() if key in declared}, **changes}


_QWEN_IDS: Config = {"vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": 393}


def _mrope(sections: list[int], **more: Any) -> Config:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": sections, **more}}


_GEMMA: Config = {"layer_types": ["sliding_attention", "full_attention"] * 2, "query_pre_attn_scalar": 24}
CASES: dict[str, dict[str, VisionCase]] = {
    "qwen2_vl": {"plain": VisionCase("qwen2_vl", patches, _mrope([2, 3, 3]), {"hidden_size": 64}, _QWEN_IDS)},
    "qwen2_5_vl": {"plain": VisionCase("qwen2_5_vl", patches, _mrope([2, 3, 3]), {}, _QWEN_IDS)},
    "qwen3_vl": {"plain": VisionCase("qwen3_vl", patches, _mrope([4, 2, 2]), {}, _QWEN_IDS)},
    "qwen3_vl_moe": {
        "plain": VisionCase("qwen3_vl_moe", patches, {**_mrope([4, 2, 2]), "moe_intermediate_size": 24}, {}, _QWEN_IDS)
    },
    "qwen3_5": {
        "plain": VisionCase("qwen3_5", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, _QWEN_IDS)
    },
    "qwen3_5_moe": {
        "plain": VisionCase("qwen3_5_moe", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, _QWEN_IDS)
    },
    "qwen4_exp": {
        "plain": VisionCase(
            "qwen4_exp",
            patches,
            {**_mrope([2, 1, 1], partial_rotary_factor=0.5), **QWEN_4},
            {},
            _QWEN_IDS,
        )
    },
    "qwen3_omni_moe": {"plain": VisionCase("qwen3_omni_moe_thinker", patches, _mrope([4, 2, 2]), {}, _QWEN_IDS)},
    "glm4v": {
        "plain": VisionCase(
            "glm4v", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5), "eos_token_id": [1]}, {}, _QWEN_IDS
        )
    },
    "glm4v_moe": {
        "plain": VisionCase(
            "glm4v_moe", patches, {**_mrope([2, 1, 1], partial_rotary_factor=0.5), "use_qk_norm": False}, {}, _QWEN_IDS
        )
    },
    "glm_ocr": {"plain": VisionCase("glm_ocr", patches, _mrope([2, 3, 3]), {}, _QWEN_IDS)},
    "glm5_next": {
        "plain": VisionCase(
            "glm5_next",
            patches,
            GLM5_NEXT,
            {},
            _QWEN_IDS,
        )
    },
    "cohere_compass": {
        "plain": VisionCase(
            "cohere_compass",
            patches,
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [4, 2, 2]},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [4, 2, 2]},
                },
            },
            {},
            _QWEN_IDS,
        )
    },
    "paddleocr_vl": {
        "plain": VisionCase(
            "paddleocr_vl",
            lambda: cut(whole=True),
            {**_mrope([2, 3, 3]), "hidden_size": 1024, "num_hidden_layers": 2},
            {},
            _QWEN_IDS,
        )
    },
    "ernie4_5_moe_vl": {
        "plain": VisionCase(
            "ernie4_5_vl_moe", patches, {**_mrope([2, 2, 4]), "moe_intermediate_size": [32, 32]}, {}, _QWEN_IDS
        )
    },
    "minimax_m3_vl": {
        "plain": VisionCase(
            "minimax_m3_vl",
            patches,
            MINIMAX_M3,
            {},
            {"projector_hidden_size": 64, "video_token_index": 393},
        )
    },
    "gemma3": {"plain": VisionCase("gemma3", square(4), _GEMMA, {}, {"mm_tokens_per_image": 4})},
    "paligemma": {
        "plain": VisionCase(
            "paligemma", square(16, edges=False), {"model_type": "gemma"}, {}, {"projection_dim": 64, "hidden_size": 64}
        )
    },
    "llava": {
        "plain": VisionCase("llava", square(16), {"model_type": "llama"}, {"model_type": "clip_vision_model"}, {})
    },
    "aya_vision": {
        "plain": VisionCase(
            "aya_vision",
            square(4, tiles=(1, 3)),
            {"model_type": "cohere2", "logit_scale": 1.0},
            {"model_type": "siglip_vision_model"},
            {"alignment_intermediate_size": 48},
        ),
        "cohere2_vision": VisionCase(
            "cohere2_vision",
            square(4, tiles=(1, 3)),
            {"model_type": "cohere2", "logit_scale": 1.0},
            {"model_type": "siglip_vision_model"},
            {"alignment_intermediate_size": 48},
        ),
    },
    "internvl": {
        "plain": VisionCase(
            "internvl",
            square(4, tiles=(1, 3)),
            {"model_type": "qwen3"},
            {"image_size": [56, 56], "patch_size": [14, 14]},
            {},
        )
    },
    "idefics3": {
        "plain": VisionCase("idefics3", square(4, tiles=(1, 3), axes=5), {"model_type": "llama"}, {}, {}, join_axis=1)
    },
    "smolvlm": {
        "plain": VisionCase("smolvlm", square(4, tiles=(1, 3), axes=5), {"model_type": "llama"}, {}, {}, join_axis=1)
    },
    "idefics2": {
        "plain": VisionCase(
            "idefics2",
            square(4, axes=5, mask=True),
            {"model_type": "mistral", "sliding_window": None},
            {},
            {
                "perceiver_config": {
                    "hidden_size": 64,
                    "resampler_n_latents": 4,
                    "resampler_depth": 2,
                    "resampler_n_heads": 4,
                    "resampler_head_dim": 16,
                    "num_key_value_heads": 2,
                }
            },
            join_axis=1,
        )
    },
    "llava_next": {
        "plain": VisionCase(
            "llava_next",
            tiled((56, 52)),
            {"model_type": "mistral", "sliding_window": None},
            {"model_type": "clip_vision_model"},
            {"image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]},
        )
    },
    "llava_onevision": {
        "plain": VisionCase(
            "llava_onevision",
            tiled((56, 52)),
            {"model_type": "qwen2"},
            {"model_type": "siglip_vision_model"},
            {"image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]},
        )
    },
    "granite4_vision": {"plain": VisionCase("granite4_vision", None)},
    "mistral3": {
        "plain": VisionCase(
            "mistral3",
            lambda: sized(28),
            {"model_type": "mistral", "sliding_window": None},
            {"model_type": "pixtral", "image_size": 112, "hidden_act": "silu"},
            {},
        )
    },
    "molmo2": {"plain": VisionCase("molmo2", vision={"image_size": [56, 56]})},
    "pixtral": {
        "plain": VisionCase(
            "llava",
            lambda: sized(14),
            {"model_type": "mistral", "sliding_window": None},
            {"model_type": "pixtral", "image_size": 112, "hidden_act": "silu"},
            {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
            saved_as="pixtral",
        )
    },
    "llama4": {
        "plain": VisionCase(
            "llama4",
            square(4),
            {
                "model_type": "llama4_text",
                "intermediate_size_mlp": 96,
                "attention_chunk_size": 32,
                "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 2,
                "floor_scale": 8,
            },
            {"intermediate_size": 128, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32},
        )
    },
    "gemma4": {
        "plain": VisionCase(
            "gemma4",
            positioned,
            {},
            {"pooling_kernel_size": 2, "position_embedding_size": 64, "default_output_length": 6},
        )
    },
    "gemma4_unified": {"plain": VisionCase("gemma4_unified")},
    "gemma3n": {"plain": VisionCase("gemma3n")},
    "lfm2_vl": {
        "plain": VisionCase(
            "lfm2_vl",
            packed,
            {"model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 2},
            {"model_type": "siglip2_vision_model", "num_patches": 16},
            {"projector_hidden_size": 48},
        )
    },
    "kimi_k25": {
        "plain": VisionCase(
            "kimi_k25",
            lambda: cut(ours="image_grid_hws", frames=False),
            {"num_key_value_heads": 4},
            {"pos_emb_height": 4, "pos_emb_width": 4},
            {"projection_hidden_size": 32, "tie_word_embeddings": False},
        )
    },
    "minicpmv4_6": {
        "plain": VisionCase(
            "minicpmv4_6",
            chained,
            {},
            {"insert_layer_id": 1},
            {"insert_layer_id": 1},
            join_axis={"pixel_values": 3},
        )
    },
    "minicpmv4_7": {"plain": VisionCase("minicpmv4_7")},
    "muse_glimmer": {
        "plain": VisionCase(
            "muse_glimmer",
            patches,
            {},
            {"pos_emb_height": 8, "pos_emb_width": 8},
            {"out_hidden_size": 128, "projector_hidden_size": 48},
        )
    },
    "step3p7": {
        "plain": VisionCase(
            "step3p7",
            square(4, size=84),
            STEP_3,
            {"image_size": 112},
        )
    },
    "unlimited_ocr": {"plain": VisionCase("unlimited_ocr")},
    "got": {"plain": VisionCase("got_ocr2")},
    "nemotron_h_nano_omni": {"plain": VisionCase("nemotron_h_omni")},
    "deepseekocr_2": {"plain": VisionCase("deepseek_ocr2")},
    "fastvlm": {"plain": VisionCase("fast_vlm")},
    "inkling": {
        "plain": VisionCase(
            "inkling_mm_model",
            folded,
            INKLING,
            {"num_hidden_layers": 3},
        )
    },
    "phi4mm": {"plain": VisionCase("phi4_multimodal")},
    "cohere2_moe": {"plain": VisionCase("cohere2_moe")},
    "deepseek_v4": {
        "plain": VisionCase(
            "deepseek_v4",
            top=DEEPSEEK_V4,
            length=300,  # 128 tokens of heavily compressed attention are one
        )
    },
    "flint": {"plain": VisionCase("flint", top={"sliding_window": WINDOW})},
    "hrm_text": {"plain": VisionCase("hrm_text", top={"num_key_value_heads": 4})},
    "hy_v4": {
        "plain": VisionCase(
            "hy_v4",
            top=HY_4,
        )
    },
    "kolibri1": {"plain": VisionCase("kolibri1")},
    "qwen3_5_text": {"plain": VisionCase("qwen3_5_text", top=_mrope([2, 1, 1], partial_rotary_factor=0.5))},
    "qwen3_5_moe_text": {"plain": VisionCase("qwen3_5_moe_text")},
}
"""By the family's name in docs/model-architectures.md, and what is special. `HELD` says which of them have to agree."""

OPEN: dict[str, str] = {
    "deepseekocr_2": "not built yet",
    "ernie4_5_moe_vl": "transformers' `ernie4_5_vl_moe` is another format; loading fails",
    "fastvlm": "its encoder needs timm",
    "gemma3n": "its encoder needs timm",
    "gemma4_unified": "not built yet",
    "got": "not built yet",
    "granite4_vision": "not built yet",
    "molmo2": "not built yet",
    "nemotron_h_nano_omni": "not built yet",
    "phi4mm": "transformers' `phi4_multimodal` is another format",
    "qwen3_omni_moe": "transformers saves its thinker in another form; its encoder's GELU is mended",
    "unlimited_ocr": "not built yet",
}
"""Families that transformers has, in this or another form, and that are not compared, with the reason."""
TEXT_ONLY = {"llava_next", "minicpmv4_7"}
"""Families whose text alone is compared."""
HELD = CASES.keys() - OPEN.keys()
