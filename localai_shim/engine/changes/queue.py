"""Changes of an engine's model that are made piece by piece, with steps in between."""

from __future__ import annotations

from collections import deque

from ..costs.cost_model import Stopwatch
from ..inbox import Change

SECONDS_PER_STEP = 0.005  # that rows wait for pieces of changes; one piece at least is made, a few layers' part


class Changes:
    """Those whose pieces are not all made; one is made after the other. On the engine thread, except for `fail`."""

    def __init__(self) -> None:
        self._waiting = deque[Change]()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, change: Change) -> None:
        """Make a change now, or have its pieces made."""
        if change.begin():
            self._waiting.append(change)

    def run(self) -> None:
        """Make the next pieces."""
        watch = Stopwatch()
        while self._waiting:
            if not self._waiting[0].step():
                self._waiting.popleft()
            if watch.seconds >= SECONDS_PER_STEP:
                return

    def fail(self, error: Exception) -> None:
        """Fail all of them."""
        while self._waiting:
            self._waiting.popleft().fail(error)
