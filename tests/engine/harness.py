"""Driving an engine without clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.pieces import Decode, Piece
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work import rows as of_rows
from localai_shim.engine.work.rows import Rows
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.stats import EngineStats
from localai_shim.types import Event, Failure, GenerationRequest, Prompt, SamplingParams, Token
from tests import inside
from tests.tiny import tiny

GREEDY = SamplingParams(temperature=0.0)


def quantised_by(kv: Quantised | None) -> LoadOptions:
    """Options that have a model loaded whose rows keep their keys and values in this way."""
    return LoadOptions() if kv is None else LoadOptions(kv_bits=kv.bits, kv_group_size=kv.group_size)


def engine_for(
    kind: str, options: EngineOptions | None = None, kv: Quantised | None = None, **changes: Any
) -> Engine[TextModel]:
    """An engine of its own over a tiny model."""
    path = str(tiny(kind, **changes))
    return Engine(lambda: load_model(path, quantised_by(kv)), options)


def step_of(tokens: Sequence[int], layers: list[Any]) -> StepInput:
    """A pass of one row."""
    return StepInput(mx.array([list(tokens)]), layers)


def rows_of(step: StepInput) -> list[list[int]]:
    """The tokens of each row of a pass."""
    rows: list[list[int]] = step.tokens.tolist()
    return rows


def request(
    tokens: Sequence[int], sampling: SamplingParams = GREEDY, max_tokens: int = 24, **more: Any
) -> GenerationRequest:
    return GenerationRequest(Prompt(tokens), sampling, max_tokens, **more)


def decode(batch: Batch, choose: Callable[[], Decode | None] = Decode) -> None:
    """Run one decode step of a batch."""
    batch.collect()
    if batch.rows and (piece := choose()) is not None:
        batch.run(piece)


def before_each_step(rows: Rows, named: Callable[[], Iterator[Piece]]) -> None:
    """Run pieces before each decode step, where rows are preempted that have outgrown the memory."""
    room, pieces = rows.room, list[Iterator[Piece]]()

    def outgrows() -> bool:
        pieces[:] = [named()]
        return True

    room.outgrows = outgrows  # type: ignore[method-assign]
    room.outgrown = lambda: next(pieces[0], None)  # type: ignore[method-assign, assignment, return-value]


class Running:
    """One submission and what came of it."""

    def __init__(self, engine: Engine[Any], requests: GenerationRequest | Sequence[GenerationRequest]) -> None:
        self.requests = [requests] if isinstance(requests, GenerationRequest) else list(requests)
        self.sink = SyncSink()
        self.engine = engine
        self.events: list[list[Event]] = [[] for _ in self.requests]
        self.ticket = engine.submit(self.requests, self.sink)

    def read(self, count: int) -> None:
        """Wait for this many events."""
        for _ in range(count):
            index, event = self.sink.get(60)
            self.events[index].append(event)

    def finish(self) -> list[list[int]]:
        """Wait for all rows; their token ids. Raises what a row failed with."""
        while not all(events and is_last(events[-1]) for events in self.events):
            self.read(1)
        return [tokens_of(events) for events in self.events]

    def cancel(self) -> None:
        self.engine.cancel(self.ticket)


def is_last(event: Event) -> bool:
    return isinstance(event, Failure) or event.finish_reason is not None


def tokens_of(events: Sequence[Event]) -> list[int]:
    out = []
    for event in events:
        if not isinstance(event, Token):
            raise event.error
        out.append(event.id)
    return out


def generate(engine: Engine[Any], *requests: GenerationRequest) -> list[list[int]]:
    """Submit separately, wait for all."""
    running = [Running(engine, r) for r in requests]
    return [r.finish()[0] for r in running]


def while_busy(engine: Engine[Any]) -> Iterator[EngineStats]:
    """The engine's statistics every other millisecond, as long as a row runs or waits; the engine needs the rest."""
    pause = threading.Event()
    while (stats := engine.stats()).running or stats.waiting:
        yield stats
        pause.wait(0.002)


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether a condition becomes true in time; it is asked often, so that the wait is no longer than it has to be."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.002)
    return True


@contextmanager
def prefilling(engine: Engine[TextModel], first: Callable[[], object]) -> Iterator[None]:
    """Each prefill does something else first."""
    model = engine.model  # which a closed engine does not have any more
    prefill = model.prefill

    def instead(step: StepInput, *, wait: bool = True) -> mx.array | None:
        first()
        return prefill(step, wait=wait)

    model.prefill = instead  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.prefill = prefill  # type: ignore[method-assign]


@contextmanager
def stepping(engine: Engine[TextModel], first: Callable[[], object]) -> Iterator[None]:
    """Each step of the batch does something else first."""
    model = engine.model
    forward = model.forward

    def instead(step: StepInput) -> PassOutput[mx.array]:
        first()
        return forward(step)

    model.forward = instead  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.forward = forward  # type: ignore[method-assign]


class Gate:
    """Where the engine's thread waits, once `shut` says so, until the test opens it."""

    def __init__(self, shut: Callable[[], bool]) -> None:
        self._shut = shut
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        if self._shut():
            self._reached.set()
            self._opened.wait(60)

    def wait(self) -> None:
        """Wait until the engine's thread stands there."""
        assert self._reached.wait(60)

    def open(self) -> None:
        self._opened.set()

    def close(self, engine: Engine[Any]) -> None:
        """Close an engine while its thread stands there, which it leaves then."""
        self.wait()
        engine.close(wait=False)
        self.open()


def leave_room_for(engine: Engine[Any], prompts: Sequence[Prompt], monkeypatch: pytest.MonkeyPatch) -> None:
    """For these, 16 tokens behind each, and half a token's for the tower: then the youngest row has to go."""
    monkeypatch.setattr(of_rows, "RESERVED_TOKENS", 8)
    monkeypatch.setattr(of_rows, "FURTHER_TOKENS", 8)
    engine.wait()
    memory = inside.setup(engine).memory
    assert memory is not None
    monkeypatch.setattr(memory, "batch", lambda lengths, shared=(): sum(lengths) << 30)
    monkeypatch.setattr(memory, "row", lambda tokens, first_pass=0, shared=0: 0)
    monkeypatch.setattr(memory, "budget", sum(len(prompt.tokens) + 16 << 30 for prompt in prompts) + (1 << 29))


@contextmanager
def held(engine: Engine[TextModel]) -> Iterator[None]:
    """Nothing is prefilled meanwhile: what was submitted stays."""
    go = threading.Event()
    with prefilling(engine, lambda: go.wait(60)):
        try:
            yield
        finally:
            go.set()
