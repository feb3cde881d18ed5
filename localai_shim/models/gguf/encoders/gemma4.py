"""Gemma 4's encoder of images and videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....types import Json
from ..metadata import Metadata
from .description import Encoder, Part, channels_last, feed_forward_length, pixel_settings, rows_of

if TYPE_CHECKING:
    import mlx.core as mx
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_TOWER = "vision_tower"
_POOLED = 3  # patches to a side that become one token, if the file does not say otherwise
_IMAGE_TOKENS, _FRAME_TOKENS = 280, 70  # of an image, and of a video's frame, at most
_BOUNDS = ("input_min", "input_max", "output_min", "output_max")
_TOKENS = {
    "image_token_id": "<|image|>",
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
}
_CLIPPED = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORMS = {
    "ln1": "input_layernorm",
    "ln2": "pre_feedforward_layernorm",
    "attn_post_norm": "post_attention_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    tensors = metadata.header.tensors
    head_dim = rows_of(metadata, "v.blk.0.attn_q_norm.weight")
    positions = tensors["v.position_embd.weight"].shape if "v.position_embd.weight" in tensors else ()
    if len(positions) != 3 or positions[0] != 2:
        raise metadata.error(f"tensor 'v.position_embd.weight' has the shape {list(positions)}, not one of two tables")
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": metadata.number("embedding_length"),
        "intermediate_size": feed_forward_length(metadata),
        "num_hidden_layers": metadata.number("block_count"),
        "num_attention_heads": metadata.number("attention.head_count"),
        "num_key_value_heads": rows_of(metadata, "v.blk.0.attn_k.weight") // head_dim,
        "head_dim": head_dim,
        "patch_size": metadata.number("patch_size"),
        "pooling_kernel_size": metadata.number("projector.scale_factor", _POOLED),
        "position_embedding_size": positions[1],
        "use_clipped_linears": f"v.blk.0.attn_q.{_BOUNDS[0]}" in tensors,
        "standardize": "v.std_bias" in tensors,
    }
    # Models with embeddings for each layer, E2B and E4B, read images in one direction, as no key says.
    sees_whole = not text["hidden_size_per_layer_input"]
    return {
        "model_type": "gemma4",
        "text_config": {**text, **({"use_bidirectional_attention": "vision"} if sees_whole else {})},
        "vision_config": vision,
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
    }


def _parts(config: Json) -> dict[str, str | Part]:
    def flat(array: mx.array, vision: Json) -> mx.array:
        return channels_last(array, vision).flatten(1)

    def scalar(array: mx.array, vision: Json) -> mx.array:
        return array.reshape(())

    layer = f"{_TOWER}.encoder.layers.{{}}"
    patches = f"{_TOWER}.patch_embedder"
    return {
        "v.patch_embd.weight": Part(f"{patches}.input_proj.weight", flat),
        "v.position_embd.weight": f"{patches}.position_embedding_table",
        "v.std_bias": f"{_TOWER}.std_bias",
        "v.std_scale": f"{_TOWER}.std_scale",
        **{f"v.blk.{{}}.{name}": f"{layer}.{own}" for name, own in _NORMS.items()},
        **{f"v.blk.{{}}.{name}.weight": f"{layer}.{own}.linear.weight" for name, own in _CLIPPED.items()},
        **{
            f"v.blk.{{}}.{name}.{bound}": Part(f"{layer}.{own}.{bound}", scalar)
            for name, own in _CLIPPED.items()
            for bound in _BOUNDS
        },
        "mm.input_projection": "embed_vision.embedding_projection",
    }


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.gemma4.processing_gemma4 import Gemma4ImageProcessor, Gemma4Processor, Gemma4VideoProcessor

    for key, text in _TOKENS.items():
        name = key.removesuffix("_id")
        setattr(tokenizer, name, text)
        setattr(tokenizer, key, tokenizer.convert_tokens_to_ids(text))
    vision, pixels = config["vision_config"], pixel_settings(metadata)
    sizes = {name: vision[name] for name in ("patch_size", "pooling_kernel_size")}
    images = Gemma4ImageProcessor(max_soft_tokens=_IMAGE_TOKENS, do_normalize=bool(pixels), **sizes, **pixels)
    videos = Gemma4VideoProcessor(max_soft_tokens=_FRAME_TOKENS, do_normalize=bool(pixels), **sizes, **pixels)
    return Gemma4Processor(images, tokenizer, videos, image_seq_length=_IMAGE_TOKENS)


GEMMA4 = Encoder(
    ("gemma4",),
    _config,
    _parts,
    _TOKENS,
    _processor,
    keys=("projector.scale_factor",),
    fixed={"clip.vision.attention.layer_norm_epsilon": 1e-6},
    is_wide=True,
    skips_audio=True,
)
