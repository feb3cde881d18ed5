"""Vectors of hidden states: pooling, dense layers and length 1, as sentence-transformers' files say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..types import ModelLoadError
from ..vectors import Embedding
from .contents import RowCache
from .sentence import Dense, SentenceFiles, read_sentence_files

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

log = logging.getLogger("localai_shim")

_MIN_LENGTH = 1e-12  # of a vector that is divided by its length
_INNER = ("language_model", "model", "transformer", "backbone")
"""Where decoders of mlx-lm and mlx-vlm keep what stands before their head."""

Hidden = Callable[["mx.array", "mx.array"], "mx.array"]
"""(tokens `[n, k]`, mask of those that count `[n, k]`) -> hidden states `[n, k, width]`."""


class Encoder:
    """Makes a vector of each text.

    Args:
        hidden: runs the model.
        head: makes vectors of what it gives.
        padding: the token that stands where a text is shorter than others.
    """

    def __init__(self, hidden: Hidden, head: Head, padding: int = 0) -> None:
        self._hidden, self._head, self._padding = hidden, head, padding

    @property
    def embedding(self) -> Embedding:
        """Its description for the endpoints. Nothing is computed."""
        files = self._head.files
        default = files.default_prompt if files.default_prompt in files.prompts else None
        return Embedding(self([[0]]).shape[-1], None, files.prompts, default, files.include_prompt)

    def __call__(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        """`[texts, dimensions]` float32, lazy. `skip`: tokens at the beginning of each text that are a prompt's."""
        states, counts = self.states(texts)
        return self._head(states, counts, skip)

    def states(self, texts: Sequence[Sequence[int]]) -> tuple[mx.array, list[int]]:
        """Hidden states `[texts, tokens, width]`, lazy, and how many tokens each text has; what follows is padding."""
        import mlx.core as mx

        tokens, mask = pad(texts, self._padding)
        return self._hidden(mx.array(tokens), mx.array(mask)), [len(text) for text in texts]


def pad(texts: Sequence[Sequence[int]], padding: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Texts as `[texts, tokens]`, with padding on the right, and which of the tokens are theirs."""
    counts = [len(text) for text in texts]
    tokens = np.full((len(texts), max(counts)), padding, np.int32)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = text
    mask = np.arange(tokens.shape[1]) < np.array(counts)[:, None]
    return tokens, mask.astype(np.int32)


class Head:
    """Makes vectors of length 1 of hidden states.

    Args:
        files: how.
        own: the dense layers that the model itself has loaded; None: they are read from their folders.
    """

    def __init__(self, files: SentenceFiles, own: Sequence[nn.Module] | None = None) -> None:
        self.files = files
        self._dense = [_read_dense(layer) for layer in files.dense] if own is None else list(own)
        self.parameters = [] if own is not None else [array for layer in self._dense for array in _arrays(layer)]

    def __call__(self, hidden: mx.array, counts: Sequence[int], skip: int = 0) -> mx.array:
        """`[texts, dimensions]` float32, of `[texts, tokens, width]`.

        Args:
            counts: tokens of each text; what follows is padding.
            skip: tokens at the beginnings that are a prompt's.
        """
        import mlx.core as mx

        sizes = mx.array(list(counts))[:, None]
        places = mx.arange(hidden.shape[1])[None]
        counted = places < sizes
        if not self.files.include_prompt:
            counted = counted & (places >= mx.minimum(skip, sizes - 1))
        pooled = [_pool(hidden.astype(mx.float32), counted, sizes, mode) for mode in self.files.modes]
        made = pooled[0] if len(pooled) == 1 else mx.concatenate(pooled, axis=-1)
        for layer, wanted in zip(self._dense, self._activations(), strict=True):
            made = wanted(layer(made)).astype(mx.float32)
        lengths = mx.linalg.norm(made, axis=-1, keepdims=True)
        return made / mx.maximum(lengths, _MIN_LENGTH)

    def _activations(self) -> list[Callable[[mx.array], mx.array]]:
        from mlx import nn

        names = [layer.activation for layer in self.files.dense] or [None] * len(self._dense)
        return [(lambda x: x) if name is None else getattr(nn, name) for name in names]


def _pool(hidden: mx.array, counted: mx.array, lengths: mx.array, mode: str) -> mx.array:
    """`[texts, width]`: one mode's result."""
    import mlx.core as mx

    if mode == "cls":
        return hidden[:, 0]
    if mode == "lasttoken":
        return mx.take_along_axis(hidden, (lengths - 1)[:, :, None], axis=1)[:, 0]
    if mode == "max":
        return mx.where(counted[:, :, None], hidden, -mx.inf).max(axis=1)
    weights = counted.astype(mx.float32)
    if mode == "weightedmean":
        weights = weights * mx.arange(1, hidden.shape[1] + 1)
    # Padding counts 0, and may be NaN: models may leave anything there.
    total = (mx.where(counted[:, :, None], hidden, 0) * weights[:, :, None]).sum(axis=1)
    size = weights.sum(axis=1, keepdims=True)
    return total / (mx.sqrt(size) if mode == "mean_sqrt_len_tokens" else size)


def _read_dense(layer: Dense) -> nn.Linear:
    """The layer, evaluated when it is first run."""
    import mlx.core as mx
    from mlx import nn

    found = sorted(layer.folder.glob("*.safetensors"))
    if not found:
        raise ModelLoadError(f"There are no safetensors in '{layer.folder.name}' beside its config.json.")
    weights: Any = mx.load(str(found[0]))
    weight, bias = weights["linear.weight"].astype(mx.float32), weights.get("linear.bias")
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight = weight
    if bias is not None:
        made.bias = bias.astype(mx.float32)
    return made


def _arrays(layer: nn.Module) -> list[mx.array]:
    from mlx.utils import tree_flatten

    return [array for _, array in tree_flatten(layer.parameters())]


def _innermost(model: nn.Module) -> nn.Module:
    """What makes a decoder's hidden states. Some of mlx-vlm's models name themselves as their language model."""
    path = [model]
    while True:
        parts = (getattr(path[-1], name, None) for name in _INNER)
        found = next((part for part in parts if callable(part) and not any(part is each for each in path)), None)
        if found is None:
            return path[-1]
        path.append(found)


def decoder_encoder(model: nn.Module, new_cache: Callable[[], RowCache], path: Path) -> Encoder | None:
    """What embeds by a decoder; None where its code gives nothing but logits.

    Args:
        model: of mlx-lm, or mlx-vlm's language model.
        new_cache: an empty cache, an object per layer.
        path: the checkpoint's folder: files of sentence-transformers say how states are pooled, if there are any.
    """
    import mlx.core as mx

    inner = _innermost(model)
    files = read_sentence_files(path) or SentenceFiles(("lasttoken",))

    def hidden(tokens: mx.array, mask: mx.array) -> mx.array:
        # Padding is on the right, where causal attention never looks.
        states: mx.array = inner(tokens, cache=new_cache())
        return states

    try:
        token = mx.zeros((1, 1), mx.int32)
        if inner is model or hidden(token, token).shape[-1] == _vocabulary(model(token, cache=new_cache())):
            return None
        return Encoder(hidden, Head(files))
    except Exception:
        log.debug("this model's hidden states cannot be had", exc_info=True)
        return None


def _vocabulary(made: Any) -> int:
    """How many logits a model gives."""
    return int(getattr(made, "logits", made).shape[-1])
