"""Further kinds of work, which only this file registers: they run, are refused, counted, and traced like the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import mlx.core as mx
import openai
import pytest
from openai import BaseModel

from localai_shim import LocalOpenAI
from localai_shim.client import routes
from localai_shim.endpoints.fields import Fields
from localai_shim.endpoints.turn import Assembler, Turn
from localai_shim.engine.engine import Engine
from localai_shim.engine.pieces import Pass
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work import batcher
from localai_shim.engine.work.lane import Kind, Parts
from localai_shim.engine.work.runner import TextRunner
from localai_shim.engine.work.texts import TextJobs
from localai_shim.models.loading import load_model
from localai_shim.types import EmbeddingRequest, Event, Failure, RowError, Sink, Task, Token, Work
from tests.engine.everything import Everything, Texts
from tests.engine.harness import GREEDY, Running, request
from tests.engine.work.passes import Head
from tests.otel import global_telemetry
from tests.tiny import tiny

TASKS: Any = ("count", "add")


@dataclass(slots=True, eq=False)
class CountingRequest(EmbeddingRequest):
    """How many different tokens each text has."""

    task = TASKS[0]
    what = "counting text"


def count(texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
    if any(13 in text for text in texts):
        raise ArithmeticError("thirteen")
    return mx.array([[float(len({*text}))] for text in texts])


@dataclass(slots=True, eq=False)
class AddingRequest(Work):
    """A sum of numbers, which is no work on texts."""

    task = TASKS[1]
    numbers: Sequence[float] = ()
    sum: float | None = None

    @property
    def uses(self) -> None:
        return None


@dataclass(eq=False)
class Sum:
    request: AddingRequest
    sink: Sink
    index: int


@dataclass(frozen=True, slots=True)
class Add(Pass):
    count: int


class Sums:
    """Its own lane: each pass adds the numbers of the request that came first."""

    def __init__(self, parts: Parts) -> None:
        self._emit, self.jobs = parts.emit, list[Sum]()

    def __len__(self) -> int:
        return len(self.jobs)

    def enter(self, work: AddingRequest, sink: Sink, index: int) -> Sum:
        return Sum(work, sink, index)

    def add(self, entries: Sequence[Sum]) -> None:
        self.jobs += entries

    def drop(self, gone: Collection[Sum]) -> None:
        self.jobs = [job for job in self.jobs if job not in gone]

    def restart(self) -> None:
        pass

    def is_due(self, beside: bool, prompts: int | None) -> bool:
        return True

    def next_pass(self, *, beside: bool) -> Add:
        return Add(len(self.jobs[0].request.numbers))

    def fail(self, error: BaseException) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            self._emit(job, Failure(RowError(f"adding failed: {error}")))

    def finish(self, job: Sum) -> None:
        self.jobs.remove(job)
        self._emit(job, Token(0, finish_reason="stop"))


class SumRunner:
    pieces = (Add,)

    def __init__(self, lane: Sums, parts: Parts) -> None:
        self._lane = lane

    def run(self, piece: Add) -> None:
        job = self._lane.jobs[0]
        job.request.sum = float(mx.array(job.request.numbers).sum())
        self._lane.finish(job)


class Counting(Everything):
    """Generates, sees, embeds, counts and adds."""

    def __init__(self, loaded: Any) -> None:
        super().__init__(loaded)
        self.heads = {**self.heads, "count": Head(count)}
        self.tasks = (*self.tasks, *TASKS)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry for each kind, of the engine."""
    monkeypatch.setitem(batcher.KINDS, TASKS[0], Kind("counts no tokens", TextJobs, TextRunner))
    monkeypatch.setitem(batcher.KINDS, TASKS[1], Kind("adds no numbers", Sums, SumRunner))


@pytest.fixture
def engine() -> Iterator[Engine[Any]]:
    made: Engine[Any] = Engine(lambda: Counting(load_model(str(tiny("qwen3")), {})))
    made.wait()
    yield made
    made.close()


def ask(engine: Engine[Any], work: Any) -> Any:
    """Run work to its end. Raises what it failed with."""
    sink = SyncSink()
    engine.submit([work], sink)
    event: Event = sink.get(60)[1]
    if isinstance(event, Failure):
        raise event.error
    return work


def test_work_of_a_further_kind_runs_beside_rows_and_texts(engine: Engine[Any]) -> None:
    [expected] = Running(engine, request([7, 40, 25, 31], max_tokens=48)).finish()
    row = Running(engine, request([7, 40, 25, 31], max_tokens=48))
    row.read(2)
    embedding = Texts(engine, [[4] * 9])
    assert ask(engine, CountingRequest([[5, 6, 5], [7]])).vectors.tolist() == [[2.0], [1.0]]
    assert ask(engine, AddingRequest(numbers=[1.5, 2.0])).sum == 3.5
    assert embedding.finish() == [[9.0, 4.0]] and row.finish() == [expected]
    stats = engine.stats(plans=True)
    assert (stats.embedded_texts, stats.running, stats.waiting) == (3, 0, 0)
    assert {"kind": "add", "count": 2} in [piece for plan in stats.plans for piece in plan["beside"]]


def test_an_error_of_a_new_kind_fails_its_own_request(engine: Engine[Any]) -> None:
    with pytest.raises(RowError, match=r"counting text 1 failed.*thirteen"):
        ask(engine, CountingRequest([[5], [13]]))
    with pytest.raises(RowError, match="adding failed"):
        ask(engine, AddingRequest(numbers=["no number"]))  # type: ignore[list-item]
    assert ask(engine, CountingRequest([[5]])).vectors.tolist() == [[1.0]]
    assert ask(engine, AddingRequest(numbers=[1.0])).sum == 1.0


def test_a_model_that_lacks_it_refuses_it_with_its_text() -> None:
    engine: Engine[Any] = Engine(lambda: load_model(str(tiny("qwen3")), {}))
    try:
        for work, refusal in ((CountingRequest([[5]]), "counts no tokens"), (AddingRequest(), "adds no numbers")):
            with pytest.raises(RowError, match=f"the model 'tiny-qwen3' {refusal}"):
                ask(engine, work)
        assert Running(engine, request([5], GREEDY, 3)).finish()
    finally:
        engine.close()


def test_each_task_has_an_entry_of_the_engine_and_one_of_the_client_whose_paths_are_its_endpoints() -> None:
    assert batcher.KINDS.keys() - {*TASKS} == routes.KINDS.keys() == {*get_args(Task)}
    for task, kind in routes.KINDS.items():
        for path in kind.operations:
            found = routes.find("post", path)
            assert found is not None and isinstance(found[0], routes.Generation) and found[0].task == task


# -- a client's request ---------------------------------------------------------------------------------------------


class Counts(BaseModel):
    counts: list[int]


class CountAssembler(Assembler[Counts]):
    def __init__(self, work: CountingRequest) -> None:
        super().__init__()
        self._work = work

    def collect(self, index: int, token: Token) -> None:
        self.finished = True

    def result(self) -> Counts:
        assert self._work.vectors is not None
        return Counts(counts=self._work.vectors[:, 0].astype(int).tolist())


def prepare(body: Mapping[str, object], model: Any, store: Callable[[], Any]) -> Turn:
    fields = Fields(body)
    fields.string("model")
    work = CountingRequest([model.tokenizer.encode(fields.require("text"))])
    fields.finish()
    return Turn(CountAssembler(work), [work])


@pytest.fixture
def routed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint, and one entry of the client."""
    kind = routes.Kind("count tokens", "client.post('/count')", {"/count": "token_count"})
    monkeypatch.setattr(routes, "KINDS", {**routes.KINDS, TASKS[0]: kind})
    table = [*routes._routes(), ("post", "/count", routes.Generation(prepare, task=TASKS[0]))]
    monkeypatch.setattr(routes, "_routes", functools.cache(lambda: table))


def test_a_client_asks_for_it_and_its_span_has_its_name(engine: Engine[Any], routed: None) -> None:
    with global_telemetry() as telemetry, LocalOpenAI(engine=engine) as client:
        made = client.post("/count", cast_to=Counts, body={"model": "any", "text": "a b a b"})
        assert made.counts == [len({*engine.model.text.encode("a b a b")})]
        _, attributes = telemetry.one()
        assert attributes["gen_ai.operation.name"] == "token_count" and attributes["localai_shim.input_tokens"] > 1


def test_a_client_s_model_that_lacks_it_says_what_it_is_for(routed: None) -> None:
    with (
        LocalOpenAI(tiny("qwen3"), keep_alive=0) as client,
        pytest.raises(openai.BadRequestError, match="cannot count tokens: it is there to generate text: it serves"),
    ):
        client.post("/count", cast_to=Counts, body={"model": "any", "text": "a"})
