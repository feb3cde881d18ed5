"""MiniCPM-V 4.6's encoder, whose language model is Qwen 3.5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....types import Json
from ..header import Metadata
from .description import Encoder, Part, checked_language, feed_forward_length, image_sizes, pixel_settings, rows_of
from .qwen import with_positions
from .siglip import encoder_parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_BOTH = {"ln1": "layer_norm1", "ds_ln": "pre_norm", "ds_ffn_up": "linear_1", "ds_ffn_down": "linear_2"}
_ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_out": "out_proj"}
_MERGER = {"mm.input_norm": "pre_norm", "mm.up": "linear_1", "mm.down": "linear_2"}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    text = checked_language(model, text["text_config"], any_heads=True)
    (size, patch), rows = image_sizes(metadata), rows_of(metadata, "v.position_embd.weight")
    side = math.isqrt(rows)
    if side * side != rows:
        raise metadata.error(f"{rows} positions of patches are not those of a square")
    layers, merged = metadata.number("block_count"), metadata.header.list_of("clip.vision.wa_layer_indexes", int)
    if len(merged) != 1 or not 0 <= merged[0] < layers:
        raise metadata.error(f"the metadata's 'clip.vision.wa_layer_indexes' is {merged}, not one of {layers} layers")
    return {
        "model_type": "minicpmv4_6",
        "text_config": {**with_positions(model, text), "model_type": "qwen3_5_text"},
        "vision_config": {
            "model_type": "minicpmv4_6_vision",
            "hidden_size": metadata.number("embedding_length"),
            "intermediate_size": feed_forward_length(metadata),
            "num_hidden_layers": layers,
            "num_attention_heads": metadata.number("attention.head_count"),
            "image_size": side * patch,
            "patch_size": patch,
            "layer_norm_eps": metadata.real("attention.layer_norm_epsilon", 1e-6),
        },
        "insert_layer_id": merged[0],
        "image_size": size,
        "patch_size": patch,
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    return {
        **encoder_parts("vision_tower"),
        **{f"v.vit_merger.{name}": f"vit_merger.{own}" for name, own in _BOTH.items()},
        **{f"v.vit_merger.{name}": f"vit_merger.self_attn.{own}" for name, own in _ATTENTION.items()},
        **{name: f"merger.mlp.0.{own}" for name, own in _MERGER.items()},
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.minicpmv4_6 import MiniCPMVImageProcessor, MiniCPMVProcessor

    images = MiniCPMVImageProcessor(
        patch_size=config["patch_size"],
        scale_resolution=config["image_size"],
        **{name.replace("image", "norm"): values for name, values in pixel_settings(metadata).items()},
    )
    return MiniCPMVProcessor(images, tokenizer)


MINICPM_V4_6 = Encoder(
    ("qwen35",),
    _config,
    _parts,
    {
        "image_token_id": "<|image_pad|>",
        "image_start_id": "<image>",
        "image_end_id": "</image>",
        "slice_start_id": "<slice>",
        "slice_end_id": "</slice>",
        "number_start_id": "<image_id>",
        "number_end_id": "</image_id>",
    },
    _processor,
    keys=("wa_layer_indexes",),
    fixed={"clip.use_gelu": True, "clip.vision.projector.scale_factor": 4},  # the square root of patches to a token
    is_wide=True,
)
