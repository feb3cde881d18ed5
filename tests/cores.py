"""How the workers of pytest-xdist, each of which runs many threads, share the processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def keep_to_one() -> None:
    """Have this thread, and what it starts, keep to the worker's core, and not be interrupted by those that it wakes.

    MLX's CPU back end hands each operation to another thread. Where that one interrupts the thread that hands over,
    they change places for every operation: steps of tiny models take half as much processor time again.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or not hasattr(os, "sched_setscheduler"):
        return
    with suppress(OSError):  # a container may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        cores = sorted(os.sched_getaffinity(0))
        if int(os.environ["PYTEST_XDIST_WORKER_COUNT"]) >= len(cores):
            os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


@contextmanager
def all_of_them() -> Iterator[None]:
    """What is started meanwhile may run on every core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
