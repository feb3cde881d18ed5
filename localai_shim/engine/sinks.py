"""Sinks for a submission's events, the only difference between sync and async callers, and delivery to them."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import sys
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import anyio

from ..threads.system import Lock, SimpleQueue, make_queue
from ..types import Event, Failure, Recipient, RowError, Token, Waker, log
from .inbox import put_last
from .threads import lost

WAKE_EVENTS = 256
"""Events of a whole answer after which its reader is woken before the end: it reads them in pieces, so that an event
loop stays free, and an answer that cannot be read, or whose event loop is gone, ends early."""


class _Sink:
    """Parts that both sinks share: the reader of a whole answer is woken once, when it has ended."""

    _unended = 0
    _kept: list[tuple[int, Event]] | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()

    def wake_at_end(self, requests: int) -> None:
        """Wake the reader when all of its requests have ended, or one has failed. Comes before they are submitted."""
        self._unended, self._kept = requests, []

    def _due(self, kept: list[tuple[int, Event]], index: int, event: Event) -> Sequence[tuple[int, Event]]:
        """Keep an event of a whole answer; returns all that were kept when the reader has to know of them."""
        kept.append((index, event))
        if type(event) is Token:
            self._unended -= event.finish_reason is not None
            if self._unended and len(kept) < WAKE_EVENTS:
                return ()
        self._kept = []
        return kept


class SyncSink(_Sink):
    """A queue that one thread reads."""

    waker = None

    def __init__(self) -> None:
        super().__init__()
        self._queue: SimpleQueue[tuple[int, Event]] = make_queue()

    def put(self, index: int, event: Event) -> None:
        if self._kept is None:
            self._queue.put((index, event))
        else:
            for each in self._due(self._kept, index, event):
                self._queue.put(each)

    def get(self, timeout: float | None) -> tuple[int, Event]:
        """The next event.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            EngineClosedError: this process was forked from the one that gets its events.
            TimeoutError: none came in time.
        """
        if self._pid != os.getpid():
            raise lost()
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None


class LoopWaker:
    """Wakes one event loop once per step, however many of its streams got tokens."""

    def __init__(self, loop: object, method: str) -> None:
        self._loop = weakref.ref(loop)
        self._method = method
        self._dirty: deque[AsyncSink] = deque()
        self.note: Callable[[AsyncSink], None] = self._dirty.append
        """Note, on the engine thread, that a sink has events."""

    def wake(self) -> None:
        """Have the loop notify the sinks that have events. Raises RuntimeError when it has ended."""
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        getattr(loop, self._method)(self._drain)

    def _drain(self) -> None:
        while self._dirty:
            self._dirty.popleft().notify()


class AsyncSink(_Sink):
    """A queue that one task reads, on the event loop that it was made on; see `make_async_sink`."""

    def __init__(self, waker: LoopWaker) -> None:
        super().__init__()
        self._waker = waker
        self.waker: LoopWaker | None = waker
        """Waker for the last event that was put; None: the reader does not have to know of it yet."""
        self.ready: deque[tuple[int, Event]] = deque()
        """The events to `pop`; there may be none."""
        self.pop: Callable[[], tuple[int, Event]] = self.ready.popleft
        """The next event, when `ready`."""
        self._noted = False
        self._note, self._add = waker.note, self.ready.append

    def put(self, index: int, event: Event) -> None:
        if self._kept is None:
            self._add((index, event))
        else:
            due = self._due(self._kept, index, event)
            self.waker = self._waker if due else None
            if not due:
                return
            self.ready.extend(due)
        if not self._noted:
            self._noted = True
            self._note(self)

    def notify(self) -> None:
        """Wake the reader. Runs on the event loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what belongs to the event loop. Runs there, when nothing more will be read."""

    def wait(self, timeout: float | None) -> Awaitable[None]:
        """Give an awaitable for while it is not `ready`; it may end before that.

        Args:
            timeout: seconds to wait; None waits for ever.

        Raises:
            EngineClosedError: this process was forked from the one that gets its events.
            TimeoutError: no event came in time.
        """
        if self._pid != os.getpid():
            raise lost()
        return self._wait(timeout)

    def _wait(self, timeout: float | None) -> Awaitable[None]:
        raise NotImplementedError


class _AsyncioSink(AsyncSink):
    """For asyncio: a bare future, and one timer, which is set again only when it goes off too early."""

    _reader: asyncio.Future[None] | None = None
    _deadline = math.inf
    _timer: asyncio.TimerHandle | None = None
    _timer_at = math.inf

    def notify(self) -> None:
        self._noted = False
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    def _wait(self, timeout: float | None) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self._deadline = math.inf if timeout is None else loop.time() + timeout
        if self._timer_at > self._deadline:
            self._set_timer(loop)
        self._reader = reader = loop.create_future()
        return reader

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        if self._deadline < math.inf:
            # Weakly: a timer must not keep a stream alive that nobody reads any more.
            self._timer = loop.call_at(self._deadline, _on_timer, weakref.ref(self), loop)
            self._timer_at = self._deadline

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf


def _on_timer(sink: weakref.ref[_AsyncioSink], loop: asyncio.AbstractEventLoop) -> None:
    alive = sink()
    if alive is None:
        return
    if loop.time() < alive._deadline:
        alive._set_timer(loop)
        return
    alive.close()
    if alive._reader is not None and not alive._reader.done():
        alive._reader.set_exception(TimeoutError())


class _AnyioSink(AsyncSink):
    """For other event loops (trio), on anyio."""

    _reader: anyio.Event | None = None

    def notify(self) -> None:
        self._noted = False
        if self._reader is not None:
            self._reader.set()

    async def _wait(self, timeout: float | None) -> None:
        with anyio.move_on_after(math.inf if timeout is None else timeout):
            while not self.ready:
                self._reader = anyio.Event()
                await self._reader.wait()
        self._reader = None
        if not self.ready:
            raise TimeoutError


def make_async_sink() -> AsyncSink:
    """A sink for the running task."""
    loop, method = running_loop()
    with _wakers_lock:
        waker = _wakers.get(loop)
        if waker is None:
            waker = _wakers[loop] = LoopWaker(loop, method)
    return _AsyncioSink(waker) if isinstance(loop, asyncio.AbstractEventLoop) else _AnyioSink(waker)


_wakers: weakref.WeakKeyDictionary[object, LoopWaker] = weakref.WeakKeyDictionary()
_wakers_lock = Lock()


def running_loop() -> tuple[object, str]:
    """The event loop, and the name of its method that other threads call it by."""
    lowlevel: Any = getattr(sys.modules.get("trio"), "lowlevel", None)  # another thread may be importing it
    if hasattr(lowlevel, "current_trio_token") and lowlevel.in_trio_run():
        return lowlevel.current_trio_token(), "run_sync_soon"
    return asyncio.get_running_loop(), "call_soon_threadsafe"


RecipientT = TypeVar("RecipientT", bound=Recipient)


def deliver_events(events: Sequence[tuple[RecipientT, Event]], in_flight: Collection[RecipientT]) -> set[RecipientT]:
    """Give a step's events to the sinks, and wake each event loop once. Runs on the engine thread.

    A sink that fails gets a `Failure` instead, so that its consumer does not wait for ever.

    Returns:
        The rows whose consumer is gone: of those that continue, which are `in_flight`, and of those that do not.
    """
    wakers: dict[Waker, None] = {}
    lost: set[RecipientT] = set()
    for row, event in events:
        if row in lost:
            continue
        sink = row.sink
        try:
            sink.put(row.index, event)
            if (waker := sink.waker) is not None:
                wakers[waker] = None
        except BaseException as error:
            log.exception("a consumer's sink failed; its request ends")
            lost.add(row)
            put_last(sink, row.index, _not_delivered(error))
    for waker in wakers:
        try:
            waker.wake()
        except BaseException as error:  # the event loop has ended, and nobody will ever read these
            own = {row for row in (*in_flight, *(row for row, _ in events)) if row.sink.waker is waker}
            lost |= own
            if not isinstance(error, RuntimeError):
                log.exception("an event loop could not be woken; its requests end")
                for row in own:
                    put_last(row.sink, row.index, _not_delivered(error))
    return lost


def _not_delivered(error: BaseException) -> Failure:
    return Failure(RowError(f"the tokens of this request could not be delivered: {error!r}"))
