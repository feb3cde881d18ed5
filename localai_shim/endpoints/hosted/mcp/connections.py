"""Connections to MCP servers behind URLs, which a client keeps between its requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple

from ....threads.caller_loop import run_on
from ....threads.system import Event, Lock, get_ident, make_thread

MAX_KEPT = 8
"""Maximum number of connections of one client that are kept; those in use stay until they are not."""
IDLE_SECONDS = 60.0
"""Time after which a connection that is not used is closed."""
CLOSE_SECONDS = 2.0
"""Time that a server has to end a session."""
_LOST_SESSION = (-32600, -32000, -32001)
"""Codes with which servers say that they do not know a session: they have not done what was asked."""
Work = Callable[[object], Awaitable[object]]
"""Uses a client of the `mcp` package."""


class Address(NamedTuple):
    """A server and the headers of requests to it: requests with other headers have other connections."""

    url: str
    headers: tuple[tuple[str, str], ...]
    public: bool
    """Only servers on public addresses are asked."""

    def __repr__(self) -> str:
        return "Address(...)"  # it may hold secrets


Connect = Callable[[Address], AbstractAsyncContextManager[object]]
"""Makes a client of the `mcp` package that is connected."""


class _Kept:
    """A connection. All of it belongs to the event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.client: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.users = 0
        self.error: Exception | None = None
        """Error that ended it."""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None]


class Connections:
    """Connections of a client. They belong to an event loop on its own thread, which ends with the last of them.

    Args:
        connect: makes a connection.
        most: maximum number of connections that are kept.
        idle: seconds after which a connection that is not used is closed.
    """

    def __init__(self, connect: Connect, most: int = MAX_KEPT, idle: float = IDLE_SECONDS) -> None:
        self._loop = _Loop(connect, most, idle)

    def call(self, address: Address, work: Work, *, repeats: bool) -> object:
        """Result of work with a connection, a kept one if there is one. Waits.

        Args:
            repeats: the work may be done twice. Otherwise it is done again only if the server has not begun it.

        Raises:
            Exception: of the work, or of the connection. A kept connection that has died was made again once.
            Overdue: the caller of the request has left.
        """
        return self._loop.call(address, work, repeats=repeats)

    def close(self) -> None:
        """Close all connections, and wait until they are."""
        self._loop.close(wait=True)

    def __del__(self) -> None:
        self._loop.close(wait=False)


class _Loop:
    """The event loop of a client's connections, and its thread, which does not hold `Connections`."""

    def __init__(self, connect: Connect, most: int, idle: float) -> None:
        self._connect, self._most, self._idle = connect, most, idle
        _loops.add(self)
        self.reset()

    def reset(self) -> None:
        """Begin without a thread."""
        self._lock, self._is_closed = Lock(), False
        self._thread: _Thread | None = None
        self._calls = 0
        self._kept: OrderedDict[Address, _Kept] = OrderedDict()
        self._open: set[_Kept] = set()
        """Also those that are not kept any more."""

    def forget(self) -> None:
        """Forget the parent's thread in a forked child. Its event loop is not closed: that would reach the parent's."""
        if self._thread is not None:
            _lost.append((self._thread, self._kept, self._open))
        self.reset()
        self._is_closed = True

    # -- any thread -------------------------------------------------------------------------------------------------

    def call(self, address: Address, work: Work, *, repeats: bool) -> object:
        """See `Connections.call`."""
        thread = self._enter()
        try:
            thread.started.wait()
            return run_on(thread.loop, partial(self._use, address, work, repeats=repeats), isolated=True)
        finally:
            with self._lock:
                self._calls -= 1
            with contextlib.suppress(RuntimeError):  # it has ended
                thread.loop.call_soon_threadsafe(self._end_if_unused)

    def _enter(self) -> _Thread:
        """The thread, which does not end before the call has."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            if self._thread is None:
                self._thread = _Thread()
            self._calls += 1
            return self._thread

    def close(self, *, wait: bool) -> None:
        """Close all connections.

        Args:
            wait: for the end of the thread, for a bounded time.
        """
        with self._lock:
            thread, self._is_closed = self._thread, True
        if thread is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended
            thread.loop.call_soon_threadsafe(self._close_all)
        if wait and thread.ident != get_ident():
            thread.ended.wait(2 * CLOSE_SECONDS)

    # -- the event loop ---------------------------------------------------------------------------------------------

    async def _use(self, address: Address, work: Work, *, repeats: bool) -> object:
        kept, is_new = self._take(address)
        try:
            return await work(await asyncio.shield(kept.client))
        except Exception as error:
            cause = await _cause(kept, error)
            if is_new or not _may_repeat(kept, cause, repeats=repeats):
                raise cause from None
            self._drop(kept)
        finally:
            self._release(kept)
        kept, _ = self._take(address)
        try:
            return await work(await asyncio.shield(kept.client))
        except Exception as error:
            raise await _cause(kept, error) from None
        finally:
            self._release(kept)

    def _take(self, address: Address) -> tuple[_Kept, bool]:
        """A connection, and whether it is new."""
        kept = self._kept.get(address)
        is_new = kept is None
        if kept is None:
            kept = self._kept[address] = _Kept(address)
            self._open.add(kept)
            kept.task = asyncio.get_running_loop().create_task(self._hold(kept))
        self._kept.move_to_end(address)
        kept.users += 1
        if kept.timer is not None:
            kept.timer.cancel()
        unused = [each for each in self._kept.values() if not each.users]
        for each in unused[: max(0, len(self._kept) - self._most)]:
            self._drop(each)
        return kept, is_new

    def _release(self, kept: _Kept) -> None:
        kept.users -= 1
        if kept.users:
            return
        if self._kept.get(kept.address) is not kept or len(self._kept) > self._most or self._is_closed:
            self._drop(kept)
        else:
            kept.timer = asyncio.get_running_loop().call_later(self._idle, self._drop, kept)

    def _drop(self, kept: _Kept) -> None:
        """Keep a connection no longer. It closes when it is not used."""
        if self._kept.get(kept.address) is kept:
            del self._kept[kept.address]
        if kept.timer is not None:
            kept.timer.cancel()
        if not (kept.users or kept.closing.is_set()):
            self._close(kept)

    def _close(self, kept: _Kept) -> None:
        kept.closing.set()
        seconds = CLOSE_SECONDS if kept.client.done() else 0.0  # one that is still connecting has nothing to end
        asyncio.get_running_loop().call_later(seconds, kept.task.cancel)

    def _close_all(self) -> None:
        for kept in tuple(self._open):
            self._kept.pop(kept.address, None)
            self._close(kept)
        self._end_if_unused()

    async def _hold(self, kept: _Kept) -> None:
        """Hold a connection open: its context has to be left by the task that entered it."""
        try:
            async with self._connect(kept.address) as client:
                kept.client.set_result(client)
                await kept.closing.wait()
        except Exception as error:
            kept.error = error
        finally:
            self._drop(kept)
            self._open.discard(kept)
            if not kept.client.done():
                kept.client.set_exception(kept.error or ConnectionError("the connection was closed"))
                kept.client.exception()  # asyncio logs an error that nobody has read
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        with self._lock:
            thread = self._thread
            if self._calls or self._open or thread is None or thread.ident != get_ident():
                return
            self._thread = None
        thread.loop.stop()


class _Thread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.started, self.ended = Event(), Event()
        self.ident: int | None = None
        try:
            make_thread(self._run, name="localai_shim:mcp").start()
        except RuntimeError:  # there are too many
            self.loop.close()
            raise

    def _run(self) -> None:
        self.ident = get_ident()
        self.loop.call_soon(self.started.set)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()
            self.ended.set()


async def _cause(kept: _Kept, error: Exception) -> Exception:
    """The error that ended a connection while it was used, or the error of the work."""
    if kept.client.done() and _code(error) in (None, -32000):  # whose answer will not come
        await asyncio.wait([kept.task], timeout=0.1)
    return kept.error if kept.task.done() and kept.error is not None else error


def _may_repeat(kept: _Kept, cause: Exception, *, repeats: bool) -> bool:
    """A connection that was kept has died, and the work may be done with another one."""
    if _code(cause) in _LOST_SESSION and "session" in str(cause).lower():
        return True
    return kept.task.done() and (repeats or _not_connected(cause))


def _not_connected(error: BaseException) -> bool:
    """True if nothing was sent."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_not_connected, error.exceptions))
    return type(error).__name__ in ("ConnectError", "ConnectTimeout")  # of the HTTP library


def _code(error: BaseException) -> object:
    return getattr(getattr(error, "error", None), "code", None)


_loops: weakref.WeakSet[_Loop] = weakref.WeakSet()
_lost: list[object] = []
"""Event loops of a parent process: to close one would change what the parent's waits for."""


def _forget() -> None:
    for each in tuple(_loops):
        each.forget()


os.register_at_fork(after_in_child=_forget)
