"""The package's bounded cache, which several threads may use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from .system import Lock

T = TypeVar("T")


class LRUCache(Generic[T]):
    """Values up to a limit, none of which is None: the least recently used are dropped first.

    May be used from several threads.

    Args:
        limit: of the sum of all sizes.
        size: of a value. The default makes `limit` a number of values.

    Attributes:
        used: the sum of all sizes.
    """

    def __init__(self, limit: int, size: Callable[[T], int] = lambda value: 1) -> None:
        self._limit, self._size = limit, size
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self.used = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable) -> T | None:
        """The value under a key, which is the most recently used one now; None if there is none."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, value: T) -> None:
        """Keep a value, unless it alone exceeds the limit."""
        size = self._size(value)
        with self._lock:
            if key in self._kept:
                self.used -= self._size(self._kept.pop(key))
            if size > self._limit:
                return
            self._kept[key] = value
            self.used += size
            while self.used > self._limit:
                self.used -= self._size(self._kept.popitem(last=False)[1])

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under a key, or the result of `make`, which is kept.

        Threads that ask for the same key concurrently wait for the first of them. An error is raised in its own thread
        only.
        """
        if (found := self.get(key)) is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, Lock())
        with making:
            try:
                if (found := self.get(key)) is None:
                    found = make()
                    self.put(key, found)
                return found
            finally:
                with self._lock:
                    self._making.pop(key, None)
