"""Logits masks: which tokens grammar constraints allow next, as packed bits for the rows that are limited alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...types import GrammarConstraint, RowError
from ..row import grammar_failed

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
