"""Prompts of different lengths that take two turns each, beside one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localai_shim.engine.engine import Engine
from localai_shim.stats import EngineStats
from tests.architectures import WINDOW
from tests.engine.harness import Running, request
from tests.tiny import VOCABULARY

TOKENS = 8
LENGTHS = [5, WINDOW - 9, WINDOW + 9, 2 * WINDOW + 6]


def tokens(n: int, seed: int) -> list[int]:
    return [(17 * seed + 7 * i + 11 * seed * i * i) % (VOCABULARY - 3) + 3 for i in range(n)]


def take_two_turns(engine: Engine[Any], alone: Callable[[tuple[int, ...], int], list[int]]) -> EngineStats:
    """Hold what rows say in two turns, the second of which goes on from the first, against what each says alone."""
    turns = [tokens(length, 3 + i) for i, length in enumerate(LENGTHS)]
    for _ in range(2):
        running = [Running(engine, request(turn, max_tokens=TOKENS + 5 * i)) for i, turn in enumerate(turns)]
        for i, (turn, row) in enumerate(zip(turns, running, strict=True)):
            said = alone(tuple(turn), TOKENS + 5 * i)
            assert row.finish() == [said]
            turns[i] = [*turn, *said, *tokens(7, 20 + i)]
    stats = engine.stats()
    assert stats.cache_hits >= (len(turns) - 1 if stats.cache_bytes else 0), "second turns go on from the first"
    return stats
