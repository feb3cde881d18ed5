"""Threads for what a caller waits for and may leave: an explicit sync/async pair of waiting."""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
import queue
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from typing import TypeVar

import anyio

from .deadline import Deadline, until
from .engine.sinks import running_loop

T = TypeVar("T")
IDLE_SECONDS = 10.0
MAX_READS = 64  # that may block at once, of all requests
MAX_READS_EACH = 8  # of one request


class Workers:
    """Daemon threads, started as they are needed. A job begins at once while there are fewer than `most`.

    Args:
        name: of the threads.
        most: threads.
        idle: seconds after which a thread without a job ends.
    """

    def __init__(self, name: str, most: float = math.inf, idle: float = IDLE_SECONDS) -> None:
        self._name, self._most, self._idle = name, most, idle
        self._reset()
        os.register_at_fork(after_in_child=partial(_reset, weakref.ref(self)))

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._free = 0
        """`_free`: threads that have no job; below 0: jobs that have no thread."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have a thread run `work`, in the caller's context."""
        future: Future[T] = Future()
        with self._lock:
            if self._free <= 0 and self._threads < self._most:
                name = f"localai_shim:{self._name}"
                threading.Thread(target=self._run, args=(self._jobs,), name=name, daemon=True).start()
                self._threads += 1
            else:
                self._free -= 1
            self._jobs.put(partial(contextvars.copy_context().run, _fill, future, work))
        return future

    def _run(self, jobs: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                job = jobs.get(timeout=self._idle)
            except queue.Empty:
                with self._lock:
                    if self._free <= 0:  # a job is on its way
                        continue
                    self._free -= 1
                    self._threads -= 1
                    return
            job()
            del job  # which holds a request
            with self._lock:
                self._free += 1


def _reset(workers: weakref.ref[Workers]) -> None:
    """In a forked child, which has none of the threads."""
    alive = workers()
    if alive is not None:
        alive._reset()


def _fill(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


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
    """As `wait`, for a task: no thread waits with it."""
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
    done: Future[None] = Future()
    waiting = deque(reads)
    threads = [_reading.submit(partial(_read_some, waiting, deadline)) for _ in reads[:MAX_READS_EACH]]
    left = threads.copy()
    lock = threading.Lock()

    def ended(thread: Future[None]) -> None:
        error = thread.exception()
        with lock:
            left.remove(thread)
            if error is not None and not done.done():
                waiting.clear()
                done.set_exception(error)
            elif not left and not done.done():
                done.set_result(None)

    for thread in threads:
        thread.add_done_callback(ended)
    return done


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
    """As `importing`, for who does something else meanwhile."""
    return _importing.submit(load)


def are_imported(*names: str) -> bool:
    """Whether modules of this package were imported to their end."""
    specs = [getattr(sys.modules.get(f"{__package__}.{name}"), "__spec__", None) for name in names]
    return all(spec is not None and not getattr(spec, "_initializing", False) for spec in specs)


def import_modules(*names: str) -> None:
    """Import modules of this package as `importing` does."""
    if not are_imported(*names):
        importing(lambda: [import_module(f".{name}", __package__) for name in names])
