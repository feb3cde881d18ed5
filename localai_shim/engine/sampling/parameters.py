"""The sampling parameters of a batch as arrays, portions of its rows that are sampled together, and logits masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from ...types import GrammarConstraint, RowError
from ..row import Array, Row, grammar_failed

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

WORD_BITS = 32
LOGIT_FLOOR = -1e9  # -inf for a row that must sample something: far below all logits, finite over a temperature


@dataclass(frozen=True, slots=True)
class Masks:
    """The logits masks of one step."""

    rows: npt.NDArray[np.int64]
    """`[masked]` places in the batch, ascending."""
    packed: npt.NDArray[np.uint8]
    """`[masked, bytes]`: token i is allowed where bit i % 8 of byte i // 8 is set. Every row allows some token."""
    escapes: npt.NDArray[np.int64] | None
    """`[masked]` the token that is allowed in spite of the mask where it is the likeliest of all, or -1; None: no row
    has one."""


def make_masks(
    constraints: Sequence[tuple[int, GrammarConstraint]], vocabulary: int
) -> tuple[Masks | None, dict[int, RowError]]:
    """Have each grammar constraint say which tokens it allows next.

    Args:
        constraints: (place in the batch, grammar constraint), by place.
        vocabulary: size of the logits.

    Returns:
        The masks, None when no row is limited at this step, and by place the errors of the constraints that failed.
    """
    words = np.zeros((len(constraints), -(-vocabulary // WORD_BITS)), dtype=np.int32)
    kept: list[tuple[int, int]] = []
    failures: dict[int, RowError] = {}
    for at, (row, constraint) in enumerate(constraints):
        try:
            if not constraint.mask(words[at]):
                continue
            escape = constraint.escape
        except BaseException as error:  # that of a panic in Rust is no Exception
            failures[row] = grammar_failed(error)
            continue
        if vocabulary % WORD_BITS:
            words[at, -1] &= (1 << vocabulary % WORD_BITS) - 1  # no logit belongs to the bits behind
        if words[at].any():
            kept.append((at, -1 if escape is None else escape))
        else:
            failures[row] = grammar_failed(ValueError("it allows no token here"))
    if not kept:
        return None, failures
    rows = np.array([constraints[at][0] for at, _ in kept], dtype=np.int64)
    packed = words[[at for at, _ in kept]].view(np.uint8)
    escapes = np.array([escape for _, escape in kept], dtype=np.int64)
    return Masks(rows, packed, escapes if (escapes >= 0).any() else None), failures


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
