"""Encoders of Qwen2-VL, Qwen2.5-VL, and Qwen3-VL, which is that of Qwen 3.5 and Qwen3-Omni, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from ....types import Json
from ..header import Metadata
from .description import (
    HAS_AUDIO,
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
_FRAMES = 2  # that are one patch: the two tensors of its weights
_WINDOW = 112  # pixels to a side
_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
_QWEN3 = {"qwen3vl": "qwen3_vl", "qwen3vlmoe": "qwen3_vl_moe", "qwen35": "qwen3_5", "qwen35moe": "qwen3_5_moe"}
"""mlx-vlm's names of models with this encoder, by the architecture of the language model."""
_EPSILON = {"clip.vision.attention.layer_norm_epsilon": 1e-6}
_KEYS = ("spatial_merge_size", "image_min_pixels", "image_max_pixels")
_AUDIO_KEYS = (
    *("projector_type", "projection_dim", "embedding_length", "feed_forward_length", "block_count", "num_mel_bins"),
    *("attention.head_count", "attention.layer_norm_epsilon"),
)
_AUDIO_LAYER = ("ln1", "ln2", "attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down")
_AUDIO_PARTS = (
    *("a.position_embd", "a.conv2d.1", "a.conv2d.2", "a.conv2d.3", "a.conv_out", "a.post_ln"),
    *("mm.a.mlp.1", "mm.a.mlp.2", *(f"a.blk.{{}}.{name}" for name in _AUDIO_LAYER)),
)
"""Of Qwen3-Omni's encoder for audio, which is not read: in folders, too."""


def _config(metadata: Metadata, model: Metadata, text: Json, model_type: str, own: Json) -> Json:
    return {
        "model_type": model_type,
        "text_config": {**with_positions(model, text), "model_type": f"{model_type}_text"},
        "vision_config": {
            "model_type": model_type,
            "depth": metadata.number("block_count"),
            "num_heads": metadata.number("attention.head_count"),
            "patch_size": metadata.number("patch_size"),
            "spatial_merge_size": metadata.number("spatial_merge_size", _MERGED),
            "temporal_patch_size": _FRAMES,
            **own,
        },
        "vocab_size": text["vocab_size"],
    }


def with_positions(model: Metadata, text: Json) -> Json:
    """The config of a language model with settings of positions that count an image's rows and columns, too."""
    rope = text.get("rope_parameters", {"type": "mrope", "partial_rotary_factor": 1.0})
    sections = rope_sections(model, round(text["head_dim"] * rope["partial_rotary_factor"]) // 2)
    name = "rope_parameters" if "rope_parameters" in text else "rope_scaling"
    return {**text, name: {**rope, "mrope_section": sections}}


def rope_sections(model: Metadata, pairs: int) -> list[int]:
    """Numbers of pairs that are rotated by a token's place in time, its row, and its column.

    Raises:
        ModelLoadError: they are not all pairs.
    """
    sections = model.header.list_of(f"{model.prefix}.rope.dimension_sections", int)[:3]
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise model.error(
            f"the metadata's '{model.prefix}.rope.dimension_sections' is {sections}, which are not three parts of "
            f"{pairs}"
        )
    return sections


def _qwen2_config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    width = metadata.number("embedding_length")
    own = {
        "embed_dim": width,
        "mlp_ratio": feed_forward_length(metadata) / width,
        "hidden_size": text["hidden_size"],
    }
    return _config(metadata, model, checked_language(model, text), "qwen2_vl", own)


def _qwen25_config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    period = metadata.number("n_wa_pattern")
    own = {
        "hidden_size": metadata.number("embedding_length"),
        "intermediate_size": feed_forward_length(metadata),
        "out_hidden_size": text["hidden_size"],
        "window_size": metadata.number("window_size", _WINDOW),
        "fullatt_block_indexes": list(range(period - 1, metadata.number("block_count"), period)),
    }
    return _config(metadata, model, checked_language(model, text), "qwen2_5_vl", own)


def _qwen3_config(metadata: Metadata, model: Metadata, text: Json) -> Json:
    text = checked_language(model, text.get("text_config", text), any_heads=True)
    deep = metadata.header.list_of("clip.vision.is_deepstack_layers", bool)
    is_omni = metadata.header.get(HAS_AUDIO, False)  # whose converter writes that no layers read features
    if sum(deep) != model.count("n_deepstack_layers") and not is_omni:
        raise metadata.error(
            f"the metadata's 'clip.vision.is_deepstack_layers' has {sum(deep)} layers, and the language model reads "
            f"those of {model.count('n_deepstack_layers')} ('{model.prefix}.n_deepstack_layers')"
        )
    own = {
        "hidden_size": metadata.number("embedding_length"),
        "intermediate_size": feed_forward_length(metadata),
        "out_hidden_size": text["hidden_size"],
        "num_position_embeddings": rows_of(metadata, "v.position_embd.weight"),
        "deepstack_visual_indexes": [layer for layer, is_deep in enumerate(deep) if is_deep],
    }
    return _config(metadata, model, text, _QWEN3[model.prefix], own)


def one_frame(array: mx.array, vision: Json) -> mx.array:
    """Weights of a convolution for one of the frames that become a patch."""
    return channels_last(array, vision)[:, None]


def _parts(config: Json) -> dict[str, str | Part]:
    frame = Part(f"{_TOWER}.patch_embed.proj.weight", one_frame, axis=1)
    layer = {
        "ln1": "norm1",
        "ln2": "norm2",
        **dict.fromkeys(("attn_qkv", "attn_q", "attn_k", "attn_v"), "attn.qkv"),
        "attn_out": "attn.proj",
    }
    return {
        "v.patch_embd.weight": frame,
        "v.patch_embd.weight.1": frame,
        "v.patch_embd.bias": f"{_TOWER}.patch_embed.proj.bias",
        **_layers(layer),
    }


def _layers(names: dict[str, str]) -> dict[str, str | Part]:
    return {f"v.blk.{{}}.{name}": f"{_TOWER}.blocks.{{}}.{own}" for name, own in names.items()}


def _qwen2_parts(config: Json) -> dict[str, str | Part]:
    merger = {"v.post_ln": "ln_q", "mm.0": "mlp.0", "mm.2": "mlp.2"}
    return {
        **_parts(config),
        **_layers({"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}),
        **{name: f"{_TOWER}.merger.{own}" for name, own in merger.items()},
    }


def _qwen25_parts(config: Json) -> dict[str, str | Part]:
    feed_forward = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    return {**_qwen2_parts(config), **_layers(feed_forward)}


def _qwen3_parts(config: Json) -> dict[str, str | Part]:
    merger = {"v.post_ln": "norm", "mm.0": "linear_fc1", "mm.2": "linear_fc2"}
    deep = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}
    return {
        **_parts(config),
        "v.position_embd": f"{_TOWER}.pos_embed",
        **_layers({"ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"}),
        **{name: f"{_TOWER}.merger.{own}" for name, own in merger.items()},
        **{
            f"v.deepstack.{layer}.{name}": f"{_TOWER}.deepstack_merger_list.{i}.{own}"
            for i, layer in enumerate(config["vision_config"]["deepstack_visual_indexes"])
            for name, own in deep.items()
        },
        **dict.fromkeys(_AUDIO_PARTS, Part("")),
    }


def _pixels(metadata: Metadata, config: Json, least: int, most: int) -> Json:
    """Settings of a processor of images or videos."""
    vision = config["vision_config"]
    return {
        "patch_size": vision["patch_size"],
        "temporal_patch_size": vision["temporal_patch_size"],
        "merge_size": vision["spatial_merge_size"],
        "min_pixels": metadata.number("image_min_pixels", least),
        "max_pixels": metadata.number("image_max_pixels", most),
        **pixel_settings(metadata),
    }


def _qwen2_processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLImageProcessor, Qwen3VLVideoProcessor

    pixels = _pixels(metadata, config, 56 * 56, 3584 * 3584)
    return Qwen2_5_VLProcessor(Qwen3VLImageProcessor(**pixels), tokenizer, Qwen3VLVideoProcessor(**pixels))


def _qwen3_processor(metadata: Metadata, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import (
        Qwen3VLImageProcessor,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    pictures = Qwen3VLImageProcessor(**_pixels(metadata, config, 256 * 256, 4096 * 4096))
    videos = Qwen3VLVideoProcessor(**_pixels(metadata, config, 4096, 25165824))
    processor = Qwen3VLProcessor(pictures, tokenizer, videos)
    if metadata.header.get(HAS_AUDIO, False):  # Qwen3-Omni has other positions in videos
        processor.video_processor = None
    return processor


QWEN2_VL = Encoder(
    ("qwen2vl",),
    _qwen2_config,
    _qwen2_parts,
    _TOKENS,
    _qwen2_processor,
    keys=_KEYS,
    fixed=_EPSILON,
    is_wide=True,
)
QWEN2_5_VL = Encoder(
    ("qwen2vl",),
    _qwen25_config,
    _qwen25_parts,
    _TOKENS,
    _qwen2_processor,
    keys=(*_KEYS, "n_wa_pattern", "window_size"),
    fixed={**_EPSILON, "clip.use_silu": True},
    is_wide=True,
)
QWEN3_VL = Encoder(
    tuple(_QWEN3),
    _qwen3_config,
    _qwen3_parts,
    _TOKENS,
    _qwen3_processor,
    keys=(*_KEYS, "is_deepstack_layers"),
    audio_keys=_AUDIO_KEYS,
    fixed={**_EPSILON, "clip.use_gelu": True},
    is_wide=True,
)
