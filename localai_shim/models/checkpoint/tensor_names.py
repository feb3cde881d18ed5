"""Names of a checkpoint's tensors: in the forms of transformers and of mlx-lm, and those without a place in the model.

Tensors that a model does not need are skipped, with a log line. Upstream's code refuses any other by its name.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import mlx.core as mx

from ...types import Json, ModelLoadError
from .files import read_json
from .tensors import read_header

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


log = logging.getLogger("localai_shim")

_KINDS = {
    "buffers": r"(.*\.)?((rotary_emb|rotary_pos_emb|rope)\.(inv_freq|cos_cached|sin_cached)|position_ids|masked_bias|"
    r"(attn|attention)\.bias)",
    "layers that draft tokens": r"(.*\.)?(mtp(_\w+)?|nextn\w*|mtp_block|eagle\w*|medusa\w*)\..*",
    "encoders": r"(\w+\.){0,2}(vision\w*|visual|audio\w*|image\w*|video\w*|speech\w*|multi_?modal\w*|mm\w*|"
    r"\w*projector|perceiver\w*|connector|mlp1|embed_(vision|audio)|patch_\w+)(\..*)?",
}
"""Names of tensors that answers to text do not need, as the model's own code has them."""
_KIND = {kind: re.compile(names) for kind, names in _KINDS.items()}
_TIED = re.compile(r"((language_)?model\.)*(lm_head|output|embed_out)\.(weight|scales|biases)")
_EMBEDDINGS = re.compile(r"(.*\.)?(embed_tokens|wte|word_embeddings|embed_in|embeddings|tok_embeddings)\.weight")
_LAYER = re.compile(r"(.*\.)?(?:layers|h|blocks)\.(\d+)\..*")
_MASK_AXES = 4  # of a causal mask, which older checkpoints have as the bias of an attention layer
_PACKED = (".scales", ".biases")

Weights = dict[str, mx.array]


def without_extra(known: Collection[str], weights: Weights, config: Json) -> Weights:
    """A checkpoint's tensors without those that its model does not need.

    Args:
        known: names of the model's tensors; those of packed layers may be missing.
        weights: tensors by the model's names.
        config: a checkpoint's.

    Raises:
        ModelLoadError: it has an output layer that is not the embeddings, and the model has no place for it.
    """
    layers = {name.rpartition(".")[0] for name in known}
    extra = [name for name in weights if name not in known and not _is_packed(name, layers)]
    kinds = {name: kind for name in extra if (kind := _kind(name, weights, layers, config)) is not None}
    if kinds:
        size = sum(weights[name].nbytes for name in kinds)
        counts = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(Counter(kinds.values()).items()))
        log.info("%d tensor(s) that the model does not need are skipped (%.3g MB): %s", len(kinds), size / 1e6, counts)
    return {name: array for name, array in weights.items() if name not in kinds}


def _is_packed(name: str, layers: set[str]) -> bool:
    """A tensor of a layer that will be packed."""
    return name.endswith(_PACKED) and name.rpartition(".")[0] in layers


def _kind(name: str, weights: Weights, layers: set[str], config: Json) -> str | None:
    """The kind of part that a tensor belongs to; None if the model may need it.

    Raises:
        ModelLoadError: see `without_extra`.
    """
    if _TIED.fullmatch(name):
        return _tied(name, weights, config)
    if name.rpartition(".")[0] in layers and not _KIND["buffers"].fullmatch(name):
        return None  # of a layer that the model has
    for kind, pattern in _KIND.items():
        if name.endswith(".bias") and kind == "buffers" and weights[name].ndim < _MASK_AXES:
            continue
        if pattern.fullmatch(name) and not _has_part(name, layers, kind):
            return kind
    found = _LAYER.fullmatch(name)
    if found and _is_beyond(int(found[2]), config):
        return "layers that draft tokens"
    return None


def _has_part(name: str, layers: set[str], kind: str) -> bool:
    """True if the model has the encoder that a tensor belongs to: then it may need the tensor."""
    if kind != "encoders":
        return False
    found = re.match(r"((language_)?model\.)*\w+(\.|$)", name)
    return found is not None and any(layer.startswith(found[0]) for layer in layers)


def _is_beyond(number: int, config: Json) -> bool:
    """True if a layer comes behind the model's own, where checkpoints put those that draft tokens."""
    texts: list[Json] = [config, *(each for each in config.values() if isinstance(each, dict))]
    for text in texts:
        count = text.get("num_hidden_layers")
        more = text.get("num_nextn_predict_layers") or text.get("num_mtp_layers")
        if isinstance(count, int) and isinstance(more, int) and count <= number < count + more:
            return True
    return False


def _tied(name: str, weights: Weights, config: Json) -> str | None:
    """The kind of an output layer that the model does not have, because it multiplies with its embeddings.

    Raises:
        ModelLoadError: it is another one.
    """
    inner = config.get("text_config")
    if config.get("tie_word_embeddings") or (isinstance(inner, dict) and inner.get("tie_word_embeddings")):
        return "tied output layers"
    embeddings = next((key for key in weights if _EMBEDDINGS.fullmatch(key)), None)
    head = weights.get(f"{name.rpartition('.')[0]}.weight")
    if embeddings is None or head is None:
        return None
    if head.shape == weights[embeddings].shape and mx.array_equal(head, weights[embeddings]).item():
        return "tied output layers"
    raise ModelLoadError(
        f"'{name}' is another matrix than '{embeddings}', but the code of '{config.get('model_type')}' computes logits "
        "with the embeddings. The model's answers would be wrong."
    )
