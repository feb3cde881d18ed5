"""An engine's counters and timings."""

from __future__ import annotations

from collections import deque

from ...stats import Percentiles
from ...types.timeline import Recording

LAST_SAMPLES = 1024  # that percentiles are of


class Meter:
    """Counters and timings. Written on the engine thread; any thread may read."""

    def __init__(self) -> None:
        self.prompt_tokens = self.prefilled_tokens = self.generated_tokens = 0
        self.embedded_texts = self.embedded_tokens = 0
        self.preempted = self.refused = 0
        self.steps = (0, 0)
        """Decode steps so far, and the sum of the rows in them."""
        self.recordings: list[Recording] = []
        """Those that are running; any thread adds and removes them."""
        self._steps: deque[float] = deque(maxlen=LAST_SAMPLES)
        self._stalls: deque[float] = deque(maxlen=LAST_SAMPLES)

    def stepped(self, seconds: float, rows: int = 1) -> None:
        """Note the rows and the seconds of a decode step."""
        self._steps.append(seconds)
        self.steps = (self.steps[0] + 1, self.steps[1] + rows)

    def stalled(self, seconds: float) -> None:
        """Note the seconds that running rows waited for prefill."""
        self._stalls.append(seconds)

    def step_seconds(self) -> Percentiles:
        return _percentiles(self._steps)

    def stall_seconds(self) -> Percentiles:
        return _percentiles(self._stalls)


def _percentiles(measured: deque[float]) -> Percentiles:
    ordered = sorted(measured.copy())
    if not ordered:
        return Percentiles()
    last = len(ordered) - 1
    return Percentiles(*(ordered[round(last * share)] for share in (0.5, 0.9, 0.99, 1.0)))
