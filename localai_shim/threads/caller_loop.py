"""The event loop that a request comes from, for objects of the caller's program that belong to it."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from .deadline import check
from .system import Future

LOOK_SECONDS = 0.05  # after which work is canceled whose request was left
Loop = Any
"""An event loop of asyncio, or a token of trio."""


class Caller(NamedTuple):
    """Event loop of the code that makes a request."""

    loop: Loop
    waits: bool
    """Its thread waits for the answer, so that nothing can run on it."""


_caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("caller_loop", default=None)


def running() -> Loop | None:
    """The event loop that runs on this thread."""
    lowlevel: Any = getattr(sys.modules.get("trio"), "lowlevel", None)  # another thread may be importing it
    if hasattr(lowlevel, "current_trio_token") and lowlevel.in_trio_run():
        return lowlevel.current_trio_token()
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def note_caller(*, waits: bool) -> None:
    """Note the event loop that makes a request, for this context and the threads that work for it.

    Args:
        waits: this thread waits for the answer. A thread without a loop may work for one, see `asyncio.to_thread`.
    """
    loop, known = running(), _caller.get()
    if loop is not None:
        _caller.set(Caller(loop, waits))
    elif known is not None and known.waits:
        _caller.set(Caller(known.loop, False))


def caller() -> Caller | None:
    """The noted event loop; None: the request comes from none."""
    return _caller.get()


def is_usable(loop: Loop) -> bool:
    """True if work can be given to an event loop."""
    return not isinstance(loop, asyncio.AbstractEventLoop) or (loop.is_running() and not loop.is_closed())


def run_on(loop: Loop, call: Callable[[], Awaitable[object]], *, isolated: bool = False) -> object:
    """Result of a coroutine that runs on another thread's event loop. It is canceled if its request is left.

    Args:
        call: makes the coroutine, on that thread.
        isolated: it does not run in the context of the request, which may say that it is trio.

    Raises:
        Exception: of the coroutine.
        RuntimeError: the event loop has ended.
        Overdue: the caller has left the request.
    """
    work = _Work(call)
    begin = contextvars.Context().run if isolated else _call
    begin(_give, loop, work.begin)
    try:
        while True:
            try:
                return work.result.result(LOOK_SECONDS)
            except TimeoutError:
                if work.result.done():
                    return work.result.result()
            check()
            if not is_usable(loop):
                raise RuntimeError("the event loop of this object has ended")
    finally:
        if not work.result.done() and is_usable(loop):
            _give(loop, work.cancel)


def _call(give: Callable[[Loop, Callable[[], object]], None], loop: Loop, call: Callable[[], object]) -> None:
    give(loop, call)


def _give(loop: Loop, call: Callable[[], object]) -> None:
    give = loop.call_soon_threadsafe if isinstance(loop, asyncio.AbstractEventLoop) else loop.run_sync_soon
    give(call)


class _Work:
    """A coroutine on an event loop. All but `result` belongs to the loop's thread."""

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self.result: Future[object] = Future()
        self._call = call
        self._canceled: Any = None
        """A task of asyncio, or a cancel scope of trio."""

    def begin(self) -> None:
        loop = running()
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._canceled = loop.create_task(self._run())
        else:
            trio = sys.modules["trio"]
            self._canceled = trio.CancelScope()
            trio.lowlevel.spawn_system_task(self._run_in_scope)

    def cancel(self) -> None:
        self._canceled.cancel()  # it has begun: a loop's calls come in their order

    async def _run_in_scope(self) -> None:
        with self._canceled:
            await self._run()

    async def _run(self) -> None:
        try:
            made = await self._call()
        except BaseException as error:
            self.result.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.result.set_result(made)
