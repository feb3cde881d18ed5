"""Work that runs alone: one request at a time, next to rows; whatever fails or leaves, the others are as they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.engine import Engine
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.alone.jobs import Alone
from localai_shim.engine.work.queue import Queue
from localai_shim.models.loading import load_model
from localai_shim.speech import Spoken
from localai_shim.types import EngineClosedError, Event, Failure, RowError, SpeechRequest, Token
from tests.engine.everything import Everything
from tests.engine.harness import Running, eventually, request
from tests.tiny import tiny


class Letters:
    """Speaks one letter per piece, as its number and a random one, each when it is let go."""

    def __init__(self) -> None:
        self.begun, self.left = list[str](), list[str]()
        self.let_go = threading.Semaphore(0)
        self.raises: Callable[[], None] = lambda: None

    def begin(self, work: SpeechRequest) -> Iterator[Spoken]:
        self.begun.append(work.text)
        try:
            for letter in work.text:
                assert self.let_go.acquire(timeout=60)
                if letter == "!":
                    raise ArithmeticError("no such letter")
                yield Spoken(np.array([ord(letter), float(mx.random.uniform())], np.float32), 8, 1)
        finally:
            self.left.append(work.text)
            self.raises()


class Speaking(Everything):
    """Generates, embeds, and speaks."""

    def __init__(self, loaded: Any, letters: Letters) -> None:
        super().__init__(loaded)
        self.performers = {"speak": letters}
        self.tasks = (*self.tasks, "speak")  # type: ignore[assignment]


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def engine(letters: Letters) -> Iterator[Engine[Any]]:
    made: Engine[Any] = Engine(lambda: Speaking(load_model(str(tiny("qwen3")), {}), letters))
    made.wait()
    yield made
    letters.let_go.release(1000)  # what a failed test has left
    made.close()


class Speech:
    """One submission of a text, and what came of it."""

    def __init__(self, engine: Engine[Any], text: str, **more: Any) -> None:
        self.engine, self.sink, self.work = engine, SyncSink(), SpeechRequest(text, **more)
        self.ticket = engine.submit([self.work], self.sink)

    def next(self) -> Token:
        """Wait for an event. Raises what it failed with."""
        event: Event = self.sink.get(60)[1]
        if isinstance(event, Failure):
            raise event.error
        return event

    def finish(self) -> str:
        """Wait for all of it, and read its letters."""
        while self.next().finish_reason is None:
            pass
        return "".join(chr(int(piece.samples[0])) for piece in self.work.pieces)


def test_each_piece_is_there_when_its_event_comes(engine: Engine[Any], letters: Letters) -> None:
    speech = Speech(engine, "ab")
    letters.let_go.release()
    assert speech.next() == Token(0) and len(speech.work.pieces) == 1
    letters.let_go.release()
    assert speech.finish() == "ab" and letters.left == ["ab"]


def test_requests_run_one_after_the_other_and_get_their_own_pieces(engine: Engine[Any], letters: Letters) -> None:
    speeches = [Speech(engine, text) for text in ("abc", "d", "ef")]
    assert eventually(lambda: letters.begun == ["abc"] and engine.stats().waiting == 3)
    letters.let_go.release(6)
    assert [speech.finish() for speech in speeches] == ["abc", "d", "ef"]
    assert sorted(letters.begun) == sorted(letters.left) and letters.left[0] == "abc"


def test_the_more_urgent_request_is_next_and_interrupts_none(engine: Engine[Any], letters: Letters) -> None:
    first = Speech(engine, "ab")
    assert eventually(lambda: letters.begun == ["ab"])
    later, urgent = Speech(engine, "c", priority=1), Speech(engine, "d", priority=-1)
    letters.let_go.release(4)
    assert [each.finish() for each in (first, later, urgent)] == ["ab", "c", "d"]
    assert letters.begun == ["ab", "d", "c"]


def test_a_request_that_waits_can_be_canceled_and_never_begins(engine: Engine[Any], letters: Letters) -> None:
    first, second, third = (Speech(engine, text) for text in ("a", "b", "c"))
    assert eventually(lambda: letters.begun == ["a"])
    engine.cancel(second.ticket)
    letters.let_go.release(2)
    assert (first.finish(), third.finish()) == ("a", "c")
    assert letters.begun == ["a", "c"] and engine.stats().waiting == 0


def test_a_request_that_runs_can_be_canceled_between_two_pieces(engine: Engine[Any], letters: Letters) -> None:
    first, second = Speech(engine, "aaaaaaaa"), Speech(engine, "b")
    letters.let_go.release()
    first.next()
    engine.cancel(first.ticket)
    letters.let_go.release(2)  # a piece that was begun, and the other text
    assert second.finish() == "b"
    assert letters.left[0] == "aaaaaaaa" and len(first.work.pieces) <= 2


def test_code_that_raises_when_it_is_dropped_fails_no_other_request(
    engine: Engine[Any], letters: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        letters.raises = lambda: None
        raise ArithmeticError("while it was dropped")

    first, second = Speech(engine, "aaaa"), Speech(engine, "b")
    letters.let_go.release()
    first.next()
    letters.raises = fail
    engine.cancel(first.ticket)
    letters.let_go.release(2)
    assert second.finish() == "b"
    assert "while it was dropped" in caplog.text


def test_a_model_that_raises_fails_its_request_only(engine: Engine[Any], letters: Letters) -> None:
    bad, good = Speech(engine, "a!b"), Speech(engine, "c")
    letters.let_go.release(3)
    assert bad.next() == Token(0)
    with pytest.raises(RowError, match=r"speaking failed.*no such letter"):
        bad.next()
    assert good.finish() == "c" and engine.stats().waiting == 0


def test_an_engine_that_closes_fails_requests_that_run_and_wait(engine: Engine[Any], letters: Letters) -> None:
    speeches = [Speech(engine, "aa"), Speech(engine, "b")]
    assert eventually(lambda: letters.begun == ["aa"])
    closing = threading.Thread(target=engine.close)
    closing.start()
    letters.let_go.release(3)
    for speech in speeches:
        with pytest.raises(EngineClosedError):
            speech.finish()
    closing.join(60)
    assert letters.begun == letters.left == ["aa"]


def test_random_numbers_depend_on_the_seed_and_on_no_neighbor(engine: Engine[Any], letters: Letters) -> None:
    letters.let_go.release(100)
    speeches = [Speech(engine, "aaa", seed=seed) for seed in (1, 2, 1)]
    others = [Speech(engine, "aaa") for _ in range(2)]
    drawn = []
    for speech in (*speeches, *others):
        speech.finish()
        drawn.append([float(piece.samples[1]) for piece in speech.work.pieces])
    assert drawn[0] == drawn[2]
    assert len({*map(tuple, drawn)}) == 4


def test_rows_decode_while_a_text_is_spoken(engine: Engine[Any], letters: Letters) -> None:
    [expected] = Running(engine, request([7, 40, 25, 31], max_tokens=40)).finish()
    letters.let_go.release(1000)
    row, speech = Running(engine, request([7, 40, 25, 31], max_tokens=40)), Speech(engine, "spoken next to rows")
    assert row.finish() == [expected] and speech.finish() == "spoken next to rows"
    stats = engine.stats(plans=True)
    assert stats.generated_tokens == 80  # pieces of speech are no tokens
    assert "perform" in {piece["kind"] for plan in stats.plans for piece in plan["beside"]}


def test_new_weights_begin_a_request_again_that_has_no_piece_and_fail_one_that_has() -> None:
    events: list[tuple[Any, Event]] = []
    share = SimpleNamespace(note_waiting=lambda lane, waits: None)
    parts: Any = SimpleNamespace(queue=Queue(), share=share, emit=lambda job, event: events.append((job, event)))
    lane = Alone(parts)
    begun, waiting = (lane.enter(SpeechRequest(text), SyncSink(), 0) for text in ("a", "b"))
    lane.add([begun, waiting])
    lane.take(lane.next_pass(beside=False))
    begun.pieces = iter("a")
    lane.restart()
    assert begun.pieces is None and not events and len(lane) == 2
    begun.made = 1
    lane.restart()
    [(job, event)] = events
    assert job is begun and isinstance(event, Failure) and "weights were updated" in str(event.error)
    assert lane.next_pass(beside=False).request == waiting.number
