"""The sampling parameters of a batch as arrays, and portions of its rows that are sampled for together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from ..row import Array, Row

Ints = npt.NDArray[np.int64]

LEAST_TOP_P = 1e-7  # keeps the likeliest token only, as 0 does


class Parameters:
    """The parameters of all rows, as arrays."""

    def __init__(self, rows: Sequence[Row]) -> None:
        params = [row.sampling for row in rows]
        self.temperature = np.array([p.temperature for p in params], dtype=np.float32)
        self.top_k = np.array([p.top_k for p in params], dtype=np.int64)
        self.top_p = np.array([p.top_p for p in params], dtype=np.float32)
        self.min_p = np.array([p.min_p for p in params], dtype=np.float32)
        sampled = self.temperature > 0
        filtered = sampled & ((self.top_p < 1) | (self.top_k > 0) | (self.min_p > 0))
        plain = np.flatnonzero(sampled & ~filtered)
        self.plain = len(plain)
        """Number of the rows that sample from the whole distribution."""
        self.sampled = np.concatenate([plain, np.flatnonzero(filtered)])
        """Places of these rows, and then of those with filters; all others take the likeliest token."""
        self.keys = np.array([row.key for row in rows], dtype=np.uint64)[self.sampled]
        """`[rows that sample]`: see `Noise`."""
        self.logprob_rows = [i for i, p in enumerate(params) if p.top_logprobs is not None]
        """Places of the rows that want logprobs."""
        self.top_logprobs = max((p.top_logprobs or 0 for p in params), default=0)
        """The likeliest tokens that they want, at most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Filters of some rows; None: no row has this one. `[rows]` of NumPy, `[rows, 1]` of MLX."""

    top_k: Array
    """At least 1; the size of the vocabulary for rows without."""
    top_p: Array
    """At least `LEAST_TOP_P`; 1 for rows without."""
    min_p: Array
    """0 for rows without."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows that are sampled for together: all have filters, or none has."""

    which: slice
    """Of the rows that sample."""
    rows: Ints
    """`[rows]` places in the batch, ascending."""
    temperature: Array
    """`[rows, 1]`"""
    limits: Limits | None
    """None: rows without filters."""


def portions_of(p: Parameters, vocabulary: int, size: int, xp: ModuleType) -> list[Portion]:
    """The rows that sample, at most `size` in each portion.

    Args:
        p: of the batch.
        vocabulary: size of the logits.
        size: rows.
        xp: numpy or mlx.core, of which the arrays are.
    """
    out = []
    for begin, end, filtered in ((0, p.plain, False), (p.plain, len(p.sampled), True)):
        for start in range(begin, end, size):
            which = slice(start, min(start + size, end))
            rows = p.sampled[which]
            limits = _limits(p, rows, vocabulary, xp) if filtered else None
            out.append(Portion(which, rows, xp.array(p.temperature[rows, None]), limits))
    return out


def _limits(p: Parameters, rows: Ints, vocabulary: int, xp: ModuleType) -> Limits:
    top_k, top_p, min_p = p.top_k[rows], np.maximum(p.top_p[rows], np.float32(LEAST_TOP_P)), p.min_p[rows]
    top_k = np.where((top_k > 0) & (top_k < vocabulary), top_k, vocabulary)

    def array(limit: Array, there: np.bool_) -> Array:
        return xp.array(limit if xp is np else limit[:, None]) if there else None

    used = (top_k < vocabulary).any(), (top_p < 1).any(), (min_p > 0).any()
    return Limits(*map(array, (top_k, top_p, min_p), used))
