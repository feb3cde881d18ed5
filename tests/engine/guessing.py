"""Drafters for tests: what a row will sample, known from a run without drafts, and right only sometimes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.decode.in_flight import Verifying
from localai_shim.engine.drafts import controller as speculation
from localai_shim.engine.drafts.sources import Drafter
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.engine.row import Row
from localai_shim.types import GenerationRequest
from tests import inside
from tests.engine.harness import before_each_step
from tests.tiny import VOCABULARY

AUTO = EngineOptions(speculation="auto", prefill_chunk=48)
KINDS: dict[str, tuple[str, Quantised | None, dict[str, Any]]] = {
    "dense": ("qwen3", None, {}),
    "sliding window": ("gemma3_text", None, {}),
    "experts": ("qwen3_moe", None, {}),
    "hybrid": ("qwen3_next", None, {}),
    "quantised": ("qwen3", Quantised(32, 8), {"head_dim": 32}),
    "wide": ("qwen3 of 64", None, {}),
    "wide hybrid": ("granitemoehybrid of 64", None, {}),
}
"""What rows keep: a model, how its keys and values are kept, and what is changed of it."""


def key(made: GenerationRequest) -> tuple[int, ...]:
    return (*made.prompt.tokens, made.sampling.seed)


class Oracle:
    """Knows what each prompt's row will emit, and says so with this probability."""

    source, trust = "oracle", 0.9

    def __init__(self, share: float, known: dict[tuple[int, ...], Sequence[int]], seed: int = 1) -> None:
        self.share, self.known, self.random = share, known, random.Random(seed)
        self.asked = 0

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[list[int]]:
        return [self._for(row, n) for row, n in zip(rows, most, strict=True)]

    def _for(self, row: Row, most: int) -> list[int]:
        self.asked += 1
        output = self.known.get((*row.prompt_tokens, row.sampling.seed), ())
        coming = list(output[row.generated : row.generated + min(most, self.random.randint(0, 7))])
        return [t if self.random.random() < self.share else self.random.randrange(3, VOCABULARY) for t in coming]


class Steady(Oracle):
    """Has four drafts whenever it can."""

    def _for(self, row: Row, most: int) -> list[int]:
        self.asked += 1
        output = self.known.get((*row.prompt_tokens, row.sampling.seed), ())
        coming = list(output[row.generated : row.generated + min(most, 4)])
        return [token if self.random.random() < self.share else 3 for token in coming]


class Ahead:
    """Knows the next few tokens of an output, and says them once it has `after` tokens."""

    source, trust = "test", 0.95

    def __init__(self, output: Sequence[int], drafts: int, after: int = 0) -> None:
        self.output, self.drafts, self.after = output, drafts, after

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[Sequence[int]]:
        return [
            self.output[row.generated : row.generated + min(self.drafts, n)] if row.generated >= self.after else ()
            for row, n in zip(rows, most, strict=True)
        ]


class Failing:
    """Raises after some calls."""

    source, trust = "failing", 0.9

    def __init__(self, after: int = 0) -> None:
        self.left, self.raised = after, 0

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> list[list[int]]:
        if self.left:
            self.left -= 1
            return [[5] * min(2, n) for n in most]
        self.raised += 1
        raise ValueError("no idea")


def speculate(patch: pytest.MonkeyPatch, *drafters: Drafter, always: bool = True) -> None:
    """Have engines that are made from now on take their drafts from these; `always`, whatever that costs."""
    patch.setattr(speculation, "own_drafters", lambda: list(drafters))
    if always:
        patch.setattr(speculation.CostModel, "seconds", lambda self, kind, size: 1.0)
        patch.setattr(speculation, "MIN_GAIN", 0.0)
        patch.setattr(speculation.CostModel, "note_step", lambda self, seconds: None)  # stalls as short as usual


@contextmanager
def preempting(engine: Engine[Any], every: int = 3) -> Iterator[list[int]]:
    """Every few steps the youngest of several rows goes back into the queue; how many drafts each had had by then."""
    engine.wait()
    rows, steps, drafted = inside.rows(engine), itertools.count(1), []
    room = rows.room
    outgrows, outgrown = room.outgrows, room.outgrown

    def instead() -> Iterator[Piece]:
        if next(steps) % every == 0 and len(rows.batch) > 1:
            victim, before = rows.batch.rows[-1], len(rows.prompts)
            yield Preempt(victim.number)
            if len(rows.prompts) > before:
                drafted.append(victim.request.timings.drafts.drafted)
        if outgrows():
            while (piece := outgrown()) is not None:
                yield piece

    before_each_step(rows, instead)
    try:
        yield drafted
    finally:
        del room.outgrows, room.outgrown


@contextmanager
def steps_counted(engine: Engine[Any]) -> Iterator[list[tuple[int, int]]]:
    """(rows, tokens of each) of the passes that run meanwhile."""
    model, sizes = engine.model, []
    forward = model.forward

    def instead(step: Any) -> Any:
        sizes.append(step.tokens.shape)
        return forward(step)

    model.forward = instead
    try:
        yield sizes
    finally:
        model.forward = forward


@contextmanager
def steps_noted(patch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of the steps of several tokens that are launched meanwhile, whether they had been built."""
    noted, launch = list[bool](), Verifying.launch

    def noting(self: Verifying, model: Any) -> None:
        noted.append(self.built is not None)
        launch(self, model)

    with patch.context() as inner:
        inner.setattr(Verifying, "launch", noting)
        yield noted
