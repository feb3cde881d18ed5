"""Which prompts are prefilled next, and how many of their tokens before the running rows get their next one."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from ...types import Failure
from ..costs.pace import Pace
from ..decode.batch import Batch
from ..decode.joining import join
from ..kv import can_batch
from ..memory import Memory
from ..meter import Meter
from ..ports import MediaSpan, Model
from ..prefix.cache import PrefixCache
from ..prompts.features import FeatureCache, Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Emit, Row, row_error
from .waiting import Waiting, by_age, by_length, by_urgency

log = logging.getLogger("localai_shim")

MIN_CHUNK_TOKENS = 16  # however slow the machine is
GATHER_STALLS = 4  # stalls for which prompts that come together are gathered while no row is running
OLDEST_EVERY = 8  # one choice of so many is for the prompt that has waited longest, however urgent the others are
RESERVED_TOKENS = 2048  # of its answer that memory is reserved for when a row begins; longer ones may be preempted
FURTHER_TOKENS = 256  # that are reserved each time a row has outgrown that; a divisor of it


class Scheduler:
    """Shares the time for prefill between long and short prompts, within `max_rows` rows and the memory for them.

    Half of the choices are for the prompt that came first and half for the shortest, so that a long one delays short
    ones by little, and any number of short ones a long one by half. More urgent ones go first, except that one choice
    in eight is for the one that has waited longest.

    A row begins when there is memory for its whole prompt and for its answer, up to 2,048 tokens of that. When rows
    outgrow this and memory runs out, the least urgent and youngest ones are preempted: they go back into the queue with
    their output tokens, and go on later with the same result. So are rows that a more urgent prompt needs the place of.
    An error in a prompt's prefill is its own, one in choosing that of all that wait.

    Args:
        model: what prefills.
        batch: what prefilled rows join.
        emit: takes a row's failure.
        max_rows: most rows that decode together.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        ends_prompts: the model can give the logits of prompts' last tokens, and gives the right ones.
        prefill_chunk: most prompt tokens per forward pass.
        meter: what counts.
        prefixes: what prompts start from, and are inserted into.
        memory: the budget for rows; None: no limit is known.
        features: what keeps what the model's tower makes; None: it is kept while prompts need it.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        emit: Emit,
        *,
        max_rows: int,
        max_stall: float,
        prefill_chunk: int,
        meter: Meter,
        prefixes: PrefixCache | None = None,
        memory: Memory | None = None,
        features: FeatureCache | None = None,
        ends_prompts: bool = False,
    ) -> None:
        self._model, self._batch, self._emit, self._prefixes = model, batch, emit, prefixes
        self._max_rows, self._max_stall, self._prefill_chunk = max_rows, max_stall, prefill_chunk
        self._memory, self._meter = memory, meter
        self._tower = Tower(model, features or FeatureCache(0))
        self._item_ran = False  # since the running rows got their last tokens
        self._prefiller = Prefiller(model, meter, prefixes, batch.wait, ends_prompts)
        self._waiting = Waiting()
        self._begun: list[PrefillJob] = []
        self._jobs: dict[Row, PrefillJob] = {}
        self._last_alike: dict[tuple[str | None, tuple[int, ...]], PrefillJob] = {}
        self._arrivals = self._turn = 0
        self._overtaken = 0  # choices since the one that waits longest was last chosen
        self._blocked = False  # no prompt could be run the last time
        self._batches: bool | None = None
        self._joining: list[PrefillJob] = []
        self._pace, self._scoring_pace = Pace(max_stall), Pace(max_stall)
        self._steps_planned = 0

    def __len__(self) -> int:
        """Number of rows that do not run yet."""
        return len(self._jobs)

    @property
    def will_prefill(self) -> bool:
        """True if `prefill` probably has something to do: there are prompts, and one could be run the last time."""
        return bool(self._jobs) and not self._blocked

    @property
    def priority(self) -> int | None:
        """Of the most urgent prompts that wait; None: there are none."""
        first = self._waiting.first()
        jobs = self._begun if first is None else [*self._begun, first]
        return min((job.priority for job in jobs), default=None)

    def add(self, rows: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self._blocked = False
        self._batch.insert_prompts()  # for these to find
        jobs: dict[int, PrefillJob] = {}
        for row in rows:
            job = jobs.get(id(prompt := row.request.prompt))
            if job is not None and len(job.rows) < self._max_rows:
                job.rows.append(row)
                continue
            if job is not None:
                self._queue(job)
            jobs[id(prompt)] = PrefillJob([row], prompt, self._arrivals)
            self._arrivals += 1
        for job in jobs.values():
            self._queue(job)

    def drop(self, gone: Collection[Row]) -> None:
        """Drop waiting rows; no event is sent."""
        for row in gone:
            if (job := self._jobs.pop(row, None)) is not None:
                job.rows.remove(row)
                if not job.rows:
                    self._finish(job)

    def fail(self, error: BaseException) -> None:
        """End every row that does not run yet with an error, and start afresh."""
        failure = Failure(row_error("scheduling prompts failed", error))
        jobs = dict.fromkeys([*self._jobs.values(), *self._joining])
        self._waiting, self._begun, self._jobs, self._last_alike, self._joining = Waiting(), [], {}, {}, []
        for job in jobs:
            for row in job.rows:
                self._emit(row, failure)
            self._tower.release(job)

    def prefill(self) -> None:
        """Prefill for as long as the running rows may wait, at least one chunk; join the rows that are done."""
        try:
            self._prefill()
        except BaseException as error:
            log.exception("scheduling prompts failed; those that wait fail, the engine goes on")
            self.fail(error)

    def _prefill(self) -> None:
        start = time.monotonic()
        beside, idle = bool(len(self._batch)), True
        deadline = start + self._max_stall * (1 if beside else GATHER_STALLS)
        self._item_ran = False
        while (job := self._choose()) is not None:
            idle = False
            try:
                if not self._advance(job, deadline - time.monotonic() if beside else None):
                    break
            except BaseException as error:
                self._fail(job, error)
            self._release()
            if not self._pace.is_enough(deadline - time.monotonic()):
                break
        if self._joining:
            self._join()
        self._blocked = idle
        if beside and not idle:
            self._meter.stalled(time.monotonic() - start)

    def make_room(self) -> None:
        """Before a step: preempt the rows that there will be no memory for, the least urgent and youngest first."""
        self._steps_planned -= 1
        if self._memory is None or self._steps_planned > 0:
            return
        try:
            while len(self._batch) > 1 and self._memory.batch(self._lengths()) > self._memory.budget:
                self._preempt(self._least_urgent())
            self._steps_planned = min((_reserved(row) - _length(row) for row in self._batch.rows), default=0)
            self._shrink_prefixes(self._lengths())
        except BaseException:
            log.exception("planning the memory of running rows failed; they go on")
            self._steps_planned = FURTHER_TOKENS

    def _least_urgent(self) -> Row:
        """Of the running rows, and of these the youngest."""
        return max(self._batch.rows, key=lambda row: (row.request.priority, row.arrival))

    def _preempt(self, row: Row) -> None:
        if self._batch.take(row):
            self._meter.preempted += 1
            self._queue(PrefillJob([row], row.request.prompt, row.arrival, row.output_tokens))

    def _make_way(self) -> None:
        """Preempt rows for a prompt that is more urgent than they, if there is no room for it otherwise."""
        urgent = self._waiting.first()
        while urgent is not None and len(self._batch):
            row = self._least_urgent()
            if row.request.priority <= urgent.priority or self._has_room(urgent):
                return
            self._preempt(row)

    # -- what waits ---------------------------------------------------------------------------------------------

    def _queue(self, job: PrefillJob) -> None:
        """Queue a job, which fails if that does; one that shares a prefix with another becomes a dependent of that."""
        for row in job.rows:
            row.arrival = job.arrival
            self._jobs[row] = job
        try:
            self._place(job)
        except BaseException as error:
            self._fail(job, error, "queueing this prompt failed")

    def _place(self, job: PrefillJob) -> None:
        self._prefiller.note_first_pass(job)
        key = job.opening
        if key is not None:
            other = self._last_alike.get(key)
            if other is not None and self._prefiller.depends(job, other):
                return
            self._last_alike[key] = job
        self._prefiller.estimate(job)
        self._waiting.add(job)

    def _release(self) -> None:
        """Take note of what has been prefilled: rows that are done will join, and dependents are queued."""
        for job in [job for job in self._begun if job.begun]:
            if job.left <= 0:
                self._joining.append(job)
                self._finish(job)
            elif job.dependents:
                ready = [other for at, other in job.dependents if at <= job.done]
                job.dependents = [(at, other) for at, other in job.dependents if at > job.done]
                self._requeue(ready)

    def _finish(self, job: PrefillJob) -> None:
        """Remove a job, for whatever reason, and queue its dependents."""
        self._waiting.discard(job)
        if job in self._begun:
            self._begun.remove(job)
        if job.features:
            self._tower.release(job)
        if (key := job.opening) is not None and self._last_alike.get(key) is job:
            del self._last_alike[key]
        dependents, job.dependents = [other for _, other in job.dependents], []
        self._requeue(dependents)

    def _requeue(self, jobs: Sequence[PrefillJob]) -> None:
        jobs = [job for job in jobs if job.rows]  # some may have been dropped meanwhile
        for job in jobs[: self._max_rows]:
            self._queue(job)
        for job in jobs[self._max_rows :]:  # thousands would take as long as many steps: they depend on the last one
            jobs[self._max_rows - 1].dependents.append((0, job))

    def _choose(self) -> PrefillJob | None:
        """The job whose prompt is run next, if one can be."""
        self._make_way()
        oldest = self._waiting.oldest()
        if oldest is not None and not self._has_room(oldest):
            oldest = None
        if oldest is None and len(self._begun) < 2:  # nothing to choose, and no turn
            return self._begun[0] if self._begun else None
        self._turn += 1
        fresh: PrefillJob | None
        if self._turn % OLDEST_EVERY == 0:
            fresh, key = oldest, by_age
        elif self._turn % 2:
            fresh, key = self._waiting.first(), by_urgency
        else:
            fresh, key = self._waiting.shortest(), by_length
        # None overtakes the one that has waited longest while there is no memory for it: it would never begin. Nor do
        # more than a few while there is: its own turns may all come when there is none.
        due = oldest is None or fresh is None or self._overtaken >= OLDEST_EVERY - 1
        if due or (fresh is not oldest and fresh is not None and not self._has_room(fresh)):
            fresh = oldest
        job = min(self._begun if fresh is None else [*self._begun, fresh], key=key)
        if job is fresh:
            self._overtaken = 0 if job is oldest else self._overtaken + 1
            self._take(job)
        return job

    def _take(self, job: PrefillJob) -> None:
        self._waiting.discard(job)
        self._begun.append(job)

    def _has_room(self, job: PrefillJob) -> bool:
        """True if a job's rows may begin. One that could not begin even if alone leaves some of its rows for later."""
        others = [row for other in (*self._begun, *self._joining) for row in other.rows]
        taken = len(self._batch) + len(others)
        while not self._fits(job, taken, others):
            if taken or len(job.rows) == 1:
                return False
            self._split(job)
        return True

    def _fits(self, job: PrefillJob, taken: int, others: Sequence[Row]) -> bool:
        rows = taken + len(job.rows)
        if rows > (self._max_rows if self._can_batch() else 1):
            return False
        if self._memory is None:
            return True
        lengths = [*self._lengths(), *map(_reserved, others), *map(_reserved, job.rows)]
        jobs = (*self._begun, *self._joining, job)
        prefilling = sum(self._memory.row(len(other.tokens), other.first_pass) for other in jobs)
        if rows == 1:  # it decodes in the cache that it was prefilled in
            prefilling = max(0, prefilling - self._memory.batch(lengths))
        if any(other.prompt.media for other in jobs):
            prefilling += self._tower.bytes_for(jobs)
        if rows > 1 and self._memory.batch(lengths) + prefilling > self._memory.budget:
            return False
        self._shrink_prefixes(lengths, prefilling)
        return True

    def _split(self, job: PrefillJob) -> None:
        """Move the last row into a job of its own, a dependent of this one."""
        row = job.rows.pop()
        other = self._jobs[row] = PrefillJob([row], job.prompt, job.arrival)
        job.dependents.insert(0, (len(job.tokens) - 1, other))

    def _can_batch(self) -> bool:
        if self._batches is None:
            try:
                self._batches = can_batch(self._model.new_cache())
            except Exception:
                return True  # the next request fails with the reason
        return self._batches

    def _lengths(self) -> list[int]:
        return [_reserved(row) for row in self._batch.rows]

    def _shrink_prefixes(self, lengths: Sequence[int], prefilling: int = 0) -> None:
        if self._memory is None:
            return
        features = self._tower.features
        spare = self._memory.budget - self._memory.batch(lengths) - prefilling
        if features.bytes:
            self._tower.limit(spare)
            spare -= features.bytes - features.pinned_bytes
        if self._prefixes is not None:
            self._prefixes.limit(spare)

    # -- prefill ------------------------------------------------------------------------------------------------

    def _advance(self, job: PrefillJob, left: float | None) -> bool:
        """Run one chunk of a prompt, sized to take the seconds that are `left`, or one item that it needs before.

        Args:
            left: None: no row waits for a token.

        Returns:
            False: nothing was run; the prompt needs an item, and running rows shall have a token between two.
        """
        pace = self._pace if job.scores is None else self._scoring_pace
        most = self._prefiller.chunk_limit(job, self._prefill_chunk)
        if left is not None:
            most = min(most, max(MIN_CHUNK_TOKENS, pace.chunk(left)))
        self._prefiller.begin(job)
        if job.prompt.media and (item := self._tower.pending(job)) is not None:
            if self._item_ran and left is not None:
                return False
            self._run_item(job, item)
            return True
        if job.left <= 0:
            return True
        # The last chunk of a prompt that has the engine to itself is not waited for: the next step's graph is built
        # meanwhile. Beside others it is, so that a prompt that fails does so alone.
        last = len(self._jobs) == len(job.rows) and not self._joining
        together = self._gather(job, most)
        if len(together) > 1:
            size, seconds = self._prefiller.run_together(together, most, first=left is None)
        else:
            wait = not (last and left is None)
            size, seconds = self._prefiller.run(job, most, wait=wait, last=last, first=left is None)
        if seconds is not None:
            pace.note(size, seconds, job.done)
        return True

    def _run_item(self, job: PrefillJob, item: MediaSpan) -> None:
        """Run an item through the tower; where that fails, all prompts fail that wait for it."""
        self._item_ran = True
        try:
            self._tower.run(job, item)
        except BaseException as error:
            digest = item.media.digest
            for other in [other for other in dict.fromkeys(self._jobs.values()) if self._needs(other, digest)]:
                self._fail(other, error, f"running this prompt's {item.media.kind} through the model failed")

    def _needs(self, job: PrefillJob, digest: int) -> bool:
        """True if a job still needs the features of an item."""
        if digest in job.features or all(span.media.digest != digest for span in job.prompt.media):
            return False
        self._prefiller.estimate(job)
        return any(span.media.digest == digest for span in job.spans())

    def _gather(self, job: PrefillJob, most: int) -> list[PrefillJob]:
        """The jobs to run in one pass: a short prompt runs with others that are as short."""
        prefiller, together = self._prefiller, [job]
        if not prefiller.is_short(job, most):
            return together
        while (other := self._waiting.shortest()) is not None:
            oldest = self._waiting.oldest()
            fits = prefiller.is_short(other, most) and prefiller.worth_padding(together, other.left, most)
            if (
                not (fits or other.left <= 0)
                or (other.scores is None) != (job.scores is None)
                or oldest is None
                or not self._has_room(oldest)
                or not self._has_room(other)
            ):
                break
            self._take(other)
            try:
                prefiller.begin(other)
            except BaseException as error:
                self._fail(other, error)
                continue
            if other.done == job.done:
                together.append(other)
        return prefiller.together(job, self._begun, most)

    def _fail(self, job: PrefillJob, error: BaseException, what: str = "prefilling this prompt failed") -> None:
        rows, job.rows = job.rows, []  # nothing is done for a dependent without rows
        for row in rows:
            self._jobs.pop(row, None)
            self._emit(row, Failure(row_error(what, error)))
        self._finish(job)

    def _join(self) -> None:
        now = time.monotonic()
        for job in self._joining:
            self._meter.prompt_tokens += 0 if job.resumed else len(job.rows) * len(job.tokens)
            for row in job.rows:
                row.state = job.state
                del self._jobs[row]
                row.request.timings.join(now, self._meter.steps)
        self._steps_planned = 0
        join(self._batch, self._joining, self._emit)
        self._joining = []


def _length(row: Row) -> int:
    return len(row.prompt_tokens) + row.generated


def _reserved(row: Row) -> int:
    """Tokens that memory is reserved for: a row's prompt and its answer, as far as that may be long."""
    output = max(RESERVED_TOKENS, (row.generated // FURTHER_TOKENS + 1) * FURTHER_TOKENS)
    return len(row.prompt_tokens) + min(row.max_tokens, output)
