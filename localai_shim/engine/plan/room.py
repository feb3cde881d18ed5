"""Room for rows: places in the batch, and memory for their caches and for what is kept beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ..decode.batch import Batch
from ..kv import can_batch
from ..memory import Memory
from ..ports import Model
from ..prefix.cache import PrefixCache
from ..prompts.features import Tower
from ..prompts.prefill import PrefillJob
from ..row import Row
from .queue import PromptQueue

log = logging.getLogger("localai_shim")

RESERVED_TOKENS = 2048  # of its answer that memory is reserved for when a row begins; longer ones may be preempted
FURTHER_TOKENS = 256  # that are reserved each time a row has outgrown that; a divisor of it


class Room:
    """Tells what fits. What is kept for later prompts shrinks to what rows leave.

    Args:
        model: whose caches they are.
        batch: the rows that run.
        queue: the prompts that do not run yet.
        max_rows: most rows that decode together.
        memory: the budget for rows; None: no limit is known.
        prefixes: the prefix cache.
        tower: holds features.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        queue: PromptQueue,
        tower: Tower,
        *,
        max_rows: int,
        memory: Memory | None = None,
        prefixes: PrefixCache | None = None,
    ) -> None:
        self._model, self._batch, self._queue, self._tower = model, batch, queue, tower
        self._max_rows, self.memory, self._prefixes = max_rows, memory, prefixes
        self._batches: bool | None = None
        self._steps_planned = 0
        """Steps for which there is memory for the rows that run."""

    def outgrown(self) -> Iterator[Row]:
        """Before a step, the rows that there will be no memory for, one by one; each has to leave the batch."""
        self._steps_planned -= 1
        if self.memory is None or self._steps_planned > 0:
            return
        try:
            while len(self._batch) > 1 and self.memory.batch(self._lengths()) > self.memory.budget:
                yield self.least_urgent()
            self._steps_planned = min((_reserved(row) - _length(row) for row in self._batch.rows), default=0)
            self._shrink_caches(self._lengths())
        except Exception:
            log.exception("planning the memory of running rows failed; they go on")
            self._steps_planned = FURTHER_TOKENS

    def least_urgent(self) -> Row:
        """Of the running rows, and of these the youngest."""
        return max(self._batch.rows, key=lambda row: (row.request.priority, row.arrival))

    def joined(self) -> None:
        """Rows have joined: what was planned for those that ran before does not hold."""
        self._steps_planned = 0

    def has_room(self, job: PrefillJob) -> bool:
        """True if a job's rows may begin. One that could not begin even if alone leaves some of its rows for later."""
        others = [row for other in (*self._queue.begun, *self._queue.joining) for row in other.rows]
        taken = len(self._batch) + len(others)
        while not self._fits(job, taken, others):
            if taken or len(job.rows) == 1:
                return False
            self._queue.split(job)
        return True

    def _fits(self, job: PrefillJob, taken: int, others: Sequence[Row]) -> bool:
        rows = taken + len(job.rows)
        if rows > (self._max_rows if self._can_batch() else 1):
            return False
        if self.memory is None:
            return True
        lengths = [*self._lengths(), *map(_reserved, others), *map(_reserved, job.rows)]
        jobs = (*self._queue.begun, *self._queue.joining, job)
        prefilling = sum(self.memory.row(len(other.tokens), other.first_pass) for other in jobs)
        if rows == 1:  # it decodes in the cache that it was prefilled in
            prefilling = max(0, prefilling - self.memory.batch(lengths))
        if any(other.prompt.media for other in jobs):
            prefilling += self._tower.bytes_for(jobs)
        if rows > 1 and self.memory.batch(lengths) + prefilling > self.memory.budget:
            return False
        self._shrink_caches(lengths, prefilling)
        return True

    def _can_batch(self) -> bool:
        if self._batches is None:
            try:
                self._batches = can_batch(self._model.new_cache())
            except Exception:
                return True  # the next request fails with the reason
        return self._batches

    def _lengths(self) -> list[int]:
        return [_reserved(row) for row in self._batch.rows]

    def _shrink_caches(self, lengths: Sequence[int], prefilling: int = 0) -> None:
        if self.memory is None:
            return
        features = self._tower.features
        spare = self.memory.budget - self.memory.batch(lengths) - prefilling
        if features.bytes:
            self._tower.limit(spare)
            spare -= features.bytes - features.pinned_bytes
        if self._prefixes is not None:
            self._prefixes.limit(spare)


def _length(row: Row) -> int:
    return len(row.prompt_tokens) + row.generated


def _reserved(row: Row) -> int:
    """Tokens that memory is reserved for: a row's prompt and its answer, as far as that may be long."""
    output = max(RESERVED_TOKENS, (row.generated // FURTHER_TOKENS + 1) * FURTHER_TOKENS)
    return len(row.prompt_tokens) + min(row.max_tokens, output)
