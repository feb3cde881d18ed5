"""When tokens arrived, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

_FEWEST = 8  # tokens per stream in a steady state that is long enough to be timed


@dataclass(slots=True)
class StreamTimes:
    """One stream; all times are seconds of `time.perf_counter`."""

    started: float
    """Just before the request was made."""
    times: list[float] = field(default_factory=list)
    """Arrival of each chunk that has text."""
    tokens: int = 0
    """Tokens generated, as the server counts them."""
    prompt_tokens: int = 0

    @property
    def tokens_per_chunk(self) -> float:
        """1 unless the detokenizer held text back or the server joins tokens."""
        return self.tokens / len(self.times)


@dataclass(slots=True)
class Run:
    """Streams that ran together."""

    streams: list[StreamTimes]
    cpu_per_chunk: float | None = None
    """CPU seconds of one thread per chunk in the steady state; the consumer's thread unless said otherwise."""

    @property
    def window(self) -> tuple[float, float]:
        """The steady state: from the first token of the last stream to begin, to the end of the first to finish."""
        return max(s.times[0] for s in self.streams), min(s.times[-1] for s in self.streams)

    def tokens_in_window(self) -> float:
        begin, end = self.window
        return sum(s.tokens_per_chunk * sum(begin < t <= end for t in s.times) for s in self.streams)

    @property
    def decode_rate(self) -> float:
        """Tokens per second of all streams together in the steady state; 0 if it was too short to tell."""
        begin, end = self.window
        tokens = self.tokens_in_window()
        return tokens / (end - begin) if tokens >= _FEWEST * len(self.streams) else 0.0

    @property
    def seconds(self) -> float:
        """From the first request to the last token."""
        return max(s.times[-1] for s in self.streams) - min(s.started for s in self.streams)

    @property
    def whole_rate(self) -> float:
        """Tokens per second over the whole run, prefill included."""
        return sum(s.tokens for s in self.streams) / self.seconds

    def first_token_seconds(self) -> list[float]:
        """Time to first token, per stream."""
        return [s.times[0] - s.started for s in self.streams]

    def gaps(self) -> list[float]:
        """Seconds between two chunks of one stream, for all streams."""
        return [b - a for s in self.streams for a, b in pairwise(s.times)]


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p90 and p99, in milliseconds."""
    values = np.percentile(seconds, [50, 90, 99]) * 1e3 if seconds else [0.0] * 3
    return dict(zip(("p50", "p90", "p99"), map(float, values), strict=True))
