"""Attention of a model's layers: which calls they make, and plain products at sizes where the device's own is wrong."""

from __future__ import annotations

import functools
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from ..forms import forms
from ..patches import Function, Mask, Replaced, replace, with_names
from ..shared_attention import is_sharing, sharing
from .attention import QUERIES, Attend, Size, fused
from .shape import KEYS

MOST_SCORES = 2**26  # that plain attention holds, in float32
_UPSTREAM = ("mlx_lm.models.base", "mlx_vlm.models.base")

Sizes = frozenset[Size]
_thread = threading.local()


class Call(NamedTuple):
    """A call of attention that a layer makes."""

    attend: Attend
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dtype: str
    sinks: bool


# -- plain products and softmax --------------------------------------------------------------------------------------


def plain(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: object,
    scale: float,
    mask: Mask,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention by products and a softmax in float32, some queries at a time in long contexts."""
    rows, heads, tokens, _ = queries.shape
    columns = keys.shape[2]
    each = max(1, MOST_SCORES // (rows * heads * columns))
    parts = []
    for start in range(0, tokens, each):
        end = min(start + each, tokens)
        part: mx.array | None
        if isinstance(mask, str):
            last = mx.arange(columns - tokens + start, columns - tokens + end)
            part = mx.arange(columns) <= last[:, None]
        else:
            part = mask if mask is None or mask.shape[-2] != tokens else mask[..., start:end, :]
        parts.append(_plain(queries[:, :, start:end] * scale, keys, values, part, sinks))
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)


def _plain(
    queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array | None, sinks: mx.array | None
) -> mx.array:
    rows, heads, tokens, dim = queries.shape
    kv_heads, columns = keys.shape[1:3]
    scores = queries.reshape(rows, kv_heads, -1, dim) @ keys.swapaxes(-1, -2)
    scores = scores.reshape(rows, heads, tokens, columns).astype(mx.float32)
    if mask is not None:
        scores = mx.where(mask, scores, mx.finfo(mx.float32).min) if mask.dtype == mx.bool_ else scores + mask
    if sinks is not None:
        extra = mx.broadcast_to(sinks.astype(mx.float32).reshape(1, heads, 1, 1), (rows, heads, tokens, 1))
        scores = mx.concatenate([scores, extra], axis=-1)
    weights = mx.softmax(scores, axis=-1)[..., :columns].astype(values.dtype)
    return (weights.reshape(rows, kv_heads, -1, columns) @ values).reshape(rows, heads, tokens, -1)


# -- which sizes are computed so -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def is_unsafe(failed: Sizes, queries: int, columns: int, ragged: bool) -> bool:
    """True for sizes that failed; one between tested sizes is unsafe if any of the nearest ones failed."""
    for tested in _nearest(QUERIES, queries):
        sizes = [Size(tested, keys, ragged) for keys in KEYS]
        places = [size.columns for size in sizes]
        if any(sizes[places.index(place)] in failed for place in _nearest(places, columns)):
            return True
    return False


def _nearest(tested: Sequence[int], number: int) -> Sequence[int]:
    """The number itself if it was tested, else the next smaller and larger ones."""
    place = bisect_left(tested, number)
    if place < len(tested) and tested[place] == number:
        return (number,)
    return tested[max(place - 1, 0) : place + 1]


@functools.cache
def _guarded(attend: Function, failed: Sizes) -> Function:
    """Attention with plain products at unsafe sizes. Quantized keys and values are left to it."""

    def guarded(
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: object,
        scale: float,
        mask: Mask = None,
        sinks: mx.array | None = None,
        **more: object,
    ) -> mx.array:
        # What rows share is read by products anyway.
        known = isinstance(keys, mx.array) and not hasattr(cache, "bits") and not more and not is_sharing(cache)
        if known and is_unsafe(failed, queries.shape[2], keys.shape[2], isinstance(mask, mx.array)):
            return plain(queries, keys, values, cache, scale, mask, sinks)
        return attend(queries, keys, values, cache, scale, mask, **({} if sinks is None else {"sinks": sinks}), **more)

    return guarded


def guard(model: nn.Module, failed: Sizes) -> int:
    """Give a model's layers plain attention at unsafe sizes; returns how many layers changed."""
    return replace(model, _replaced(lambda attend: _guarded(attend, failed)))


# -- which calls layers make -----------------------------------------------------------------------------------------


def calls(model: nn.Module, build: Callable[[], object]) -> list[Call]:
    """Calls of attention that a model's layers make while a pass is built, each once."""
    kinds = [(layer, type(layer)) for layer in model.modules()]
    _thread.calls = []
    try:
        replace(model, _replaced(_recorded))
        build()
        return list(dict.fromkeys(_thread.calls))
    finally:
        del _thread.calls
        for layer, kind in kinds:
            layer.__class__ = kind


@functools.cache
def _recorded(attend: Function) -> Function:
    def recorded(
        queries: mx.array,
        keys: object,
        values: object,
        cache: object,
        scale: float,
        mask: Mask = None,
        *more: object,
        **named: object,
    ) -> mx.array:
        found = getattr(_thread, "calls", None)
        if (
            found is not None
            and isinstance(keys, mx.array)
            and isinstance(values, mx.array)
            and not hasattr(cache, "bits")
        ):
            sinks = more[0] if more else named.get("sinks")
            shapes = (queries.shape[1], keys.shape[1], keys.shape[3], values.shape[3])
            found.append(Call(attend, *shapes, str(queries.dtype).removeprefix("mlx.core."), sinks is not None))
        return attend(queries, keys, values, cache, scale, mask, *more, **named)

    return recorded


# -- finding them ----------------------------------------------------------------------------------------------------


def _replaced(make: Callable[[Function], Function]) -> Replaced:
    """Functions by which layers attend, and what is made of them: the libraries', their form for this machine, and
    MLX's own, which some layers call.
    """
    upstream = [getattr(sys.modules.get(name), "scaled_dot_product_attention", None) for name in _UPSTREAM]
    found = [function for function in upstream if function is not None]
    form = forms().attention()
    found += [] if form is None else [form(function) for function in found]
    found += [sharing(function, forms().attend_shared) for function in found]
    return (*((function, make(function)) for function in found), (mx, _mlx_with(make(fused))))


@functools.cache
def _mlx_with(attend: Function) -> ModuleType:
    """MLX, with another `mx.fast.scaled_dot_product_attention`."""

    def direct(
        queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: Mask = None, **more: object
    ) -> mx.array:
        return attend(queries, keys, values, None, scale, mask, **more)

    return with_names(mx, fast=with_names(mx.fast, scaled_dot_product_attention=direct))
