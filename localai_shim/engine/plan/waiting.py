"""The queue of prompts whose prefill has not begun: by age, by priority and by length."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..prompts.prefill import PrefillJob

STALE_ENTRIES = 64  # that a heap may have beyond one per job

_Heap = list[tuple[tuple[int, ...], int]]
"""(key, serial number): not the job itself, since stale entries would keep its cache alive."""


def by_age(job: PrefillJob) -> tuple[int, ...]:
    return (job.arrival,)


def by_urgency(job: PrefillJob) -> tuple[int, ...]:
    return (job.priority, job.arrival)


def by_length(job: PrefillJob) -> tuple[int, ...]:
    return (job.priority, *job.length, job.arrival)


_KEYS = {"oldest": by_age, "first": by_urgency, "shortest": by_length}


class Waiting:
    """Jobs, each once. Everything but `__iter__` takes time logarithmic in their number."""

    def __init__(self) -> None:
        self._serials: dict[PrefillJob, int] = {}
        self._jobs: dict[int, PrefillJob] = {}
        self._heaps: dict[str, _Heap] = {"oldest": [], "first": [], "shortest": []}
        self._next = itertools.count()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PrefillJob]:
        return iter(self._serials)

    def add(self, job: PrefillJob) -> None:
        self._serials[job] = serial = next(self._next)
        self._jobs[serial] = job
        for name, key in _KEYS.items():
            heapq.heappush(self._heaps[name], (key(job), serial))

    def discard(self, job: PrefillJob) -> None:
        """Remove a job, if it is here. Its heap entries go when they come up, or when there are too many stale ones."""
        serial = self._serials.pop(job, None)
        if serial is None:
            return
        del self._jobs[serial]
        for name, heap in self._heaps.items():
            if len(heap) > 2 * len(self._jobs) + STALE_ENTRIES:
                self._heaps[name] = [entry for entry in heap if entry[1] in self._jobs]
                heapq.heapify(self._heaps[name])

    def oldest(self) -> PrefillJob | None:
        """The job that arrived first, of any priority."""
        return self._top("oldest")

    def first(self) -> PrefillJob | None:
        """Of the most urgent ones, the one that came first."""
        return self._top("first")

    def shortest(self) -> PrefillJob | None:
        """Of the most urgent ones, the one with the fewest items for the tower, and of these with the fewest tokens."""
        return self._top("shortest")

    def _top(self, name: str) -> PrefillJob | None:
        heap = self._heaps[name]
        while heap and heap[0][1] not in self._jobs:
            heapq.heappop(heap)
        return self._jobs[heap[0][1]] if heap else None
