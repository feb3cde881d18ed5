"""Names of a checkpoint's tensors: as transformers 5 writes them, and as the classes of mlx-vlm know them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...types import Json
from ..checkpoint_files import read_json
from .tensors import read_header

if TYPE_CHECKING:
    import mlx.core as mx

T = TypeVar("T")

_HEAD, _EMBEDDING = "lm_head", "model.embed_tokens"
_LANGUAGE = ("", "model.", "language_model.", "model.language_model.", "thinker.")
_HEADS = (
    *(f"{part}{_HEAD}." for part in (*_LANGUAGE, "language_model.model.")),
    "head.",
    "model.llm.unembed.",
    "output.",
)
"""Names of heads; the last ones are those of DeepSeek V4, Inkling, and Falcon-OCR."""
_INNER = "vision_model."
"""transformers 4 put encoders into a part of this name; transformers 5 does not."""
_ENCODERS = ("vision_tower.", "vision_model.")


def has_head(folder: Path) -> bool | None:
    """True if a checkpoint has the weights of a language model's head; None if its files cannot be read."""
    try:
        names = list(_names(folder))
    except (OSError, ValueError):
        return None
    return any(name.startswith(_HEADS) for name in names) if names else None


def _names(folder: Path) -> Iterator[str]:
    index = read_json(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict) and index:
        yield from index
        return
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            yield from read_header(file, path.stat().st_size)


def with_head(config: Json, reads: Callable[[str], bool], head: bool | None) -> Json:
    """A config whose language model has its own head only if the weights have one.

    transformers 5 reads `tie_word_embeddings` of the whole model, and mlx-vlm of its language model. Checkpoints of
    either version have both keys, with different values.

    Args:
        config: of the whole model.
        reads: tells if the class of a part's arguments has `tie_word_embeddings`.
        head: see `has_head`.
    """
    key = "tie_word_embeddings"
    part = config.get("text_config")
    if head is None or not isinstance(part, dict):
        return config
    if not head:
        made = {**config, key: True} if reads("") else config
        return {**made, "text_config": {**part, key: True}} if reads("text_config") else made
    if config.get(key) is False and part.get(key) is not False and reads("text_config"):
        return {**config, "text_config": {**part, key: False}}
    return config


def laid_out(weights: dict[str, mx.array], config: Json) -> dict[str, mx.array]:
    """Weights whose experts lie as mlx-vlm's own code reads them: transformers 5 writes those of Qwen3-VL transposed.

    Args:
        config: of the whole model.
    """
    part = config.get("text_config") or {}
    size, inner = part.get("hidden_size", 0), part.get("moe_intermediate_size", 0)
    if config.get("model_type") != "qwen3_vl_moe" or size == 2 * inner:
        return weights
    turned = {".experts.gate_up_proj": (2 * inner, size), ".experts.down_proj": (size, inner)}
    return {
        name: array.transpose(0, 2, 1)
        if any(name.endswith(k) and array.shape[1:] == s for k, s in turned.items())
        else array
        for name, array in weights.items()
    }


def fitted(known: Collection[str], weights: Mapping[str, T]) -> dict[str, T]:
    """Weights under the names that a model has for them.

    Args:
        known: names of the model's parameters, before any of them is quantized.
        weights: the checkpoint's, after upstream's own renaming.
    """
    layers = {name.rpartition(".")[0] for name in known}
    made: dict[str, T] = {}
    for name, array in weights.items():
        layer, dot, key = name.rpartition(".")
        other = layer if layer in layers or name in known else _other(layer, layers)
        made[name if other is None else f"{other}{dot}{key}"] = array
    for part in _LANGUAGE:
        head, embedding = f"{part}{_HEAD}.", f"{part}{_EMBEDDING}."
        if f"{head}weight" in known and not any(name.startswith(head) for name in made):
            made |= {head + name.removeprefix(embedding): a for name, a in made.items() if name.startswith(embedding)}
    return made


def _other(layer: str, layers: set[str]) -> str | None:
    """The name that a model has for a layer of its encoder; None if it has none."""
    for encoder in _ENCODERS:
        if layer.startswith(encoder):
            rest = layer.removeprefix(encoder)
            for candidate in (f"{encoder}{_INNER}{rest}", f"{encoder}{rest.removeprefix(_INNER)}"):
                if candidate in layers:
                    return candidate
    return None
