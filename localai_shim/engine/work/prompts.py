"""Prompts that do not run yet: which wait, which have begun, which are done, and which depend on others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...types import Failure
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Emit, Row, row_error
from .queue import Queue


class PromptJobs:
    """Prompts from their arrival until their rows join the batch. A prompt that cannot be queued fails alone.

    Args:
        queue: those that have not begun, and depend on no other, wait in it.
        prefiller: knows what prompts share.
        tower: holds what they need of it.
        emit: takes a row's failure.
        max_rows: most rows that decode together.

    Attributes:
        queue: see above.
        begun: those that have, in the order in which they did.
        joining: those whose rows are to join the batch.
    """

    def __init__(self, queue: Queue, prefiller: Prefiller, tower: Tower, emit: Emit, max_rows: int) -> None:
        self.queue, self._prefiller, self._tower = queue, prefiller, tower
        self._emit, self._max_rows = emit, max_rows
        self._forget()

    def _forget(self) -> None:
        self.queue.clear(PrefillJob)
        self._jobs: dict[int, PrefillJob] = {}
        """By the numbers of their rows."""
        self.begun: list[PrefillJob] = []
        self.joining: list[PrefillJob] = []
        self._last_alike: dict[tuple[str | None, tuple[int, ...]], PrefillJob] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[PrefillJob]:
        """Every job, dependents among them."""
        return iter(dict.fromkeys(self._jobs.values()))

    def job(self, number: int) -> PrefillJob:
        """The one that has the row of this number."""
        return self._jobs[number]

    def add(self, rows: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        jobs: dict[int, PrefillJob] = {}
        for row in rows:
            row.number = next(self.queue.arrivals)
            job = jobs.get(id(prompt := row.request.prompt))
            if job is not None and len(job.rows) < self._max_rows:
                job.rows.append(row)
                continue
            if job is not None:
                self.put(job)
            jobs[id(prompt)] = PrefillJob([row], prompt, row.number)
        for job in jobs.values():
            self.put(job)

    def put(self, job: PrefillJob) -> None:
        """Queue a job, which fails if that does; one that shares a prefix with another becomes a dependent of that."""
        for row in job.rows:
            row.arrival = job.arrival
            self._jobs[row.number] = job
        try:
            self._place(job)
        except BaseException as error:
            self.fail(job, error, "queueing this prompt failed")

    def _place(self, job: PrefillJob) -> None:
        self._prefiller.note_first_pass(job)
        key = job.opening
        if key is not None:
            other = self._last_alike.get(key)
            if other is not None and self._prefiller.depends(job, other):
                return
            self._last_alike[key] = job
        self._prefiller.estimate(job)
        self.queue.add(job)

    def take(self, job: PrefillJob, rows: int) -> None:
        """Begin a job with this number of its rows; each other row gets its own job, which depends on this one."""
        while len(job.rows) > rows:
            row = job.rows.pop()
            other = self._jobs[row.number] = PrefillJob([row], job.prompt, job.arrival)
            job.dependents.insert(0, (len(job.tokens) - 1, other))
        self.queue.discard(job)
        self.begun.append(job)

    def release(self) -> None:
        """Take note of what has been prefilled: rows that are done will join, and dependents are queued."""
        for job in [job for job in self.begun if job.begun]:
            if job.left <= 0:
                self.joining.append(job)
                self._finish(job)
            elif job.dependents:
                ready = [other for at, other in job.dependents if at <= job.done]
                job.dependents = [(at, other) for at, other in job.dependents if at > job.done]
                self._requeue(ready)

    def joined(self) -> list[PrefillJob]:
        """Remove and return those whose rows join now."""
        joining, self.joining = self.joining, []
        for job in joining:
            for row in job.rows:
                del self._jobs[row.number]
        return joining

    def drop(self, gone: Collection[Row]) -> None:
        """Drop rows, which may not be here; no event is sent."""
        for row in gone:
            if (job := self._jobs.pop(row.number, None)) is not None:
                job.rows.remove(row)
                if not job.rows:
                    self._finish(job)

    def fail(self, job: PrefillJob, error: BaseException, what: str = "prefilling this prompt failed") -> None:
        """End a job's rows with an error; its dependents are queued."""
        rows, job.rows = job.rows, []  # nothing is done for a dependent without rows
        for row in rows:
            self._jobs.pop(row.number, None)
            self._emit(row, Failure(row_error(what, error)))
        self._finish(job)

    def fail_all(self, error: BaseException) -> None:
        """End every row with an error, and start afresh."""
        failure = Failure(row_error("scheduling prompts failed", error))
        jobs = dict.fromkeys([*self, *self.joining])
        self._forget()
        for job in jobs:
            rows, job.rows = job.rows, []
            for row in rows:
                self._emit(row, failure)
            self._tower.release(job)

    def restart(self) -> None:
        """Forget what has been prefilled of every job."""
        jobs = sorted(self, key=lambda job: job.arrival)
        self._forget()
        for job in jobs:
            self._tower.release(job)
            output = job.rows[0].output_tokens if job.resumed else None
            self.put(PrefillJob(job.rows, job.prompt, job.arrival, output))

    def _finish(self, job: PrefillJob) -> None:
        """Remove a job, for whatever reason, and queue its dependents."""
        self.queue.discard(job)
        if job in self.begun:
            self.begun.remove(job)
        if job.features:
            self._tower.release(job)
        if (key := job.opening) is not None and self._last_alike.get(key) is job:
            del self._last_alike[key]
        dependents, job.dependents = [other for _, other in job.dependents], []
        self._requeue(dependents)

    def _requeue(self, jobs: Sequence[PrefillJob]) -> None:
        jobs = [job for job in jobs if job.rows]  # some may have been dropped meanwhile
        for job in jobs[: self._max_rows]:
            self.put(job)
        for job in jobs[self._max_rows :]:  # thousands would take as long as many steps: they depend on the last one
            jobs[self._max_rows - 1].dependents.append((0, job))
