"""Texts beside rows: which share a pass, when they run, and that a vector depends on its own text alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.adapters.loading import load_model
from localai_shim.adapters.pooling import Pooling, Reading
from localai_shim.engine import embedding
from localai_shim.engine.embedding import (
    MAX_PAUSE_SECONDS,
    MIN_LENGTH_SHARE,
    OLDEST_EVERY,
    SHARE,
    EmbeddingJob,
    EmbeddingLane,
)
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.meter import Meter
from localai_shim.engine.pace import FIRST_CHUNK_TOKENS
from localai_shim.engine.sinks import SyncSink
from localai_shim.types import EmbeddingRequest, EngineClosedError, Event, Failure, QueueFullError, RowError, Token
from tests.embedding_models import tiny_embedder
from tests.engine.harness import Gate, Running, engine_for, eventually, request
from tests.tiny import tiny

MOST = 64
"""Tokens of a pass, in the lanes below."""


class Passes:
    """Stands in for a model: a text's vector is (its length, its first token)."""

    name, tasks = "passes", ("embed",)

    def __init__(self) -> None:
        self.texts: list[list[list[int]]] = []
        self.fails: Callable[[Sequence[int]], bool] = lambda text: False
        self.in_pieces = False
        self.begun: list[int] = []

    def encode(self, texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        self.texts.append([list(text) for text in texts])
        if any(map(self.fails, texts)):
            raise ArithmeticError("a text that cannot be embedded")
        return mx.array([[float(len(text)), float(text[0])] for text in texts])

    def begin(self, text: Sequence[int], skip: int = 0, *, ranks: bool = False) -> Reading | None:
        if not self.in_pieces:
            return None
        self.begun.append(text[0])

        def read(tokens: mx.array) -> mx.array:
            self.texts.append([tokens[0].tolist()])  # type: ignore[list-item]
            if self.fails(self.texts[-1][0]):
                raise ArithmeticError("a piece that cannot be read")
            return mx.broadcast_to(mx.array([float(len(text)), float(text[0])]), (1, tokens.shape[1], 2))

        return Reading(text, read, Pooling(["mean"], [len(text)]), lambda made: made)

    @property
    def lengths(self) -> list[list[int]]:
        return [sorted(map(len, texts)) for texts in self.texts]


class Lane:
    """A lane, and what it emits."""

    def __init__(self, **options: Any) -> None:
        self.model, self.meter = Passes(), Meter()
        self.events: list[tuple[EmbeddingJob, Event]] = []
        model: Any = self.model
        how = {"engine": self, "most_tokens": MOST, "max_stall": 0.05, **options}
        self.lane = EmbeddingLane(
            model, lambda *event: self.events.append(event), lambda: None, meter=self.meter, **how
        )

    def ask(self, lengths: Sequence[int], mark: int = 0, **more: Any) -> EmbeddingJob:
        """Queue texts of these lengths, whose tokens are the mark."""
        return self.lane.add(EmbeddingRequest([[mark] * length for length in lengths], **more), SyncSink())

    def run(self) -> None:
        while self.lane:
            self.lane.run(beside=False)

    @property
    def marks(self) -> list[int]:
        """The first text's mark of each pass."""
        return [texts[0][0] for texts in self.model.texts]


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are left with texts here, which no other test's engines should wait for."""
    monkeypatch.setattr(embedding, "waiting", set())


# -- passes ---------------------------------------------------------------------------------------------------------


def test_texts_of_like_lengths_share_a_pass() -> None:
    w = Lane()
    job = w.ask([1, 60, 13, 12, 11, 31, 2, 28])
    w.run()
    assert w.model.lengths == [[60], [28, 31], [11, 12, 13], [1, 2]]
    assert job.request.vectors is not None
    assert job.request.vectors.tolist() == [[n, 0] for n in (1, 60, 13, 12, 11, 31, 2, 28)]
    assert (w.meter.embedded_texts, w.meter.embedded_tokens) == (8, 158)


def test_a_pass_has_no_more_tokens_than_it_may() -> None:
    w = Lane()
    w.ask([*range(1, 41)] * 3)
    w.run()
    assert sum(map(len, w.model.lengths)) == 120
    for lengths in w.model.lengths:
        assert len(lengths) * lengths[-1] <= MOST and lengths[0] >= min(MIN_LENGTH_SHARE * lengths[-1], lengths[-1] - 8)


def test_a_text_that_is_longer_runs_alone() -> None:
    w = Lane()
    w.ask([MOST + 1, MOST + 1, 3])
    w.run()
    assert w.model.lengths == [[MOST + 1], [MOST + 1], [3]]


def test_a_text_that_is_longer_is_read_in_pieces_where_the_model_can() -> None:
    w = Lane()
    w.model.in_pieces = True
    long, short = w.ask([4 * MOST + 5, 30], 1), w.ask([3], 2)
    w.run()
    assert w.model.lengths.count([MOST]) == 4 and [5] in w.model.lengths
    assert w.model.begun == [1] and w.marks.index(2) <= 1, "a query need not wait for its end"
    assert [job for job, _ in w.events] == [short, long]
    assert long.request.vectors is not None and long.request.vectors.tolist() == [[4 * MOST + 5, 1], [30, 1]]
    assert (w.meter.embedded_texts, w.meter.embedded_tokens) == (3, 4 * MOST + 38)


def test_one_long_text_is_read_at_a_time() -> None:
    w = Lane()
    w.model.in_pieces = True
    jobs = [w.ask([3 * MOST, 3 * MOST], 1), w.ask([3 * MOST], 2), w.ask([2 * MOST], 3, priority=-1)]
    open_texts = set()
    while w.lane:
        w.lane.run(beside=False)
        open_texts.add(sum(job.reading is not None for job in jobs))
    assert open_texts == {0, 1} and sorted(w.model.begun) == [1, 1, 2, 3]
    assert all(job.left == 0 for job in jobs)


def test_who_is_gone_is_not_read_to_the_end() -> None:
    w = Lane()
    w.model.in_pieces = True
    gone, stays = w.ask([9 * MOST], 1), w.ask([3 * MOST], 2)
    w.lane.run(beside=False)
    assert gone.reading is not None
    w.lane.drop([gone])
    w.run()
    assert w.marks == [1, 2, 2, 2] and [job for job, _ in w.events] == [stays]


def test_a_piece_that_fails_fails_its_own_request_alone() -> None:
    w = Lane()
    w.model.in_pieces = True
    w.model.fails = lambda text: text[0] == 1 and len(w.model.texts) > 1
    failing, stays = w.ask([3 * MOST], 1), w.ask([3 * MOST], 2)
    w.run()
    events = dict(w.events)
    assert isinstance(events[failing], Failure) and isinstance(events[stays], Token)
    assert failing.reading is None and stays.request.vectors is not None


def test_requests_share_a_pass_unless_their_prompts_are_left_out_differently() -> None:
    w = Lane()
    jobs = [w.ask([8], 1), w.ask([7], 2), w.ask([8], 3, skip=2)]
    w.run()
    assert w.model.lengths == [[7, 8], [8]]
    assert [job.request.vectors.tolist() for job in jobs if job.request.vectors is not None] == [
        [[8, 1]],
        [[7, 2]],
        [[8, 3]],
    ]
    assert [job for job, _ in w.events] == jobs and all(
        event == Token(0, finish_reason="stop") for _, event in w.events
    )


def test_a_query_need_not_wait_for_a_library() -> None:
    w = Lane()
    w.ask([60] * 100, 1)
    w.ask([3], 2)
    w.run()
    assert w.marks.index(2) <= 1


def test_a_library_need_not_wait_for_any_number_of_queries() -> None:
    w = Lane()
    w.ask([60], 1)
    for _ in range(100):
        w.ask([40], 2)
    w.run()
    assert w.marks.index(1) <= 1


def test_more_urgent_requests_go_first_but_for_one_choice_in_eight() -> None:
    w = Lane()
    w.ask([60] * 20, 1)
    w.ask([40] * 20, 2, priority=-1)
    w.run()
    assert w.marks[: 2 * OLDEST_EVERY].count(1) == 2 and w.marks[-1] == 1


def test_who_is_gone_is_not_run() -> None:
    w = Lane()
    gone, stays = w.ask([60] * 5, 1), w.ask([40], 2)
    w.lane.run(beside=False)
    w.lane.drop([gone, gone])
    w.run()
    assert w.marks == [1, 2] and [job for job, _ in w.events] == [stays]


def test_a_text_that_fails_fails_its_own_request_alone() -> None:
    w = Lane()
    w.model.fails = lambda text: text[0] == 2
    jobs = [w.ask([8, 8], 1), w.ask([8, 30], 2), w.ask([8], 3)]
    w.run()
    events = dict(w.events)
    failure = events.pop(jobs[1])
    assert isinstance(failure, Failure) and isinstance(failure.error, RowError)
    assert isinstance(failure.error.__cause__, ArithmeticError)
    assert set(events) == {jobs[0], jobs[2]} and all(isinstance(event, Token) for event in events.values())
    assert not w.lane._alone


# -- beside rows ----------------------------------------------------------------------------------------------------


def test_rows_have_seven_eighths_of_the_time() -> None:
    w = Lane()
    w.ask([60] * 10)
    assert w.lane.is_due(True, None)
    w.lane.run(beside=True)
    owed = w.lane._owed
    [took] = w.meter._stalls
    assert owed == pytest.approx(took * (1 / SHARE - 1))
    assert not w.lane.is_due(True, None) and w.lane.is_due(False, None)
    w.lane.stepped(0.9 * owed)
    assert not w.lane.is_due(True, None)
    w.lane.stepped(0.2 * owed)
    assert w.lane.is_due(True, None)


def test_texts_that_take_longer_than_rows_may_wait_come_last() -> None:
    w = Lane(most_tokens=10**6)
    w.ask([FIRST_CHUNK_TOKENS * 4, FIRST_CHUNK_TOKENS, 3])
    w.lane.run(beside=True)
    assert w.model.lengths == [[FIRST_CHUNK_TOKENS]]


def test_rows_of_other_engines_have_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    w, other = Lane(most_tokens=10**6), object()
    w.ask([4] * 100)
    monkeypatch.setattr("localai_shim.engine.embedding.decoding", {other})
    w.lane.run(beside=False)
    assert len(w.model.texts[0]) * 4 == FIRST_CHUNK_TOKENS
    monkeypatch.setattr(embedding._turns, "resumes", time.monotonic() + 100)
    assert not w.lane.is_due(False, None) and 0 < w.lane.pause <= MAX_PAUSE_SECONDS
    monkeypatch.setattr("localai_shim.engine.embedding.decoding", {w})
    assert w.lane.is_due(False, None) and not w.lane.pause, "its own rows are its own affair"


class Clock:
    """Virtual time, in which a pass takes as long as it is said to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, decoding: set[object]) -> None:
        self.now = 1000.0
        monkeypatch.setattr(embedding.time, "monotonic", lambda: self.now)
        for name, content in (("decoding", decoding), ("waiting", set()), ("_turns", embedding._Turns())):
            monkeypatch.setattr(embedding, name, content)

    def slow(self, w: Lane, seconds: float) -> Lane:
        """Have each pass of a lane take so long."""
        encode = w.model.encode

        def slowly(*given: Any) -> mx.array:
            self.now += seconds
            return encode(*given)

        w.model.encode = slowly  # type: ignore[method-assign]
        w.ask([60] * 2000)
        return w

    def passes(self, lanes: Sequence[Lane], seconds: float) -> list[int]:
        """What lanes run in so much time."""
        end, before = self.now + seconds, [len(w.model.texts) for w in lanes]
        while self.now < end:
            due = [w for w in lanes if w.lane.is_due(False, None)]
            for w in due:
                w.lane.run(beside=False)
            self.now += 0.0 if due else min(w.lane.pause for w in lanes)
        return [len(w.model.texts) - n for w, n in zip(lanes, before, strict=True)]


def test_texts_of_all_engines_together_have_their_share_and_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    one, other = clock.slow(Lane(), 0.04), clock.slow(Lane(), 0.04)
    alone = clock.passes([one], 100)
    assert alone == [pytest.approx(100 * SHARE / 0.04, rel=0.05)]
    made = clock.passes([one, other], 100)
    assert sum(made) == pytest.approx(100 * SHARE / 0.04, rel=0.05)
    assert abs(made[0] - made[1]) <= 0.1 * sum(made), "neither starves"


def test_a_slow_embedder_does_not_take_a_fast_one_s_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    slow, fast = clock.slow(Lane(), 0.1), clock.slow(Lane(), 0.001)
    made = clock.passes([slow, fast], 100)
    assert min(made) > 0.4 * sum(made)
    assert 0.1 * made[0] + 0.001 * made[1] == pytest.approx(100 * SHARE, rel=0.1)


def test_where_nobody_decodes_texts_have_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, set())
    lanes = [clock.slow(Lane(), 0.04), clock.slow(Lane(), 0.04)]
    assert sum(clock.passes(lanes, 10)) == pytest.approx(250, abs=2)


def test_who_has_no_texts_any_more_takes_nobody_s_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    one, other = clock.slow(Lane(), 0.04), clock.slow(Lane(), 0.04)
    other.lane.drop([*other.lane._jobs])
    assert embedding.waiting == {one}
    one.lane.close()
    assert not embedding.waiting


def test_an_engine_is_among_those_that_have_rows_as_long_as_it_has_some() -> None:
    before = {*embedding.decoding}
    with closing_engine("qwen3") as engine:
        row = Running(engine, request([7, 40, 25, 31], max_tokens=400))
        row.read(2)
        assert len(embedding.decoding - before) == 1
        row.cancel()
        assert eventually(lambda: not engine.stats().running)
        Asked(engine, TEXTS).vectors()
        assert not embedding.decoding - before
        Running(engine, request([7, 40, 25, 31], max_tokens=400)).read(2)
    assert not embedding.decoding - before


def test_texts_and_prompts_take_turns() -> None:
    w = Lane()
    w.ask([60] * 10)
    turns = [w.lane.is_due(False, 0) for _ in range(10)]
    assert turns == [False, True] * 5
    assert [w.lane.is_due(False, 1) for _ in range(OLDEST_EVERY)].count(False) == 1, "prompts are less urgent"
    assert [w.lane.is_due(False, -1) for _ in range(OLDEST_EVERY)].count(True) == 1, "prompts are more urgent"


def test_nothing_is_due_where_nothing_waits() -> None:
    assert not Lane().lane.is_due(False, None)


def test_a_pass_beside_rows_is_as_small_as_its_time() -> None:
    w = Lane(most_tokens=10**6)
    w.ask([4] * 10_000)
    w.lane.run(beside=True)
    assert len(w.model.texts[0]) * 4 == FIRST_CHUNK_TOKENS
    w.lane.run(beside=False)
    assert len(w.model.texts[0]) < len(w.model.texts[1]) < 9_000, "as much longer as nobody waits, and no more"


# -- engines --------------------------------------------------------------------------------------------------------

TEXTS = [[5 + (7 * i + j) % 50 for j in range(1 + (11 * i) % 37)] for i in range(24)]


DECODERS = ("qwen3", "gemma3_text", "qwen3_next")


@pytest.fixture(params=[*DECODERS, "bert"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine[Any]]:
    """A decoder of each kind, and an encoder."""
    with closing_engine(request.param) as engine:
        yield engine


@contextmanager
def closing_engine(kind: str, **options: Any) -> Iterator[Engine[Any]]:
    if kind == "bert":
        path = str(tiny_embedder("bert"))
        engine: Engine[Any] = Engine(lambda: load_model(path, {}), EngineOptions(**options))
    else:
        engine = engine_for(kind, EngineOptions(**options))
    try:
        engine.wait()
        yield engine
    finally:
        engine.close()


class Asked:
    """An embedding request in an engine."""

    def __init__(self, engine: Engine[Any], texts: Sequence[Sequence[int]], **more: Any) -> None:
        self.request, self.sink = EmbeddingRequest(texts, **more), SyncSink()
        self.ticket = engine.embed(self.request, self.sink)

    def vectors(self) -> npt.NDArray[np.float32]:
        index, event = self.sink.get(60)
        if isinstance(event, Failure):
            raise event.error
        assert index == 0 and event.finish_reason == "stop" and self.request.vectors is not None
        return self.request.vectors


def test_a_vector_depends_on_its_own_text_alone(engine: Engine[Any]) -> None:
    together = Asked(engine, TEXTS).vectors()
    alone = np.concatenate([Asked(engine, [text]).vectors() for text in TEXTS])
    assert together.dtype == np.float32 and together.shape == (len(TEXTS), engine.model.embedding.dimensions)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.allclose(together, alone, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01
    assert engine.stats().embedded_texts == 2 * len(TEXTS)


def test_requests_at_once_get_their_own_vectors(engine: Engine[Any]) -> None:
    asked = [Asked(engine, TEXTS[i : i + 3]) for i in range(8)]
    for i, each in enumerate(asked):
        assert np.allclose(each.vectors(), Asked(engine, TEXTS[i : i + 3]).vectors(), atol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_gives_its_last_token_s_state(kind: str) -> None:
    model = mlx_lm.load(str(tiny(kind)))[0]
    with closing_engine(kind) as engine:
        vectors = Asked(engine, TEXTS[:6]).vectors()
    for text, vector in zip(TEXTS[:6], vectors, strict=True):
        state = np.array(model.model(mx.array([text]))[0, -1])
        assert np.allclose(vector, state / np.linalg.norm(state), atol=1e-5)


def test_rows_say_what_they_say_alone_and_get_tokens_between_two_passes() -> None:
    with closing_engine("qwen3", prefill_chunk=32) as engine:
        asking = request([7, 40, 25, 31], max_tokens=48)
        [expected] = Running(engine, asking).finish()
        passes: list[int] = []
        encode, row = engine.model.encode, Running(engine, request([7, 40, 25, 31], max_tokens=48))
        engine.model.encode = lambda *args: (passes.append(engine.stats().steps), encode(*args))[1]
        row.read(2)
        texts = Asked(engine, [[9] * 30] * 20)
        assert row.finish() == [expected]
        assert texts.vectors().shape == (20, 64)
        assert len(passes) == 20 and len({*passes}) == 20, "a step between two"


@pytest.mark.parametrize("kind", DECODERS)
def test_rows_get_tokens_between_the_pieces_of_a_long_text(kind: str) -> None:
    text = [5 + (7 * i) % 50 for i in range(300)]
    with closing_engine(kind) as engine:
        whole = Asked(engine, [text]).vectors()
    with closing_engine(kind, prefill_chunk=32) as engine:
        asking = request([7, 40, 25, 31], max_tokens=48)
        [expected] = Running(engine, asking).finish()
        pieces: list[tuple[int, int]] = []
        begin = engine.model.begin

        def noting(*given: Any, **more: Any) -> Any:
            reading = begin(*given, **more)
            run = reading.run
            reading.run = lambda most: (pieces.append((engine.stats().steps, most)), run(most))[1]
            return reading

        engine.model.begin = noting
        row = Running(engine, request([7, 40, 25, 31], max_tokens=48))
        row.read(2)
        asked = Asked(engine, [text, text[:20]])
        assert row.finish() == [expected]
        assert np.allclose(asked.vectors()[0], whole[0], atol=1e-5)
    assert len(pieces) == 10 and len({step for step, _ in pieces}) == 10 and max(most for _, most in pieces) == 32


def test_a_cancelled_request_leaves_and_the_next_one_is_served() -> None:
    with closing_engine("qwen3", prefill_chunk=32) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.encode
        engine.model.encode = lambda *args: (gate(), encode(*args))[1]
        gone = Asked(engine, [[9] * 30] * 50)
        gate.wait()
        engine.cancel(gone.ticket)
        stays = Asked(engine, [[8] * 30])
        gate.open()
        assert stays.vectors().shape == (1, 64)
        assert eventually(lambda: engine.stats().waiting == 0)
        assert gone.request.vectors is None and engine.stats().embedded_texts <= 3
        with pytest.raises(TimeoutError):
            gone.sink.get(0)


@pytest.mark.parametrize("kind", ["qwen3", "bert"])
def test_what_is_in_flight_fails_when_the_engine_closes(kind: str) -> None:
    with closing_engine(kind, prefill_chunk=32) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.encode
        engine.model.encode = lambda *args: (gate(), encode(*args))[1]
        asked = [Asked(engine, [[9] * 30] * 50) for _ in range(3)]
        gate.wait()
        engine.close(wait=False)
        gate.open()
        for each in asked:
            with pytest.raises(EngineClosedError):
                each.vectors()
        with pytest.raises(EngineClosedError):
            Asked(engine, TEXTS)


def test_a_text_that_fails_leaves_rows_and_other_texts_alone() -> None:
    with closing_engine("qwen3") as engine:
        [expected] = Running(engine, request([7, 40, 25], max_tokens=24)).finish()
        encode = engine.model.encode

        def encode_most(texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
            if any(13 in text for text in texts):
                raise ArithmeticError("thirteen")
            return encode(texts, skip)

        engine.model.encode = encode_most
        row = Running(engine, request([7, 40, 25], max_tokens=24))
        asked = [Asked(engine, [[5, 6, 7], [6, 13, 8]]), Asked(engine, [[5, 6, 7]])]
        with pytest.raises(RowError, match=r"embedding text 1 failed.*thirteen"):
            asked[0].vectors()
        assert asked[1].vectors().shape == (1, 64)
        assert row.finish() == [expected]


def test_a_request_takes_one_place_in_the_queue() -> None:
    with closing_engine("bert", max_rows=1, max_queue=1) as engine:
        gate = Gate(lambda: True)
        encode = engine.model.encode
        engine.model.encode = lambda *args: (gate(), encode(*args))[1]
        asked = [Asked(engine, TEXTS), Asked(engine, TEXTS)]
        with pytest.raises(QueueFullError):
            Asked(engine, TEXTS)
        gate.open()
        assert [each.vectors().shape for each in asked] == [(len(TEXTS), 32)] * 2
        Asked(engine, TEXTS).vectors()


def test_an_encoder_generates_no_text() -> None:
    with closing_engine("bert") as engine, pytest.raises(RowError, match="generates no text"):
        Running(engine, request([5, 6, 7])).finish()


def test_a_consumer_that_is_gone_holds_nobody_up() -> None:
    class Gone(SyncSink):
        def put(self, index: int, event: Event) -> None:
            raise RuntimeError("nobody is here")

    with closing_engine("bert") as engine:
        engine.embed(EmbeddingRequest(TEXTS), Gone())
        assert Asked(engine, TEXTS).vectors().shape == (len(TEXTS), 32)
        assert eventually(lambda: engine.stats().waiting == 0)
