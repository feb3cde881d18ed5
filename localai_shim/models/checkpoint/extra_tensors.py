"""Tensors of a checkpoint that its model has no place for: those that it does not need are skipped, with a log line.

Any other one is left for upstream's code, which refuses it by its name.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from ...types import Json, ModelLoadError

if TYPE_CHECKING:
    import mlx.core as mx

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

Weights = dict[str, "mx.array"]


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
    import mlx.core as mx

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
