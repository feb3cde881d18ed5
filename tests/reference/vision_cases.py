"""Families of mlx-vlm that are compared with transformers, with images."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from tests.reference import published
from tests.reference.cases import SIZES, WINDOW, Config
from tests.reference.pictures import END, IMAGE, START, Picture, cut, overview, packed, patches, positioned, sized, square, tiled, unfolded

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
        join_axis: of the arrays of several images, those are joined along it.
        saved_as: `model_type` of checkpoints that mlx-vlm reads, if it is another.
        inside: `model_type` of a model that this one is a part of, and the part's name.
        published: makes transformers' config one that mlx-vlm reads.
        encoder_spread: of the weights of its encoder: those of deep ones are smaller, or rounding errors grow.
    """

    kind: str
    pictures: Callable[[], list[Picture]] | None = None
    text: Config = field(default_factory=dict)
    vision: Config = field(default_factory=dict)
    top: Config = field(default_factory=dict)
    model_class: str | None = None
    tolerance: float = 1e-3
    join_axis: int = 0
    saved_as: str | None = None
    encoder_spread: float = 0.15
    inside: tuple[str, str] | None = None
    published: Callable[[Config], Config] | None = None

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
_GEMMA4_ROPE: Config = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 9000.0, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
}
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
            {
                **_mrope([2, 1, 1], partial_rotary_factor=0.5),
                "output_gate_type": "sigmoid",
                "ple_embed_dim": 32,
                "hc_count": 2,
                "hc_lowrank": 8,
                "indexer_head_dim": 16,
                "indexer_n_heads": 2,
                "indexer_kv_heads": 1,
                "indexer_compress_ratio": 2,
                "indexer_budget": 8,
                "ngram_vocab_size_base": 64,
                "split_ngram_parts": 1,
                "make_ngram_vocab_size_divisible_by": 1,
            },
            {},
            _QWEN_IDS,
        )
    },
    "qwen3_omni_moe": {
        "plain": VisionCase(
            "qwen3_omni_moe_thinker",
            patches,
            _mrope([4, 2, 2]),
            {},
            {
                **_QWEN_IDS,
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
            {
                "num_key_value_heads": 4,
                "qk_rope_head_dim": 0,
                "index_kpool": 4,
                "linear_head_dim": 16,
                "linear_num_heads": 4,
                "hc_mult": 2,
                "index_head_dim": 16,
                "index_n_heads": 2,
                "index_topk": 8,
            },
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
            "ernie4_5_vl_moe",
            lambda: patches(times=1),
            {**_mrope([3, 3, 2]), "moe_intermediate_size": [32, 24], "hidden_size": 64},
            {"intermediate_size": 64},
            {"image_start_token_id": START, "image_end_token_id": END, "video_token_id": 393},
            published=published.ernie,
        )
    },
    "minimax_m3_vl": {
        "plain": VisionCase(
            "minimax_m3_vl",
            patches,
            {
                "rotary_dim": 8,
                "dense_intermediate_size": 96,
                "index_n_heads": 2,
                "index_head_dim": 16,
                "index_block_size": 8,
                "index_topk_blocks": 2,
            },
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
            published=published.molmo2,
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
            {"model_type": "llama4_text", "intermediate_size_mlp": 96, "attention_chunk_size": 32},
            {"vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32},
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
            lambda: cut(ours="image_grid_hws"),
            {},
            {"pos_emb_height": 4, "pos_emb_width": 4},
            {"projection_hidden_size": 32},
        )
    },
    "minicpmv4_6": {"plain": VisionCase("minicpmv4_6")},
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
    "step3p7": {"plain": VisionCase("step3p7")},
    "unlimited_ocr": {
        "plain": VisionCase(
            "unlimited_ocr",
            lambda: overview(256),
            {"num_key_value_heads": 4, "sliding_window": 128, "head_dim": 16},
            {"encoder_config": {"num_hidden_layers": 3}},
            published=published.unlimited_ocr,
            encoder_spread=0.02,
        )
    },
    "got": {"plain": VisionCase("got_ocr2")},
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
            published=published.deepseek_ocr2,
            encoder_spread=0.02,
        )
    },
    "fastvlm": {"plain": VisionCase("fast_vlm")},
    "inkling": {"plain": VisionCase("inkling_mm_model")},
    "phi4mm": {"plain": VisionCase("phi4_multimodal")},
    "cohere2_moe": {"plain": VisionCase("cohere2_moe")},
    "deepseek_v4": {"plain": VisionCase("deepseek_v4")},
    "flint": {"plain": VisionCase("flint")},
    "hrm_text": {"plain": VisionCase("hrm_text", top={"num_key_value_heads": 4})},
    "hy_v4": {"plain": VisionCase("hy_v4")},
    "kolibri1": {"plain": VisionCase("kolibri1")},
    "qwen3_5_text": {"plain": VisionCase("qwen3_5_text", top=_mrope([2, 1, 1], partial_rotary_factor=0.5))},
    "qwen3_5_moe_text": {"plain": VisionCase("qwen3_5_moe_text")},
}
"""By the family's name in docs/model-architectures.md, and what is special. `HELD` says which of them have to agree."""

OPEN: dict[str, str] = {
    "deepseek_v4": "mlx-vlm does not know the names of tensors that transformers saves; loading fails",
    "deepseekocr_2": "not built yet",
    "ernie4_5_moe_vl": "transformers' `ernie4_5_vl_moe` is another format; loading fails",
    "fastvlm": "its encoder needs timm",
    "flint": "differs; the cause is not known",
    "gemma3n": "its encoder needs timm",
    "gemma4_unified": "not built yet",
    "glm5_next": "differs in prompts of 90 tokens; the cause is not known",
    "got": "not built yet",
    "granite4_vision": "not built yet",
    "hy_v4": "tensors that transformers saves in float lack scales that mlx-vlm needs; loading fails",
    "inkling": "not built yet",
    "kimi_k25": "mlx-vlm does not know transformers' config of the encoder; loading fails",
    "llama4": "mlx-vlm requires `vision_feature_layer`, which transformers does not write; loading fails",
    "minimax_m3_vl": "differs; the cause is not known",
    "molmo2": "not built yet",
    "nemotron_h_nano_omni": "not built yet",
    "phi4mm": "transformers' `phi4_multimodal` is another format",
    "qwen3_omni_moe": "transformers saves its thinker in another form; its encoder's GELU is mended",
    "step3p7": "mlx-vlm reads no `g_proj` of transformers' layers; loading fails",
    "unlimited_ocr": "not built yet",
}
"""Families that transformers has, in this or another form, and that are not compared, with the reason."""
TEXT_ONLY = {"llava_next", "minicpmv4_6", "minicpmv4_7", "muse_glimmer"}
"""Families whose text alone is compared. muse_glimmer's images differ; the cause is not known."""
HELD = CASES.keys() - OPEN.keys()
