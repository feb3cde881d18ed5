"""Which prompts are prefilled next, and how many of their tokens before the running rows get their next one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel, Stopwatch
from ..costs.meter import Meter
from ..costs.pace import Pace
from ..decode.batch import Batch
from ..pieces import Chunk, Item, Join, Open, Preempt, PromptPiece
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Row
from .prompts import PromptJobs
from .queue import OLDEST_EVERY, by_age, by_length, by_urgency
from .room import Room

GATHER_STALLS = 4  # stalls for which prompts that come together are gathered while no row is running


@dataclass(slots=True)
class _Turn:
    """A prompt that was chosen: one chunk of it is run, or one item that it needs before."""

    job: PrefillJob
    most: int | None = None
    """Tokens of its chunk; None: not known yet."""
    together: list[PrefillJob] = field(default_factory=list)
    """Others that have begun to share its chunk."""
    gathers: bool | None = None
    """Others may share its chunk; None: not known yet."""
    begun: PrefillJob | None = None
    """The latest that has begun for that."""
    is_over: bool = False


@dataclass(slots=True)
class _Stall:
    """Time for prefill between two tokens of the running rows."""

    watch: Stopwatch
    seconds: float
    beside: bool
    """Rows are running."""
    turn: _Turn | None = None
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
        batch: what prefilled rows join.
        prompts: those that do not run yet.
        room: what fits.
        prefiller: knows what can share a pass.
        tower: knows what prompts need of it.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        chunks: limits of prompts' passes.
        meter: what counts.
        costs: what passes take.

    Attributes:
        entered: rows that were queued since the last step.
        gone: rows that were dropped since then.
    """

    batch: Batch
    prompts: PromptJobs
    room: Room
    prefiller: Prefiller
    tower: Tower
    max_stall: float
    chunks: ChunkLimit
    meter: Meter
    costs: CostModel
    entered: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    _stall: _Stall | None = None
    _overtaken: int = 0  # choices since the one that waits longest was last chosen
    _blocked: bool = False  # no prompt could be run the last time

    @property
    def is_likely(self) -> bool:
        """True if `next` probably has pieces: there are prompts, and one could be run the last time."""
        return bool(self.prompts) and not self._blocked

    @property
    def priority(self) -> int | None:
        """Of the most urgent prompts that wait; None: there are none."""
        first = self.prompts.queue.first(PrefillJob, by_urgency)
        jobs = self.prompts.begun if first is None else [*self.prompts.begun, first]
        return min((job.priority for job in jobs), default=None)

    def added(self, rows: Iterable[Row]) -> None:
        """Rows were queued."""
        self._blocked = False
        self.entered += [row.number for row in rows]

    def left(self, rows: Iterable[Row]) -> None:
        """Rows were dropped, which may be running, or gone."""
        self.gone += [row.number for row in rows]

    def next(self) -> PromptPiece | None:
        """The next piece, for as long as the running rows may wait, and of at least one chunk; rows that are done join.

        None: there is nothing more before their next tokens. What is raised in choosing is everybody's.
        """
        stall = self._stall = self._stall or self._begin()
        while not stall.is_over:
            if stall.turn is None:
                if (preempt := self._make_way()) is not None:
                    return preempt
                if (job := self._choose()) is None:
                    break
                stall.idle, stall.turn = False, _Turn(job)
            try:
                if (piece := self._advance(stall.turn, stall)) is not None:
                    return piece
            except BaseException as error:
                self.prompts.fail(stall.turn.job, error)
            stall.turn = None
            stall.is_over = stall.is_over or not self._pace.is_enough(stall.left)
        stall.is_over = True
        if self.prompts.joining:
            return Join(tuple(row.number for job in self.prompts.joining for row in job.rows))
        self._stall, self._blocked = None, stall.idle
        if stall.beside and not stall.idle:
            self.meter.stalled(stall.watch.seconds)
        return None

    def failed(self, piece: PromptPiece, error: BaseException) -> bool:
        """Fail the prompt that a piece was for; False if it was for several, or if that fails."""
        if not isinstance(piece, Open | Item | Chunk):
            return False
        try:
            job = self.prompts.job(piece.prompts[0] if isinstance(piece, Chunk) else piece.prompt)
            self.prompts.fail(job, error)
            self.prompts.release()
        except BaseException:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """End every row that does not run yet with an error, and start afresh."""
        self._stall = None
        self.prompts.fail_all(error)

    # -- the next prompt ----------------------------------------------------------------------------------------

    @property
    def _pace(self) -> Pace:
        return self.costs.pace("prompts", self.max_stall)

    def _begin(self) -> _Stall:
        running = bool(len(self.batch))
        return _Stall(self.costs.start(), self._pace.stall if running else GATHER_STALLS * self.max_stall, running)

    def _make_way(self) -> Preempt | None:
        """Preempt a row for a prompt that is more urgent, if there is no room for it otherwise."""
        urgent = self.prompts.queue.first(PrefillJob, by_urgency)
        row = None if urgent is None else self.room.in_the_way(urgent)
        return None if row is None else Preempt(row.number)

    def _choose(self) -> PrefillJob | None:
        """The job whose prompt is run next, if one can be."""
        queue, begun = self.prompts.queue, self.prompts.begun
        oldest = queue.first(PrefillJob, by_age)
        if oldest is not None and not self.room.fitting(oldest):
            oldest = None
        if oldest is None and len(begun) < 2:  # nothing to choose, and no turn
            return begun[0] if begun else None
        order = queue.turn(PrefillJob)
        fresh = oldest if order is by_age else queue.first(PrefillJob, order)
        # None overtakes the one that has waited longest while there is no memory for it: it would never begin. Nor do
        # more than a few while there is: its own turns may all come when there is none.
        due = oldest is None or fresh is None or self._overtaken >= OLDEST_EVERY - 1
        if due or (fresh is not oldest and fresh is not None and not self.room.fitting(fresh)):
            fresh = oldest
        job = min(begun if fresh is None else [*begun, fresh], key=order)
        if job is fresh:
            self._overtaken = 0 if job is oldest else self._overtaken + 1
        return job

    # -- the next piece of it -----------------------------------------------------------------------------------

    def _advance(self, turn: _Turn, stall: _Stall) -> PromptPiece | None:
        """The next piece of a prompt that has its turn; None: the turn is over."""
        job = turn.job
        if turn.most is None:
            turn.most = self._most(job, stall)
        if turn.is_over or not job.rows:  # without rows it has failed
            return None
        if not job.begun:
            return self.room.open(job)
        if job.prompt.media and (item := self.tower.missing(job)) is not None:
            if stall.item_ran and stall.beside:  # running rows get a token between two items
                stall.is_over = True
                return None
            stall.item_ran = turn.is_over = True
            return Item(job.number, item.media.digest)
        if job.left <= 0:
            return None
        if (opening := self._gather(turn, turn.most)) is not None:
            return opening
        turn.is_over = True
        together = self.prefiller.together(job, self.prompts.begun, turn.most) if turn.gathers else [job]
        last = len(self.prompts) == len(job.rows) and not self.prompts.joining
        return Chunk(tuple(each.number for each in together), turn.most, stall.beside, last)

    def _most(self, job: PrefillJob, stall: _Stall) -> int:
        """Tokens of a chunk, which takes the rest of the stall if rows wait."""
        most = self.prefiller.chunk_limit(job, self.chunks.tokens(job.done))
        if stall.beside:
            pace = self.costs.pace("prompts" if job.scores is None else "scores", self.max_stall)
            most = min(most, max(self.chunks.least, pace.chunk(stall.left)))
        return most

    def _gather(self, turn: _Turn, most: int) -> Open | None:
        """Begin another prompt for the same pass: a short prompt runs with others that are as short."""
        prefiller, queue, job = self.prefiller, self.prompts.queue, turn.job
        if turn.gathers is None:
            turn.gathers = prefiller.is_short(job, most)
        if turn.begun is not None and turn.begun.rows and turn.begun.done == job.done:
            turn.together.append(turn.begun)
        turn.begun = other = queue.first(PrefillJob, by_length) if turn.gathers else None
        if other is None:
            return None
        oldest = queue.first(PrefillJob, by_age)
        fits = prefiller.is_short(other, most) and prefiller.worth_padding([job, *turn.together], other.left, most)
        if (
            not (fits or other.left <= 0)
            or (other.scores is None) != (job.scores is None)
            or oldest is None
            or not self.room.fitting(oldest)
            or not self.room.fitting(other)
        ):
            return None
        return self.room.open(other)
