"""Families of mlx-vlm that are compared with transformers, with images."""

from __future__ import annotations

from tests.reference.cases import WINDOW, Config
from tests.reference.hearing_cases import HEARING
from tests.reference.pictures import chained, cut, folded, packed, patches, positioned, sized, square, tiled
from tests.reference.published_cases import PUBLISHED
from tests.reference.sparse_settings import (
    DEEPSEEK_V4,
    GLM5_NEXT,
    HY_4,
    INKLING,
    MINIMAX_M3,
    QWEN_4,
    STEP_3,
)
from tests.reference.vision_case import QWEN_IDS, VisionCase, mrope

_GEMMA: Config = {"layer_types": ["sliding_attention", "full_attention"] * 2, "query_pre_attn_scalar": 24}
CASES: dict[str, dict[str, VisionCase]] = {
    **HEARING,
    **PUBLISHED,
    "qwen2_vl": {"plain": VisionCase("qwen2_vl", patches, mrope([2, 3, 3]), {"hidden_size": 64}, QWEN_IDS)},
    "qwen2_5_vl": {"plain": VisionCase("qwen2_5_vl", patches, mrope([2, 3, 3]), {}, QWEN_IDS)},
    "qwen3_vl": {"plain": VisionCase("qwen3_vl", patches, mrope([4, 2, 2]), {}, QWEN_IDS)},
    "qwen3_vl_moe": {
        "plain": VisionCase("qwen3_vl_moe", patches, {**mrope([4, 2, 2]), "moe_intermediate_size": 24}, {}, QWEN_IDS)
    },
    "qwen3_5": {"plain": VisionCase("qwen3_5", patches, {**mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, QWEN_IDS)},
    "qwen3_5_moe": {
        "plain": VisionCase("qwen3_5_moe", patches, {**mrope([2, 1, 1], partial_rotary_factor=0.5)}, {}, QWEN_IDS)
    },
    "qwen4_exp": {
        "plain": VisionCase(
            "qwen4_exp",
            patches,
            {**mrope([2, 1, 1], partial_rotary_factor=0.5), **QWEN_4},
            {},
            QWEN_IDS,
        )
    },
    "glm4v": {
        "plain": VisionCase(
            "glm4v", patches, {**mrope([2, 1, 1], partial_rotary_factor=0.5), "eos_token_id": [1]}, {}, QWEN_IDS
        )
    },
    "glm4v_moe": {
        "plain": VisionCase(
            "glm4v_moe", patches, {**mrope([2, 1, 1], partial_rotary_factor=0.5), "use_qk_norm": False}, {}, QWEN_IDS
        )
    },
    "glm_ocr": {"plain": VisionCase("glm_ocr", patches, mrope([2, 3, 3]), {}, QWEN_IDS)},
    "glm5_next": {
        "plain": VisionCase(
            "glm5_next",
            patches,
            GLM5_NEXT,
            {},
            QWEN_IDS,
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
            QWEN_IDS,
        )
    },
    "paddleocr_vl": {
        "plain": VisionCase(
            "paddleocr_vl",
            lambda: cut(whole=True),
            {**mrope([2, 3, 3]), "hidden_size": 1024, "num_hidden_layers": 2},
            {},
            QWEN_IDS,
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
    "granite4_vision": {
        "plain": VisionCase(
            "granite4_vision",
            tiled((16, 14)),
            {"num_hidden_layers": 6, "embedding_multiplier": 2.0, "attention_multiplier": 0.3, "logits_scaling": 3.0},
            {"model_type": "siglip_vision_model", "hidden_size": 128, "vision_use_head": True},
            {
                "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]],
                "downsample_rate": "2/4",
                "deepstack_layer_map": [[-2, 1], [-3, 0]],
                "spatial_target_layers": [2, 3, 4, 5],
                "vision_feature_select_strategy": "full",
                "qformer_config": {
                    "model_type": "blip_2_qformer",
                    "num_hidden_layers": 1,
                    "intermediate_size": 3072,
                    "cross_attention_frequency": 1,
                    "use_qformer_text_input": False,
                },
            },
        )
    },
    "mistral3": {
        "plain": VisionCase(
            "mistral3",
            lambda: sized(28),
            {"model_type": "mistral", "sliding_window": None},
            {"model_type": "pixtral", "image_size": 112, "hidden_act": "silu"},
            {},
        )
    },
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
        ),
        "both directions": VisionCase(
            "gemma4",
            positioned,
            {
                "use_bidirectional_attention": "vision",
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": 4,
            },
            {"pooling_kernel_size": 2, "position_embedding_size": 64, "default_output_length": 6},
        ),
    },
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
    "qwen3_5_text": {"plain": VisionCase("qwen3_5_text", top=mrope([2, 1, 1], partial_rotary_factor=0.5))},
    "qwen3_5_moe_text": {"plain": VisionCase("qwen3_5_moe_text")},
}
"""By the family's name in docs/model-architectures.md, and what is special. `HELD` says which of them have to agree."""

OPEN: dict[str, str] = {
    "phi4mm": "mlx-vlm applies the LoRA for images to all prompts, and drops the separators of an image's parts",
}
"""Families that transformers has, in this or another form, and that are not compared, with the reason."""
TEXT_ONLY = {"fastvlm", "llava_next", "minicpmv4_7"}
"""Families whose text alone is compared."""
HELD = CASES.keys() - OPEN.keys()
