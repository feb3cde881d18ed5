"""Gemma 4's encoders of images and videos, and of audio, which are in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import mlx.core as mx

from ....types import Json
from ..header import Metadata
from .description import (
    AUDIO,
    HAS_AUDIO,
    Encoder,
    Part,
    channels_last,
    check_layers,
    feed_forward_length,
    pixel_settings,
    rows_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

_POOLED = 3  # patches to a side that become one token, if the file does not say otherwise
IMAGE_TOKENS, _FRAME_TOKENS = 280, 70  # of an image, and of a video's frame, at most
_BINS = 128  # of a spectrogram
_BOUNDS = ("input_min", "input_max", "output_min", "output_max")
TOKENS = {
    "image_token_id": "<|image|>",
    "boi_token_id": "<|image>",
    "eoi_token_id": "<image|>",
    "video_token_id": "<|video|>",
    "audio_token_id": "<|audio|>",
    "boa_token_id": "<|audio>",
    "eoa_token_id": "<audio|>",
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
_AUDIO_CLIPPED = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.post",
    "conv_pw1": "lconv1d.linear_start",
    "conv_pw2": "lconv1d.linear_end",
    "ffn_up": "feed_forward1.ffw_layer_1",
    "ffn_down": "feed_forward1.ffw_layer_2",
    "ffn_up_1": "feed_forward2.ffw_layer_1",
    "ffn_down_1": "feed_forward2.ffw_layer_2",
}
_AUDIO_PLAIN = {
    "attn_pre_norm": "norm_pre_attn",
    "attn_post_norm": "norm_post_attn",
    "attn_k_rel": "self_attn.relative_k_proj",
    "conv_norm": "lconv1d.pre_layer_norm",
    "norm_conv": "lconv1d.conv_norm",
    "ffn_norm": "feed_forward1.pre_layer_norm",
    "ffn_post_norm": "feed_forward1.post_layer_norm",
    "ffn_norm_1": "feed_forward2.pre_layer_norm",
    "ffn_post_norm_1": "feed_forward2.post_layer_norm",
    "ln2": "norm_out",
}


def _config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    # Models with embeddings for each layer, E2B and E4B, see images in one direction, which no key says.
    sees_ahead = not text["hidden_size_per_layer_input"]
    return {
        "model_type": "gemma4",
        "text_config": {**text, "use_bidirectional_attention": "vision" if sees_ahead else None},
        "vision_config": _vision(metadata),
        **({"audio_config": _audio(metadata)} if metadata.header.get(HAS_AUDIO, False) else {}),
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
    }


def _vision(metadata: Metadata) -> Json:
    tensors, head_dim = metadata.header.tensors, rows_of(metadata, "v.blk.0.attn_q_norm.weight")
    return {
        "model_type": "gemma4_vision",
        "hidden_size": metadata.number("embedding_length"),
        "intermediate_size": feed_forward_length(metadata),
        "num_hidden_layers": metadata.number("block_count"),
        "num_attention_heads": metadata.number("attention.head_count"),
        "num_key_value_heads": rows_of(metadata, "v.blk.0.attn_k.weight") // head_dim,
        "head_dim": head_dim,
        "patch_size": metadata.number("patch_size"),
        "pooling_kernel_size": metadata.number("projector.scale_factor", _POOLED),
        "position_embedding_size": position_table(metadata),
        "use_clipped_linears": f"v.blk.0.attn_q.{_BOUNDS[0]}" in tensors,
        "standardize": "v.std_bias" in tensors,
    }


def position_table(metadata: Metadata) -> int:
    """Number of positions to a side.

    Raises:
        ModelLoadError: there are not two tables, of rows and of columns.
    """
    name = "v.position_embd.weight"
    shape = metadata.header.tensors[name].shape if rows_of(metadata, name) else ()
    if len(shape) != 3 or shape[0] != 2:
        raise metadata.error(f"tensor '{name}' has the shape {list(shape)}, not one of two tables")
    return shape[1]


def _audio(vision: Metadata) -> Json:
    audio = Metadata(vision.header, AUDIO)
    if (kind := audio.header.get(f"{AUDIO}.projector_type", "")) != "gemma4a":
        raise audio.error(f"audio encoders of the kind '{kind[:100]}' cannot be read, only gemma4a")
    check_layers(audio, "a")
    width, heads = rows_of(audio, "a.input_projection.weight"), audio.number("attention.head_count")
    if width % heads:
        raise audio.error(f"the metadata's '{AUDIO}.attention.head_count', {heads}, does not divide {width}")
    rows_of(audio, "a.blk.0.conv_dw.weight")
    return {
        "hidden_size": width,
        "num_hidden_layers": audio.number("block_count"),
        "num_attention_heads": heads,
        "subsampling_conv_channels": [rows_of(audio, f"a.conv1d.{i}.weight") for i in range(2)],
        "conv_kernel_size": audio.header.tensors["a.blk.0.conv_dw.weight"].shape[-1],
        "output_proj_dims": rows_of(audio, "a.pre_encode.out.weight"),
    }


def _parts(config: Json) -> dict[str, str | Part]:
    def flat(array: mx.array, vision: Json) -> mx.array:
        return channels_last(array, vision).flatten(1)

    tower = "vision_tower"
    return {
        "v.patch_embd.weight": Part(f"{tower}.patch_embedder.input_proj.weight", flat),
        "v.position_embd.weight": f"{tower}.patch_embedder.position_embedding_table",
        "v.std_bias": f"{tower}.std_bias",
        "v.std_scale": f"{tower}.std_scale",
        **_layer("v", f"{tower}.encoder.layers.{{}}", _NORMS, _CLIPPED),
        "mm.input_projection": "embed_vision.embedding_projection",
        **(_audio_parts() if "audio_config" in config else {}),
    }


def _audio_parts() -> dict[str, str | Part]:
    def one_channel(array: mx.array, vision: Json) -> mx.array:
        return array[..., None]

    def before_softplus(array: mx.array, vision: Json) -> mx.array:  # which the converter applies
        wide = array.astype(mx.float32)
        return wide + mx.log(-mx.expm1(-wide))

    tower, layer = "audio_tower", "audio_tower.layers.{}"
    start = f"{tower}.subsample_conv_projection"
    return {
        **{f"a.conv1d.{i}.weight": Part(f"{start}.layer{i}.conv.weight", channels_last) for i in range(2)},
        **{f"a.conv1d.{i}.norm": f"{start}.layer{i}.norm" for i in range(2)},
        "a.input_projection": f"{start}.input_proj_linear",
        **_layer("a", layer, _AUDIO_PLAIN, _AUDIO_CLIPPED),
        "a.blk.{}.conv_dw.weight": Part(f"{layer}.lconv1d.depthwise_conv1d.weight", one_channel),
        "a.blk.{}.per_dim_scale.weight": Part(f"{layer}.self_attn.per_dim_scale", before_softplus),
        "a.pre_encode.out": f"{tower}.output_proj",
        "mm.a.input_projection": "embed_audio.embedding_projection",
    }


def _layer(start: str, path: str, plain: Mapping[str, str], clipped: Mapping[str, str]) -> dict[str, str | Part]:
    """Parts of a layer, of which some have bounds of their inputs and outputs."""

    def scalar(array: mx.array, vision: Json) -> mx.array:
        return array.reshape(())

    found: dict[str, str | Part] = {f"{start}.blk.{{}}.{name}": f"{path}.{own}" for name, own in plain.items()}
    for name, own in clipped.items():
        found[f"{start}.blk.{{}}.{name}.weight"] = f"{path}.{own}.linear.weight"
        found |= {f"{start}.blk.{{}}.{name}.{bound}": Part(f"{path}.{own}.{bound}", scalar) for bound in _BOUNDS}
    return found


def set_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    """Give a tokenizer the attributes that mlx-vlm's processor reads."""
    for key, text in TOKENS.items():
        setattr(tokenizer, key.removesuffix("_id"), text)
        setattr(tokenizer, key, tokenizer.convert_tokens_to_ids(text))


def _processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.gemma4.audio_feature_extractor import Gemma4AudioFeatureExtractor
    from mlx_vlm.models.gemma4.processing_gemma4 import Gemma4ImageProcessor, Gemma4Processor, Gemma4VideoProcessor

    set_tokens(tokenizer)
    vision, pixels = config["vision_config"], pixel_settings(metadata)
    sizes = {name: vision[name] for name in ("patch_size", "pooling_kernel_size")}
    images = Gemma4ImageProcessor(max_soft_tokens=IMAGE_TOKENS, do_normalize=bool(pixels), **sizes, **pixels)
    videos = Gemma4VideoProcessor(max_soft_tokens=_FRAME_TOKENS, do_normalize=bool(pixels), **sizes, **pixels)
    hears = {"feature_extractor": Gemma4AudioFeatureExtractor()} if "audio_config" in config else {}
    return Gemma4Processor(images, tokenizer, videos, image_seq_length=IMAGE_TOKENS, **hears)


GEMMA4 = Encoder(
    ("gemma4",),
    _config,
    _parts,
    TOKENS,
    _processor,
    keys=("projector.scale_factor",),
    audio_keys=(
        *("projector_type", "projection_dim", "embedding_length", "feed_forward_length", "block_count"),
        *("attention.head_count", "attention.layer_norm_epsilon"),  # the converter wrote another epsilon once
    ),
    fixed={"clip.vision.attention.layer_norm_epsilon": 1e-6, f"{AUDIO}.num_mel_bins": _BINS},
    is_wide=True,
)
