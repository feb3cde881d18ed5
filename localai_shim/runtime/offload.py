"""Work on other threads that a caller waits for and may leave: an explicit sync/async pair of waiting."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ..engine.sinks import running_loop
from ..threads import greenlets, system
from ..threads.deadline import Deadline, until
from ..threads.greenlets import is_own_thread
from ..threads.system import Lock
from ..threads.workers import Workers
from ..types import log

T = TypeVar("T")
_PACKAGE = __name__.partition(".")[0]
MAX_READS = 32  # blocking reads of all requests, in addition to one per request; macOS allows a process 256 open files
MAX_READS_EACH = 8  # of one request
TURNS = 2  # of an event loop, that count at once
TURN_SECONDS = 0.25  # for which one counts


_preparing = Workers("preparing")
_reading = Workers("reading", MAX_READS)
_importing = Workers("importing", 1, 0.0)


# -- waiting --------------------------------------------------------------------------------------------------------


def wait(future: Future[T], deadline: Deadline) -> T:
    """The result of a future.

    Raises:
        TimeoutError: it took too long.
    """
    return future.result(deadline.left())


async def wait_async(future: Future[T], deadline: Deadline) -> T:
    """Wait in a task: no thread waits with it."""
    if not future.done():
        loop, method = running_loop()
        woken = anyio.Event()

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                getattr(loop, method)(woken.set)

        future.add_done_callback(wake)
        left = deadline.left()
        with anyio.move_on_after(math.inf if left is None else left):
            await woken.wait()
    return future.result(0)


def run(work: Callable[[], T], deadline: Deadline) -> T:
    """Run `work` on another thread, since nothing could stop it on this one.

    Raises:
        TimeoutError: it took too long, and continues until it looks at its deadline.
    """
    return wait(_preparing.submit(work), deadline)


def aside(work: Callable[[], T], deadline: Deadline | None = None) -> T:
    """Run `work` here, or on another thread if this one has other greenlets.

    Raises:
        TimeoutError: it took too long there, see `run`.
    """
    return run(work, deadline or Deadline()) if greenlets.are_here() else work()


async def run_async(work: Callable[[], T], deadline: Deadline) -> T:
    """Async form of `run`, whose threads are no worker threads of the event loop's: the application may need all of
    those."""
    return await wait_async(_preparing.submit(work), deadline)


async def run_to_end(work: Callable[[], T]) -> T:
    """Run `work` on another thread, and wait for its end even in a task that is cancelled meanwhile."""
    with anyio.CancelScope(shield=True):
        made = await run_async(work, Deadline())
    return made


def resume_later(resume: Callable[[], None]) -> None:
    """Run on another thread, with all the time that it takes, what a constructor does not wait for."""

    def work() -> None:
        try:
            with until(Deadline()):
                resume()
        except Exception:
            log.exception("unfinished batches of the store were not resumed; the next client of this file resumes them")

    _preparing.submit(work)


# -- taking turns ---------------------------------------------------------------------------------------------------


class Turns:
    """Turns of one event loop's requests to compute on other threads, first come, first served.

    Few at a time: each thread that renders and tokenises keeps the event loop waiting for the GIL in its turn. One that
    takes long does not count any more, so that it delays no others; work that is always long, such as decoding an
    image, leaves the GIL alone.
    """

    def __init__(self) -> None:
        self._at_once = TURNS
        self._door = anyio.Lock()
        self._began: list[float] = []
        self._left = anyio.Event()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it in the context."""
        async with self._door:
            while (wait := self._full_for()) > 0:
                self._left = anyio.Event()
                with anyio.move_on_after(wait):
                    await self._left.wait()
            began = time.monotonic()
            self._began.append(began)
        try:
            yield
        finally:
            self._began.remove(began)
            self._left.set()

    def _full_for(self) -> float:
        """Seconds until a turn counts no more, should none end before; 0 or less: there is one to have."""
        latest = self._began[-self._at_once :]
        return 0.0 if len(latest) < self._at_once else latest[0] + TURN_SECONDS - time.monotonic()

    @contextlib.contextmanager
    def given_away(self) -> Iterator[None]:
        """Leave a turn to others: its holder waits in the context, perhaps for them."""
        self._at_once += 1
        self._left.set()
        try:
            yield
        finally:
            self._at_once -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in its turn, on a thread that `anyio.from_thread` knows; a task that is cancelled leaves it."""
        async with self.turn():
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


_turns: RunVar[Turns] = RunVar("localai_shim.turns")


def turns() -> Turns:
    """Those of the running event loop."""
    try:
        return _turns.get()
    except LookupError:
        made = Turns()
        _turns.set(made)
        return made


# -- reading files and urls -----------------------------------------------------------------------------------------


def read_all(reads: Sequence[Callable[[], object]], deadline: Deadline) -> Future[None]:
    """Call functions that block, some at once, apart from all that computes. The first that raises ends it.

    One at a time is always called, however many block for other requests.

    Args:
        reads: the functions, at least one.
        deadline: that of their request.
    """
    done, unread, left, lock = system.Future[None](), deque(reads), len(reads), Lock()

    def ended(error: BaseException | None) -> None:
        nonlocal left
        with lock:
            left -= 1
            if error is not None:
                unread.clear()
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            elif not left:
                done.set_result(None)

    def read_some() -> None:
        with until(deadline), contextlib.suppress(IndexError):
            while True:
                read = unread.popleft()
                try:
                    deadline.check()
                    read()
                except BaseException as error:
                    ended(error)
                else:
                    ended(None)

    _preparing.submit(read_some)
    for _ in reads[1:MAX_READS_EACH]:
        _reading.submit(read_some)
    return done


# -- importing ------------------------------------------------------------------------------------------------------


def importing(load: Callable[[], T]) -> T:
    """Call what imports modules, on a thread that gets no signals: Ctrl-C in an import would leave half of a module.

    The caller can be interrupted meanwhile, or let greenlets run; the imports continue to their end.
    """
    if is_own_thread() or (not greenlets.are_used() and threading.current_thread() is not threading.main_thread()):
        return load()
    return importing_later(load).result()


def importing_later(load: Callable[[], T]) -> Future[T]:
    """Begin imports as `importing` does, for callers that do something else meanwhile."""
    return _importing.submit(load)


def are_imported(*names: str) -> bool:
    """True if modules of this package were imported to their end."""
    specs = [getattr(sys.modules.get(f"{_PACKAGE}.{name}"), "__spec__", None) for name in names]
    return all(spec is not None and not getattr(spec, "_initializing", False) for spec in specs)


def import_modules(*names: str) -> None:
    """Import modules of this package as `importing` does."""
    if not are_imported(*names):
        importing(lambda: [import_module(f".{name}", _PACKAGE) for name in names])
