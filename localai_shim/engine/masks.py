"""What the guides of a batch let their rows say next, as packed bits for the rows that are limited and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..types import Guide, RowError

_BITS = 32
LEAST = -1e9  # stands for -inf where a row must draw something; far below all logits, finite over a temperature


@dataclass(frozen=True, slots=True)
class Masks:
    """The limits of one step."""

    rows: npt.NDArray[np.int64]
    """`[masked]` places in the batch, ascending."""
    packed: npt.NDArray[np.uint8]
    """`[masked, bytes]`: token i may come where bit i % 8 of byte i // 8 is set. Every row allows some token."""
    escapes: npt.NDArray[np.int64] | None
    """`[masked]` the token that a row draws in spite of its mask where it is the likeliest of all, or -1; None when no
    row has one."""


def ask(guides: Sequence[tuple[int, Guide]], vocabulary: int) -> tuple[Masks | None, dict[int, RowError]]:
    """Ask each guide what may come next.

    Args:
        guides: (place in the batch, guide), by place.
        vocabulary: tokens that the logits tell apart.

    Returns:
        The masks, None when no row is limited at this step, and by place what became of the guides that failed.
    """
    words = np.zeros((len(guides), -(-vocabulary // _BITS)), dtype=np.int32)
    limited: list[tuple[int, int]] = []
    failures: dict[int, RowError] = {}
    for at, (row, guide) in enumerate(guides):
        try:
            if not guide.mask(words[at]):
                continue
            escape = guide.escape
        except Exception as error:
            failures[row] = grammar_failed(error)
            continue
        limited.append((at, -1 if escape is None else escape))
    if vocabulary % _BITS:
        words[:, -1] &= (1 << vocabulary % _BITS) - 1  # no logit belongs to the bits behind
    allowing = set(np.flatnonzero(words.any(axis=1)).tolist())
    kept = [(at, escape) for at, escape in limited if at in allowing]
    for at, _ in limited:
        if at not in allowing:
            failures[guides[at][0]] = grammar_failed(ValueError("it lets no token come next"))
    if not kept:
        return None, failures
    rows = np.array([guides[at][0] for at, _ in kept], dtype=np.int64)
    packed = words[[at for at, _ in kept]].view(np.uint8)
    escapes = np.array([escape for _, escape in kept], dtype=np.int64)
    return Masks(rows, packed, escapes if (escapes >= 0).any() else None), failures


def grammar_failed(cause: Exception) -> RowError:
    """What ends a row whose guide failed."""
    error = RowError(f"the grammar of this request failed: {cause!r}")
    error.__cause__ = cause
    return error
