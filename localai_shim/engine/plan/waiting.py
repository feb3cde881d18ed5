"""The queue of prompts whose prefill has not begun: by age, by priority and by length."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ..prompts.prefill import PrefillJob

Order: TypeAlias = Callable[["PrefillJob"], tuple[int, ...]]


def by_age(job: PrefillJob) -> tuple[int, ...]:
    """The job that arrived first, of any priority."""
    return (job.arrival,)


def by_urgency(job: PrefillJob) -> tuple[int, ...]:
    """Of the most urgent ones, the one that came first."""
    return (job.priority, job.arrival)


def by_length(job: PrefillJob) -> tuple[int, ...]:
    """Of the most urgent ones, the one with the fewest items for the tower, and of these with the fewest tokens."""
    return (job.priority, *job.length, job.arrival)


class Waiting:
    """Jobs, each once, in three orders. To add or remove one of thousands takes some ten microseconds."""

    def __init__(self) -> None:
        self._entries: dict[PrefillJob, list[tuple[Any, ...]]] = {}
        """Its place in each order: its key when it came, a serial number, and itself."""
        self._orders: dict[Order, list[tuple[Any, ...]]] = {by_age: [], by_urgency: [], by_length: []}
        self._next = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PrefillJob]:
        return iter(self._entries)

    def add(self, job: PrefillJob) -> None:
        serial = next(self._next)
        self._entries[job] = [(*key(job), serial, job) for key in self._orders]
        for order, entry in zip(self._orders.values(), self._entries[job], strict=True):
            insort(order, entry)

    def discard(self, job: PrefillJob) -> None:
        """Remove a job, if it is here."""
        for order, entry in zip(self._orders.values(), self._entries.pop(job, ()), strict=False):
            del order[bisect_left(order, entry)]

    def first(self, key: Order) -> PrefillJob | None:
        """The first in one of these orders."""
        order = self._orders[key]
        job: PrefillJob | None = order[0][-1] if order else None
        return job
