"""What an engine counts and times."""

from __future__ import annotations

from collections import deque

from ..types import Percentiles

_LAST = 1024


class Meter:
    """Written on the engine thread; may be read from any."""

    def __init__(self) -> None:
        self.prompt_tokens = self.prefilled_tokens = self.generated_tokens = 0
        self.preempted = self.refused = 0
        self._steps: deque[float] = deque(maxlen=_LAST)
        self._stalls: deque[float] = deque(maxlen=_LAST)

    def stepped(self, seconds: float) -> None:
        """A decode step took so long."""
        self._steps.append(seconds)

    def stalled(self, seconds: float) -> None:
        """Running rows waited so long for prompts."""
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
