"""Segments of keys and values that tell what they are of, and token lists that begin alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mlx.core as mx

from localai_shim.engine.kv.segments import Segment

RATIOS = (1, 1)
"""Of keys and values: each token has its place."""


def arrays_of(tokens: Sequence[int], start: int = 0, ratios: Sequence[int] = RATIOS) -> Segment:
    """Arrays that tell what is before each place: position and sum of the tokens so far.

    Args:
        tokens: of all of the row.
        start: the segment's first token.
        ratios: for each array, how many tokens it has one place for.
    """
    rows = [[float(i), float(sum(tokens[: i + 1])), 0.0, 1.0] for i in range(len(tokens))]
    return [
        mx.array([[rows[ratio - 1 :: ratio] or [[0.0] * 4]] * 3])[:, :, start // ratio : len(tokens) // ratio] * (i + 1)
        for i, ratio in enumerate(ratios)
    ]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two lists begin with alike, the long way."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


def random_tokens(generator: random.Random) -> list[int]:
    return [generator.randrange(3) for _ in range(generator.randrange(1, 14))]
