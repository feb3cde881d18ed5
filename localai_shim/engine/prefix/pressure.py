"""The prefix cache shrinks while the system is short of memory, which Macs' programs and GPU share."""

from __future__ import annotations

from collections.abc import Callable

from ...stats import show_bytes
from ...types import log
from ..ports import host
from .cache import PrefixCache

LOOK_SECONDS = 1.0  # between two looks
SHARES = {"normal": None, "warning": 0.5, "critical": 0.0}
"""By pressure: how much of what the prefix cache held before it may stay; None: all, and more."""


class Pressure:
    """Runs on the engine thread.

    Args:
        prefixes: the cache.
        now: a clock.
    """

    def __init__(self, prefixes: PrefixCache, now: Callable[[], float]) -> None:
        self._prefixes, self._now = prefixes, now
        self._level = "normal"
        self._next_look = now()

    def look(self) -> bool:
        """Look how short of memory the system is, unless that was less than a second ago.

        Returns:
            True if the cache has shrunk: free buffers should be returned to the system.
        """
        now = self._now()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        level = host().machine.memory_pressure()
        if level == self._level:
            return False
        self._level, held = level, self._prefixes.bytes
        self._prefixes.shrink(SHARES[level])
        freed = held - self._prefixes.bytes
        if level == "normal":
            log.info("the system has enough memory again: the prefix cache may grow")
        else:
            log.warning(
                "the system is short of memory (%s): the prefix cache shrinks from %s to %s",
                level,
                show_bytes(held),
                show_bytes(self._prefixes.bytes),
            )
        return freed > 0
