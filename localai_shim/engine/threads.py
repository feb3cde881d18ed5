"""The threads that engines run on. They are kept for the next engines: MLX leaves a thread of its own behind for each
that has used it.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("localai_shim")

IDLE_NAME = "localai_shim:idle"


class Run:
    """One run of a function on one of the threads.

    Attributes:
        thread: that one; it runs something else afterwards.
    """

    def __init__(self, run: Callable[[], object], name: str) -> None:
        self._run: Callable[[], object] | None = run
        self._name = name
        self._done = threading.Event()
        self.thread: threading.Thread

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, and its thread holds nothing of it any more; whether it has in time."""
        return self._done.wait(timeout)

    def begin(self) -> None:
        """Run it, on the thread that it was given to."""
        run, self._run = self._run, None
        threading.current_thread().name = self._name
        try:
            if run is not None:
                run()
        except BaseException:
            log.exception("an engine's thread failed")
        threading.current_thread().name = IDLE_NAME

    def end(self) -> None:
        self._done.set()


class _Thread:
    """Runs one piece of work after another, and waits in between. It never ends: an interpreter that ends leaves it
    asleep.

    A thread that ended then would run MLX's thread-local destructors while the process tears down what they use.
    """

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=IDLE_NAME, daemon=True)
        self._thread.start()

    def give(self, work: Run) -> None:
        work.thread = self._thread
        self._given.put(work)

    def _loop(self) -> None:
        while True:
            work = self._given.get()
            work.begin()
            with _lock:
                _idle.append(self)
            work.end()
            del work  # it is not to be held while this one waits


_idle: list[_Thread] = []
_lock = threading.Lock()


def start(run: Callable[[], object], name: str) -> Run:
    """Run something on a thread that is idle, or on a new one, which has this name meanwhile."""
    work = Run(run, name)
    with _lock:
        thread = _idle.pop() if _idle else None
    (thread or _Thread()).give(work)
    return work


def _forget() -> None:
    """In a forked child: the parent's threads are not here, and its lock may be held for ever."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
