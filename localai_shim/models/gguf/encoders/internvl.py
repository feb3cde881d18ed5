"""InternVL's encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from ....types import Json
from ..header import Metadata
from .description import (
    Encoder,
    Part,
    channels_last,
    checked_language,
    feed_forward_length,
    image_sizes,
    pixel_settings,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_SHUFFLED = 2  # patches to a side that become one token, if the file does not say otherwise
_TILES = 12  # of an image at most, if the file does not say otherwise
_MAX_TILES = 64  # the processor tries all grids of tiles for each image
_LAYER = {
    "ln1": "norm1",
    "ln2": "norm2",
    **dict.fromkeys(("attn_q", "attn_k", "attn_v"), "attn.qkv"),
    "attn_q_norm": "attn.q_norm",
    "attn_k_norm": "attn.k_norm",
    "attn_out": "attn.proj",
    "ls1.weight": "ls1",
    "ls2.weight": "ls2",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    from mlx_vlm.models.internvl_chat.processor import IMAGENET_MEAN, IMAGENET_STD

    tensors, (size, patch) = metadata.header.tensors, image_sizes(metadata)
    known = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    for name, values in pixel_settings(metadata).items():
        if len(values) != 3 or any(
            abs(found - value) > 0.001 for found, value in zip(values, known[name], strict=True)
        ):
            raise metadata.error(f"the metadata's 'clip.vision.{name}' is {values}, and mlx-vlm has {known[name]}")
    if (tiles := metadata.number("preproc_max_tiles", _TILES)) > _MAX_TILES:
        raise metadata.error(f"images of {tiles} tiles are not supported, only {_MAX_TILES}")
    return {
        "model_type": "internvl_chat",
        "text_config": {**checked_language(model, text), "attention_bias": "blk.0.attn_q.bias" in model.header.tensors},
        "vision_config": {
            "model_type": "intern_vit_6b",
            "hidden_size": metadata.number("embedding_length"),
            "intermediate_size": feed_forward_length(metadata),
            "num_hidden_layers": metadata.number("block_count"),
            "num_attention_heads": metadata.number("attention.head_count"),
            "image_size": size,
            "patch_size": patch,
            "layer_norm_eps": metadata.real("attention.layer_norm_epsilon", 1e-6),
            "qkv_bias": "v.blk.0.attn_q.bias" in tensors,
            "qk_normalization": "v.blk.0.attn_q_norm.weight" in tensors,
            "norm_type": "layer_norm" if "v.blk.0.ln1.bias" in tensors else "rms_norm",
        },
        "downsample_ratio": 1 / metadata.number("projector.scale_factor", _SHUFFLED),
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    def one_row(array: mx.array, vision: Json) -> mx.array:
        return array.reshape(1, -1, array.shape[-1])

    embeddings = "vision_model.embeddings"
    return {
        "v.class_embd": Part(f"{embeddings}.class_embedding", one_row),
        "v.patch_embd.weight": Part(f"{embeddings}.patch_embedding.weight", channels_last),
        "v.patch_embd.bias": f"{embeddings}.patch_embedding.bias",
        "v.position_embd.weight": Part(f"{embeddings}.position_embedding", one_row),
        **{f"v.blk.{{}}.{name}": f"vision_model.encoder.layers.{{}}.{own}" for name, own in _LAYER.items()},
        **{f"mm.model.mlp.{i}": f"mlp1.{i}" for i in (0, 1, 3)},
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.internvl_chat.processor import InternVLChatProcessor, InternVLImageProcessor

    vision = config["vision_config"]
    size, patch = vision["image_size"], vision["patch_size"]
    images = InternVLImageProcessor(
        size=size,
        dynamic_min_num=metadata.number("preproc_min_tiles", 1),
        dynamic_max_num=metadata.number("preproc_max_tiles", _TILES),
    )
    ratio = config["downsample_ratio"]
    return InternVLChatProcessor(images, tokenizer, image_size=size, patch_size=patch, downsample_ratio=ratio)


INTERNVL = Encoder(
    ("qwen2", "qwen3"),
    _config,
    _parts,
    {"image_token_index": "<IMG_CONTEXT>", "boi_token_id": "<img>", "eoi_token_id": "</img>"},
    _processor,
    keys=("projector.scale_factor", "preproc_min_tiles", "preproc_max_tiles"),
    fixed={"clip.use_gelu": True},
)
