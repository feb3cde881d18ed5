"""Daemon threads, started as they are needed: those that work for callers, and those of one owner."""

from __future__ import annotations

import contextvars
import math
import os
import queue
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from .system import Future, Lock, SimpleQueue, Thread, current_thread, make_thread

T = TypeVar("T")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MAX_THREADS = min(8, max(4, CORES))
IDLE_SECONDS = 10.0


class Workers:
    """Daemon threads, started as they are needed. A job begins at once while there are fewer than `most`.

    Made for good: each is told of every fork.

    Args:
        name: of the threads.
        most: threads.
        idle: seconds after which a thread without a job ends.
    """

    def __init__(self, name: str, most: float = math.inf, idle: float = IDLE_SECONDS) -> None:
        self._name, self._most, self._idle = name, most, idle
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # a child has none of the threads

    def _reset(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = Lock()
        self._threads = self._free = 0
        """`_free`: threads that have no job; below 0: jobs that have no thread. A `KeyboardInterrupt` inside `submit`
        may leave a thread out of either: then one more is started, until all have ended."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on a thread, in the caller's context; on the caller's thread if no other can be started."""
        future: Future[T] = Future()
        job = partial(contextvars.copy_context().run, _fill, future, work)
        with self._lock:
            if taken := self._free > 0 or self._threads >= self._most:
                self._free -= 1
            else:
                taken = self._start()
            if taken:
                self._jobs.put(job)
        if not taken:
            job()
        return future

    def _start(self) -> bool:
        """Start a thread, which has a job; False: the interpreter ends, or there are too many threads."""
        name = f"localai_shim:{self._name}"
        try:
            make_thread(self._run, (self._jobs,), name=name).start()
        except RuntimeError:
            return False
        self._threads += 1
        return True

    def _run(self, jobs: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                job = jobs.get(timeout=self._idle)
            except queue.Empty:
                with self._lock:
                    if not jobs.empty():  # it came meanwhile
                        continue
                    self._free -= 1
                    self._threads -= 1
                    if self._threads <= 0:
                        self._threads = self._free = 0
                    return
            job()
            del job  # which holds a request
            with self._lock:
                self._free += 1


def _fill(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


# -- work that begins before somebody waits for it -----------------------------------------------------------------


class Begun(Generic[T]):
    """A call that a spare thread runs, or the first thread that asks for its result, if that comes before.

    So no caller ever waits for a thread to be free. A call that is not held any more is not begun.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        self._job: Callable[[], None] | None = partial(contextvars.copy_context().run, _fill, self._future, call)
        self._running = Lock()
        _spare.submit(partial(_begin, weakref.ref(self)))

    def result(self) -> T:
        """Result of the call; it may be asked for several times. Raises what it raised."""
        self.run()
        return self._future.result()

    def run(self) -> None:
        """Run the call, or wait for the thread that does."""
        with self._running:
            if self._job is not None:
                self._job()
                self._job = None


def _begin(begun: weakref.ref[Begun[T]]) -> None:
    work = begun()
    if work is not None:
        work.run()


def run_all(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Results of these calls: this thread and spare ones run them. Raises what the first of them raised."""
    first, *others = calls
    begun = [Begun(call) for call in others]
    return [first(), *(each.result() for each in begun)]


_spare = Workers("decoding", MAX_THREADS)


Job = TypeVar("Job")


class Crew(Generic[Job]):
    """Threads of one owner, started as they are needed, each of which ends when no job waits.

    Args:
        name: of the threads.
        most: maximum number of threads; further jobs wait.

    Attributes:
        is_closed: no further job is begun.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = Lock()
        self._pid = os.getpid()
        self._waiting: deque[Job] = deque()
        self._threads: set[Thread] = set()
        self.is_closed = False

    @property
    def is_forked(self) -> bool:
        """This process was forked from the one that has the threads."""
        return self._pid != os.getpid()

    def add(self, jobs: Sequence[Job], work: Callable[[Job], None]) -> None:
        """Begin jobs, or let them wait for a thread.

        Args:
            work: does a job, the same for all. Only threads hold it: it may be a method of the owner.

        Raises:
            RuntimeError: no thread can be started, and none runs; the jobs do not wait any more.
        """
        with self._lock:
            self._waiting.extend(jobs)
            for _ in range(min(len(jobs), self._most - len(self._threads))):
                thread = make_thread(self._run, (work,), name=f"localai_shim:{self._name}")
                try:
                    thread.start()
                except RuntimeError:
                    if self._threads:  # whose jobs they are when they have done theirs
                        return
                    for job in jobs:
                        self._waiting.remove(job)
                    raise
                self._threads.add(thread)

    def close(self) -> None:
        """Begin no further job, and wait for those that run."""
        self.is_closed = True
        if not self.is_forked:
            for thread in list(self._threads):
                thread.join()

    def _run(self, work: Callable[[Job], None]) -> None:
        while True:
            with self._lock:
                if self.is_closed or not self._waiting:
                    self._threads.discard(current_thread())
                    return
                job = self._waiting.popleft()
            work(job)
