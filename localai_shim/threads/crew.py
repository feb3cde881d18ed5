"""Threads that take jobs in their order until their owner stops them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .system import Lock, Thread, current_thread, make_thread

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
