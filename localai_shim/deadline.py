"""The moment by which a request has to be answered, known to all code that prepares it."""

from __future__ import annotations

import contextlib
import contextvars
import math
import time
from collections.abc import Iterator


class Overdue(BaseException):
    """Nobody waits for this request any more. No `Exception`: what templates and processors raise is caught as one."""


class Deadline:
    """When a request has to be answered.

    Args:
        seconds: from `since` on; None: it has time.
        since: as `time.monotonic` says; None: now.
    """

    __slots__ = ("at",)

    def __init__(self, seconds: float | None = None, since: float | None = None) -> None:
        self.at = math.inf if seconds is None else (time.monotonic() if since is None else since) + seconds

    def left(self) -> float | None:
        """Seconds that are left, 0 or more; None: as many as it takes."""
        return None if self.at == math.inf else max(0.0, self.at - time.monotonic())

    def abandon(self) -> None:
        """Nobody waits any more: whatever goes on for the request stops where it next looks."""
        self.at = -math.inf

    def check(self) -> None:
        """Raise Overdue where it is over."""
        if time.monotonic() >= self.at:
            raise Overdue


_current: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("deadline", default=None)
"""A context's, so that threads that begin work for a request have it, too."""


@contextlib.contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Have what is done in the context stop when the deadline is over, see `check`."""
    before = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(before)


def left() -> float | None:
    """Seconds that are left for what is done here; None: as many as it takes."""
    deadline = _current.get()
    return None if deadline is None else deadline.left()


def check() -> None:
    """Raise Overdue where nobody waits any more for what is done here. Costs a tenth of a microsecond."""
    deadline = _current.get()
    if deadline is not None and time.monotonic() >= deadline.at:
        raise Overdue
