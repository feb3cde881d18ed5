"""What steps of several tokens per row cost, as they were measured beside ordinary ones."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from ..row import MAX_STEP_TOKENS

DRAFT_CAPS = (1, 2, 4, 8, MAX_STEP_TOKENS - 1)  # drafts per row that are weighed against each other
BASE_STEPS, SEVERAL_STEPS = 15, 7  # that are kept
MIN_STEPS = 4  # that have to be run before they count
STALE_STEPS = 256  # with drafts, after which ordinary ones are measured again: the first ones may have been slow ones
NEW_BASE_STEPS = (
    16  # with drafts, behind which ordinary ones are measured by themselves: the machine's speed may differ
)
NEAR_ROWS = 1.25  # times as many rows, up to which steps are taken to cost the same
FIRST_TOKEN_COST = 0.05  # of a step, that another token per row is taken to cost before it was measured
FURTHER_SHARE = 0.25  # of what the first drafts cost, that as many more are taken to cost: some is for any number
FURTHEST_SIZE = 2  # of `DRAFT_CAPS`, behind the largest that was measured, which may be tried
LOOSE_COST = 1.15  # ordinary steps, that one is taken to cost which could not be built ahead, before that was measured
DOUBT_AFTER, MAX_DOUBT_AFTER = 8, 512  # steps in the place of which a size might be run, before its cost is doubted
DOUBTED_SHARE = 0.6  # of what a size costs beyond an ordinary step, that remains then

_LOOSE = -1  # the size of a step of one token that was not built ahead


@dataclass(slots=True)
class _Measured:
    """Steps of one size."""

    cost: float | None = None
    """What one takes, in ordinary steps; None: it is not known."""
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=SEVERAL_STEPS))
    _passed: int = 0
    """Steps since the last one, in the place of which it might have been run."""
    _patience: int = DOUBT_AFTER

    def note(self, cost: float) -> None:
        self._last.append(cost)
        self._passed = 0
        if len(self._last) >= MIN_STEPS - 1:
            self.cost = _good(self._last)
        if len(self._last) == SEVERAL_STEPS:  # it is run again and again
            self._patience = DOUBT_AFTER

    def pass_by(self, steps: int) -> bool:
        """Smaller ones are run. The machine may have been slow when this was measured: that is doubted, ever later;
        whether it is now.
        """
        self._passed += steps
        if self._passed < self._patience:
            return False
        self._passed, self._patience = 0, min(2 * self._patience, MAX_DOUBT_AFTER)
        self._last.clear()
        if self.cost is not None and self.cost > 1:
            self.cost = 1 + (self.cost - 1) * DOUBTED_SHARE
        return True


class StepCosts:
    """What steps take, from the beginning of one to that of the next.

    Some take far longer than others for reasons of their own: what a good one of the last takes is what counts.
    """

    def __init__(self) -> None:
        self._base: dict[int, deque[float]] = {}
        """By rows: seconds of ordinary steps."""
        self._known: dict[int, float] = {}
        """By rows: what such a step takes."""
        self._several: dict[int, dict[int, _Measured]] = {}
        """By `_group` and `_size`: steps of several tokens, and `_LOOSE` ones, relative to ordinary ones of as many
        rows."""
        self._seen: set[tuple[int, int]] = set()
        self._since: dict[int, int] = {}
        """By rows: steps with drafts since an ordinary one was measured."""
        self._table: list[float | None] = []
        self._table_rows: int | None = None
        """What `_by_size` said of so many rows; None: it would say something else by now."""

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        """Measured: a step of so many tokens per row; 0: of one that was not built ahead.

        The first of its kind does not count: GPUs prepare for what is new to them.
        """
        self._table_rows = None
        base, size = self._base.setdefault(rows, deque(maxlen=BASE_STEPS)), _size(tokens) if tokens else _LOOSE
        if tokens == 1:
            if self._since.get(rows, 0) >= NEW_BASE_STEPS and len(base) >= MIN_STEPS:
                base.clear()
            base.append(seconds)
            if len(base) >= MIN_STEPS:
                self._known[rows], self._since[rows] = _good(base), 0
            return
        if tokens:
            self._since[rows] = self._since.get(rows, 0) + 1
            if self._since[rows] == STALE_STEPS:
                base.clear()
        if (rows, size) not in self._seen:
            self._seen.add((rows, size))
        elif usual := _good(base) if base else self.seconds(rows):
            self._several.setdefault(_group(rows), {}).setdefault(size, _Measured()).note(seconds / usual)

    def loose(self, rows: int) -> float:
        """What a step takes that could not be built ahead, in ordinary ones."""
        measured = self._several.get(_group(rows), {}).get(_LOOSE)
        return LOOSE_COST if measured is None or measured.cost is None else max(1.0, measured.cost)

    def seconds(self, rows: int) -> float | None:
        """What an ordinary step takes; None: it is to be measured.

        Rows end one by one: numbers of rows between two that are known, or near one, are not measured each.
        """
        known = self._known
        if rows in known:
            return known[rows]
        below = max((n for n in known if n < rows), default=None)
        above = min((n for n in known if n > rows), default=None)
        if below is not None and above is not None:
            return known[below] + (known[above] - known[below]) * (rows - below) / (above - below)
        near = below if above is None else above
        return known[near] if near is not None and max(near, rows) <= NEAR_ROWS * min(near, rows) else None

    def relative(self, rows: int, tokens: int) -> float | None:
        """What a step of so many tokens per row takes, in ordinary ones; None: smaller ones are to be measured first.

        A few steps make a measurement. What nobody has measured is told by a line through the nearest that were. Where
        there is one only, some of what it costs is taken to be the same for any number of tokens.
        """
        if self._table_rows != rows:
            self._table_rows, self._table = rows, self._by_size(rows)
        return self._table[_size(tokens)]

    def chose(self, rows: int, tokens: int, steps: int) -> None:
        """Take note that so many steps of such a size were chosen, where drafts were there: what larger ones cost is
        doubted some day.
        """
        if self._is_stale(rows):
            return
        chosen = _size(tokens) if tokens > 1 else _LOOSE
        for size, measured in self._several.get(_group(rows), {}).items():
            if size > chosen and measured.pass_by(steps):
                self._table_rows = None

    def _by_size(self, rows: int) -> list[float | None]:
        """`relative`, for each of `DRAFT_CAPS`."""
        if self._is_stale(rows) or self.seconds(rows) is None:
            return [None] * len(DRAFT_CAPS)
        sizes, known, least = self._several.get(_group(rows), {}), list[tuple[int, float]](), inf
        for size in reversed(range(len(DRAFT_CAPS))):
            if size in sizes and (cost := sizes[size].cost) is not None:
                least = min(least, cost)  # what is computed for fewer tokens takes no longer
                known.insert(0, (DRAFT_CAPS[size], least))
        if not known:
            return [1 + FIRST_TOKEN_COST, *[None] * (len(DRAFT_CAPS) - 1)]
        furthest = _size(known[-1][0] + 1) + FURTHEST_SIZE
        return [_cost_at(drafts, known) if size <= furthest else None for size, drafts in enumerate(DRAFT_CAPS)]

    def _is_stale(self, rows: int) -> bool:
        return self._since.get(rows, 0) >= STALE_STEPS


def _cost_at(drafts: int, known: Sequence[tuple[int, float]]) -> float:
    """What a step of so many drafts takes, by those that are known, ascending: (drafts, cost)."""
    (first, cost), *others = known
    if drafts <= first or not others:
        more = drafts / first - 1
        return cost + (cost - 1) * more * (FURTHER_SHARE if more > 0 else 0.5)
    at = next((i for i, (count, _) in enumerate(known) if count >= drafts), len(known) - 1)
    (below, less), (above, more) = known[at - 1 : at + 1]
    return more + max(0.0, more - less) * (drafts - above) / (above - below)


def _good(measured: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(measured)[len(measured) // 4]


def _group(rows: int) -> int:
    """Numbers of rows that are measured together: 1, 2, 3 to 4, 5 to 8, ..."""
    return (rows - 1).bit_length()


def _size(tokens: int) -> int:
    """The smallest of `DRAFT_CAPS` that a step of so many tokens per row fits into."""
    return bisect_left(DRAFT_CAPS, min(tokens - 1, DRAFT_CAPS[-1]))
