"""A cache of what several threads may ask for at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .system import Lock

T = TypeVar("T")


class OnceCache(Generic[T]):
    """The values that were asked for last. May be used from several threads.

    Threads that ask for the same one at once wait for the first of them. An error is only for the thread that met it.

    Args:
        budget: the most that the sizes of all values come to.
        size: of a value.

    Attributes:
        used: the sizes of all values.
    """

    def __init__(self, budget: int, size: Callable[[T], int] = lambda value: 1) -> None:
        self._budget, self._size = budget, size
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self.used = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value that is cached under a key, or what `make` returns, which is cached then."""
        with self._lock:
            making = self._making.setdefault(key, Lock())
        with making:
            try:
                with self._lock:
                    if key in self._kept:
                        self._kept.move_to_end(key)
                        return self._kept[key]
                made = make()
                self._keep(key, made)
                return made
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _keep(self, key: Hashable, value: T) -> None:
        size = self._size(value)
        with self._lock:
            if size <= self._budget and key not in self._kept:
                self._kept[key] = value
                self.used += size
            while self.used > self._budget:
                self.used -= self._size(self._kept.popitem(last=False)[1])
