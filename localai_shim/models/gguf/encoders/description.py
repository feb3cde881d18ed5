"""Description of one kind of vision encoder: how its file becomes a part of mlx-vlm's model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx

from ....types import Json, ModelLoadError
from ..header import Header, Metadata

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

PREFIX, AUDIO = "clip.vision", "clip.audio"
_LAYER = "v.blk."
_IN_LAYER = re.compile(r"(\w+)\.blk\.(\d+)\.")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_ENDINGS = (".weight", ".bias")
_SWAPPED = {".ffn_up.": ".ffn_down.", ".ffn_down.": ".ffn_up."}
_FLAGS = ("clip.has_vision_encoder", "clip.has_llava_projector", "clip.has_qwen2vl_merger")
_KEYS = {
    *("image_size", "patch_size", "embedding_length", "feed_forward_length", "projection_dim", "block_count"),
    *("projector_type", "image_mean", "image_std", "attention.head_count", "attention.layer_norm_epsilon"),
}
HAS_AUDIO = "clip.has_audio_encoder"
_OFF = ("clip.has_text_encoder", HAS_AUDIO, "clip.use_silu", "clip.use_gelu")
"""Flags that are off in files of all kinds that do not have them among their fixed keys."""


class Part(NamedTuple):
    """Place of a tensor in mlx-vlm's model.

    Attributes:
        name: the model's name; tensors of one name are joined in the order of the table. Empty: the model does not
            need the tensor.
        change: makes the model's array of the file's, with the config of the encoder.
        keeps_rows: the change only reorders rows, so it can be applied to packed ones.
        axis: along which tensors of one name are joined.
    """

    name: str
    change: Callable[[mx.array, Json], mx.array] | None = None
    keeps_rows: bool = False
    axis: int = 0


class Encoder(NamedTuple):
    """One `clip.projector_type`.

    Attributes:
        architectures: those of language models that it belongs to, by llama.cpp's names.
        config: makes mlx-vlm's config of the encoder's metadata, the language model's, and its config. Its
            `model_type` names the module.
        parts: places of tensors, by llama.cpp's names with or without their ending; `{}` is the number of a layer.
            Gets that config.
        tokens: texts of the special tokens that images need, by their keys in the config.
        processor: makes the processor of images of the encoder's metadata, a tokenizer, and that config.
        keys: of metadata that only this kind has.
        audio_keys: of an audio encoder's metadata, if the file may have one.
        fixed: keys whose value is a constant in mlx-vlm's class.
        is_wide: its numbers can be too large for float16.
        has_layers: its metadata says how many layers there are, and their heads.
    """

    architectures: tuple[str, ...]
    config: Callable[[Metadata, Metadata, Json], Json]
    parts: Callable[[Json], Mapping[str, str | Part]]
    tokens: Mapping[str, str]
    processor: Callable[[Metadata, PreTrainedTokenizerFast, Json], ProcessorMixin]
    keys: tuple[str, ...] = ()
    audio_keys: tuple[str, ...] = ()
    fixed: Mapping[str, bool | int | float] = {}
    is_wide: bool = False
    has_layers: bool = True

    def misfit(self, header: Header) -> str:
        """Why mlx-vlm's class does not compute what a file's metadata says; empty if it does."""
        fixed = {**dict.fromkeys(_OFF, False), **self.fixed}
        known = {*fixed, *_FLAGS, "clip.projector_type", *(f"{PREFIX}.{key}" for key in (*_KEYS, *self.keys))}
        if self.audio_keys:
            known |= {f"{AUDIO}.{key}" for key in self.audio_keys}
            del fixed[HAS_AUDIO]
        for key in header.metadata:
            if key.startswith("clip.") and key not in known:
                return f"its metadata has '{key}', which is not known"
        for key, wanted in fixed.items():
            found = header.get(key, wanted)
            if not abs(found - wanted) <= abs(wanted) / 1000:
                return f"its metadata's '{key}' is {found}, and mlx-vlm computes with {wanted}"
        return ""

    def places(self, header: Header, config: Json) -> dict[str, Part]:
        """Place of each of a file's tensors, in the order of the table.

        Raises:
            ModelLoadError: a tensor is not known.
        """
        table = {name: part if isinstance(part, Part) else Part(part) for name, part in self.parts(config).items()}
        order, is_swapped = list(table), has_swapped_names(header)
        found = list[tuple[int, str, Part]]()
        for name in header.tensors:
            known = _swap(name) if is_swapped else name
            key, ending, number = next((each for each in _readings(known) if each[0] in table), ("", "", 0))
            if not key:
                raise ModelLoadError(f"'{header.path}': tensor '{name}' is not known in a vision encoder of its kind.")
            part = table[key]
            own = f"{part.name.format(number)}{ending}" if part.name else ""
            found.append((order.index(key), name, part._replace(name=own)))
        return {name: part for _, name, part in sorted(found, key=lambda each: each[0])}


def check_sizes(metadata: Metadata) -> None:
    """Refuse a file whose metadata says other sizes than its tensors have.

    Raises:
        ModelLoadError: there are fewer layers, or more; or the width is another, or is not divided by the heads.
    """
    check_layers(metadata, "v")
    width = metadata.number("embedding_length")
    if (rows := rows_of(metadata, "v.patch_embd.weight")) != width:
        raise metadata.error(f"the metadata's '{PREFIX}.embedding_length' is {width}, but patches have {rows} numbers")
    if width % (heads := metadata.number("attention.head_count")):
        raise metadata.error(f"the metadata's '{PREFIX}.attention.head_count', {heads}, does not divide {width}")


def check_layers(metadata: Metadata, start: str) -> None:
    """Refuse a file whose metadata says another number of layers than its tensors have.

    Args:
        start: of the names of tensors.

    Raises:
        ModelLoadError: there are fewer layers, or more.
    """
    layers = metadata.number("block_count")
    parts = (_IN_LAYER.match(name) for name in metadata.header.tensors)
    numbers = {int(part[2]) for part in parts if part and part[1] == start}
    if len(numbers) != layers or max(numbers) != layers - 1:
        raise metadata.error(
            f"the metadata's '{metadata.prefix}.block_count' is {layers}, but there are tensors of {len(numbers)} "
            f"layers, up to number {max(numbers, default=0)}"
        )


def image_sizes(metadata: Metadata) -> tuple[int, int]:
    """Pixels to a side of the largest image, and of a patch.

    Raises:
        ModelLoadError: an image has no patch.
    """
    size, patch = metadata.number("image_size"), metadata.number("patch_size")
    if size < patch:
        raise metadata.error(f"images of {size} pixels have no patch of {patch}")
    return size, patch


def _readings(name: str) -> Iterator[tuple[str, str, int]]:
    """Names that a table may have for a tensor, each with the ending that it leaves out, and the layer's number."""
    for ending in ("", *(each for each in _ENDINGS if name.endswith(each))):
        stem = name.removesuffix(ending)
        yield stem, ending, 0
        if number := _NUMBER.search(name):
            yield _NUMBER.sub("{}", stem, count=1), ending, int(number[0])


def has_swapped_names(header: Header) -> bool:
    """True for files of older converters, which gave the two feed-forward layers each the name of the other."""
    down = header.tensors.get(f"{_LAYER}0.ffn_down.weight")
    width = header.get(f"{PREFIX}.embedding_length", 0)
    return down is not None and down.shape[0] != width == down.shape[-1]


def _swap(name: str) -> str:
    return next((name.replace(old, new) for old, new in _SWAPPED.items() if old in name), name)


def feed_forward_length(metadata: Metadata) -> int:
    """Width of feed-forward layers, by their tensors: some converters write another number.

    Raises:
        ModelLoadError: there are none.
    """
    return rows_of(metadata, f"{_LAYER}0.ffn_{'down' if has_swapped_names(metadata.header) else 'up'}.weight")


def rows_of(metadata: Metadata, name: str) -> int:
    """Number of a tensor's rows.

    Raises:
        ModelLoadError: the file does not have it.
    """
    if name not in metadata.header.tensors:
        raise metadata.error(f"it has no tensor '{name}'")
    return metadata.header.tensors[name].shape[0]


def checked_language(model: Metadata, text: Json, *, any_heads: bool = False) -> Json:
    """The config of a language model, if it is one that mlx-vlm's class computes.

    Args:
        any_heads: all heads together may have more or fewer numbers than the embeddings.

    Raises:
        ModelLoadError: its heads have another size, or its RoPE is scaled.
    """
    if not any_heads and text["head_dim"] * text["num_attention_heads"] != text["hidden_size"]:
        raise model.error(f"heads of {text['head_dim']} numbers are not supported with images")
    if text.get("rope_scaling") is not None:
        raise model.error("rope scaling is not supported with images")
    return text


def pixel_settings(metadata: Metadata) -> dict[str, list[float]]:
    """Mean and deviation of pixels, as processors take them."""
    found = {name: metadata.header.list_of(f"{PREFIX}.{name}", float) for name in ("image_mean", "image_std")}
    return {name: values for name, values in found.items() if values}


def channels_last(array: mx.array, config: Json) -> mx.array:
    """Weights of a convolution as MLX has them."""
    return array.transpose(0, 2, 3, 1)
