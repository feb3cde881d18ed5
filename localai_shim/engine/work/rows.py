"""The rows of an engine: those that run, prompts on their way into the batch, and the room that there is for them."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ...types import GenerationRequest, Prompt, Sink, log
from ...types.timeline import Moved, now
from ..decode.batch import Batch
from ..memory import Memory
from ..pieces import Limit, Open, Preempt
from ..prefix.sharing import Sharing
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Row
from .lane import Parts
from .prompts import PromptJobs
from .queue import by_urgency

RESERVED_TOKENS = 2048  # of its answer that memory is reserved for when a row begins; longer ones may be preempted
FURTHER_TOKENS = 256  # that are reserved each time a row has outgrown that; a divisor of it
TURN_TOKENS = 64  # of the one that waits longest, when it is its turn, before more urgent ones get its place again


@dataclass(eq=False)
class Room:
    """Tells what fits, and what that leaves for what is kept for later prompts.

    Args:
        batch: the rows that run.
        prompts: those that do not run yet.
        tower: knows what features take.
        max_rows: most rows that decode together.
        memory: the budget for rows; None: no limit is known.
        sharing: what rows share, which counts once; None: they share nothing.
    """

    batch: Batch
    prompts: PromptJobs
    tower: Tower
    max_rows: int
    memory: Memory | None = None
    sharing: Sharing | None = None
    _steps_planned: int = 0
    """Steps for which there is memory for the rows that run."""

    def outgrows(self) -> bool:
        """True if there may be no memory for the next tokens of the running rows. To be asked once before each step."""
        self._steps_planned -= 1
        return self.memory is not None and self._steps_planned <= 0

    def outgrown(self) -> Preempt | Limit | None:
        """The least urgent and youngest row, if there is no memory for it; otherwise, what all rows leave to others."""
        assert self.memory is not None
        try:
            left = self.memory.budget - self._taken(self.memory, self.batch.rows, ())
            if len(self.batch) > 1 and left < 0:
                return Preempt(max(self.batch.rows, key=_patience).number)
            self._steps_planned = min((_reserved(row) - _length(row) for row in self.batch.rows), default=0)
            return Limit(left)
        except Exception:
            log.exception("planning the memory of running requests failed; they continue")
            self._steps_planned = FURTHER_TOKENS
            return None

    def joined(self) -> None:
        """Rows have joined: what was planned for those that ran before does not hold."""
        self._steps_planned = 0

    def in_the_way(self, job: PrefillJob) -> Row | None:
        """The next row to be preempted for a more urgent prompt.

        Returns:
            None: there is room for it, or would be none without all rows that are less urgent and have had their turn.
        """
        rows = [r for r in self.batch.rows if r.request.priority > job.priority and r.generated >= r.keeps_place]
        if not rows or self.fitting(job) or not self._fitting(job, [r for r in self.batch.rows if r not in rows]):
            return None
        return max(rows, key=_patience)

    def fitting(self, job: PrefillJob) -> int:
        """Number of a job's rows that may begin: all, or none; some only where nothing else runs."""
        return self._fitting(job, self.batch.rows)

    def _fitting(self, job: PrefillJob, running: Sequence[Row]) -> int:
        rows = len(job.rows)
        while not self._fits(job, rows, running):
            if running or self._begun() or rows == 1:
                return 0
            rows -= 1
        return rows

    def open(self, job: PrefillJob) -> Open:
        """Begin a job that there is room for."""
        rows = max(1, self.fitting(job))
        spare = None if self.memory is None else self._spare(self.memory, job, rows, self.batch.rows)
        first = self.prompts.queue.first(PrefillJob, by_urgency)
        return Open(job.number, rows, spare, turn=first is not None and first.priority < job.priority)

    def _fits(self, job: PrefillJob, count: int, running: Sequence[Row]) -> bool:
        rows = len(running) + sum(len(other.rows) for other in self._begun()) + count
        if rows > self.max_rows:
            return False
        return self.memory is None or rows == 1 or self._spare(self.memory, job, count, running) >= 0

    def _begun(self) -> list[PrefillJob]:
        """Prompts that are being prefilled."""
        return [*self.prompts.begun, *self.prompts.joining]

    def _spare(self, memory: Memory, job: PrefillJob, count: int, running: Sequence[Row]) -> int:
        """Bytes left if a number of a job's rows begin: the budget less all rows and prompts that have not joined."""
        jobs = [*((other, len(other.rows)) for other in self._begun()), (job, count)]
        taken = self._taken(memory, running, jobs)
        if any(other.prompt.media for other, _ in jobs):
            taken += self.tower.bytes_for([other for other, _ in jobs])
        return memory.budget - taken

    def _taken(self, memory: Memory, running: Sequence[Row], jobs: Sequence[tuple[PrefillJob, int]]) -> int:
        """Bytes of rows that run, and of prompts with a number of their rows; what they share counts once."""
        lengths = [_reserved(row) for row in running]
        shared = [0 if row.prefix is None else row.prefix.length for row in running]
        prefilled, before = 0, [*running]
        for job, count in jobs:
            prefilled += memory.row(len(job.tokens), job.first_pass, 0 if job.prefix is None else job.prefix.length)
            lengths += [_reserved(row) for row in job.rows[:count]]
            shared += self._shared(job, count, before)
            before += job.rows[:1]
        batch = memory.batch(lengths, shared)
        if len(lengths) == 1:  # it decodes in the cache that it was prefilled in
            prefilled = max(0, prefilled - batch)
        return batch + prefilled + (0 if self.sharing is None else self.sharing.bytes)

    def _shared(self, job: PrefillJob, count: int, before: Sequence[Row]) -> list[int]:
        """First tokens that a number of a job's rows will share, with rows that come before and with each other."""
        if self.sharing is None or job.first_pass:
            return [0] * count
        first = self.sharing.expected(job.rows[0], before)
        again = max(first, self.sharing.common(job.prompt, [job.prompt]))
        return [first, *[again] * (count - 1)][:count]


def _patience(row: Row) -> tuple[int, int]:
    return (row.request.priority, row.arrival)


def _length(row: Row) -> int:
    return len(row.prompt_tokens) + row.generated


def _reserved(row: Row) -> int:
    """Tokens that memory is reserved for: a row's prompt and its answer, as far as that may be long."""
    output = max(RESERVED_TOKENS, (row.generated // FURTHER_TOKENS + 1) * FURTHER_TOKENS)
    return len(row.prompt_tokens) + min(row.max_tokens, output)


class Rows:
    """Rows from their arrival to their end, and what runs them.

    Args:
        parts: those of the engine. Prompts wait in the queue.

    Attributes:
        entered: numbers of rows that were queued since the last step.
        left: numbers of rows that were dropped since then.
        blocked: no prompt could be run the last time.
    """

    def __init__(self, parts: Parts) -> None:
        self._model, self._meter = model, meter = parts.model, parts.meter
        setup, emit = parts.setup, parts.emit
        sharing, speculation = setup.sharing, setup.speculation
        self.batch = batch = Batch(model, emit, setup, parts.deliver)
        self.tower = Tower(model, setup.features)
        wanted_states = (lambda rows: 0) if speculation is None else speculation.wanted_states
        end_tokens = model.end_tokens if setup.ends_prompts else 0
        self.prefiller = Prefiller(
            model, meter, setup.prefixes, batch.wait, end_tokens, setup.costs, sharing, wanted_states
        )
        self.prompts = PromptJobs(parts.queue, self.prefiller, self.tower, emit, setup.max_rows)
        memory = setup.memory if isinstance(setup.memory, Memory) else None
        self.room = Room(batch, self.prompts, self.tower, setup.max_rows, memory, sharing)
        if sharing is not None:  # which must not hold the model by these rows
            rows = weakref.ref(self)
            sharing.others = lambda: () if (its := rows()) is None else its._sharing_prompts()
        self.entered: list[int] = []
        self.left: list[int] = []
        self.blocked = False

    def __len__(self) -> int:
        """Rows that run and wait."""
        return len(self.batch) + len(self.prompts)

    def _sharing_prompts(self) -> Iterator[Prompt]:
        """Prompts that others may share first tokens with: those of rows that run, and of jobs that have begun."""
        begun = (job.rows[0] for job in (*self.prompts.begun, *self.prompts.joining) if job.rows)
        return (row.request.prompt for row in (*self.batch.rows, *begun) if row.shares)

    def enter(self, work: GenerationRequest, sink: Sink, index: int) -> Row:
        """Make the row of a request."""
        return Row(work, sink, index, self._model)

    def add(self, entries: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.batch.insert_prompts()  # for these to find
        self.prompts.add(entries)
        self.entered += [row.number for row in entries]
        self.blocked = False

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may be waiting, running, or gone; no event is sent. If that fails, all that wait fail."""
        self.left += [row.number for row in gone]
        self.batch.drop(gone)
        try:
            self.prompts.drop(gone)
        except BaseException as error:
            self.prompts.fail_all(error)

    def needs(self, job: PrefillJob, digest: int) -> bool:
        """True if a job still needs the features of an item."""
        self.prefiller.estimate(job)
        return digest not in job.features and any(span.media.digest == digest for span in job.spans())

    def preempt(self, number: int) -> None:
        """Return a running row to the queue."""
        [row] = (row for row in self.batch.rows if row.number == number)
        self._meter.preempted += self._take(row)

    def restart(self) -> None:
        """Make every row read its tokens again, those that it has generated too: the model will change."""
        for row in [*self.batch.rows]:
            self._take(row)
        self.prompts.restart()

    def _take(self, row: Row) -> bool:
        """Make a running row wait, with what it has generated; False if it has ended meanwhile."""
        taken = self.batch.take(row)
        if taken:
            for recording in self._meter.recordings:
                recording.add(Moved(now(), (row.number,), joined=False))
            self.prompts.put(PrefillJob([row], row.request.prompt, row.arrival, row.output_tokens))
        return taken
