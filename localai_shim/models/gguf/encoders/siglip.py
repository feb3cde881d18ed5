"""Encoders of SigLIP's kind: those of Gemma 3, and of SmolVLM and Idefics 3."""

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

_POOLED = 4  # patches to a side that become one token of Gemma 3, if the file does not say otherwise
_SHUFFLED = 2  # and of Idefics 3
_TILES = 4  # to a side of an image of Idefics 3 at most, if the file does not say otherwise
_LAYER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}


def _vision(metadata: Metadata, model_type: str) -> Json:
    size, patch = image_sizes(metadata)
    return {
        "model_type": model_type,
        "hidden_size": metadata.number("embedding_length"),
        "intermediate_size": feed_forward_length(metadata),
        "num_hidden_layers": metadata.number("block_count"),
        "num_attention_heads": metadata.number("attention.head_count"),
        "image_size": size,
        "patch_size": patch,
        "layer_norm_eps": metadata.real("attention.layer_norm_epsilon", 1e-6),
    }


def encoder_parts(model: str) -> dict[str, str | Part]:
    """Places of the tensors of an encoder, without those of its projector."""
    embeddings = f"{model}.embeddings"
    return {
        "v.patch_embd.weight": Part(f"{embeddings}.patch_embedding.weight", channels_last),
        "v.patch_embd.bias": f"{embeddings}.patch_embedding.bias",
        "v.position_embd": f"{embeddings}.position_embedding",
        "v.post_ln": f"{model}.post_layernorm",
        **{f"v.blk.{{}}.{name}": f"{model}.encoder.layers.{{}}.{own}" for name, own in _LAYER.items()},
    }


def _gemma3_config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    vision = _vision(metadata, "siglip_vision_model")
    side = vision["image_size"] // vision["patch_size"] // metadata.number("projector.scale_factor", _POOLED)
    return {
        "model_type": "gemma3",
        "text_config": {**text, "rope_global_base_freq": text["rope_theta"], "mm_tokens_per_image": side * side},
        "vision_config": vision,
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
        "pad_token_id": 0,
        "mm_tokens_per_image": side * side,
    }


def _gemma3_parts(config: Json) -> dict[str, str | Part]:
    projector = "multi_modal_projector"

    def without_one(array: mx.array, config: Json) -> mx.array:  # the converter adds it
        return array - 1

    return {
        **encoder_parts("vision_tower.vision_model"),
        "mm.soft_emb_norm": Part(f"{projector}.mm_soft_emb_norm", without_one),
        "mm.input_projection.weight": f"{projector}.mm_input_projection_weight",
    }


def _gemma3_processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.gemma3.processing_gemma3 import Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    size = config["vision_config"]["image_size"]
    tokens = {"image_token": "image_token_index", "boi_token": "boi_token_index", "eoi_token": "eoi_token_index"}
    for name, key in tokens.items():
        setattr(tokenizer, name, GEMMA3.tokens[key])
    tokenizer.image_token_id = tokenizer.convert_tokens_to_ids(tokenizer.image_token)
    pictures = Gemma3ImageProcessorPil(size={"height": size, "width": size}, **pixel_settings(metadata))
    return Gemma3Processor(pictures, tokenizer, image_seq_length=config["mm_tokens_per_image"])


GEMMA3 = Encoder(
    ("gemma3",),
    _gemma3_config,
    _gemma3_parts,
    {
        "boi_token_index": "<start_of_image>",
        "eoi_token_index": "<end_of_image>",
        "image_token_index": "<image_soft_token>",
    },
    _gemma3_processor,
    keys=("projector.scale_factor",),
    fixed={"clip.use_gelu": True},
)


def _idefics3_config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    return {
        "model_type": "smolvlm",
        "text_config": checked_language(model, text),
        "vision_config": _vision(metadata, "smolvlm_vision"),
        "scale_factor": metadata.number("projector.scale_factor", _SHUFFLED),
        "vocab_size": text["vocab_size"],
    }


def _idefics3_parts(config: Json) -> dict[str, str | Part]:
    return {**encoder_parts("vision_model"), "mm.model.fc": "connector.modality_projection.proj"}


def _idefics3_processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.smolvlm.processing_smolvlm import SmolVLMProcessor
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    size, vision = config["vision_config"]["image_size"], config["vision_config"]
    pictures = SmolVLMImageProcessorPil(
        size={"longest_edge": metadata.number("preproc_image_size", _TILES * size)},
        max_image_size={"longest_edge": size},
        **pixel_settings(metadata),
    )
    side = size // vision["patch_size"] // config["scale_factor"]
    return SmolVLMProcessor(pictures, tokenizer, image_seq_len=side * side)


IDEFICS3 = Encoder(
    ("llama",),
    _idefics3_config,
    _idefics3_parts,
    {"image_token_id": "<image>", "fake_token_id": "<fake_token_around_image>"},  # names of tiles may be plain text
    _idefics3_processor,
    keys=("projector.scale_factor", "preproc_image_size"),
    fixed={"clip.use_gelu": True},
)
