"""How a task waits for its stream's events on asyncio."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest

from localai_shim.engine.sinks import make_async_sink, running_loop
from localai_shim.types import Token


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
