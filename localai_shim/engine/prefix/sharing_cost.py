"""Measures from when on it saves time that rows hold their first tokens once: see `sharing`."""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np

from ..cache_contents import KeyValues
from ..costs.cost_model import Stopwatch
from ..kv.segments import build_row
from ..kv.shared import Prefix
from ..kv.slots import SlotCache
from ..ports import host

ROWS, OWN_TOKENS, LAYERS = 8, 32, 2  # of the steps that are measured
SHORT, LONG = 32, 512  # first tokens
TRIES = 4  # of which the shortest counts


def break_even(layer: KeyValues, query_heads: int) -> float:
    """Tokens of copies that rows save by sharing, from which on their step takes no longer; inf: it always does.

    A separate product for the shared tokens takes a fixed time, and less for each token than copies do: two lengths
    are measured, and the line between them tells where both take as long.

    Args:
        layer: of a row that holds something: its heads and types count.
        query_heads: of the model's attention.
    """
    keys, values = layer.arrays
    return _break_even(query_heads, keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)


@lru_cache(maxsize=16)
def _break_even(query_heads: int, heads: int, key_dim: int, value_dim: int, dtype: mx.Dtype) -> float:
    rows = [
        _Rows(query_heads, mx.zeros((1, heads, 1, key_dim), dtype), mx.zeros((1, heads, 1, value_dim), dtype), *each)
        for each in ((SHORT, True), (SHORT, False), (LONG, True), (LONG, False))
    ]
    seconds = [min(each) for each in zip(*([its.seconds() for its in rows] for _ in range(1 + TRIES)), strict=True)]
    return crossing(seconds[0] - seconds[1], seconds[2] - seconds[3])


def crossing(short: float, long: float) -> float:
    """Tokens of copies from which on sharing takes no longer.

    Args:
        short: by how many seconds it takes longer with `SHORT` first tokens.
        long: with `LONG` ones.
    """
    if max(short, long) <= 0:
        return 0.0
    if long >= short:
        return float("inf")
    return (ROWS - 1) * (SHORT + (LONG - SHORT) * short / (short - long))


class _Rows:
    """Rows with equal first tokens, in layers that do nothing but attend.

    Args:
        query_heads: of a layer.
        key: of one token.
        value: of one token.
        first: tokens that are equal.
        shared: they are held once.
    """

    def __init__(self, query_heads: int, key: mx.array, value: mx.array, first: int, shared: bool) -> None:
        kinds = [KeyValues(0)] * LAYERS
        arrays = [mx.repeat(array, first + OWN_TOKENS, axis=2) for array in (key, value)] * LAYERS
        prefix = Prefix(None, np.zeros(first, np.int64), [mx.contiguous(a[:, :, :first]) for a in arrays])
        row = build_row(kinds, [arrays], None, first + OWN_TOKENS, first + OWN_TOKENS)
        self._batch = SlotCache()
        self._batch.join([row] * ROWS, [prefix if shared else None] * ROWS)
        self._new = [mx.repeat(array, ROWS, axis=0) for array in (key, value)]
        self._queries = mx.zeros((ROWS, query_heads, 1, key.shape[3]), key.dtype)

    def seconds(self) -> float:
        """Seconds of one step."""
        forms, watch = host().forms(), Stopwatch()
        x = self._queries
        for layer in self._batch.advance():
            keys, values = layer.update_and_fetch(*self._new)
            x = x + forms.attend(x, keys, values, layer)[..., :1]
        mx.eval(x)
        return watch.seconds
