"""Work in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_threads(work: Callable[[T], object], cases: Iterable[T]) -> None:
    """Run `work(case)` for all cases at once, each in a thread of its own, and wait for them."""
    threads = [threading.Thread(target=work, args=(case,)) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
