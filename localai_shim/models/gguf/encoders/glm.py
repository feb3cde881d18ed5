"""GLM-4.5V's encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....types import Json
from ..header import Metadata
from .description import Encoder, Part, channels_last, checked_language, image_sizes, pixel_settings, rows_of
from .qwen import one_frame, rope_sections

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_TOWER = "vision_tower"
_MERGED, _FRAMES = 2, 2
_LEAST, _MOST = 112 * 112, 9633792  # pixels, of both frames that become a patch
_LAYER = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn_qkv": "attn.qkv",
    "attn_out": "attn.proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MERGER = {
    "mm.model.fc": "merger.proj",
    "mm.post_norm": "merger.post_projection_norm",
    "mm.gate": "merger.gate_proj",
    "mm.up": "merger.up_proj",
    "mm.down": "merger.down_proj",
}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    size, patch = image_sizes(metadata)
    part = text["partial_rotary_factor"]
    rope = {"rope_type": "default", "rope_theta": text["rope_theta"], "partial_rotary_factor": part}
    sections = rope_sections(model, round(text["head_dim"] * part) // 2)
    return {
        "model_type": "glm4v_moe",
        "text_config": {
            **checked_language(model, text, any_heads=True),
            "model_type": "glm4v_moe_text",
            "rope_parameters": {**rope, "mrope_section": sections},
        },
        "vision_config": {
            "model_type": "glm4v_moe_vision",
            "depth": metadata.number("block_count"),
            "hidden_size": metadata.number("embedding_length"),
            "intermediate_size": rows_of(metadata, "mm.up.weight"),
            "out_hidden_size": rows_of(metadata, "mm.patch_merger.weight"),
            "num_heads": metadata.number("attention.head_count"),
            "image_size": size,
            "patch_size": patch,
            "spatial_merge_size": metadata.number("spatial_merge_size", _MERGED),
            "temporal_patch_size": _FRAMES,
            "rms_norm_eps": metadata.real("attention.layer_norm_epsilon", 1e-5),
        },
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    frame = Part(f"{_TOWER}.patch_embed.proj.weight", one_frame, axis=1)
    return {
        "v.patch_embd.weight": frame,
        "v.patch_embd.weight.1": frame,
        "v.patch_embd.bias": f"{_TOWER}.patch_embed.proj.bias",
        "v.position_embd": f"{_TOWER}.embeddings.position_embedding",
        "v.norm_embd": f"{_TOWER}.post_conv_layernorm",
        "v.post_ln": f"{_TOWER}.post_layernorm",
        **{f"v.blk.{{}}.{name}": f"{_TOWER}.blocks.{{}}.{own}" for name, own in _LAYER.items()},
        "mm.patch_merger.weight": Part(f"{_TOWER}.downsample.weight", channels_last),
        "mm.patch_merger.bias": f"{_TOWER}.downsample.bias",
        **{name: f"{_TOWER}.{own}" for name, own in _MERGER.items()},
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.glm4v_moe.processing import Glm46VMoEProcessor
    from mlx_vlm.models.glm_ocr.processing import Glm46VImageProcessor

    vision = config["vision_config"]
    images = Glm46VImageProcessor(
        patch_size=vision["patch_size"],
        temporal_patch_size=_FRAMES,
        merge_size=vision["spatial_merge_size"],
        min_pixels=metadata.number("image_min_pixels", _LEAST),
        max_pixels=metadata.number("image_max_pixels", _MOST),
        use_transformers_backend=False,
        **pixel_settings(metadata),
    )
    return Glm46VMoEProcessor(images, tokenizer)


GLM4V = Encoder(
    ("glm4moe",),
    _config,
    _parts,
    {
        "image_token_id": "<|image|>",
        "image_token_index": "<|image|>",
        "video_token_index": "<|video|>",
        "video_token_id": "<|video|>",
        "vision_start_token_id": "<|begin_of_image|>",
        "vision_end_token_id": "<|end_of_image|>",
    },
    _processor,
    keys=("spatial_merge_size", "image_min_pixels", "image_max_pixels"),
    fixed={"clip.use_silu": True},
    is_wide=True,
)
