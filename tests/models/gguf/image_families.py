"""Families with a vision encoder that llama.cpp's converter knows, in tiny."""

from __future__ import annotations

import numpy

from tests.models.gguf.checkpoints import EXPERTS, FAMILIES, HYBRID, ROPE, SIZES
from tests.models.gguf.image_parts import (
    GEMMA4_AUDIO,
    GEMMA4_PREPROCESSOR,
    GEMMA4_SIZES,
    GEMMA4_TOKENS,
    GEMMA4_VISION,
    GLM_TOKENS,
    INTERNVL_VISION,
    MINICPM_TOKENS,
    PIXTRAL,
    PIXTRAL_TOKENS,
    QWEN35_ROPE,
    QWEN35_VISION,
    QWEN_PREPROCESSOR,
    QWEN_TOKENS,
    SEEING_SIZES,
    Seeing,
    gemma4_image,
    gemma4_inputs,
    pixtral_image,
    qwen_image,
    waves,
)
from tests.models.gguf.published_families import PUBLISHED

SEEING = {
    "gemma3-vision": Seeing(
        "Gemma3",
        {
            "text_config": {**SIZES, **FAMILIES["gemma3"][1], "vocab_size": 416},
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 7,
            },
            "mm_tokens_per_image": 4,
        },
        {
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "image_token_index": "<image_soft_token>",
        },
        ["<start_of_image>", *["<image_soft_token>"] * 4, "<end_of_image>"],
        {"pixel_values": waves(1, 3, 56, 56)},
        {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "image_seq_length": 4},
    ),
    "gemma4-vision": Seeing(
        "Gemma4",
        {
            "text_config": {
                **GEMMA4_SIZES,
                **FAMILIES["gemma4-31b"][1],
                "vocab_size_per_layer_input": 410,
                "use_bidirectional_attention": "vision",
            },
            "vision_config": {**GEMMA4_VISION, "standardize": True},
            "audio_config": None,
        },
        GEMMA4_TOKENS,
        gemma4_image(20),  # more than a window
        gemma4_inputs(12, 15),
        GEMMA4_PREPROCESSOR,
    ),
    "gemma4-12b-vision": Seeing(
        "Gemma4Unified",
        {
            "text_config": {
                **GEMMA4_SIZES,
                "attention_k_eq_v": True,
                "moe_intermediate_size": None,  # as published
                "global_head_dim": 64,
                "num_global_key_value_heads": 1,
                "num_key_value_heads": 2,
                "sliding_window": 16,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            "vision_config": {
                "patch_size": 4,
                "pooling_kernel_size": 2,
                "mm_embed_dim": 32,
                "mm_posemb_size": 64,
                "output_proj_dims": 32,
            },
            "audio_config": {"audio_embed_dim": 32},
        },
        GEMMA4_TOKENS,
        gemma4_image(20),
        gemma4_inputs(4, 5, side=8),
        GEMMA4_PREPROCESSOR,
    ),
    "gemma4-e2b-vision": Seeing(
        "Gemma4",
        {
            "text_config": {**GEMMA4_SIZES, **FAMILIES["gemma4-e2b"][1], "vocab_size_per_layer_input": 410},
            "vision_config": {**GEMMA4_VISION, "use_clipped_linears": True},
            "audio_config": GEMMA4_AUDIO,
        },
        GEMMA4_TOKENS,
        [*gemma4_image(4), "<|audio>", *["<|audio|>"] * 25, "<audio|>"],  # of which a window has 12
        {
            **gemma4_inputs(6, 6),
            "input_features": waves(1, 100, 128),
            "input_features_mask": numpy.ones((1, 100), bool),
        },
        GEMMA4_PREPROCESSOR,
    ),
    "qwen2-vision": Seeing(
        "Qwen2VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "head_dim": 16,
                "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 3,
                "embed_dim": 48,
                "hidden_size": 32,
                "mlp_ratio": 2,
                "num_heads": 2,
                "patch_size": 7,
                "hidden_act": "quick_gelu",
            },
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 7 * 7), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen25-vision": Seeing(
        "Qwen2_5_VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "head_dim": 16,
                "rope_parameters": {**ROPE, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {
                "depth": 3,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 14,
                "fullatt_block_indexes": [1],
            },
        },
        QWEN_TOKENS,
        qwen_image(15),  # of which a window has 4 to a side
        {"pixel_values": waves(60, 3 * 2 * 14 * 14), "image_grid_thw": numpy.array([[1, 6, 10]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen3-vision": Seeing(
        "Qwen3VL",
        {
            "text_config": {
                **SEEING_SIZES,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {
                "depth": 4,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 48,
                "out_hidden_size": 32,
                "patch_size": 8,
                "num_position_embeddings": 25,
                "deepstack_visual_indexes": [0, 2],
            },
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen3moe-vision": Seeing(
        "Qwen3VLMoe",
        {
            "text_config": {
                **SEEING_SIZES,
                **EXPERTS,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {**QWEN35_VISION, "deepstack_visual_indexes": [1]},
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen3omni-vision": Seeing(
        "Qwen3OmniMoeThinker",
        {
            "text_config": {
                **SEEING_SIZES,
                **EXPERTS,
                "rope_parameters": {**ROPE, "mrope_section": [4, 6, 6], "mrope_interleaved": True},
            },
            "vision_config": {**QWEN35_VISION, "depth": 2, "deepstack_visual_indexes": [1]},
            "audio_config": {
                "d_model": 4,
                "encoder_layers": 1,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 8,
                "num_mel_bins": 16,
                "output_dim": 32,
                "downsample_hidden_size": 4,
            },
        },
        {**QWEN_TOKENS, "audio_token_id": "<|audio_pad|>"},
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen35-vision": Seeing(
        "Qwen3_5",
        {"text_config": {**SEEING_SIZES, **HYBRID, "rope_parameters": QWEN35_ROPE}, "vision_config": QWEN35_VISION},
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "qwen35moe-vision": Seeing(
        "Qwen3_5Moe",
        {
            "text_config": {
                **SEEING_SIZES,
                **HYBRID,
                **EXPERTS,
                "shared_expert_intermediate_size": 32,
                "rope_parameters": QWEN35_ROPE,
            },
            "vision_config": QWEN35_VISION,
        },
        QWEN_TOKENS,
        qwen_image(6),
        {"pixel_values": waves(24, 3 * 2 * 8 * 8), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    **{
        f"internvl-{text}": Seeing(
            "InternVL",
            {
                "text_config": {
                    **SEEING_SIZES,
                    "model_type": text,
                    "architectures": [f"{text.title()}ForCausalLM"],
                    "head_dim": 16,
                    "rope_parameters": ROPE,
                },
                "vision_config": {**INTERNVL_VISION, **more},
                "downsample_ratio": 0.5,
            },
            {"image_token_id": "<IMG_CONTEXT>", "boi_token_id": "<img>", "eoi_token_id": "</img>"},
            ["<img>", *["<IMG_CONTEXT>"] * 12, "</img>"],
            {"pixel_values": waves(3, 3, 28, 28)},
            {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
        )
        for text, more in (("qwen2", {}), ("qwen3", {"use_qk_norm": True, "norm_type": "rms_norm"}))
    },
    "glm4v-moe": Seeing(
        "Glm4vMoe",
        {
            "text_config": {
                **SEEING_SIZES,
                **FAMILIES["glm4moe"][1],
                "head_dim": 16,
                "use_qk_norm": False,
                "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
            },
            "vision_config": {
                "depth": 3,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 48,
                "out_hidden_size": 32,
                "patch_size": 7,
                "image_size": 28,
            },
        },
        GLM_TOKENS,
        ["<|begin_of_image|>", *["<|image|>"] * 6, "<|end_of_image|>"],
        {"pixel_values": waves(24, 3 * 2 * 7 * 7), "image_grid_thw": numpy.array([[1, 4, 6]])},
        QWEN_PREPROCESSOR,
    ),
    "minicpmv-vision": Seeing(
        "MiniCPMV4_6",
        {
            "text_config": {
                **SEEING_SIZES,
                **HYBRID,
                "model_type": "qwen3_5_text",
                "rope_parameters": {**QWEN35_ROPE, "mrope_section": [2, 1, 1]},
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "image_size": 20,
                "patch_size": 4,
            },
            "insert_layer_id": 1,
        },
        MINICPM_TOKENS,
        ["<image>", *["<|image_pad|>"] * 3, "</image>", "<slice>", *["<|image_pad|>"] * 2, "</slice>"],
        {"pixel_values": waves(1, 3, 4, 80 * 4), "target_sizes": numpy.array([[4, 12], [8, 4]])},
        {**QWEN_PREPROCESSOR, "scale_resolution": 32},
    ),
    "smolvlm-vision": Seeing(
        "SmolVLM",
        {
            "text_config": {
                **SEEING_SIZES,
                "architectures": ["VLlama3ForCausalLM"],
                "model_type": "llama",
                "head_dim": 16,
                "rope_parameters": ROPE,
            },
            "vision_config": {
                "hidden_size": 48,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 56,
                "patch_size": 7,
            },
            "scale_factor": 4,
        },
        {
            "image_token_id": "<image>",
            "fake_token_id": "<fake_token_around_image>",
            "global_token_id": "<global-img>",
        },
        [*(["<fake_token_around_image>", *["<image>"] * 4] * 6), "<global-img>", *["<image>"] * 4],
        {"pixel_values": waves(1, 7, 3, 56, 56)},
        {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], "size": {"longest_edge": 168}},
    ),
    "pixtral-vision": Seeing(
        "Llava",
        {
            "text_config": {**SEEING_SIZES, "model_type": "mistral", "sliding_window": None, "rope_parameters": ROPE},
            "vision_config": PIXTRAL,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        PIXTRAL_TOKENS,
        pixtral_image(5, 3),
        {"pixel_values": waves(1, 3, 35, 21), "image_sizes": numpy.array([[35, 21]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
    "mistral3-vision": Seeing(
        "Mistral3",
        {
            "text_config": {**SEEING_SIZES, "model_type": "mistral", "sliding_window": None, "rope_parameters": ROPE},
            "vision_config": PIXTRAL,
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
        },
        PIXTRAL_TOKENS,
        pixtral_image(3, 2),
        {"pixel_values": waves(1, 3, 42, 28), "image_sizes": numpy.array([[42, 28]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
    "ministral3-vision": Seeing(
        "Mistral3",
        {
            "text_config": {**SEEING_SIZES, **FAMILIES["mistral3"][1], "model_type": "ministral3"},
            "vision_config": PIXTRAL,
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
        },
        PIXTRAL_TOKENS,
        pixtral_image(2, 4),
        {"pixel_values": waves(1, 3, 28, 56), "image_sizes": numpy.array([[28, 56]])},
        {**QWEN_PREPROCESSOR, "size": {"longest_edge": 56}},
    ),
    **PUBLISHED,
}
"""By name."""
