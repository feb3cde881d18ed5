"""Room for rows: places in the batch, and memory for their caches and for what is kept beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ..decode.batch import Batch
from ..memory import Memory
from ..prompts.features import Tower
from ..prompts.prefill import PrefillJob
from ..row import Row
from ..step_plan import Limit, Open, Piece, Preempt
from .queue import PromptQueue

log = logging.getLogger("localai_shim")

RESERVED_TOKENS = 2048  # of its answer that memory is reserved for when a row begins; longer ones may be preempted
FURTHER_TOKENS = 256  # that are reserved each time a row has outgrown that; a divisor of it


class Room:
    """Tells what fits, and what that leaves for what is kept for later prompts.

    Args:
        batch: the rows that run.
        queue: the prompts that do not run yet.
        tower: knows what features take.
        max_rows: most rows that decode together.
        memory: the budget for rows; None: no limit is known.
    """

    def __init__(
        self,
        batch: Batch,
        queue: PromptQueue,
        tower: Tower,
        *,
        max_rows: int,
        memory: Memory | None = None,
    ) -> None:
        self._batch, self._queue, self._tower = batch, queue, tower
        self._max_rows, self.memory = max_rows, memory
        self._steps_planned = 0
        """Steps for which there is memory for the rows that run."""

    def outgrown(self) -> Iterator[Piece]:
        """Before a step, the rows that there will be no memory for, the least urgent and youngest first."""
        self._steps_planned -= 1
        if self.memory is None or self._steps_planned > 0:
            return
        try:
            while len(self._batch) > 1 and self.memory.batch(self._lengths()) > self.memory.budget:
                yield Preempt(self.least_urgent().number)
            self._steps_planned = min((_reserved(row) - _length(row) for row in self._batch.rows), default=0)
            yield Limit(self.memory.budget - self.memory.batch(self._lengths()))
        except Exception:
            log.exception("planning the memory of running rows failed; they go on")
            self._steps_planned = FURTHER_TOKENS

    def least_urgent(self) -> Row:
        """Of the running rows, and of these the youngest."""
        return max(self._batch.rows, key=lambda row: (row.request.priority, row.arrival))

    def joined(self) -> None:
        """Rows have joined: what was planned for those that ran before does not hold."""
        self._steps_planned = 0

    def fitting(self, job: PrefillJob) -> int:
        """Number of a job's rows that may begin: all, or none; some only where nothing else runs."""
        others = [row for other in (*self._queue.begun, *self._queue.joining) for row in other.rows]
        taken, rows = len(self._batch) + len(others), len(job.rows)
        while not self._fits(job, rows, taken, others):
            if taken or rows == 1:
                return 0
            rows -= 1
        return rows

    def open(self, job: PrefillJob) -> Open:
        """Begin a job that there is room for."""
        rows, spare = max(1, self.fitting(job)), None
        if self.memory is not None:
            others = [row for other in (*self._queue.begun, *self._queue.joining) for row in other.rows]
            lengths = [*self._lengths(), *map(_reserved, others), *map(_reserved, job.rows[:rows])]
            spare = self.memory.budget - self.memory.batch(lengths) - self._prefilling(job, lengths)
        return Open(job.number, rows, spare)

    def _fits(self, job: PrefillJob, count: int, taken: int, others: Sequence[Row]) -> bool:
        rows = taken + count
        if rows > self._max_rows:
            return False
        if self.memory is None or rows == 1:
            return True
        lengths = [*self._lengths(), *map(_reserved, others), *map(_reserved, job.rows[:count])]
        return self.memory.batch(lengths) + self._prefilling(job, lengths) <= self.memory.budget

    def _prefilling(self, job: PrefillJob, lengths: Sequence[int]) -> int:
        """Bytes that prompts take before they join, this one's among them."""
        assert self.memory is not None
        jobs = (*self._queue.begun, *self._queue.joining, job)
        taken = sum(self.memory.row(len(other.tokens), other.first_pass) for other in jobs)
        if len(lengths) == 1:  # it decodes in the cache that it was prefilled in
            taken = max(0, taken - self.memory.batch(lengths))
        if any(other.prompt.media for other in jobs):
            taken += self._tower.bytes_for(jobs)
        return taken

    def _lengths(self) -> list[int]:
        return [_reserved(row) for row in self._batch.rows]


def _length(row: Row) -> int:
    return len(row.prompt_tokens) + row.generated


def _reserved(row: Row) -> int:
    """Tokens that memory is reserved for: a row's prompt and its answer, as far as that may be long."""
    output = max(RESERVED_TOKENS, (row.generated // FURTHER_TOKENS + 1) * FURTHER_TOKENS)
    return len(row.prompt_tokens) + min(row.max_tokens, output)
