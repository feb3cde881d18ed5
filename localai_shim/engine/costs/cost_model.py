"""Seconds that pieces of work take: an average of each size, and estimates of those between and beyond.

Nothing else in an engine reads a clock that decides anything. A `Meter` only counts, and notes seconds for figures.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...stats import Percentiles
from ...types.timeline import Recording
from .chunks import Pace

Kind = Literal["step", "draft"]
"""A step of the batch, or a pass of a model that drafts."""
Size = tuple[int, int]
"""Rows, and tokens of each."""
PaceKind = Literal["prompts", "scores", "texts", "texts alone", "draft model"]
"""Prompts, those that are scored, texts for vectors with rows and without, and prompts of a draft model."""

BESIDE_STEPS: tuple[PaceKind, ...] = ("prompts", "scores", "texts")  # passes that decode steps wait for

MAX_STEP_TOKENS = 16
"""Most tokens of a row in one step, those that it runs once more among them."""
STEP_TOKENS = (1, 2, 3, 5, 9, MAX_STEP_TOKENS)  # sizes of steps that are measured, see `step_sizes`
AVERAGE_WEIGHT = 0.25  # of the latest measurement
MAX_DELAY_FACTOR = 2  # one that took more than so many times the average counts as if it had taken that
MIN_PLAIN_STEPS = 6  # of one token per row, before their average counts: with the slow first ones drafts seem cheap
TRIES = 3  # of a step of several tokens, of which the fastest counts: one alone may have been delayed
PLAIN_STALE_CHOICES, DRAFTED_STALE_CHOICES = 256, 48  # without a measurement, after which an average does not count
MAX_RETRIES = 4  # of sizes that did not pay again, each after twice as many choices as the one before
LASTING = TRIES + 3  # measurements without a pause, after which a size pays
NEAR_ROWS = 1.25  # times as many rows, up to which work is taken to cost the same
FIRST_DRAFT_COST = 0.05  # of a plain step, that a draft is taken to cost before any was measured
FURTHER_SHARE = 0.25  # of what drafts cost, that as many more are taken to cost: some of it is for any number
LAST_STEPS, MIN_STEPS = 8, 3  # plain steps: of the last ones the shortest counts, once there is the minimum
FURTHER_SIZES = 2  # of those that are measured, beyond the largest that was measured, which have an estimate


@dataclass(slots=True)
class _Average:
    seconds: float = 0.0
    count: int = -1
    """The first of a size does not count: GPUs prepare for what is new to them."""
    chosen: int = 0
    """Choices that had been made when it was measured last."""
    retries: int = 0
    """Number of times that it was measured after it had become stale, and then was not chosen for long."""


class Stopwatch:
    """Seconds since it was made, by a clock."""

    __slots__ = ("_clock", "_start")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._start


class CostModel:
    """Averages of measured work, which get stale: the machine may have been slow, or fast, when they were measured.

    Steps of one token get stale late, as measuring them again means to run no drafts. Others do soon: sizes that did
    not seem to pay are tried again, the smallest first, and ever more rarely if they do not pay again.

    Args:
        clock: seconds, from any start; engines of a process compare theirs.
        sizes: tokens per row of the steps that are measured; others count as the next larger one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sizes: Sequence[int] = STEP_TOKENS) -> None:
        self.now, self.sizes = clock, sizes
        self._paces: dict[PaceKind, Pace] = {}
        self._averages: dict[tuple[Kind, int], dict[int, _Average]] = {}
        """By kind and tokens: by rows."""
        self._choices = 0
        self._steps: deque[float] = deque(maxlen=LAST_STEPS)
        self._step: Stopwatch | None = None

    def start(self) -> Stopwatch:
        """Begin to measure."""
        return Stopwatch(self.now)

    def pace(self, kind: PaceKind, stall: float) -> Pace:
        """Time of a kind's passes, which should take `stall` seconds while rows run; the same object each time."""
        step = self._step_seconds if kind in BESIDE_STEPS else lambda: 0.0
        return self._paces.setdefault(kind, Pace(stall, step))

    def begin_step(self) -> None:
        """Begin to measure a decode step of one token per row; nothing else is in flight."""
        self._step = self.start()

    def forget_step(self) -> None:
        """Do not measure the step that was begun: no pass waited for its end."""
        self._step = None

    def end_step(self) -> None:
        """Measure the step that was begun, if one was: it has run."""
        if self._step is not None:
            self.note_step(self._step.seconds)
            self._step = None

    def note_step(self, seconds: float) -> None:
        """Record the seconds of a decode step with one token per row, for any number of rows."""
        self._steps.append(seconds)

    def _step_seconds(self) -> float:
        """Seconds of a decode step, without what may have delayed some; 0 before enough were measured."""
        return min(self._steps) if len(self._steps) >= MIN_STEPS else 0.0

    def choose(self) -> None:
        """Take note that one of several sizes was chosen: what is not measured meanwhile gets stale."""
        self._choices += 1

    def note(self, kind: Kind, size: Size, seconds: float) -> None:
        """Note the seconds that work of a size took."""
        rows, tokens = size
        average = self._averages.setdefault((kind, self._rounded(tokens)), {}).setdefault(rows, _Average())
        average.count += 1
        if average.count > 1 and self._is_stale(average, tokens):
            average.count, average.retries = 1, min(average.retries + 1, MAX_RETRIES)
        elif average.count >= LASTING:
            average.retries = 0
        if average.count == 1:
            average.seconds = seconds
        elif average.count and tokens > 1 and average.count <= TRIES:
            average.seconds = min(average.seconds, seconds)
        elif average.count:
            seconds = min(seconds, MAX_DELAY_FACTOR * average.seconds)
            average.seconds += (seconds - average.seconds) * max(AVERAGE_WEIGHT, 1 / average.count)
        average.chosen = self._choices

    def seconds(self, kind: Kind, size: Size) -> float | None:
        """Seconds that work of a size takes; None: smaller sizes are to be measured first.

        Unmeasured sizes are taken from a line between the nearest measured ones. Beyond these more tokens are
        taken to cost little, so that they are tried.
        """
        rows, tokens, sizes = size[0], self._rounded(size[1]), self.sizes
        plain = self._measured(kind, rows, 1)
        if tokens == 1 or plain is None:
            return plain
        known: dict[int, float] = {}
        least = float("inf")
        for count in reversed(sizes[1:]):
            seconds = self._measured(kind, rows, count)
            if seconds is not None:
                known[count] = least = min(least, seconds)  # what fewer tokens take is no longer
        if not known:
            return plain * (1 + FIRST_DRAFT_COST) if tokens == sizes[1] else None
        most = max(known)
        if tokens <= most:
            return _between({1: min(plain, least), **known}, tokens)
        if sizes.index(tokens) > sizes.index(most) + FURTHER_SIZES:
            return None
        return known[most] + max(0.0, known[most] - plain) * FURTHER_SHARE * ((tokens - 1) / (most - 1) - 1)

    def _measured(self, kind: Kind, rows: int, tokens: int) -> float | None:
        """The average of a size, or of near and surrounding numbers of rows: rows end one by one."""
        averages, least = self._averages.get((kind, tokens), {}), _least(kind, tokens)
        if rows in averages and self._counts(averages[rows], tokens, least):
            return averages[rows].seconds
        return _between({n: each.seconds for n, each in averages.items() if self._counts(each, tokens, least)}, rows)

    def _counts(self, average: _Average, tokens: int, least: int) -> bool:
        return average.count >= least and not self._is_stale(average, tokens)

    def _is_stale(self, average: _Average, tokens: int) -> bool:
        most = PLAIN_STALE_CHOICES if tokens == 1 else DRAFTED_STALE_CHOICES << average.retries
        return self._choices - average.chosen > most

    def _rounded(self, tokens: int) -> int:
        return self.sizes[bisect_left(self.sizes, min(tokens, MAX_STEP_TOKENS))]


def step_sizes(jumps: Collection[int]) -> tuple[int, ...]:
    """Tokens per row of the steps that are measured: as many as in `STEP_TOKENS`, and these are among them.

    Args:
        jumps: tokens above which a step takes much longer: steps on both sides of one must not count as the same.
    """
    sizes = {*STEP_TOKENS}
    for jump in sorted(jumps):
        if jump not in sizes:
            others = sizes - {*STEP_TOKENS[:2], MAX_STEP_TOKENS, *jumps}
            if others:
                sizes.remove(min(others, key=lambda size: (abs(size - jump), -size)))
            sizes.add(jump)
    return tuple(sorted(sizes))


def _least(kind: Kind, tokens: int) -> int:
    """Measurements of a size of work, before they count."""
    return 1 if kind == "draft" else MIN_PLAIN_STEPS if tokens == 1 else TRIES


def _between(known: Mapping[int, float], size: int) -> float | None:
    """Interpolate between the nearest sizes; None: there is none on one side, and the other is far."""
    if size in known:
        return known[size]
    below = max((each for each in known if each < size), default=None)
    above = min((each for each in known if each > size), default=None)
    if below is not None and above is not None:
        return known[below] + (known[above] - known[below]) * (size - below) / (above - below)
    near = below if above is None else above
    return known[near] if near is not None and max(near, size) <= NEAR_ROWS * min(near, size) else None


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
