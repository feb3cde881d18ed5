"""How a task waits for its stream's events on asyncio, and when the reader of a whole answer is woken."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.engine.sinks import WAKE_EVENTS, LoopWaker, SyncSink, deliver_events, make_async_sink, running_loop
from localai_shim.types import Event, Failure, RowError, Token
from tests import inside
from tests.conftest import MESSAGES
from tests.engine.harness import eventually
from tests.tiny import tiny


class Timers(asyncio.SelectorEventLoop):
    """An event loop that remembers its timers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[asyncio.TimerHandle] = []
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        self.made.append(super().call_at(when, callback, *args, context=context))
        return self.made[-1]


def run(main: Callable[[Timers], Coroutine[Any, Any, None]]) -> Timers:
    loop = Timers()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
        gc.collect()  # a future whose exception nobody took says so now
    assert not loop.errors
    return loop


def put(sink: Any) -> None:
    """As the engine does it."""
    sink.put(0, Token(1))
    sink.waker.wake()


def test_a_stream_of_many_tokens_sets_one_timer_and_leaves_none() -> None:
    async def main(loop: Timers) -> None:
        sink = make_async_sink()
        for _ in range(50):
            loop.call_soon(put, sink)
            while not sink.ready:
                await sink.wait(60)
            assert sink.pop() == (0, Token(1))
        assert len(loop.made) == 1
        sink.close()

    assert all(timer.cancelled() for timer in run(main).made)


def test_a_wait_without_events_times_out_and_the_next_one_may_be_longer() -> None:
    async def main(loop: Timers) -> None:
        sink = make_async_sink()
        for seconds in (0.01, 0.02):
            with pytest.raises(TimeoutError):
                await sink.wait(seconds)
        loop.call_later(0.02, put, sink)
        while not sink.ready:
            await sink.wait(None)

    run(main)


def test_a_shorter_timeout_counts_from_its_own_beginning() -> None:
    async def main(loop: Timers) -> None:
        sink = make_async_sink()
        loop.call_soon(put, sink)
        while not sink.ready:
            await sink.wait(60)
        sink.pop()
        with pytest.raises(TimeoutError):
            await sink.wait(0.01)
        assert len(loop.made) == 2 and all(timer.cancelled() for timer in loop.made), "none is left behind"

    run(main)


def test_a_timer_that_goes_off_while_nobody_waits_is_of_no_effect() -> None:
    """The reader is slow, or was cancelled."""

    async def main(loop: Timers) -> None:
        sink = make_async_sink()
        loop.call_soon(put, sink)
        while not sink.ready:
            await sink.wait(0.02)
        sink.pop()
        await asyncio.sleep(0.03)
        cancelled = asyncio.ensure_future(sink.wait(0.02))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0.03)
        loop.call_soon(put, sink)
        while not sink.ready:
            await sink.wait(60)
        assert sink.pop() == (0, Token(1))
        sink.close()

    run(main)


def test_a_loop_is_found_while_another_thread_imports_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio", ModuleType("trio"))  # whose lowlevel is not there yet
    monkeypatch.delitem(sys.modules, "trio.lowlevel", raising=False)

    async def found() -> bool:
        return running_loop() == (asyncio.get_running_loop(), "call_soon_threadsafe")

    assert asyncio.run(found())


# -- whole answers ---------------------------------------------------------------------------------------------------


class Row:
    """A row, as far as the delivery of its events goes."""

    def __init__(self, sink: Any, index: int = 0) -> None:
        self.sink, self.index = sink, index


END = Token(1, finish_reason="stop")
FAILURE = Failure(RowError("bad luck"))
# events of two requests, of which the last one wakes the reader
ENDS: dict[str, list[tuple[int, Event]]] = {
    "both end": [(0, Token(1)), (1, END), (0, Token(2)), (0, END)],
    "one fails": [(0, Token(1)), (1, Token(1)), (1, FAILURE)],
    "one has ended and the other fails": [(0, Token(1)), (1, END), (0, Token(2)), (0, FAILURE)],
    "many come": [(i % 2, Token(i)) for i in range(WAKE_EVENTS)],
}


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[LoopWaker]:
    """Each time that an event loop was woken for its streams."""
    seen: list[LoopWaker] = []
    wake = LoopWaker.wake

    def watched(self: LoopWaker) -> None:
        seen.append(self)
        wake(self)

    monkeypatch.setattr(LoopWaker, "wake", watched)
    return seen


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.anyio
async def test_the_task_of_a_whole_answer_is_woken_once_with_all_events(name: str, wakes: list[LoopWaker]) -> None:
    sink = make_async_sink()
    sink.wake_at_end(2)
    rows = [Row(sink, 0), Row(sink, 1)]
    *before, last = ENDS[name]
    for index, event in before:
        assert not deliver_events([(rows[index], event)], rows)
        assert not wakes and not sink.ready
    deliver_events([(rows[last[0]], last[1])], rows)
    assert len(wakes) == 1
    await sink.wait(60)
    assert [sink.pop() for _ in range(len(sink.ready))] == ENDS[name]


@pytest.mark.parametrize("name", ENDS)
def test_the_thread_of_a_whole_answer_is_woken_once_with_all_events(name: str) -> None:
    sink = SyncSink()
    sink.wake_at_end(2)
    *before, last = ENDS[name]
    for index, event in before:
        sink.put(index, event)
        with pytest.raises(TimeoutError):
            sink.get(0)
    sink.put(*last)
    assert [sink.get(0) for _ in ENDS[name]] == ENDS[name]


def test_a_long_answer_is_read_in_pieces_and_whole() -> None:
    sink = SyncSink()
    sink.wake_at_end(1)
    events: list[tuple[int, Event]] = [(0, Token(i)) for i in range(3 * WAKE_EVENTS + 5)]
    for each in events:
        sink.put(*each)
    for each in events[: 3 * WAKE_EVENTS]:
        assert sink.get(0) == each
    with pytest.raises(TimeoutError):
        sink.get(0)
    sink.put(0, END)
    assert [sink.get(0) for _ in range(6)] == [*events[-5:], (0, END)]


def test_a_whole_answer_whose_event_loop_was_closed_is_noticed_before_its_end() -> None:
    made: list[Any] = []

    async def main() -> None:
        made.append(make_async_sink())
        made[0].wake_at_end(1)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    row = Row(made[0])
    lost = [deliver_events([(row, Token(1))], [row]) for _ in range(WAKE_EVENTS)]
    assert lost[-1] == {row} and not any(lost[:-1])


def test_a_whole_answer_that_nobody_can_wait_for_any_more_frees_its_row() -> None:
    """Its event loop was closed, although a task still waits on it."""
    kept: list[Any] = []

    async def begin(engine: Any) -> None:
        shared = AsyncLocalOpenAI(engine=engine)
        endless = shared.chat.completions.create(model="any", messages=MESSAGES, extra_body={"ignore_eos": True})
        kept.extend([shared, asyncio.ensure_future(endless)])
        assert await asyncio.to_thread(eventually, lambda: engine.stats().running == 1)

    with LocalOpenAI(tiny("qwen3", max_position_embeddings=200_000)) as client:
        engine = inside.engine(client)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin(engine))
        loop.close()
        assert eventually(lambda: engine.stats().running == 0)
    kept[1]._log_destroy_pending = False


@pytest.mark.anyio
async def test_whole_answers_wake_their_event_loop_once_each(
    client: LocalOpenAI, async_client: AsyncLocalOpenAI, wakes: list[LoopWaker]
) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "extra_body": {"ignore_eos": True}, "seed": 1}
    expected = client.chat.completions.create(**asked, max_tokens=60, n=2).choices
    found = (await async_client.chat.completions.create(**asked, max_tokens=60, n=2)).choices
    assert [choice.message.content for choice in found] == [choice.message.content for choice in expected]
    assert len(wakes) == 1
    wakes.clear()
    async for _ in await async_client.chat.completions.create(**asked, max_tokens=60, stream=True):
        pass
    assert len(wakes) > 20
