"""The planner: what each step of an engine does, decided from its rows, its queues and its measured costs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from ..costs.cost_model import CostModel, Stopwatch
from ..decode.batch import Batch
from ..decode.in_flight import Idle
from ..drafts.controller import Speculation
from ..row import Row
from ..step_plan import Decode, Piece, StepPlan
from ..texts.lane import EmbeddingLane
from .prompt_runner import PromptRunner

log = logging.getLogger("localai_shim")

LAST_PLANS = 64  # that are kept, for who looks why something was slow


@dataclass(slots=True)
class _Timed:
    """A step of the batch that is measured until the next one is planned."""

    rows: list[Row]
    watch: Stopwatch
    tokens: int | None = None
    """The most of a row; None: this one does not count."""
    plain: bool = False
    """It is one of one token for each row, and no drafts are expected for the next one."""
    spent: float = 0.0
    """Seconds that it took to have its drafts, which are no part of what it costs."""


class Planner:
    """Decides piece by piece, as what is decided last depends on what the first pieces took, and notes all of it.

    Args:
        batch: the rows that run.
        prompts: those that wait; None: there never are.
        lane: texts that wait for their vectors.
        speculation: has drafts.
        costs: measures the batch's steps.

    Attributes:
        plans: the last ones.
    """

    def __init__(
        self,
        batch: Batch | None,
        prompts: PromptRunner | None,
        lane: EmbeddingLane | None,
        speculation: Speculation | None,
        costs: CostModel,
    ) -> None:
        self._batch, self._prompts, self._lane = batch, prompts, lane
        self._speculation, self._costs = speculation, costs
        self.plans: deque[StepPlan] = deque(maxlen=LAST_PLANS)
        self._timed: _Timed | None = None
        self._steps = 0
        self._enter: list[int] = []
        self._leave: list[int] = []
        self._before: list[Piece] = []
        self._beside: list[Piece] = []
        self._decode: Decode | None = None

    def entered(self, rows: Iterable[Row]) -> None:
        """Rows were queued."""
        self._enter += [row.number for row in rows]

    def left(self, rows: Collection[Row]) -> None:
        """Rows were dropped."""
        self._leave += [row.number for row in rows]

    def before(self) -> Iterator[Piece]:
        """Rows to be preempted before the batch's step; each piece is run before the next one is asked for."""
        if self._prompts is not None:
            yield from _noted(self._prompts.scheduler.before, self._before, self._prompts.fail)

    def decode(self) -> Decode:
        """The batch's step, once what was in flight is finished. Drafts are asked about once."""
        assert self._batch is not None
        rows, flight, last = self._batch.rows, self._batch.in_flight, self._measured()
        self._timed = timed = _Timed(rows, self._costs.start())
        prompts = self._prompts is not None and self._prompts.scheduler.will_prefill
        joined, expected, drafts = False, False, None
        if isinstance(flight, Idle):
            joined = flight.joined
            if self._speculation is not None:  # what joins has its tokens soon
                drafts = self._speculation.drafts(rows, wanted=not joined, beside_prompts=prompts)
                timed.spent = self._speculation.spent
        elif self._speculation is not None and not prompts:
            expected = self._speculation.expects(rows)
        ahead = not (prompts or joined or expected)
        timed.plain = drafts is None and not expected
        if drafts is not None and ahead:
            timed.tokens = 1 + max(len(row.replay) + len(draft.tokens) for row, draft in zip(rows, drafts, strict=True))
        elif drafts is None and not prompts and last is not None and last.plain and last.rows is rows:
            timed.tokens = 1
        if isinstance(flight, Idle) and drafts is None:
            self._costs.begin_step()
        self._decode = Decode(tuple(row.number for row in rows), drafts, ahead)
        return self._decode

    def beside(self) -> Iterator[Piece]:
        """Texts or prompts, for as long as running rows may wait; see `before`."""
        running = self._batch is not None and len(self._batch) > 0
        if self._lane is not None and self._texts_are_due(self._lane, running):
            yield from _noted(partial(self._lane.pieces, beside=running), self._beside, self._lane.fail)
        elif self._prompts:
            yield from _noted(self._prompts.scheduler.pieces, self._beside, self._prompts.fail)

    def end(self) -> None:
        """The step is over."""
        if self._beside:
            self._timed = None
        self._costs.forget_step()
        self._steps += 1
        before, beside = tuple(self._before), tuple(self._beside)
        plan = StepPlan(self._steps, tuple(self._enter), tuple(self._leave), before, self._decode, beside)
        self.plans.append(plan)
        for noted in (self._enter, self._leave, self._before, self._beside):
            noted.clear()
        self._decode = None

    # -----------------------------------------------------------------------------------------------------------

    def _measured(self) -> _Timed | None:
        """The step before, whose time ends here: it counts where its rows have stayed."""
        timed, self._timed = self._timed, None
        assert self._batch is not None
        if timed is not None and timed.rows is self._batch.rows and timed.tokens:
            seconds = timed.watch.seconds - timed.spent
            if timed.tokens == 1:
                self._costs.note_step(seconds)
            if self._speculation is not None:
                self._speculation.note(len(timed.rows), timed.tokens, seconds)
        return timed

    def _texts_are_due(self, lane: EmbeddingLane, running: bool) -> bool:
        if not lane:
            return False
        prompts = None
        if self._prompts:
            try:
                prompts = self._prompts.scheduler.priority
            except BaseException as error:
                self._prompts.fail(error)
        try:
            return lane.is_due(running, prompts)
        except BaseException as error:
            lane.fail(error)
            return False


def _noted(
    choose: Callable[[], Iterable[Piece]], noted: list[Piece], fail: Callable[[BaseException], None]
) -> Iterator[Piece]:
    """Note pieces as they are asked for; what is raised in choosing them fails all that wait."""
    try:
        for piece in choose():
            noted.append(piece)
            yield piece
    except GeneratorExit:
        raise
    except BaseException as error:
        log.exception("planning failed; waiting requests fail, the engine continues")
        fail(error)
