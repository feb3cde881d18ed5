"""The queue: work of all kinds that waits, by age, by priority, and by length, and whose turn it is."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias, TypeVar, cast

OLDEST_EVERY = 8  # one choice of this number is for what has waited longest, however urgent the others are


class Job(Hashable, Protocol):
    """Work that waits: a prompt with its rows, or a request for vectors."""

    arrival: int
    """Smaller for work that came earlier."""
    priority: int
    """Smaller for work that is more urgent."""

    @property
    def length(self) -> tuple[int, ...]:
        """Smaller for work that takes less time."""


JobT = TypeVar("JobT", bound=Job)
Order: TypeAlias = Callable[[Job], tuple[int, ...]]


def by_age(job: Job) -> tuple[int, ...]:
    """The job that arrived first, of any priority."""
    return (job.arrival,)


def by_urgency(job: Job) -> tuple[int, ...]:
    """Of the most urgent jobs, the one that arrived first."""
    return (job.priority, job.arrival)


def by_length(job: Job) -> tuple[int, ...]:
    """Of the most urgent jobs, the shortest one."""
    return (job.priority, *job.length, job.arrival)


ORDERS: tuple[Order, ...] = (by_age, by_urgency, by_length)


class Queue:
    """Jobs that can begin, each once, in three orders. To add or remove one of thousands takes some ten microseconds.

    Half of the choices among the jobs of one kind are for the one that came first, and half for the shortest, so that a
    long job delays short ones by little, and any number of short ones a long one by half. More urgent jobs go first,
    except that one choice in eight is for the job that has waited longest. Of two kinds, the one with the more urgent
    job goes first, except in one choice of eight; if neither is more urgent, they alternate.
    """

    def __init__(self) -> None:
        self.arrivals = itertools.count(1)
        """Numbers of rows and of requests for vectors."""
        self._entries: dict[Job, list[tuple[object, ...]]] = {}
        """A job's place in each order: its key when it came, a serial number, and itself."""
        self._orders: dict[tuple[type[Job], Order], list[tuple[object, ...]]] = {}
        self._serials = itertools.count()
        self._turns = Counter[type[Job]]()
        """Choices so far among the jobs of a kind."""
        self._kind_turns = 0

    def add(self, job: Job) -> None:
        serial = next(self._serials)
        self._entries[job] = [(*order(job), serial, job) for order in ORDERS]
        for order, entry in zip(ORDERS, self._entries[job], strict=True):
            insort(self._orders.setdefault((type(job), order), []), entry)

    def discard(self, job: Job) -> None:
        """Remove a job, if it is here."""
        for order, entry in zip(ORDERS, self._entries.pop(job, ()), strict=False):
            entries = self._orders[type(job), order]
            del entries[bisect_left(entries, entry)]

    def clear(self, kind: type[Job]) -> None:
        """Remove all jobs of a kind."""
        self._entries = {job: entries for job, entries in self._entries.items() if type(job) is not kind}
        for order in ORDERS:
            self._orders.pop((kind, order), None)

    def first(self, kind: type[JobT], order: Order, fits: Callable[[JobT], bool] | None = None) -> JobT | None:
        """The first job of a kind, in one of these orders; the first that fits, if not all do."""
        entries = self._orders.get((kind, order), ())
        jobs = (cast(JobT, entry[-1]) for entry in entries)
        return next(jobs if fits is None else filter(fits, jobs), None)

    def turn(self, kind: type[Job]) -> Order:
        """The order for the next choice among the jobs of a kind."""
        self._turns[kind] = turn = self._turns[kind] + 1
        return by_urgency if turn % 2 else by_length if turn % OLDEST_EVERY else by_age

    def goes_first(self, priority: int, other: int | None) -> bool:
        """True if it is the turn of the jobs of one kind, of two.

        Args:
            priority: of its most urgent job.
            other: of the most urgent job of the other kind; None: it has none.
        """
        self._kind_turns += 1
        if other is None or priority == other:
            return other is None or self._kind_turns % 2 == 0
        return (priority < other) == (self._kind_turns % OLDEST_EVERY != 0)
