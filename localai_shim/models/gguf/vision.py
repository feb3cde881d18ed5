"""Vision encoders of GGUF models, which are separate files ("mmproj"), in mlx-vlm's models."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx
from mlx import nn

from ...types import Json, ModelLoadError
from ..faults.table import corrected
from ..faults.vision import FAULTS
from .encoders.description import PREFIX, Encoder, Part, check_sizes
from .encoders.table import ENCODERS, projector_type
from .header import Header, Metadata, read_header
from .reading import Weight, log_rounding, read_tensors

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

MAX_SHOWN = 300  # characters of an error
_LANGUAGE, _EMBEDDING, _HEAD = "language_model.", "model.embed_tokens", "lm_head"


class VisionFile(NamedTuple):
    """The file of a vision encoder, and its kind."""

    header: Header
    kind: Encoder

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.header, PREFIX)

    def config(self, model: Header, text: Json) -> Json:
        """The config of a model with its encoder, as that of a folder.

        Args:
            model: header of the language model.
            text: its config.

        Raises:
            ModelLoadError: a key is missing or wrong, or a tensor is not known.
        """
        if self.kind.has_layers:
            check_sizes(self.metadata)
        language = Metadata(model, model.get("general.architecture", ""))
        config = self.kind.config(self.metadata, language, text)
        self.kind.places(self.header, config)
        return config

    def token_ids(self, tokenizer: PreTrainedTokenizerFast | TokenizerWrapper) -> dict[str, int]:
        """Ids of the special tokens that images need, by their keys in the config.

        Raises:
            ModelLoadError: the vocabulary lacks one.
        """
        known = tokenizer.get_vocab()
        for text in self.kind.tokens.values():
            if text not in known:
                raise ModelLoadError(f"The vocabulary lacks '{text}', which images need.")
        return {key: int(known[text]) for key, text in self.kind.tokens.items()}

    def processor(self, tokenizer: PreTrainedTokenizerFast, config: Json) -> ProcessorMixin:
        """The processor of images, with the encoder's settings."""
        self.token_ids(tokenizer)
        return self.kind.processor(self.metadata, tokenizer, config)

    def read_model(self, config: Json, arrays: dict[str, mx.array], packings: dict[str, Json]) -> nn.Module:
        """mlx-vlm's model with its encoder.

        Args:
            config: of `config`, with the ids of tokens.
            arrays: the language model's, by mlx-lm's names.
            packings: of its layers.

        Raises:
            ModelLoadError: a tensor is missing, has another shape, or cannot be quantized.
        """
        model = _create(config)
        log_rounding(self.header)
        floats = next(array.dtype for name, array in arrays.items() if name.endswith("model.norm.weight"))
        if floats == mx.float16 and self.kind.is_wide:
            floats = mx.bfloat16
        arrays, packings = _language_arrays(model, arrays, packings)
        for path, weight in self._weights(config):
            layer = path.rpartition(".")[0]
            if weight.packing:
                packings[layer] = dict(weight.packing)
            for kind, array in weight.arrays.items():
                name = path if kind == "weight" else f"{layer}.{kind}"
                arrays[name] = array if array.dtype in (mx.uint32, mx.uint8) else array.astype(floats)
                mx.eval(arrays[name])
        nn.quantize(model, class_predicate=lambda path, _: packings.get(path, False))
        model.eval()
        try:
            model.load_weights(list(arrays.items()), strict=True)
        except ValueError as error:  # names of many tensors may follow
            what = str(error)[:MAX_SHOWN]
            raise ModelLoadError(f"'{self.header.path}' does not have the tensors of its kind: {what}.") from error
        return model

    def _weights(self, config: Json) -> Iterator[tuple[str, Weight]]:
        """Weights by mlx-vlm's names, in its order."""
        places = self.kind.places(self.header, config)
        sources: dict[str, list[str]] = {}
        for name, part in places.items():
            sources.setdefault(part.name, []).append(name)
        read: dict[str, Weight] = {}
        for name, weight in read_tensors(self.header, {name for name, part in places.items() if not part.name}):
            part = places[name]
            read[name] = self._changed(name, part, weight, config["vision_config"])
            names = sources[part.name]
            if all(each in read for each in names):
                yield part.name, self._joined(names, part, [read.pop(each) for each in names])

    def _changed(self, name: str, part: Part, weight: Weight, vision: Json) -> Weight:
        change = part.change
        is_layer = part.name.endswith(".weight") and weight.arrays["weight"].ndim == 2
        if weight.packing and (not is_layer or (change is not None and not part.keeps_rows)):
            raise ModelLoadError(f"'{self.header.path}': tensor '{name}' is quantized, which only layers can be.")
        if change is None:
            return weight
        return weight._replace(arrays={kind: change(array, vision) for kind, array in weight.arrays.items()})

    def _joined(self, names: list[str], part: Part, weights: list[Weight]) -> Weight:
        """Several tensors as one."""
        first, *others = weights
        if not others:
            return first
        if any(each.packing != first.packing for each in others):
            quoted = "', '".join(names)
            raise ModelLoadError(f"'{self.header.path}': tensors '{quoted}' are one layer, and must have one type.")
        joined = {kind: mx.concatenate([each.arrays[kind] for each in weights], part.axis) for kind in first.arrays}
        return first._replace(arrays=joined)


def open_encoder(file: Path) -> VisionFile:
    """Read the header of a vision encoder that `find_encoder` found.

    Raises:
        ModelLoadError: the file cannot be read.
    """
    header = read_header(file)
    return VisionFile(header, ENCODERS[projector_type(header)])


def _create(config: Json) -> nn.Module:
    """mlx-vlm's model of a config, without its faults."""
    name = config["model_type"]
    package = importlib.import_module(f"mlx_vlm.models.{name}")
    made = package.ModelConfig.from_dict(dict(config))
    made.text_config = package.TextConfig.from_dict(config["text_config"])
    made.vision_config = package.VisionConfig.from_dict(config["vision_config"])
    if config.get("audio_config") is not None:
        made.audio_config = package.AudioConfig.from_dict(config["audio_config"])
    model: nn.Module = corrected(package.Model, config, FAULTS)(made)
    return model


def _language_arrays(
    model: nn.Module, arrays: dict[str, mx.array], packings: dict[str, Json]
) -> tuple[dict[str, mx.array], dict[str, Json]]:
    """A language model's arrays and packings by mlx-vlm's names, with a head if its class has one."""
    language = model.language_model
    needless = "" if "model" in language else "model."
    outer = "model." if _HEAD in language.get("model", ()) else ""  # dots.ocr's class has the head inside

    def own(name: str) -> str:
        name = name.removeprefix(_LANGUAGE)  # mlx-lm's may have it, too
        return f"{_LANGUAGE}{outer}{name}" if name.startswith(_HEAD) else f"{_LANGUAGE}{name.removeprefix(needless)}"

    arrays = {own(name): array for name, array in arrays.items()}
    packings = {own(name): packing for name, packing in packings.items()}
    embedding, head = own(_EMBEDDING), own(_HEAD)
    if (outer or _HEAD in language) and f"{head}.weight" not in arrays:  # it is tied, which such a class does not know
        arrays |= {name.replace(embedding, head): array for name, array in arrays.items() if name.startswith(embedding)}
        packings |= {head: packings[embedding]} if embedding in packings else {}
    return arrays, packings
