"""Which prompts are prefilled next, and how many of their tokens before the running rows get their next one."""

from __future__ import annotations

from dataclasses import dataclass

from ..costs.cost_model import Meter, Stopwatch
from ..pieces import Chunk, Item, Join, Open, Preempt, PromptPiece
from ..prompts.prefill import PrefillJob
from ..setup import Setup
from .queue import OLDEST_EVERY, by_age, by_length, by_urgency
from .rows import Rows

GATHER_STALLS = 4  # stalls for which prompts that come together are gathered while no row is running


@dataclass(slots=True)
class _Stall:
    """Time for prefill between two tokens of the running rows."""

    watch: Stopwatch
    seconds: float
    beside: bool
    """Rows are running."""
    job: PrefillJob | None = None
    """Prompt whose turn it is: one chunk of it is run, or one item that it needs before."""
    most: int | None = None
    """Tokens of that chunk; None: not known yet."""
    has_run: bool = False
    """The chunk, or the item, has."""
    idle: bool = True
    """No prompt could be run."""
    item_ran: bool = False
    is_over: bool = False

    @property
    def left(self) -> float:
        return self.seconds - self.watch.seconds


@dataclass(eq=False)
class Prefill:
    """Shares the time for prefill between long and short prompts, as far as there is room for their rows: see `Queue`.

    A row begins when there is memory for its whole prompt and for its answer, up to 2,048 tokens of that. When rows
    outgrow this and memory runs out, the least urgent and youngest ones are preempted: they return to the queue with
    their output tokens, and continue later with the same result. So are rows whose place a more urgent prompt needs,
    but not one that has just had its turn.

    Args:
        rows: those that run, and the prompts.
        setup: has the limits of passes, and what they take.
        meter: what counts.
    """

    rows: Rows
    setup: Setup
    meter: Meter
    _stall: _Stall | None = None
    _overtaken: int = 0  # choices since the one that waits longest was last chosen

    def __post_init__(self) -> None:
        self._pace = self.setup.costs.pace("prompts", self.setup.max_stall)

    @property
    def is_likely(self) -> bool:
        """True if `next` probably has pieces: there are prompts, and one could be run the last time."""
        return bool(self.rows.prompts) and not self.rows.blocked

    @property
    def priority(self) -> int | None:
        """Of the most urgent prompts that wait; None: there are none."""
        first = self.rows.prompts.queue.first(PrefillJob, by_urgency)
        jobs = self.rows.prompts.begun if first is None else [*self.rows.prompts.begun, first]
        return min((job.priority for job in jobs), default=None)

    def next(self) -> PromptPiece | None:
        """The next piece: at least one chunk, and more while the running rows may wait. Rows that are done join.

        None: there are no more pieces before the next tokens of the running rows. An exception while choosing fails
        all waiting requests.
        """
        stall = self._stall = self._stall or self._begin()
        while not stall.is_over:
            if stall.job is None:
                if (preempt := self._make_way()) is not None:
                    return preempt
                if (job := self._choose()) is None:
                    break
                stall.job, stall.most, stall.has_run, stall.idle = job, None, False, False
            try:
                if (piece := self._advance(stall.job, stall)) is not None:
                    return piece
            except BaseException as error:
                self.rows.prompts.fail(stall.job, error)
            stall.job = None
            stall.is_over = stall.is_over or not self._pace.is_enough(stall.left)
        stall.is_over = True
        if self.rows.prompts.joining:
            return Join(tuple(row.number for job in self.rows.prompts.joining for row in job.rows))
        self._stall, self.rows.blocked = None, stall.idle
        if stall.beside and not stall.idle:
            self.meter.stalled(stall.watch.seconds)
        return None

    def failed(self, piece: PromptPiece, error: BaseException) -> bool:
        """Fail the prompt that a piece was for; False if it was for several, or if that fails."""
        if not isinstance(piece, (Open, Item, Chunk)):
            return False
        try:
            job = self.rows.prompts.job(piece.prompts[0] if isinstance(piece, Chunk) else piece.prompt)
            self.rows.prompts.fail(job, error)
            self.rows.prompts.release()
        except BaseException:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """End every row that does not run yet with an error, and start afresh."""
        self._stall = None
        self.rows.prompts.fail_all(error)

    # -- the next prompt ----------------------------------------------------------------------------------------

    def _begin(self) -> _Stall:
        running, costs = bool(len(self.rows.batch)), self.setup.costs
        seconds = self._pace.stall if running else GATHER_STALLS * self.setup.max_stall
        return _Stall(costs.start(), seconds, running)

    def _make_way(self) -> Preempt | None:
        """Preempt a row for a prompt that is more urgent, if there is no room for it otherwise."""
        urgent = self.rows.prompts.queue.first(PrefillJob, by_urgency)
        row = None if urgent is None else self.rows.room.in_the_way(urgent)
        return None if row is None else Preempt(row.number)

    def _choose(self) -> PrefillJob | None:
        """The job whose prompt is run next, if one can be."""
        queue, begun = self.rows.prompts.queue, self.rows.prompts.begun
        oldest = queue.first(PrefillJob, by_age)
        if oldest is not None and not self.rows.room.fitting(oldest):
            oldest = None
        if oldest is None and len(begun) < 2:  # nothing to choose, and no turn
            return begun[0] if begun else None
        order = queue.turn(PrefillJob)
        fresh = oldest if order is by_age else queue.first(PrefillJob, order)
        # None overtakes the one that has waited longest while there is no memory for it: it would never begin. Nor do
        # more than a few while there is: its own turns may all come when there is none.
        due = oldest is None or fresh is None or self._overtaken >= OLDEST_EVERY - 1
        if due or (fresh is not oldest and fresh is not None and not self.rows.room.fitting(fresh)):
            fresh = oldest
        job = min(begun if fresh is None else [*begun, fresh], key=order)
        if job is fresh:
            self._overtaken = 0 if job is oldest else self._overtaken + 1
        return job

    # -- the next piece of it -----------------------------------------------------------------------------------

    def _advance(self, job: PrefillJob, stall: _Stall) -> PromptPiece | None:
        """The next piece of a prompt whose turn it is; None: the turn is over."""
        rows = self.rows
        if stall.most is None:
            stall.most = self._most(job, stall)
        if stall.has_run or not job.rows:  # without rows it has failed
            return None
        if not job.begun:
            return rows.room.open(job)
        if job.prompt.media and (item := rows.tower.missing(job)) is not None:
            if stall.item_ran and stall.beside:  # running rows get a token between two items
                stall.is_over = True
                return None
            stall.item_ran = stall.has_run = True
            return Item(job.number, item.media.digest)
        if job.left <= 0:
            return None
        together = [job]
        if rows.prefiller.is_short(job, stall.most):  # it runs with others that are as short
            together = rows.prefiller.together(job, rows.prompts.begun, stall.most)
            if (other := self._to_gather(together, stall.most)) is not None:
                return rows.room.open(other)
        stall.has_run = True
        last = len(rows.prompts) == len(job.rows) and not rows.prompts.joining
        return Chunk(tuple(each.number for each in together), stall.most, stall.beside, last)

    def _most(self, job: PrefillJob, stall: _Stall) -> int:
        """Tokens of a chunk, which takes the rest of the stall if rows wait."""
        most = self.rows.prefiller.chunk_limit(job, self.setup.chunks.tokens(job.done))
        if stall.beside:
            pace = self.setup.costs.pace("prompts" if job.scores is None else "scores", self.setup.max_stall)
            most = min(most, max(self.setup.chunks.least, pace.chunk(stall.left)))
        return most

    def _to_gather(self, together: list[PrefillJob], most: int) -> PrefillJob | None:
        """Another prompt that should begin, to share the pass of these."""
        prefiller, queue, room = self.rows.prefiller, self.rows.prompts.queue, self.rows.room
        other, oldest = queue.first(PrefillJob, by_length), queue.first(PrefillJob, by_age)
        if other is None or oldest is None or (other.scores is None) != (together[0].scores is None):
            return None
        fits = prefiller.is_short(other, most) and prefiller.worth_padding(together, other.left, most)
        return other if (fits or other.left <= 0) and room.fitting(oldest) and room.fitting(other) else None
