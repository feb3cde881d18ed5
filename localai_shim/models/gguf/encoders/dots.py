"""dots.ocr's encoder, whose language model is Qwen 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....types import Json
from ..header import Metadata
from .description import (
    Encoder,
    Part,
    channels_last,
    checked_language,
    feed_forward_length,
    pixel_settings,
    rows_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_TOWER = "vision_tower"
_MERGED = 2  # patches to a side that become one token, if the file does not say otherwise
_LEAST, _MOST = 3136, 11289600  # pixels
_LAYER = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn_qkv": "attn.qkv",
    "attn_out": "attn.proj",
    "ffn_gate": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "ffn_up": "mlp.fc3",
}
_MERGER = {
    "mm.post_norm": "post_trunk_norm",
    "mm.input_norm": "merger.ln_q",
    "mm.0": "merger.mlp.0",
    "mm.2": "merger.mlp.2",
}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    tensors = metadata.header.tensors
    return {
        "model_type": "dots_ocr",
        "text_config": {
            **checked_language(model, text),
            "model_type": "dots_ocr",
            "attention_bias": "blk.0.attn_q.bias" in model.header.tensors,
        },
        "vision_config": {
            "model_type": "dots_vit",
            "embed_dim": metadata.number("embedding_length"),
            "hidden_size": rows_of(metadata, "mm.2.weight"),
            "intermediate_size": feed_forward_length(metadata),
            "num_hidden_layers": metadata.number("block_count"),
            "num_attention_heads": metadata.number("attention.head_count"),
            "patch_size": metadata.number("patch_size"),
            "post_norm": "mm.post_norm.weight" in tensors,
            "use_bias": "v.blk.0.attn_qkv.bias" in tensors,
            "rms_norm_eps": metadata.real("attention.layer_norm_epsilon", 1e-5),
            "spatial_merge_size": metadata.number("projector.scale_factor", _MERGED),
            "temporal_patch_size": 1,
        },
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    patches = f"{_TOWER}.patch_embed.patchifier"
    return {
        "v.patch_embd.weight": Part(f"{patches}.proj.weight", channels_last),
        "v.patch_embd.bias": f"{patches}.proj.bias",
        "v.pre_ln": f"{patches}.norm",
        **{f"v.blk.{{}}.{name}": f"{_TOWER}.blocks.{{}}.{own}" for name, own in _LAYER.items()},
        **{name: f"{_TOWER}.{own}" for name, own in _MERGER.items()},
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.dots_ocr import DotsVLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    vision = config["vision_config"]
    images = Qwen2VLImageProcessorPil(
        patch_size=vision["patch_size"],
        temporal_patch_size=vision["temporal_patch_size"],
        merge_size=vision["spatial_merge_size"],
        min_pixels=metadata.number("image_min_pixels", _LEAST),
        max_pixels=metadata.number("image_max_pixels", _MOST),
        **pixel_settings(metadata),
    )
    processor = DotsVLProcessor(images, tokenizer)
    processor.image_token_id = tokenizer.convert_tokens_to_ids(processor.image_token)  # not of the published vocabulary
    return processor


DOTS_OCR = Encoder(
    ("qwen2",),
    _config,
    _parts,
    {"image_token_id": "<|imgpad|>"},
    _processor,
    keys=("projector.scale_factor", "image_min_pixels", "image_max_pixels"),
    fixed={"clip.use_silu": True},
    is_wide=True,
)
