"""Room for rows: places in the batch, and memory for their caches and for data that is kept in addition to these."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..decode.batch import Batch
from ..memory import Memory
from ..pieces import Limit, Open, Preempt
from ..prompts.features import Tower
from ..prompts.prefill import PrefillJob
from ..row import Row
from .prompts import PromptJobs
from .queue import by_urgency

log = logging.getLogger("localai_shim")

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
    """

    batch: Batch
    prompts: PromptJobs
    tower: Tower
    max_rows: int
    memory: Memory | None = None
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
            if len(self.batch) > 1 and self.memory.batch(self._lengths()) > self.memory.budget:
                return Preempt(max(self.batch.rows, key=_patience).number)
            self._steps_planned = min((_reserved(row) - _length(row) for row in self.batch.rows), default=0)
            return Limit(self.memory.budget - self.memory.batch(self._lengths()))
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
        others, rows = [*running, *self._begun()], len(job.rows)
        while not self._fits(job, rows, others):
            if others or rows == 1:
                return 0
            rows -= 1
        return rows

    def open(self, job: PrefillJob) -> Open:
        """Begin a job that there is room for."""
        rows, others = max(1, self.fitting(job)), [*self.batch.rows, *self._begun()]
        spare = None if self.memory is None else self._spare(self.memory, job, rows, others)
        first = self.prompts.queue.first(PrefillJob, by_urgency)
        return Open(job.number, rows, spare, turn=first is not None and first.priority < job.priority)

    def _fits(self, job: PrefillJob, count: int, others: Sequence[Row]) -> bool:
        rows = len(others) + count
        if rows > self.max_rows:
            return False
        return self.memory is None or rows == 1 or self._spare(self.memory, job, count, others) >= 0

    def _begun(self) -> list[Row]:
        """Rows whose prompts are being prefilled."""
        return [row for other in (*self.prompts.begun, *self.prompts.joining) for row in other.rows]

    def _spare(self, memory: Memory, job: PrefillJob, count: int, others: Sequence[Row]) -> int:
        """Bytes left if a number of a job's rows begin: the budget less all rows and prompts that have not joined."""
        lengths = [_reserved(row) for row in (*others, *job.rows[:count])]
        jobs = (*self.prompts.begun, *self.prompts.joining, job)
        taken, batch = sum(memory.row(len(other.tokens), other.first_pass) for other in jobs), memory.batch(lengths)
        if len(lengths) == 1:  # it decodes in the cache that it was prefilled in
            taken = max(0, taken - batch)
        if any(other.prompt.media for other in jobs):
            taken += self.tower.bytes_for(jobs)
        return memory.budget - batch - taken

    def _lengths(self) -> list[int]:
        return [_reserved(row) for row in self.batch.rows]


def _patience(row: Row) -> tuple[int, int]:
    return (row.request.priority, row.arrival)


def _length(row: Row) -> int:
    return len(row.prompt_tokens) + row.generated


def _reserved(row: Row) -> int:
    """Tokens that memory is reserved for: a row's prompt and its answer, as far as that may be long."""
    output = max(RESERVED_TOKENS, (row.generated // FURTHER_TOKENS + 1) * FURTHER_TOKENS)
    return len(row.prompt_tokens) + min(row.max_tokens, output)
