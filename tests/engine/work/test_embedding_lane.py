"""Texts that wait: which share a pass, how long texts are read, and what is left to rows of all engines."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.costs.chunks import FIRST_CHUNK_TOKENS, ChunkLimit, Pace
from localai_shim.engine.costs.cost_model import CostModel, Meter
from localai_shim.engine.pieces import Texts
from localai_shim.engine.setup import Setup
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work import lane as lanes
from localai_shim.engine.work import texts as texts_module
from localai_shim.engine.work.lane import MAX_PAUSE_SECONDS, SHARE, Parts, Share
from localai_shim.engine.work.queue import OLDEST_EVERY
from localai_shim.engine.work.runner import TextRunner
from localai_shim.engine.work.scheduler import Scheduler
from localai_shim.engine.work.texts import MIN_LENGTH_SHARE, EmbeddingJob, TextJobs
from localai_shim.types import EmbeddingRequest, Event, Failure, RowError, Token
from tests.engine.work.passes import Passes

MOST = 64
"""Tokens of a pass, in the lanes below."""


class Lane:
    """A lane, and what it emits."""

    def __init__(self, **options: Any) -> None:
        self.model, self.meter = Passes(), Meter()
        self.events: list[tuple[EmbeddingJob, Event]] = []
        model: Any = self.model
        self.chunks = ChunkLimit(MOST)
        more: dict[str, Any] = {"text_tokens": MOST, "costs": CostModel(), "chunks": self.chunks, **options}
        engine = more.pop("engine", self)
        self.setup = Setup(None, **more)

        def emit(job: Any, event: Event) -> None:
            self.events.append((job, event))

        self.share = Share(engine, self.setup.costs, self.meter)
        self.parts = Parts(model, self.setup, self.meter, self.share, emit)
        self.lane = TextJobs(self.parts)
        self.runner = TextRunner(self.lane, self.parts)

    def ask(self, lengths: Sequence[int], mark: int = 0, **more: Any) -> EmbeddingJob:
        """Queue texts of these lengths, whose tokens are the mark."""
        texts = [[mark] * length for length in lengths]
        job = self.lane.enter(EmbeddingRequest(texts, **more), SyncSink(), 0)
        self.lane.add([job])
        return job

    def pass_(self, *, beside: bool = False) -> None:
        """Run one pass."""
        self.run_piece(self.lane.next_pass(beside=beside))

    def run_piece(self, piece: Texts) -> None:
        try:
            self.runner.run(piece)
        except BaseException as error:
            self.lane.fail(error)

    def run(self) -> None:
        while self.lane:
            self.pass_()

    @property
    def marks(self) -> list[int]:
        """The first text's mark of each pass."""
        return [texts[0][0] for texts in self.model.texts]


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are left with texts here, which no other test's engines should wait for."""
    monkeypatch.setattr(lanes, "waiting", set())


# -- passes ---------------------------------------------------------------------------------------------------------


def test_texts_of_like_lengths_share_a_pass() -> None:
    w = Lane()
    job = w.ask([1, 60, 13, 12, 11, 31, 2, 28])
    w.run()
    assert w.model.lengths == [[60], [28, 31], [11, 12, 13], [1, 2]]
    assert job.request.vectors is not None
    assert job.request.vectors.tolist() == [[n, 0] for n in (1, 60, 13, 12, 11, 31, 2, 28)]
    assert (w.meter.embedded_texts, w.meter.embedded_tokens) == (8, 158)


@pytest.mark.parametrize(
    ("gpu", "fixed", "per_token", "fewest", "most"),
    [(True, 2e-3, 1e-7, 1, 3), (True, 5e-4, 5e-5, 10, 20), (False, 2e-3, 1e-7, 10, 20)],
    ids=["launched for long", "computed for long", "a CPU"],
)
def test_texts_of_unlike_lengths_share_a_pass_where_padding_costs_less_than_one_more(
    gpu: bool, fixed: float, per_token: float, fewest: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a pass is learned from those before it."""
    now, rng = [0.0], random.Random(1)
    monkeypatch.setattr(texts_module, "_on_gpu", lambda: gpu)
    w = Lane(text_tokens=16_384, costs=CostModel(lambda: now[0]))
    encode = w.model.encode

    def timed(texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        now[0] += fixed + per_token * len(texts) * max(map(len, texts))
        return encode(texts, skip)

    monkeypatch.setattr(w.model, "encode", timed)
    for _ in range(3):
        w.model.texts.clear()
        jobs = [w.ask([rng.randint(20, 400) for _ in range(32)]) for _ in range(2)]
        w.run()
    assert fewest <= len(w.model.texts) <= most
    assert all(len(texts) * max(map(len, texts)) <= 16_384 for texts in w.model.texts)
    for job in jobs:
        assert job.request.vectors is not None
        assert job.request.vectors[:, 0].tolist() == [len(text) for text in job.request.texts]


def test_a_pass_has_no_more_tokens_than_it_may() -> None:
    w = Lane()
    w.ask([*range(1, 41)] * 3)
    w.run()
    assert sum(map(len, w.model.lengths)) == 120
    for lengths in w.model.lengths:
        assert len(lengths) * lengths[-1] <= MOST and lengths[0] >= min(MIN_LENGTH_SHARE * lengths[-1], lengths[-1] - 8)

    w = Lane()
    w.chunks.halve()  # a GPU has stopped a pass
    w.ask([16, 16, 16, 16])
    w.run()
    assert w.model.lengths == [[16, 16], [16, 16]]


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
        w.pass_()
        open_texts.add(sum(job.reading is not None for job in jobs))
    assert open_texts == {0, 1} and sorted(w.model.begun) == [1, 1, 2, 3]
    assert all(job.left == 0 for job in jobs)


def test_who_is_gone_is_not_read_to_the_end() -> None:
    w = Lane()
    w.model.in_pieces = True
    gone, stays = w.ask([9 * MOST], 1), w.ask([3 * MOST], 2)
    w.pass_()
    assert gone.reading is not None
    w.lane.drop([gone])
    w.run()
    assert w.marks == [1, 2, 2, 2] and [job for job, _ in w.events] == [stays]


def test_a_change_of_the_model_has_every_text_run_again() -> None:
    w = Lane()
    w.model.in_pieces = w.model.fails_together = True
    jobs = [w.ask([9 * MOST, 10], 2), w.ask([20] * 12, 3)]
    while not (jobs[0].reading and w.lane._alone and jobs[1].vectors is not None):
        w.pass_()
    w.model.fails_together, w.model.texts = False, []
    w.lane.restart()
    w.run()
    assert {job for job, _ in w.events} == {*jobs} and not any(isinstance(event, Failure) for _, event in w.events)
    assert sum(map(len, itertools.chain(*w.model.texts))) == 9 * MOST + 10 + 12 * 20


def test_a_piece_that_fails_fails_its_own_request_alone() -> None:
    w = Lane()
    w.model.in_pieces = True
    w.model.fails = lambda text: text[0] == 1 and len(w.model.texts) > 1
    failing, stays = w.ask([3 * MOST], 1), w.ask([3 * MOST], 2)
    w.run()
    events = dict(w.events)
    assert isinstance(events[failing], Failure) and isinstance(events[stays], Token)
    assert failing.reading is None and stays.request.vectors is not None


def test_a_text_whose_pass_failed_is_not_read_in_pieces_beside_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fitted into that pass, and is longer than the next one."""
    w = Lane(text_tokens=10**6)
    w.model.in_pieces = True
    w.model.fails_together = True
    sizes = itertools.chain([500, 500], itertools.repeat(125))
    monkeypatch.setattr(Pace, "chunk", lambda pace, left=None: next(sizes))
    jobs = [w.ask([1000], 1), w.ask([200, 200], 2)]
    open_texts = set()
    while w.lane:
        w.pass_()
        open_texts.add(sum(job.reading is not None for job in jobs))
    assert open_texts == {0, 1} and w.model.lengths[1] == [200, 200]
    assert [job.request.vectors.tolist() for job in jobs if job.request.vectors is not None] == [
        [[1000, 1]],
        [[200, 2], [200, 2]],
    ]


def test_passes_are_played_again_as_they_were_planned() -> None:
    """Choosing them changes nothing: what was chosen may be run by another lane that has the same texts."""
    rng = random.Random(3)
    lengths = [[rng.randint(1, 90) for _ in range(rng.randint(1, 30))] for _ in range(6)]
    w, other = Lane(), Lane()
    for mark, some in enumerate(lengths):
        w.ask(some, mark)
        other.ask(some, mark)
    while w.lane:
        piece = w.lane.next_pass(beside=False)
        w.run_piece(piece)
        other.run_piece(piece)
    assert not other.lane and other.model.texts == w.model.texts
    for (job, _), (same, _) in zip(w.events, other.events, strict=True):
        assert np.array_equal(job.request.vectors, same.request.vectors)  # type: ignore[arg-type]


def test_vectors_of_too_few_texts_fail_these_and_no_others() -> None:
    w = Lane()
    encode = w.model.encode

    def short(texts: Sequence[Sequence[int]], skip: int = 0) -> mx.array:
        return encode(texts, skip)[: -1 if texts[0][0] == 1 else None]

    w.model.encode = short  # type: ignore[method-assign]
    bad, good = w.ask([8, 8], 1), w.ask([30], 2)
    w.run()
    events = dict(w.events)
    assert isinstance(events[bad], Failure) and isinstance(events[good], Token) and len(w.events) == 2


def test_an_error_in_choosing_fails_those_that_wait_and_the_next_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Lane()
    jobs = [w.ask([8], 1), w.ask([30], 2)]
    with monkeypatch.context() as patch:
        patch.setattr(TextJobs, "_first", lambda *_: 1 / 0)
        assert Scheduler(None, [w.lane], w.parts).next() is None
    events = dict(w.events)
    assert all(isinstance(events[job], Failure) for job in jobs) and not w.lane and not lanes.waiting
    later = w.ask([9], 3)
    w.run()
    assert later.request.vectors is not None


@pytest.mark.parametrize("lengths", [[], [0], [3, 0]])
def test_a_request_without_a_text_or_a_token_is_refused(lengths: list[int]) -> None:
    w = Lane()
    with pytest.raises(ValueError, match="no text, or one that has no token"):
        w.ask(lengths)
    assert not w.lane


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
    w.pass_()
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
    w.pass_(beside=True)
    owed = w.share._owed
    [took] = w.meter._stalls
    assert owed == pytest.approx(took * (1 / SHARE - 1))
    assert not w.lane.is_due(True, None) and w.lane.is_due(False, None)
    w.share.stepped(0.9 * owed)
    assert not w.lane.is_due(True, None)
    w.share.stepped(0.2 * owed)
    assert w.lane.is_due(True, None)


def test_texts_that_take_longer_than_rows_may_wait_come_last() -> None:
    w = Lane(text_tokens=10**6)
    w.ask([FIRST_CHUNK_TOKENS * 4, FIRST_CHUNK_TOKENS, 3])
    w.pass_(beside=True)
    assert w.model.lengths == [[FIRST_CHUNK_TOKENS]]


def test_rows_of_other_engines_have_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    w, other = Lane(text_tokens=10**6), object()
    w.ask([4] * 100)
    monkeypatch.setattr(lanes, "decoding", {other})
    w.pass_()
    assert len(w.model.texts[0]) * 4 == FIRST_CHUNK_TOKENS
    monkeypatch.setattr(lanes._turns, "resumes", time.monotonic() + 100)
    assert not w.lane.is_due(False, None) and 0 < w.share.pause <= MAX_PAUSE_SECONDS
    monkeypatch.setattr(lanes, "decoding", {w})
    assert w.lane.is_due(False, None) and not w.share.pause, "its own rows are its own affair"


class Clock:
    """Virtual time, in which a pass takes as long as it is said to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, decoding: set[object]) -> None:
        self.now = 1000.0
        for name, content in (("decoding", decoding), ("waiting", set()), ("_turns", lanes._Turns())):
            monkeypatch.setattr(lanes, name, content)

    def time(self) -> float:
        return self.now

    def slow(self, seconds: float) -> Lane:
        """A lane of which each pass takes so long."""
        w = Lane(costs=CostModel(self.time))
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
                w.pass_()
            self.now += 0.0 if due else min(w.share.pause for w in lanes)
        return [len(w.model.texts) - n for w, n in zip(lanes, before, strict=True)]


def test_texts_of_all_engines_together_have_their_share_and_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    one, other = clock.slow(0.04), clock.slow(0.04)
    alone = clock.passes([one], 100)
    assert alone == [pytest.approx(100 * SHARE / 0.04, rel=0.05)]
    made = clock.passes([one, other], 100)
    assert sum(made) == pytest.approx(100 * SHARE / 0.04, rel=0.05)
    assert abs(made[0] - made[1]) <= 0.1 * sum(made), "neither starves"


def test_a_slow_embedder_does_not_take_a_fast_one_s_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    slow, fast = (
        clock.slow(0.1),
        clock.slow(0.001),
    )
    made = clock.passes([slow, fast], 100)
    assert min(made) > 0.4 * sum(made)
    assert 0.1 * made[0] + 0.001 * made[1] == pytest.approx(100 * SHARE, rel=0.1)


def test_where_nobody_decodes_texts_have_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, set())
    lanes = [clock.slow(0.04), clock.slow(0.04)]
    assert sum(clock.passes(lanes, 10)) == pytest.approx(250, abs=2)


def test_who_has_no_texts_any_more_takes_nobody_s_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    one, other = clock.slow(0.04), clock.slow(0.04)
    other.lane.drop([*other.lane._jobs.values()])
    assert lanes.waiting == {one}
    one.share.close()
    assert not lanes.waiting


def test_texts_and_prompts_take_turns() -> None:
    w = Lane()
    assert not w.lane.is_due(False, None), "nothing waits"
    w.ask([60] * 10)
    turns = [w.lane.is_due(False, 0) for _ in range(10)]
    assert turns == [False, True] * 5
    assert [w.lane.is_due(False, 1) for _ in range(OLDEST_EVERY)].count(False) == 1, "prompts are less urgent"
    assert [w.lane.is_due(False, -1) for _ in range(OLDEST_EVERY)].count(True) == 1, "prompts are more urgent"


def test_a_pass_beside_rows_is_as_small_as_its_time() -> None:
    w = Lane(text_tokens=10**6)
    w.ask([4] * 10_000)
    w.pass_(beside=True)
    assert len(w.model.texts[0]) * 4 == FIRST_CHUNK_TOKENS
    w.pass_()
    assert len(w.model.texts[0]) < len(w.model.texts[1]) < 9_000, "as much longer as nobody waits, and no more"


def test_a_pass_amid_which_the_process_was_stopped_for_an_hour_is_not_owed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {object()})
    assert clock.passes([clock.slow(3600.0)], 3660) == [2]
