"""Work on other threads that a caller waits for and may leave: an explicit sync/async pair of waiting."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from importlib import import_module
from typing import TypeVar

import anyio

from ..engine.sinks import running_loop
from ..threads.deadline import Deadline, until
from ..threads.workers import Workers

T = TypeVar("T")
_PACKAGE = __name__.partition(".")[0]
MAX_READS = 64  # that may block at once, of all requests
MAX_READS_EACH = 8  # of one request


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
        TimeoutError: it took too long, and goes on until it looks at its deadline.
    """
    return wait(_preparing.submit(work), deadline)


# -- reading files and urls -----------------------------------------------------------------------------------------


def read_all(reads: Sequence[Callable[[], object]], deadline: Deadline) -> Future[None]:
    """Call functions that block, some at once, apart from all that computes. The first that raises ends it."""
    waiting = deque(reads)
    threads = [_reading.submit(partial(_read_some, waiting, deadline)) for _ in reads[:MAX_READS_EACH]]
    return _preparing.submit(partial(_wait_for_all, threads, waiting))


def _wait_for_all(threads: Sequence[Future[None]], waiting: deque[Callable[[], object]]) -> None:
    try:
        for thread in as_completed(threads):
            thread.result()
    finally:
        waiting.clear()


def _read_some(waiting: deque[Callable[[], object]], deadline: Deadline) -> None:
    with until(deadline):
        while True:
            try:
                read = waiting.popleft()
            except IndexError:
                return
            deadline.check()
            read()


# -- importing ------------------------------------------------------------------------------------------------------


def importing(load: Callable[[], T]) -> T:
    """Call what imports modules, on a thread that gets no signals: Ctrl-C amid an import would leave half of a module.

    The caller can be interrupted meanwhile; the imports go on to their end.
    """
    if threading.current_thread() is not threading.main_thread():
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
