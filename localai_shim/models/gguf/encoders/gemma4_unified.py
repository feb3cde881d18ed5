"""Images for Gemma 4 12B, which has no encoder: patches are made embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx

from ....types import Json
from ..header import Metadata
from .description import Encoder, Part, pixel_settings, rows_of
from .gemma4 import IMAGE_TOKENS, TOKENS, position_table, set_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_SIDE = "model_patch_size"


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    patch, width = metadata.number("patch_size"), rows_of(metadata, "v.patch_embd.weight")
    columns = metadata.header.tensors["v.patch_embd.weight"].shape[-1]
    side = math.isqrt(columns // 3)
    if 3 * side**2 != columns or side % patch:
        raise metadata.error(f"{columns} numbers are not those of a square of patches of {patch} pixels to a side")
    return {
        "model_type": "gemma4_unified",
        "text_config": {**text, "use_bidirectional_attention": "vision"},
        "vision_config": {
            "model_type": "gemma4_unified_vision",
            "patch_size": patch,
            "pooling_kernel_size": side // patch,
            _SIDE: side,
            "mm_embed_dim": width,
            "mm_posemb_size": position_table(metadata),
            "output_proj_dims": width,
        },
        "audio_config": None,
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    def by_pixel(array: mx.array, vision: Json) -> mx.array:
        """The converter puts all numbers of a color together."""
        *rows, _ = array.shape
        return array.reshape(*rows, 3, -1).swapaxes(-1, -2).reshape(*rows, -1)

    def by_place(array: mx.array, vision: Json) -> mx.array:
        return array.swapaxes(0, 1)

    embedder = "vision_embedder"
    return {
        "v.patch_norm.1.weight": Part(f"{embedder}.patch_ln1.weight", by_pixel),
        "v.patch_norm.1.bias": Part(f"{embedder}.patch_ln1.bias", by_pixel),
        "v.patch_embd.weight": Part(f"{embedder}.patch_dense.weight", by_pixel),
        "v.patch_embd.bias": f"{embedder}.patch_dense.bias",
        "v.patch_norm.2": f"{embedder}.patch_ln2",
        "v.patch_norm.3": f"{embedder}.pos_norm",
        "v.position_embd.weight": Part(f"{embedder}.pos_embedding", by_place),
        "mm.input_projection": "embed_vision.embedding_projection",
        "mm.a.input_projection": Part(""),  # audio is not read
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.gemma4_unified.processing_gemma4_unified import (
        Gemma4UnifiedImageProcessor,
        Gemma4UnifiedProcessor,
    )

    set_tokens(tokenizer)
    vision, pixels = config["vision_config"], pixel_settings(metadata)
    sizes = {name: vision[name] for name in ("patch_size", "pooling_kernel_size", _SIDE)}
    images = Gemma4UnifiedImageProcessor(max_soft_tokens=IMAGE_TOKENS, do_normalize=bool(pixels), **sizes, **pixels)
    return Gemma4UnifiedProcessor(images, tokenizer, image_seq_length=IMAGE_TOKENS)


GEMMA4_UNIFIED = Encoder(
    ("gemma4",),
    _config,
    _parts,
    TOKENS,
    _processor,
    audio_keys=(
        *("projector_type", "projection_dim", "embedding_length", "feed_forward_length", "block_count"),
        *("num_mel_bins", "attention.head_count", "attention.layer_norm_epsilon"),
    ),
    fixed={"clip.vision.attention.layer_norm_epsilon": 1e-6},
    is_wide=True,
    has_layers=False,
)
