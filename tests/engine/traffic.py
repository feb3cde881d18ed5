"""Rows that join, leave, and are canceled next to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localai_shim.engine.engine import Engine
from localai_shim.types import GenerationRequest, Token
from tests.engine.harness import Running, is_last, request


def in_traffic(
    engine: Engine[Any], made: Sequence[GenerationRequest], neighbor: Callable[[int], GenerationRequest]
) -> list[list[Token]]:
    """The tokens of requests that join one after another, with neighbors that are canceled in mid-stream."""
    running: list[Running] = []
    neighbors: list[Running] = []
    for i, each in enumerate(made):
        running.append(Running(engine, each))
        if i % 3 == 0:
            neighbors.append(Running(engine, neighbor(i)))
            _read(neighbors[-1], 2)
        if i % 3 == 2:
            neighbors.pop(0).cancel()
        if i % 4 == 1:  # let the batch move on before the next one joins
            _read(running[-1], 3)
    for run in neighbors:
        run.cancel()
    for run in running:
        run.finish()
    return [[event for event in run.events[0] if isinstance(event, Token)] for run in running]


def _read(run: Running, count: int) -> None:
    """Wait for this many tokens, or for the end."""
    [events] = run.events
    while len(events) < count and not (events and is_last(events[-1])):
        run.read(1)


def ids_in_traffic(
    engine: Engine[Any], made: Sequence[GenerationRequest], neighbor: Callable[[int], GenerationRequest]
) -> list[list[int]]:
    return [[token.id for token in tokens] for tokens in in_traffic(engine, made, neighbor)]


def reversed_prompts(made: Sequence[GenerationRequest]) -> Callable[[int], GenerationRequest]:
    """Neighbors with the same sampling, whose prompts are reversed."""
    return lambda i: request(made[i].prompt.tokens[::-1] or [4], made[i].sampling, 400, ignore_eos=True)
