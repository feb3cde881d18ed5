"""Rotary embeddings whose cosines and sines are computed once per pass, instead of twice per layer.

MLX's CPU back end has no kernel for `mx.fast.rope`: it runs 23 operations for each call, cosines and sines among them.
A call for one token takes 112 us (8 heads of 64, MLX 0.32.4), and a product with a matrix, which all layers share, 4.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ...threads.cache import LRUCache
from ..patches import Replaced, replace, with_names

MAX_TURNS = 8  # kept per thread: models have a few bases, and their passes take turns

_thread = threading.local()
"""`starts`: of the pass that this thread is building. `turns`: an array belongs to the thread that made it."""


class _Turns(NamedTuple):
    """Rotation of vectors at some positions: x * cosines + (x @ swap) * sines, or x @ matrix."""

    cosines: mx.array
    sines: mx.array
    """`[tokens, dim]`, or `[rows, 1, tokens, dim]`; 1 and 0 where nothing turns."""
    swap: mx.array
    """`[dim, dim]`."""
    matrix: mx.array | None
    """`[dim, dim]`, of a single position."""
    named: tuple[object, ...]
    """Arrays that are known by their identity, which no other may get meanwhile."""


@contextmanager
def turned_from(starts: int | mx.array | None) -> Iterator[None]:
    """See `engine.ports.Forms.turned_from`. Only positions that nothing changes are shared by layers: upstream's own
    caches count in place, in arrays that stay the same objects.
    """
    before, _thread.starts = getattr(_thread, "starts", None), starts
    try:
        yield
    finally:
        _thread.starts = before


def rope(
    x: mx.array,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None = None,
) -> mx.array:
    """`mx.fast.rope` of `[rows, heads, tokens, dim]`, with all of its arguments but the stream."""
    is_array = isinstance(offset, mx.array)
    if x.dtype != mx.float32 or x.ndim != 4 or (is_array and offset is not getattr(_thread, "starts", None)):
        return mx.fast.rope(x, dims, traditional=traditional, base=base, scale=scale, offset=offset, freqs=freqs)
    tokens, dim = x.shape[-2:]
    key = dims, traditional, base, scale, is_array, id(offset) if is_array else offset, id(freqs), tokens, dim
    if not hasattr(_thread, "turns"):
        _thread.turns = LRUCache[_Turns](MAX_TURNS)
    turns: _Turns | None = _thread.turns.get(key)
    if turns is None:
        radians = _per_position(dims, base) if freqs is None else 1 / freqs
        turns = _turns(_angles(offset, tokens, radians * scale), dim, traditional, (offset, freqs))
        _thread.turns.put(key, turns)
    return x @ turns.matrix if turns.matrix is not None else x * turns.cosines + (x @ turns.swap) * turns.sines


@functools.lru_cache(maxsize=MAX_TURNS)
def _per_position(dims: int, base: float) -> mx.array:
    """Radians by which each pair turns from one position to the next, `[dims / 2]`."""
    return mx.array((base ** (-np.arange(0, dims, 2) / dims)).astype(np.float32))


def _angles(offset: int | mx.array, tokens: int, radians: mx.array) -> mx.array:
    """`[tokens, dims / 2]`, or `[rows, 1, tokens, dims / 2]`."""
    places = mx.arange(tokens, dtype=mx.float32)
    first = offset.reshape(-1, 1, 1) if isinstance(offset, mx.array) else offset
    return (places + first)[..., None] * radians


def _turns(angles: mx.array, dim: int, traditional: bool, named: tuple[object, ...]) -> _Turns:
    pairs = angles.shape[-1]
    rest = [(0, 0)] * (angles.ndim - 1) + [(0, dim - 2 * pairs)]
    cosines, sines = _of_both(mx.cos(angles), traditional), _of_both(mx.sin(angles), traditional)
    if dim > 2 * pairs:
        cosines, sines = mx.pad(cosines, rest, constant_values=mx.array(1.0)), mx.pad(sines, rest)
    identity, swap = _matrices(pairs, dim, traditional)
    matrix = identity * cosines + swap * sines if angles.size == pairs and angles.ndim == 2 else None
    return _Turns(cosines, sines, swap, matrix, named)


def _of_both(x: mx.array, traditional: bool) -> mx.array:
    """A number of each pair in both of its places: `[..., pairs]` -> `[..., 2 * pairs]`."""
    return mx.repeat(x, 2, axis=-1) if traditional else mx.concatenate([x, x], axis=-1)


@functools.lru_cache(maxsize=MAX_TURNS)
def _matrices(pairs: int, dim: int, traditional: bool) -> tuple[mx.array, mx.array]:
    """`[dim, dim]`: the identity, and what puts -x2 and x1 in the places of each pair x1 and x2."""
    first = np.arange(pairs) * 2 if traditional else np.arange(pairs)
    second = first + (1 if traditional else pairs)
    swap = np.zeros((dim, dim), np.float32)
    swap[second, first], swap[first, second] = -1, 1
    return mx.array(np.eye(dim, dtype=np.float32)), mx.array(swap)


class RotaryLayer(nn.RoPE):  # type: ignore[misc]
    """`nn.RoPE` in this form."""

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        return rope(x, self.dims, traditional=self.traditional, base=self.base, scale=self.scale, offset=offset)


_MODULES: Replaced = ((mx, with_names(mx, fast=with_names(mx.fast, rope=rope))),)


def use_shared_turns(model: nn.Module) -> int:
    """Make a model's layers turn queries and keys in this form; returns how many layers changed."""
    layers = {id(layer): layer for layer in model.modules() if type(layer) is nn.RoPE}  # some models share one
    for layer in layers.values():
        layer.__class__ = RotaryLayer
    return len(layers) + replace(model, _MODULES)
