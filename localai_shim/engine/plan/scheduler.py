"""Which prompts are prefilled next, and how many of their tokens before the running rows get their next one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel
from ..costs.meter import Meter
from ..decode.batch import Batch
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..step_plan import Chunk, Item, Join, Piece, Preempt
from .queue import PromptQueue
from .room import Room
from .waiting import Order, by_age, by_length, by_urgency

GATHER_STALLS = 4  # stalls for which prompts that come together are gathered while no row is running
OLDEST_EVERY = 8  # one choice of so many is for the prompt that has waited longest, however urgent the others are


@dataclass(eq=False)
class Scheduler:
    """Shares the time for prefill between long and short prompts, as far as there is room for their rows.

    Half of the choices are for the prompt that came first and half for the shortest, so that a long one delays short
    ones by little, and any number of short ones a long one by half. More urgent ones go first, except that one choice
    in eight is for the one that has waited longest.

    A row begins when there is memory for its whole prompt and for its answer, up to 2,048 tokens of that. When rows
    outgrow this and memory runs out, the least urgent and youngest ones are preempted: they go back into the queue with
    their output tokens, and go on later with the same result. So are rows that a more urgent prompt needs the place of,
    but not one that has just had its turn.

    It changes nothing: it says what is to be run, piece by piece, and looks what came of it.

    Args:
        batch: what prefilled rows join.
        queue: the prompts.
        room: what fits.
        prefiller: knows what can share a pass.
        tower: knows what prompts need of it.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        chunks: limits of prompts' passes.
        meter: what counts.
        costs: what passes take.
    """

    batch: Batch
    queue: PromptQueue
    room: Room
    prefiller: Prefiller
    tower: Tower
    max_stall: float
    chunks: ChunkLimit
    meter: Meter
    costs: CostModel
    _item_ran: bool = False  # since the running rows got their last tokens
    _turn: int = 0
    _overtaken: int = 0  # choices since the one that waits longest was last chosen
    _blocked: bool = False  # no prompt could be run the last time

    @property
    def will_prefill(self) -> bool:
        """True if `pieces` probably has some: there are prompts, and one could be run the last time."""
        return bool(self.queue) and not self._blocked

    @property
    def priority(self) -> int | None:
        """Of the most urgent prompts that wait; None: there are none."""
        first = self.queue.waiting.first(by_urgency)
        jobs = self.queue.begun if first is None else [*self.queue.begun, first]
        return min((job.priority for job in jobs), default=None)

    def added(self) -> None:
        """Prompts have come."""
        self._blocked = False

    def before(self) -> Iterator[Piece]:
        """Before a step: rows that there will be no memory for go."""
        return self.room.outgrown()

    def pieces(self) -> Iterator[Piece]:
        """Prefill for as long as the running rows may wait, at least one chunk; rows that are done join.

        Each piece has to be run before the next one is asked for. What is raised in choosing is everybody's.
        """
        watch, idle = self.costs.start(), True
        beside, self._item_ran = bool(len(self.batch)), False
        pace = self.costs.pace("prompts", self.max_stall)
        seconds = pace.stall if beside else GATHER_STALLS * self.max_stall
        while (job := (yield from self._choose())) is not None:
            idle = False
            try:
                if not (yield from self._advance(job, seconds - watch.seconds if beside else None)):
                    break
            except GeneratorExit:
                raise
            except BaseException as error:
                self.queue.fail(job, error)
            if not pace.is_enough(seconds - watch.seconds):
                break
        if self.queue.joining:
            yield Join(tuple(row.number for job in self.queue.joining for row in job.rows))
        self._blocked = idle
        if beside and not idle:
            self.meter.stalled(watch.seconds)

    # -- the next prompt ----------------------------------------------------------------------------------------

    def _choose(self) -> Generator[Piece, None, PrefillJob | None]:
        """The job whose prompt is run next, if one can be."""
        yield from self._make_way()
        queue = self.queue
        oldest = queue.waiting.first(by_age)
        if oldest is not None and not self.room.fitting(oldest):
            oldest = None
        if oldest is None and len(queue.begun) < 2:  # nothing to choose, and no turn
            return queue.begun[0] if queue.begun else None
        self._turn += 1
        key: Order = by_urgency if self._turn % 2 else by_length if self._turn % OLDEST_EVERY else by_age
        fresh = oldest if key is by_age else queue.waiting.first(key)
        # None overtakes the one that has waited longest while there is no memory for it: it would never begin. Nor do
        # more than a few while there is: its own turns may all come when there is none.
        due = oldest is None or fresh is None or self._overtaken >= OLDEST_EVERY - 1
        if due or (fresh is not oldest and fresh is not None and not self.room.fitting(fresh)):
            fresh = oldest
        job = min(queue.begun if fresh is None else [*queue.begun, fresh], key=key)
        if job is fresh:
            self._overtaken = 0 if job is oldest else self._overtaken + 1
        return job

    def _make_way(self) -> Iterator[Preempt]:
        """Preempt rows for a prompt that is more urgent than they, if there is no room for it otherwise."""
        while (urgent := self.queue.waiting.first(by_urgency)) is not None and (  # it may leave meanwhile
            row := self.room.in_the_way(urgent)
        ) is not None:
            yield Preempt(row.number)

    # -- what of it ---------------------------------------------------------------------------------------------

    def _advance(self, job: PrefillJob, left: float | None) -> Generator[Piece, None, bool]:
        """One chunk of a prompt, sized to take the seconds that are `left`, or one item that it needs before.

        Args:
            job: whose prompt.
            left: None: no row waits for a token.

        Returns:
            False: nothing is to be run; the prompt needs an item, and running rows shall have a token between two.
        """
        most = self.prefiller.chunk_limit(job, self.chunks.tokens(job.done))
        if left is not None:
            pace = self.costs.pace("prompts" if job.scores is None else "scores", self.max_stall)
            most = min(most, max(self.chunks.least, pace.chunk(left)))
        if not job.begun:
            yield self.room.open(job)
        if not job.rows:  # it has failed
            return True
        if job.prompt.media and (item := self.tower.missing(job)) is not None:
            if self._item_ran and left is not None:
                return False
            self._item_ran = True
            yield Item(job.number, item.media.digest)
        elif job.left > 0:
            last = len(self.queue) == len(job.rows) and not self.queue.joining
            together = yield from self._gather(job, most)
            yield Chunk(tuple(each.number for each in together), most, left is not None, last)
        return True

    def _gather(self, job: PrefillJob, most: int) -> Generator[Piece, None, list[PrefillJob]]:
        """The jobs to run in one pass: a short prompt runs with others that are as short."""
        prefiller, together, waiting = self.prefiller, [job], self.queue.waiting
        if not prefiller.is_short(job, most):
            return together
        while (other := waiting.first(by_length)) is not None:
            oldest = waiting.first(by_age)
            fits = prefiller.is_short(other, most) and prefiller.worth_padding(together, other.left, most)
            if (
                not (fits or other.left <= 0)
                or (other.scores is None) != (job.scores is None)
                or oldest is None
                or not self.room.fitting(oldest)
                or not self.room.fitting(other)
            ):
                break
            yield self.room.open(other)
            if other.rows and other.done == job.done:
                together.append(other)
        return prefiller.together(job, self.queue.begun, most)
