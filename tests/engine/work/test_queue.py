"""The queue's three orders, against the same orders found by looking at everything that waits."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from localai_shim.engine.prompts.prefill import PrefillJob
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.queue import ORDERS, Order, Queue, by_age, by_length, by_urgency
from localai_shim.types import Prompt
from tests.engine.harness import request
from tests.engine.recording import Recording


def a_job(arrival: int, *, length: int = 5, priority: int = 0) -> PrefillJob:
    row = Row(request([7] * length, priority=priority), SyncSink(), 0, Recording())
    return PrefillJob([row], Prompt([7] * length), arrival)


class Naive:
    """Looks at everything, every time."""

    def __init__(self) -> None:
        self.jobs: list[PrefillJob] = []

    def oldest(self) -> PrefillJob | None:
        return min(self.jobs, key=lambda job: job.arrival, default=None)

    def first(self) -> PrefillJob | None:
        return min(self.jobs, key=lambda job: (job.priority, job.arrival), default=None)

    def shortest(self) -> PrefillJob | None:
        return min(self.jobs, key=lambda job: (job.priority, len(job.tokens), job.arrival), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_the_orders_are_those_of_a_naive_queue(seed: int) -> None:
    chance = random.Random(seed)
    queue, naive, gone = Queue(), Naive(), [a_job(-1)]
    for arrival in range(600):
        what = chance.random()
        if what < 0.5 or not naive.jobs:
            job = a_job(arrival, length=chance.randint(1, 6), priority=chance.randint(-1, 1))
            queue.add(job)
            naive.jobs.append(job)
        elif what < 0.6 and gone[-1] not in naive.jobs:  # one that had left comes back
            queue.add(gone[-1])
            naive.jobs.append(gone[-1])
        elif what < 0.65:
            queue.discard(gone[-1] if gone[-1] not in naive.jobs else a_job(0))  # one that is not there
        else:
            which = chance.choice([naive.oldest, naive.first, naive.shortest, lambda: chance.choice(naive.jobs)])
            job = which()
            assert job is not None
            queue.discard(job)
            naive.jobs.remove(job)
            gone.append(job)
        assert queue.first(PrefillJob, by_age) is naive.oldest()
        assert queue.first(PrefillJob, by_urgency) is naive.first()
        assert queue.first(PrefillJob, by_length) is naive.shortest()
        assert set(queue._entries) == set(naive.jobs)


def test_of_equals_the_one_that_came_first_is_served_first() -> None:
    queue = Queue()
    jobs = [a_job(arrival) for arrival in range(5)]
    for job in jobs[::-1]:
        queue.add(job)
    for job in jobs:
        assert [queue.first(PrefillJob, order) for order in ORDERS] == [job] * 3
        queue.discard(job)
    assert [queue.first(PrefillJob, order) for order in ORDERS] == [None] * 3


@pytest.mark.parametrize("order", [by_age, by_urgency, by_length])
def test_what_has_left_does_not_pile_up(order: Order) -> None:
    """Thousands may come and go in front of one that stays, or behind it."""
    queue = Queue()
    queue.add(a_job(0, length=3, priority=0))
    for arrival in range(1, 5000):
        queue.add(job := a_job(arrival, length=2 + arrival % 3, priority=arrival % 3 - 1))
        assert queue.first(PrefillJob, order) is not None
        queue.discard(job)
    assert all(len(jobs) == 1 for jobs in queue._orders.values())


def test_what_has_left_is_not_held() -> None:
    """A job that has begun holds its row's cache."""

    class Cache(list[object]):
        pass

    queue, behind, held = Queue(), a_job(9), []
    queue.add(a_job(0))
    queue.add(behind)
    behind.cache = Cache()
    held.append(weakref.ref(behind.cache))
    queue.discard(behind)
    del behind
    gc.collect()
    assert held[0]() is None
