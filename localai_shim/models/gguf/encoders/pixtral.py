"""Pixtral's encoder, which Mistral Small 3.1 and Ministral 3 have, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from ....types import Json
from ..header import Metadata
from ..weights import unpaired
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

_TOWER, _PROJECTOR = "vision_tower.vision_model", "multi_modal_projector"
_TOKENS = {
    "image_token_index": "[IMG]",
    "image_break_token_id": "[IMG_BREAK]",
    "image_end_token_id": "[IMG_END]",
}
_MAX_SIDE = 1024  # patches, ten times those of the largest model: all their positions are computed
_MERGED = "spatial_merge_size"


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    width, heads = metadata.number("embedding_length"), metadata.number("attention.head_count")
    size, patch = image_sizes(metadata)
    if size // patch > _MAX_SIDE:
        raise metadata.error(f"images of {size} pixels have more than {_MAX_SIDE} patches of {patch} to a side")
    is_merged = metadata.number(_MERGED, 1) > 1
    if not is_merged and model.prefix != "llama":
        raise metadata.error(f"the metadata lacks 'clip.vision.{_MERGED}', which encoders for '{model.prefix}' have")
    return {
        "model_type": "mistral3" if is_merged else "pixtral",
        "text_config": _language(model, text),
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": width,
            "intermediate_size": feed_forward_length(metadata),
            "num_hidden_layers": metadata.number("block_count"),
            "num_attention_heads": heads,
            "head_dim": width // heads,
            "image_size": size,
            "patch_size": patch,
        },
        **({_MERGED: metadata.number(_MERGED)} if is_merged else {}),
        "multimodal_projector_bias": "mm.1.bias" in metadata.header.tensors,
        "vocab_size": text["vocab_size"],
    }


def _language(model: Metadata, text: Json) -> Json:
    if model.prefix != "llama":
        return text
    return {**checked_language(model, text, any_heads=True), "model_type": "mistral"}


def _parts(config: Json) -> dict[str, str | Part]:
    def in_order(array: mx.array, vision: Json) -> mx.array:
        return unpaired(array, vision["num_attention_heads"])

    layer = {
        "ln1": "attention_norm",
        "ln2": "ffn_norm",
        "attn_v": "attention.v_proj",
        "attn_out": "attention.o_proj",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
    }
    rotated = {"attn_q": "attention.q_proj", "attn_k": "attention.k_proj"}
    blocks = f"{_TOWER}.transformer.layers.{{}}"
    return {
        "v.patch_embd.weight": Part(f"{_TOWER}.patch_conv.weight", channels_last),
        "v.pre_ln": f"{_TOWER}.ln_pre",
        **{f"v.blk.{{}}.{name}": f"{blocks}.{own}" for name, own in layer.items()},
        **{f"v.blk.{{}}.{name}": Part(f"{blocks}.{own}", in_order, keeps_rows=True) for name, own in rotated.items()},
        "mm.1": f"{_PROJECTOR}.linear_1",
        "mm.2": f"{_PROJECTOR}.linear_2",
        "mm.input_norm": f"{_PROJECTOR}.norm",
        "mm.patch_merger": f"{_PROJECTOR}.patch_merger.merging_layer",
        "v.token_embd.img_break": Part(""),  # the language model's embedding of [IMG_BREAK] once more
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.mistral3.processing_mistral3 import Mistral3Processor
    from mlx_vlm.models.pixtral.image_processing_pixtral import PixtralImageProcessor
    from mlx_vlm.models.pixtral.processing_pixtral import PixtralProcessor

    vision = config["vision_config"]
    patch = vision["patch_size"]
    pictures = PixtralImageProcessor({"longest_edge": vision["image_size"]}, patch, **pixel_settings(metadata))
    kind = Mistral3Processor if config["model_type"] == "mistral3" else PixtralProcessor
    return kind(pictures, tokenizer, patch_size=patch, spatial_merge_size=config.get(_MERGED, 1))


PIXTRAL = Encoder(
    ("llama", "mistral3"),
    _config,
    _parts,
    _TOKENS,
    _processor,
    keys=(_MERGED,),
    fixed={"clip.use_silu": True, "clip.vision.attention.layer_norm_epsilon": 1e-5, "clip.rope.freq_base": 10000.0},
)
