"""Families that read images and hear."""

from __future__ import annotations

from tests.reference.cases import WINDOW, Config
from tests.reference.pictures import IMAGE, patches, positioned, square, unfolded
from tests.reference.vision_case import QWEN_IDS, VisionCase, mrope

_GEMMA4_ROPE: Config = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 9000.0, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
}

HEARING: dict[str, dict[str, VisionCase]] = {
    "qwen3_omni_moe": {
        "plain": VisionCase(
            "qwen3_omni_moe_thinker",
            patches,
            mrope([4, 2, 2]),
            {},
            {
                **QWEN_IDS,
                "audio_token_id": 394,
                "audio_config": {
                    "d_model": 32,
                    "encoder_layers": 1,
                    "encoder_attention_heads": 2,
                    "encoder_ffn_dim": 48,
                    "num_mel_bins": 16,
                    "output_dim": 64,
                    "downsample_hidden_size": 16,
                },
            },
            inside=("qwen3_omni_moe", "thinker"),
        )
    },
    "gemma4_unified": {
        "plain": VisionCase(
            "gemma4_unified",
            lambda: positioned(28, pooled=1),
            {
                "rope_parameters": _GEMMA4_ROPE,
                "sliding_window": WINDOW,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "attention_k_eq_v": True,
                "global_head_dim": 32,
                "num_global_key_value_heads": 1,
            },
            {"pooling_kernel_size": 2, "mm_embed_dim": 32, "output_proj_dims": 32, "mm_posemb_size": 64},
        )
    },
    "gemma3n": {
        "plain": VisionCase(
            "gemma3n",
            square(256, size=512),
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": WINDOW,
                "num_kv_shared_layers": 2,
                "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
                "hidden_size_per_layer_input": 8,
                "vocab_size_per_layer_input": 384,
                "laurel_rank": 8,
            },
            {"hidden_size": 2048, "vocab_offset": 384, "vocab_size": 9},
            {
                "audio_config": {
                    "hidden_size": 32,
                    "conf_num_hidden_layers": 1,
                    "conf_num_attention_heads": 2,
                    "vocab_offset": 393,
                    "vocab_size": 7,
                },
                "audio_token_id": 393,
            },
            encoder_spread=0.02,
        )
    },
    "nemotron_h_nano_omni": {
        "plain": VisionCase(
            "nemotron_h_omni",
            unfolded,
            {
                "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
                "mamba_num_heads": 8,
                "mamba_head_dim": 16,
                "ssm_state_size": 32,
                "n_groups": 2,
                "moe_shared_expert_intermediate_size": 48,
                "time_step_min": 1e-12,
            },
            {"video_temporal_patch_size": 2, "num_hidden_layers": 2, "max_img_size": 224},
            {
                "projector_hidden_size": 48,
                "vision_hidden_size": 32,
                "image_token_id": IMAGE,
                "video_token_id": 393,
                "audio_token_id": 394,
            },
        )
    },
}
