"""Segments of keys and values that tell what they are of, and token lists that begin alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mlx.core as mx

from localai_shim.engine.kv.segments import Segment


def arrays_of(tokens: Sequence[int], start: int = 0) -> Segment:
    """Keys and values that tell what is before them: position and sum of the tokens so far."""
    rows = [[float(i), float(sum(tokens[: i + 1])), 0.0, 1.0] for i in range(start, len(tokens))]
    return [mx.array([[rows] * 3]), mx.array([[rows] * 3]) * 2]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two lists begin with alike, the long way."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


def random_tokens(generator: random.Random) -> list[int]:
    return [generator.randrange(3) for _ in range(generator.randrange(1, 14))]
