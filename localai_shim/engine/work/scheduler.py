"""The scheduler: it names the next piece of work, from the rows, the queue, the memory, and the measured costs.

A step of the engine is a decode step of the running rows, if there are any, and then a pass of another lane or prompts,
for as long as these rows may wait. Rows are special in this alone: all other lanes are alike. The scheduler touches no
array. It names each piece once the one before it has run, because what a piece took decides what comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...types import log
from ..costs.cost_model import CostModel, Stopwatch
from ..decode.batch import Batch
from ..decode.in_flight import Idle
from ..drafts.controller import Speculation
from ..pieces import Collect, Decode, Deliver, Limit, Pass, Piece, PromptPiece, Rest, StepRecord
from ..row import Row, row_error
from .lane import Parts, PassLane
from .prefill import Prefill
from .rows import Rows

LAST_RECORDS = 64  # that are kept, to find out why something was slow


@dataclass(slots=True)
class _Timed:
    """A decode step that is measured until the next one is chosen."""

    rows: list[Row]
    watch: Stopwatch
    tokens: int | None = None
    """The most of a row; None: this one does not count."""
    plain: bool = False
    """It is one of one token for each row, and no drafts are expected for the next one."""
    spent: float = 0.0
    """Seconds that it took to have its drafts, which are no part of what it costs."""


@dataclass(slots=True, eq=False)
class Decoding:
    """Chooses decode steps: whether rows run drafts, and whether the step after it is built while a step runs.

    Args:
        batch: the rows.
        prefill: the prompts that wait; None: there never are any.
        speculation: has drafts; None: there are none.
        costs: get the seconds of steps.
    """

    batch: Batch
    prefill: Prefill | None
    speculation: Speculation | None
    costs: CostModel
    _timed: _Timed | None = None

    def next(self) -> Decode | None:
        """The step that follows the one that was collected; None: no row is left."""
        rows, flight = self.batch.rows, self.batch.in_flight
        if not rows:
            return None
        last = self._measured()
        self._timed = timed = _Timed(rows, self.costs.start())
        prompts = self.prefill is not None and self.prefill.is_likely
        joined, expected, drafts = False, False, None
        if isinstance(flight, Idle):
            joined = flight.joined
            if self.speculation is not None:  # what joins has its tokens soon
                drafts = self.speculation.drafts(rows, wanted=not joined, beside_prompts=prompts)
                timed.spent = self.speculation.spent
        elif self.speculation is not None and not prompts:
            expected = self.speculation.expects(rows)
        ahead = not (prompts or joined or expected)
        timed.plain = drafts is None and not expected
        if drafts is not None and ahead:
            timed.tokens = 1 + max(len(row.replay) + len(draft.tokens) for row, draft in zip(rows, drafts, strict=True))
        elif timed.plain and not prompts and last is not None and last.plain and last.rows is rows:
            timed.tokens = 1  # else nothing is launched behind it meanwhile, which takes most of a step on CPUs
        if isinstance(flight, Idle) and drafts is None:
            self.costs.begin_step()
        return Decode(tuple(row.number for row in rows), drafts, ahead)

    def fail(self, error: BaseException) -> None:
        """End every running row with an error."""
        self.batch.fail(row_error("choosing the next decode step failed", error))

    def end(self, *, alone: bool) -> None:
        """The step of the engine is over, in which decoding was alone, or not: only then it counts."""
        if not alone:
            self._timed = None
        self.costs.forget_step()

    def _measured(self) -> _Timed | None:
        """The step before, whose time ends here: it counts if its rows have stayed."""
        timed, self._timed = self._timed, None
        if timed is not None and timed.rows is self.batch.rows and timed.tokens:
            seconds = timed.watch.seconds - timed.spent
            if timed.tokens == 1:
                self.costs.note_step(seconds)
            if self.speculation is not None:
                self.speculation.note(len(timed.rows), timed.tokens, seconds)
        return timed


class _Choice(NamedTuple):
    """Something that a step decides."""

    next: Callable[[], Piece | None]
    """The piece, or None if there is none, or no more."""
    fail: Callable[[BaseException], None] | None = None
    """Fails the work that waits for an answer, if that raises; None: the engine starts afresh."""


class Scheduler:
    """Names the pieces of each step, one after the other, and records them.

    Args:
        rows: those of the engine; None: the model generates no text.
        lanes: of all other work, which runs in passes.
        parts: those of the engine.

    Attributes:
        records: the last steps.
    """

    def __init__(self, rows: Rows | None, lanes: Sequence[PassLane], parts: Parts) -> None:
        setup, self._meter, self._share = parts.setup, parts.meter, parts.share
        self._rows, self._lanes, self._costs = rows, [*lanes], setup.costs
        self.prefill = prefill = None if rows is None else Prefill(rows, setup, parts.meter)
        self.decoding = None if rows is None else Decoding(rows.batch, prefill, setup.speculation, setup.costs)
        self.records: deque[StepRecord] = deque(maxlen=LAST_RECORDS)
        self._steps = 0
        self._choices: deque[_Choice] = deque()
        """Those that this step has not made yet. They hold this object, and so go when the engine starts afresh."""
        self._pieces: list[Piece] = []
        """Those of this step so far."""
        self._decoded = 0
        """Number of them that were for the decode step."""
        self._running, self._watch = 0, self._costs.start()
        """Rows that decode in this step, and the seconds since it began."""
        self._turn: PassLane
        """The lane that had the last pass."""

    @property
    def running(self) -> int:
        """Rows that decode."""
        return 0 if self._rows is None else len(self._rows.batch)

    def plans(self) -> tuple[dict[str, object], ...]:
        """The last steps, as plain values; may be called on any thread."""
        return tuple(record.to_dict() for record in self.records.copy())

    def next(self) -> Piece | None:
        """The next piece of this step, which must be run before the next call; None if the step is over."""
        if not self._choices:
            self._begin()
        while self._choices:
            choice = self._choices.popleft()
            try:
                piece = choice.next()
            except BaseException as error:
                if choice.fail is None:
                    self._choices.clear()
                    raise
                log.exception("scheduling failed; requests that wait for it fail, the engine continues")
                choice.fail(error)
                continue
            if piece is not None:
                if isinstance(piece, PromptPiece) and not isinstance(piece, Limit):
                    self._choices.appendleft(choice)  # there may be more
                self._pieces.append(piece)
                return piece
        return None

    def failed(self, piece: Piece, error: BaseException) -> None:
        """Fail what a piece was for: its prompt, or all that wait for the same runner; or everything, with this error.

        Raises:
            BaseException: the error, if the engine has to start afresh.
        """
        if isinstance(piece, Pass):
            name = type(piece).__name__.lower()
            log.error("running %s failed; waiting requests fail, the engine continues", name, exc_info=error)
            self._turn.fail(error)
        elif isinstance(piece, PromptPiece) and self.prefill is not None:
            if not self.prefill.failed(piece, error):
                log.error("running prompts failed; waiting requests fail, the engine continues", exc_info=error)
                self.prefill.fail(error)
                if not isinstance(piece, Limit):
                    self._choices.popleft()  # for more of them
        else:
            self._choices.clear()
            raise error

    # -- the choices of a step --------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._running = self.running
        if self.decoding is not None and self._running:
            self._watch = self._costs.start()
            if self.prefill is not None and self.prefill.rows.room.outgrows():
                self._choices.append(_Choice(self.prefill.rows.room.outgrown, self.prefill.fail))
            step = _Choice(self.decoding.next, self.decoding.fail)
            self._choices += (_Choice(Collect), step, _Choice(Deliver), _Choice(self._measure))
        kind = _Choice(self._choose_kind, self._fail_waiting)
        self._choices += (kind, _Choice(self._rest), _Choice(self._end))

    def _measure(self) -> None:
        """The tokens of the decode step have been delivered."""
        seconds = self._watch.seconds
        self._meter.stepped(seconds, self._running)
        self._share.stepped(seconds)

    def _choose_kind(self) -> None:
        """Ask a lane for a pass, or for prompts, for as long as running rows may wait."""
        self._decoded, running = len(self._pieces), bool(self.running)
        prefill = self.prefill if self.prefill is not None and self.prefill.rows.prompts else None
        for lane in self._lanes:
            if lane and lane.is_due(running, None if prefill is None else prefill.priority):
                self._lanes.remove(lane)
                self._lanes.append(lane)  # the others go first the next time
                self._turn = lane
                self._choices.appendleft(_Choice(partial(lane.next_pass, beside=running), lane.fail))
                return
        if prefill is not None:
            self._choices.appendleft(_Choice(prefill.next, prefill.fail))

    def _fail_waiting(self, error: BaseException) -> None:
        for lane in self._lanes:
            lane.fail(error)
        if self.prefill is not None:
            self.prefill.fail(error)

    def _rest(self) -> Piece | None:
        """Leave the time to other engines, if nothing of this one can be run."""
        alone, running = len(self._pieces) == self._decoded, self.running
        if self.decoding is not None:
            self.decoding.end(alone=alone)
        self._share.note_rows(bool(running))
        return Rest(pause) if alone and not running and (pause := self._share.pause) else None

    def _end(self) -> None:
        self._steps += 1
        enter, leave = ([], []) if self._rows is None else (self._rows.entered, self._rows.left)
        self.records.append(StepRecord(self._steps, tuple(enter), tuple(leave), tuple(self._pieces)))
        for noted in (enter, leave, self._pieces):
            noted.clear()
