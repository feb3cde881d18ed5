"""Where a submission's events go: the only thing in which sync and async callers differ."""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import threading
import weakref
from collections import deque
from typing import Any

import anyio

from ..core import Event


class SyncSink:
    """A queue that one thread reads."""

    waker = None

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()

    def put(self, index: int, event: Event) -> None:
        self._queue.put((index, event))

    def get(self, timeout: float | None) -> tuple[int, Event]:
        """The next event.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            TimeoutError: none came in time.
        """
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None


class LoopWaker:
    """One per event loop: however many of its streams got tokens in a step, the loop is entered once."""

    def __init__(self, loop: Any, method: str) -> None:
        self._loop = weakref.ref(loop)
        self._method = method
        self._dirty: deque[AsyncSink] = deque()

    def note(self, sink: AsyncSink) -> None:
        """Remember, on the engine thread, that a sink has events."""
        self._dirty.append(sink)

    def wake(self) -> None:
        """Have the loop notify the sinks that have events. Raises RuntimeError when it has ended."""
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        getattr(loop, self._method)(self._drain)

    def _drain(self) -> None:
        while self._dirty:
            self._dirty.popleft().notify()


class AsyncSink:
    """A queue that one task reads, on the event loop that it was made on."""

    def __init__(self) -> None:
        self.waker = current_waker()
        self._events: deque[tuple[int, Event]] = deque()
        self._noted = False
        self._waiting: anyio.Event | None = None

    def put(self, index: int, event: Event) -> None:
        self._events.append((index, event))
        if not self._noted:
            self._noted = True
            self.waker.note(self)

    def notify(self) -> None:
        """Let the reader go on. Runs on the event loop."""
        self._noted = False
        if self._waiting is not None:
            self._waiting.set()

    async def get(self, timeout: float | None) -> tuple[int, Event]:
        """As `SyncSink.get`."""
        if not self._events:
            with anyio.move_on_after(math.inf if timeout is None else timeout):
                while not self._events:
                    self._waiting = anyio.Event()
                    await self._waiting.wait()
            self._waiting = None
            if not self._events:
                raise TimeoutError
        return self._events.popleft()


_wakers: weakref.WeakKeyDictionary[Any, LoopWaker] = weakref.WeakKeyDictionary()
_wakers_lock = threading.Lock()


def current_waker() -> LoopWaker:
    """The waker of the running event loop, asyncio's or trio's."""
    loop, method = _running_loop()
    with _wakers_lock:
        waker = _wakers.get(loop)
        if waker is None:
            waker = _wakers[loop] = LoopWaker(loop, method)
        return waker


def _running_loop() -> tuple[Any, str]:
    """The event loop, and the name of its method by which other threads call into it."""
    if "trio" in sys.modules:
        import trio.lowlevel

        if trio.lowlevel.in_trio_run():
            return trio.lowlevel.current_trio_token(), "run_sync_soon"
    return asyncio.get_running_loop(), "call_soon_threadsafe"
