"""Attention over slices of slots, compared with NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from .shape import KEYS, ROWS, SLOTS, Check, Floats, Shape, distance, draw, floats, on_device

QUERIES = (1, 3, 5, 8, 9, 64)
MASKED_COLUMNS = 64  # a GPU reads multiples of this if rows differ in length
CAPACITY = 4_352
SHARPNESS = 1.1  # of the softmax: some keys weigh more than others, and no key is all

Attend = Callable[..., mx.array]
"""Attention with the arguments `(queries, keys, values, cache, scale, mask, sinks)`."""


class Size(NamedTuple):
    """Size of a call of attention."""

    queries: int
    keys: int
    ragged: bool
    """Rows differ in length: a mask array says which keys each query sees."""

    @property
    def columns(self) -> int:
        """Keys that are read of each row."""
        longest = max(self.keys, self.queries)
        return -(-longest // MASKED_COLUMNS) * MASKED_COLUMNS if self.ragged else longest

    def __str__(self) -> str:
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        return f"{queries} x {self.keys:,} keys, {'ragged' if self.ragged else 'equal'} rows"


SIZES = tuple(Size(queries, keys, ragged) for keys in KEYS for queries in QUERIES for ragged in (False, True))


def fused(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: object,
    scale: float,
    mask: mx.array | str | None,
    sinks: mx.array | None = None,
    **more: Any,
) -> mx.array:
    """MLX's attention."""
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks, **more)


def check_attention(shape: Shape, attend: Attend, sizes: Iterable[Size] = SIZES) -> dict[Size, Check]:
    """Test attention of queries over slices of slots. Its results are compared for two heads of keys of two rows, which
    are the first and the last; those of the others have to be finite.
    """
    trial = _Attention(shape, np.random.default_rng(1))
    return {size: Check("attention", str(size), trial.error(size, attend), shape.allowed) for size in sizes}


class _Attention:
    """Queries, keys, and values of all sizes, and weights of keys before a mask."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        kv_heads, heads = shape.tested_heads
        value_dim = shape.value_dim or shape.head_dim
        self._factor, self._scale = heads // kv_heads, SHARPNESS / shape.head_dim**0.5
        queries = draw(rng, ROWS, QUERIES[-1], heads, shape.head_dim)
        keys = draw(rng, SLOTS, kv_heads, CAPACITY, shape.head_dim)
        values = draw(rng, SLOTS, kv_heads, CAPACITY, value_dim)
        self._queries = on_device(queries, shape)
        self._keys, self._values = (self._slots(array, shape) for array in (keys, values))
        sinks = draw(rng, heads)
        self._sinks = on_device(sinks, shape) if shape.sinks else None
        self._compared = [(0, 0), (ROWS - 1, kv_heads - 1)]  # row and head of keys
        self._weights, self._sums, self._seen_values = [], [], []
        for row, head in self._compared:
            group = slice(head * self._factor, (head + 1) * self._factor)
            q, k = floats(queries[row, :, group]).swapaxes(0, 1), floats(keys[row, head])
            scores = (q.reshape(-1, shape.head_dim) @ k.T).reshape(self._factor, QUERIES[-1], CAPACITY) * self._scale
            most = scores.max(axis=-1, keepdims=True)
            self._weights.append(np.exp(scores - most))
            extra = np.exp(floats(sinks)[group, None, None] - most) if shape.sinks else np.zeros_like(most)
            self._sums.append(extra)
            self._seen_values.append(floats(values[row, head]))

    @staticmethod
    def _slots(drawn: npt.NDArray[np.int8], shape: Shape) -> mx.array:
        """Slots as `kv.layers` stores them: flat."""
        flat = on_device(drawn.reshape(-1, drawn.shape[-1]), shape)
        mx.eval(flat)
        return flat.reshape(drawn.shape)

    def error(self, size: Size, attend: Attend) -> float:
        lengths = [max(size.keys, size.queries)] * ROWS
        if size.ragged:
            lengths[1:] = [max(size.queries, size.keys * 2 // 5)] * (ROWS - 1)
        last = np.array(lengths)[:, None] - size.queries + np.arange(size.queries)  # that each query sees
        seen = np.arange(size.columns) <= last[:, :, None]  # [rows, queries, columns]
        expected = np.stack([self._expected(i, seen[row]) for i, (row, _) in enumerate(self._compared)])
        return distance(lambda: self._found(size, attend, seen), expected)

    def _expected(self, which: int, seen: npt.NDArray[np.bool_]) -> Floats:
        """`[heads of one group, queries, value_dim]`."""
        queries, columns = seen.shape
        weights = self._weights[which][:, :queries, :columns] * seen
        made = weights.reshape(-1, columns) @ self._seen_values[which][:columns]
        sums = weights.sum(axis=-1, keepdims=True) + self._sums[which][:, :queries]
        out: Floats = made.reshape(self._factor, queries, -1) / sums
        return out

    def _found(self, size: Size, attend: Attend, seen: npt.NDArray[np.bool_]) -> mx.array:
        queries = mx.contiguous(self._queries[:, : size.queries]).swapaxes(1, 2)
        keys, values = (array[:ROWS, :, : size.columns] for array in (self._keys, self._values))
        mask: mx.array | str | None = None if size.queries == 1 else "causal"
        if size.ragged:
            mask = mx.array(seen)[:, None]
        out = attend(queries, keys, values, None, self._scale, mask, self._sinks)
        groups = [(row, slice(head * self._factor, (head + 1) * self._factor)) for row, head in self._compared]
        finite = mx.where(mx.isfinite(out).all(), 0.0, mx.nan)
        return mx.stack([out[row, group] for row, group in groups]) + finite
