"""Pieces that were recorded are played again without a clock: the same passes run, and the same tokens come of them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from localai_shim.engine import setup
from localai_shim.engine.costs.cost_model import CostModel, Meter
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.pieces import Chunk, Collect, Decode, Deliver, Join, Limit, Open, Piece, Preempt, StepRecord
from localai_shim.engine.ports import StepInput
from localai_shim.engine.row import Row
from localai_shim.engine.setup import set_up
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work import rows as of_rows
from localai_shim.engine.work.batcher import Batcher
from localai_shim.models.loading import load_model
from localai_shim.types import Event, Failure, GenerationRequest, Prompt, SamplingParams, Token
from tests.engine.guessing import Oracle, key, speculate
from tests.engine.harness import GREEDY, is_last
from tests.tiny import tiny

OPTIONS = EngineOptions(prefill_chunk=64, max_stall=0.001, speculation="auto")
TICK_SECONDS = 0.0001  # on average
BEGINNING = [9 + i % 90 for i in range(150)]


class Played:
    """Takes the place of a scheduler: it names the pieces that one has recorded."""

    def __init__(self) -> None:
        self.pieces: Iterator[Piece] = iter(())

    def next(self) -> Piece | None:
        return next(self.pieces, None)

    def failed(self, piece: Piece, error: BaseException) -> None:
        raise error


@dataclass(eq=False)
class Stage:
    """An engine's parts on the test's own thread, and every pass of the model, by its tokens."""

    model_type: str
    clock: Callable[[], float]
    events: dict[Row, list[Event]] = field(default_factory=dict)
    passes: list[list[list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        model: Any = load_model(str(tiny(self.model_type)), {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(setup, "CostModel", partial(CostModel, self.clock))
            self.setup = set_up(model, None, OPTIONS)
        assert self.setup.memory is not None and self.setup.speculation is not None
        self.setup.memory.close()  # other engines of the process, which come and go, change its budget no more
        self.setup.memory.budget = self.setup.memory.batch([700] * 4)
        self.setup.speculation.few_sizes = False
        self.batcher = Batcher(model, self.setup, Meter(), self, self._emit, lambda: None)
        assert self.batcher.rows is not None
        self.rows = self.batcher.rows
        for name in ("prefill", "forward"):
            setattr(model, name, self._noting(getattr(model, name)))

    def _noting(self, run: Any) -> Any:
        def noting(step: StepInput, **more: Any) -> Any:
            made = run(step, **more)
            self.passes.append(list(step.tokens.shape))
            return made

        return noting

    def _emit(self, row: Any, event: Event) -> None:
        self.events[row].append(event)

    def submit(self, requests: Sequence[GenerationRequest]) -> list[Row]:
        rows = [self.rows.enter(each, SyncSink(), i) for i, each in enumerate(requests)]
        self.events.update((row, []) for row in rows)
        self.rows.add(rows)
        return rows

    def tokens(self) -> dict[int, list[int]]:
        """Those of each row, by its number."""
        assert not any(isinstance(event, Failure) for events in self.events.values() for event in events)
        return {
            row.number: [event.id for event in events if isinstance(event, Token)]
            for row, events in self.events.items()
        }


def asked() -> list[list[GenerationRequest]]:
    """Submissions: prompts that share a beginning, choices, sampled and penalised rows, answers of any length."""
    chance, out = random.Random(5), []
    for i in range(30):
        tokens = [
            *(BEGINNING[: chance.choice((0, 90, 150))]),
            *chance.choices(range(5, 200), k=chance.choice((3, 4, 5, 60, 120))),
        ]
        sampling = (GREEDY, SamplingParams(seed=i), SamplingParams(seed=i, presence_penalty=0.7))[i % 3]
        prompt, most = Prompt(tokens), chance.randint(1, 150)
        count = 2 if i % 7 == 3 else 1
        out.append([GenerationRequest(prompt, sampling, most, priority=-(i % 11 == 10)) for _ in range(count)])
    return out


class Ticking:
    """A clock of which each look takes a while, so that one run of a test decides what another one does."""

    def __init__(self) -> None:
        self._chance, self._now = random.Random(11), 0.0

    def __call__(self) -> float:
        self._now += self._chance.expovariate(1 / TICK_SECONDS)
        return self._now


def record(model_type: str) -> tuple[Stage, list[StepRecord]]:
    """Submissions come while others run, some leave, and memory runs out."""
    chance, stage, left = random.Random(8), Stage(model_type, Ticking()), asked()
    stage.batcher.scheduler.records = records = deque[StepRecord]()
    while len(stage.batcher) or left:
        if left and (chance.random() < 0.3 or not len(stage.batcher)):
            for _ in range(min(len(left), chance.choice((1, 3)))):
                stage.submit(left.pop())
        if chance.random() < 0.03 and (going := [row for row, its in stage.events.items() if not _is_done(its)]):
            stage.rows.drop([gone := chance.choice(going)])
            stage.events[gone].append(Token(0, finish_reason="stop"))
        stage.batcher.step()
    return stage, list(records)


def _is_done(events: Sequence[Event]) -> bool:
    return bool(events) and is_last(events[-1])


def replay(model_type: str, records: Sequence[StepRecord]) -> Stage:
    """Play records: nothing is decided, and time stands still."""
    stage, left, played = Stage(model_type, lambda: 0.0), asked(), Played()
    stage.batcher.scheduler = played  # type: ignore[assignment]
    for step in records:
        entered: list[int] = []
        while len(entered) < len(step.enter):
            entered += [row.number for row in stage.submit(left.pop())]
        assert entered == [*step.enter]
        gone = [row for row in stage.events if row.number in step.leave]
        stage.rows.drop(gone)
        for row in gone:
            stage.events[row].append(Token(0, finish_reason="stop"))
        played.pieces = iter(step.pieces)
        stage.batcher.step()
    return stage


@pytest.mark.parametrize("model_type", ["qwen3", "gemma3_text"])
def test_a_recorded_run_is_played_again_without_a_clock(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RESERVED_TOKENS", "FURTHER_TOKENS"):
        monkeypatch.setattr(of_rows, name, 16)
    plain, _ = record(model_type)
    known = {key(row.request): [e.id for e in its if isinstance(e, Token)] for row, its in plain.events.items()}
    speculate(monkeypatch, Oracle(0.8, known))
    recorded, records = record(model_type)
    kinds = {type(piece) for step in records for piece in (*step.before, *step.beside)}
    assert kinds == {Limit, Open, Chunk, Join, Preempt}
    shared = [p for step in records for p in step.beside if isinstance(p, Chunk) and len(p.prompts) > 1]
    assert shared or model_type == "gemma3_text", "short prompts share passes where windows are longer than they"
    assert any(step.decode is not None and step.decode.drafts for step in records)
    assert any(step.leave for step in records)
    prefixes = recorded.setup.prefixes
    assert prefixes is not None and prefixes.hits

    played = replay(model_type, records)
    assert played.tokens() == recorded.tokens()
    assert played.passes == recorded.passes
    assert played.setup.prefixes is not None and played.setup.prefixes.hits == prefixes.hits


def test_records_can_be_compared_and_written_as_json() -> None:
    pieces = (Limit(9), Collect(), Decode((1, 2)), Deliver(), Open(3, 1, None), Chunk((3,), 64, True, False))
    record = StepRecord(3, enter=(1,), pieces=pieces)
    assert record == StepRecord(3, (1,), (), (Limit(9), Collect(), Decode((1, 2)), Deliver(), *pieces[4:]))
    assert record.to_dict() == {
        "number": 3,
        "enter": [1],
        "leave": [],
        "before": [{"kind": "limit", "spare": 9}],
        "decode": {"rows": (1, 2), "drafts": None, "ahead": True},
        "beside": [
            {"kind": "open", "prompt": 3, "rows": 1, "spare": None, "turn": False},
            {"kind": "chunk", "prompts": (3,), "most": 64, "beside": True, "last": False},
        ],
    }
