"""Attention of rows that share their first tokens: keys and values of these are read once for all of these rows.

A row's queries attend to the shared tokens and to the row's own ones in two parts, each of which has a maximum and a
sum of its weights; the parts are joined by these, as in cascade attention (FlashInfer) and Hydragen (Juravsky et al.
2024). The queries of all rows that share are one matrix. A pass finds the shared tokens on the cache that attention is
called with (`Shared`), so that the model's own code stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from ..engine.cache_contents import Shared, SharedPart
from .patches import Function, Mask, attention_patches, replace, replaced

MOST_SCORES = 2**25  # of one product, in float32

Attend = Callable[[mx.array, mx.array, mx.array, Shared, float, Mask, mx.array | None], mx.array]
"""Attention with (queries, keys, values, shared, scale, mask, sinks)."""


class Partial(NamedTuple):
    """Attention to some of the keys, for each query: `[rows, heads, tokens, ...]` float32."""

    sums: mx.array
    """Values, each times the exponential of its score less `top`: `[..., dim]`."""
    top: mx.array
    """Largest score: `[..., 1]`."""
    weight: mx.array
    """Sum of these exponentials: `[..., 1]`."""


def use_sharing(model: nn.Module, attend: Attend, form: Callable[[Function], Function] | None) -> int:
    """Make a model's layers attend to what rows share; returns how many layers changed.

    Args:
        model: mlx-lm's or mlx-vlm's.
        attend: this machine's attention to shared tokens.
        form: makes this machine's form of the libraries' attention; None: that is used as it is.
    """
    found: list[Any] = [function for function, _ in replaced(attention_patches(lambda function: function))]
    found += [] if form is None else [form(function) for function in found]
    return replace(model, tuple((function, sharing(function, attend)) for function in found))


def is_sharing(cache: object) -> bool:
    """True if rows of a pass share tokens of the layer that this is the cache of."""
    return getattr(cache, "shared", None) is not None


@functools.cache
def sharing(function: Function, attend: Attend) -> Function:
    """Attention that reads what rows share if the cache has something; otherwise the function itself."""

    def shared_or_own(
        queries: mx.array,
        keys: object,
        values: Any,
        cache: object,
        scale: float,
        mask: Mask = None,
        sinks: mx.array | None = None,
        **more: object,
    ) -> mx.array:
        shared = getattr(cache, "shared", None)
        if shared is None:
            return function(
                queries, keys, values, cache, scale, mask, **({} if sinks is None else {"sinks": sinks}), **more
            )
        if more or not isinstance(keys, mx.array):
            raise ValueError("this model's attention takes arguments that shared tokens cannot be read with")
        return attend(queries, keys, values, shared, scale, mask, sinks)

    return shared_or_own


def attend_shared(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    shared: Shared,
    scale: float,
    mask: Mask,
    sinks: mx.array | None = None,
    exp: Callable[[mx.array], mx.array] = mx.exp,
) -> mx.array:
    """Attention by MLX's products, `[rows, heads, tokens, dim]`.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        keys: the rows' own, `[rows, key heads, columns, dim]`.
        values: as the keys.
        shared: what comes before them.
        scale: of the scores.
        mask: bool, to be broadcast to `[rows, 1, tokens, columns]`; "causal"; None: the own keys all count.
        sinks: `[heads]` scores of a key without a value.
        exp: e to the power of an array.

    Raises:
        ValueError: the mask is to be added to the scores, which it cannot be for the shared keys.
    """
    queries = queries * scale
    return joined(own(queries, keys, values, mask, exp), before(queries, shared, exp), sinks, exp).astype(queries.dtype)


def before(queries: mx.array, shared: Shared, exp: Callable[[mx.array], mx.array] = mx.exp) -> Partial:
    """Attention to the shared tokens; rows that share none have weight 0.

    Args:
        queries: `[rows, heads, tokens, dim]`, scaled.
        shared: by which rows.
        exp: see `attend_shared`.
    """
    parts = [_of_part(queries if part.rows is None else queries[part.rows], part, exp) for part in shared.parts]
    return in_order(parts, shared)


def in_order(parts: list[Partial], shared: Shared) -> Partial:
    """The parts' rows in the order of the pass."""
    if shared.order is None:
        return parts[0]
    columns = [list(arrays) for arrays in zip(*parts, strict=True)]
    for arrays, nothing in zip(columns, (0.0, -mx.inf, 0.0), strict=True):
        arrays.append(mx.full((1, *arrays[0].shape[1:]), nothing, mx.float32))
    return Partial(*(mx.concatenate(arrays)[shared.order] for arrays in columns))


def joined(
    behind: Partial, shared: Partial, sinks: mx.array | None, exp: Callable[[mx.array], mx.array] = mx.exp
) -> mx.array:
    """Attention to both parts, float32."""
    top = mx.maximum(behind.top, shared.top)
    if sinks is not None:
        sinks = sinks.astype(mx.float32)[:, None, None]
        top = mx.maximum(top, sinks)
    own_share, shared_share = exp(behind.top - top), exp(shared.top - top)
    weight = behind.weight * own_share + shared.weight * shared_share
    if sinks is not None:
        weight = weight + exp(sinks - top)
    return (behind.sums * own_share + shared.sums * shared_share) / weight


def own(
    queries: mx.array, keys: mx.array, values: mx.array, mask: Mask, exp: Callable[[mx.array], mx.array] = mx.exp
) -> Partial:
    """Attention to the rows' own keys; queries are scaled. See `attend_shared`."""
    tokens, columns = queries.shape[2], keys.shape[2]
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f"shared tokens cannot be read with the mask {mask!r}")
        mask = mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None] if tokens > 1 else None
    if mask is not None and mask.dtype != mx.bool_:
        raise ValueError("this model adds to its scores, which shared tokens cannot be read with")
    each = max(1, MOST_SCORES // (queries.shape[0] * queries.shape[1] * columns))
    pieces = []
    for start in range(0, tokens, each):
        seen = mask if mask is None or mask.shape[-2] != tokens else mask[..., start : start + each, :]
        pieces.append(_products(queries[:, :, start : start + each], keys, values, seen, exp))
    return (
        pieces[0] if len(pieces) == 1 else Partial(*(mx.concatenate([*a], axis=2) for a in zip(*pieces, strict=True)))
    )


def _of_part(queries: mx.array, part: SharedPart, exp: Callable[[mx.array], mx.array]) -> Partial:
    """Attention of rows to tokens that they all share: their queries are one block of a single row."""
    rows, heads, tokens, _ = queries.shape
    block = queries.swapaxes(0, 1).reshape(1, heads, rows * tokens, -1)
    each = max(1, MOST_SCORES // (heads * part.keys.shape[2]))
    pieces = [
        _products(block[:, :, start : start + each], part.keys, part.values, None, exp)
        for start in range(0, rows * tokens, each)
    ]
    arrays = (a[0] if len(a) == 1 else mx.concatenate([*a], axis=2) for a in zip(*pieces, strict=True))
    return Partial(*(array.reshape(heads, rows, tokens, -1).swapaxes(0, 1) for array in arrays))


def _products(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: mx.array | None,
    exp: Callable[[mx.array], mx.array],
) -> Partial:
    """Attention of scaled queries to some keys; those of one key head are one matrix."""
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1:3]
    scores = queries.reshape(rows, key_heads, -1, dim) @ keys.swapaxes(-1, -2)
    scores = scores.reshape(rows, heads, tokens, columns).astype(mx.float32)
    if mask is not None:
        scores = mx.where(mask, scores, mx.finfo(mx.float32).min)
    top = scores.max(axis=-1, keepdims=True)
    weights = exp(scores - top)
    sums = weights.astype(values.dtype).reshape(rows, key_heads, -1, columns) @ values
    return Partial(sums.reshape(rows, heads, tokens, -1).astype(mx.float32), top, weights.sum(axis=-1, keepdims=True))
