"""Work that spare threads begin before somebody waits for it."""

from __future__ import annotations

import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MAX_THREADS = min(8, max(4, CORES))
IDLE_SECONDS = 10.0
"""After which a thread with nothing to do ends."""


class Begun(Generic[T]):
    """A call that a spare thread runs, or the first thread that asks for its result, if that comes before.

    So nobody ever waits for a thread to be free. What nobody holds any more is not begun.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._context = contextvars.copy_context()
        self._running = threading.Lock()
        self._value: T | None = None
        self._error: BaseException | None = None
        _threads.offer(self)

    def result(self) -> T:
        """What the call returned; it may be asked for several times. Raises what it raised."""
        self.run()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def run(self) -> None:
        """Run the call, or wait for the thread that does."""
        with self._running:
            if self._call is None:
                return
            try:
                self._value = self._context.run(self._call)
            except BaseException as error:
                self._error = error
            self._call = None


def run_all(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What these calls return: this thread and spare ones run them. Raises what the first of them raised."""
    first, *others = calls
    begun = [Begun(call) for call in others]
    return [first(), *(each.result() for each in begun)]


class _Threads:
    """Threads that begin what is offered, the oldest first; a few, and none while there is nothing to do."""

    def __init__(self) -> None:
        self._offered = queue.SimpleQueue[weakref.ref[Begun[Any]]]()
        self._lock = threading.Lock()
        self._running = 0

    def offer(self, work: Begun[Any]) -> None:
        self._offered.put(weakref.ref(work))
        with self._lock:
            if self._running == MAX_THREADS:
                return
            self._running += 1
        try:
            threading.Thread(target=self._serve, name="localai-spare", daemon=True).start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            with self._lock:
                self._running -= 1

    def _serve(self) -> None:
        try:
            while True:
                work = self._offered.get(timeout=IDLE_SECONDS)()
                if work is not None:
                    work.run()
                del work
        except queue.Empty:
            pass
        finally:
            with self._lock:
                self._running -= 1


_threads = _Threads()
if hasattr(os, "register_at_fork"):  # a child has none of these threads
    os.register_at_fork(after_in_child=lambda: globals().update(_threads=_Threads()))
