"""The time that scripted answers and retries take: virtual, so that no test waits, or real."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from ...threads.system import Event, Lock

ClockMode = Literal["instant", "manual", "real"]
QUIET_SECONDS = 0.001
"""Real time for which an `instant` clock waits for more requests before it moves on."""


class Clock:
    """Virtual clock of a scripted client, in seconds since its creation.

    `instant`: waits end immediately, and the time advances by their length. `manual`: only `advance` moves the clock.
    `real`: the machine's time. Timeouts of requests count both this time and real time.

    Example:
        >>> from localai_shim.testing import rate_limit, scripted
        >>> with scripted(rate_limit(retry_after=20), "Fine.") as client:
        ...     answer = client.responses.create(model="any", input="Hi")
        ...     client.clock.now >= 20, client.clock.sleeps
        (True, [20.0])
    """

    def __init__(self, mode: ClockMode = "instant") -> None:
        if mode not in ("instant", "manual", "real"):
            raise ValueError(f"a clock is 'instant', 'manual' or 'real', not {mode!r}")
        self.mode: ClockMode = mode
        self.sleeps: list[float] = []
        """The delays before retries so far, in seconds."""
        self.waiting = 0
        """Retries that wait for a `manual` clock to be advanced."""
        self._began, self._offset = time.monotonic(), 0.0
        self._moving, self._moved = Lock(), Event()
        """`_moved`: set by the next move."""
        self._listeners: list[Callable[[], None]] = []

    @property
    def now(self) -> float:
        """Elapsed seconds."""
        return (time.monotonic() - self._began if self.mode == "real" else 0.0) + self._offset

    def advance(self, seconds: float) -> None:
        """Advance the clock. Events that are due until then happen.

        Raises:
            ValueError: Negative number of seconds.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time passes by 0 seconds or more, not {seconds}")
        self._move(by=seconds)

    def sleep(self, seconds: float) -> None:
        """Wait, as before a retry."""
        self.sleeps.append(seconds)
        self._wait(seconds, Event())

    async def sleep_async(self, seconds: float) -> None:
        """Async form of `sleep`, for a task."""
        import anyio.lowlevel
        import anyio.to_thread

        self.sleeps.append(seconds)
        if self.mode == "real":
            await anyio.sleep(seconds)
        elif self.mode == "instant":
            self._wait(seconds, Event())
            await anyio.lowlevel.checkpoint()
        else:
            given_up = Event()
            try:
                await anyio.to_thread.run_sync(self._wait, seconds, given_up, abandon_on_cancel=True)
            finally:
                given_up.set()
                self._move()

    def seconds_until(self, due: float) -> float:
        """Real seconds until the clock reaches a time; inf if `advance` must be called."""
        left = due - self.now
        if left <= 0:
            return 0.0
        if self.mode == "real":
            return left
        return QUIET_SECONDS if self.mode == "instant" and left < math.inf else math.inf

    def reach(self, due: float) -> None:
        """Let an `instant` clock move on to a time, if that is still to come."""
        if self.mode == "instant" and self.now < due < math.inf:
            self._move(to=due)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a function called after each move of the clock, on the thread that moved it."""
        self._listeners.append(listener)

    # -----------------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float, given_up: Event) -> None:
        if self.mode == "real":
            time.sleep(seconds)
        elif self.mode == "instant":
            self.reach(self.now + seconds)
        else:
            until, moved = self.now + seconds, self._moved
            with self._moving:
                self.waiting += 1
            try:
                while self.now < until and not given_up.is_set():
                    moved.wait()
                    moved = self._moved
            finally:
                with self._moving:
                    self.waiting -= 1

    def _move(self, *, by: float = 0.0, to: float = 0.0) -> None:
        """Move by a number of seconds, or up to a time that may have passed by now."""
        with self._moving:
            self._offset = max(self._offset + by, to)
            moved, self._moved = self._moved, Event()
        moved.set()
        for listener in self._listeners:
            listener()


REAL = Clock("real")
