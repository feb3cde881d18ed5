"""Which prompts are prefilled next, and how much of them before the running rows get their next token."""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..core import Failure, Prompt, RowError, common_length
from .batch import Batch, Emit, Model, Row
from .kv import RowCache, can_batch, copied
from .prefix_cache import PrefixCache

_FIRST_CHUNK = 64  # tokens of a first chunk beside running rows, before this machine's speed is known
_GATHER = 4  # stalls for which prompts that come together are gathered while nobody is running
_SHARED = 64  # tokens that two waiting prompts begin with alike, for which the first one is made to stop there
_CLOSE = 16  # tokens before the end of a prompt; a snapshot that near is as good as one at the end


class PrefillJob:
    """Rows that share one prompt, and the cache that it is being prefilled into."""

    __slots__ = ("begun", "cache", "done", "rows", "stops")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.cache: RowCache | None = None
        self.done = 0
        self.begun = False
        self.stops: list[int] = []
        """Lengths at which the cache is kept, ascending."""

    @property
    def prompt(self) -> Prompt:
        return self.rows[0].request.prompt

    @property
    def tokens(self) -> list[int]:
        return self.prompt.tokens

    @property
    def left(self) -> int:
        """Tokens to prefill; the prompt's last one runs with the decode batch."""
        return len(self.tokens) - 1 - self.done


class Scheduler:
    """First come, first served, within `max_rows` running rows.

    Args:
        model: what prefills.
        batch: what prefilled rows join.
        emit: takes a row's failure.
        max_rows: most rows that decode together.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        prefill_chunk: most prompt tokens per forward pass.
        prefixes: where prompts start from, and what keeps them.
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
        prefixes: PrefixCache | None = None,
    ) -> None:
        self._model, self._batch, self._emit, self._prefixes = model, batch, emit, prefixes
        self._max_rows, self._max_stall, self._prefill_chunk = max_rows, max_stall, prefill_chunk
        self._waiting: deque[PrefillJob] = deque()
        self._seconds_per_token = max_stall / _FIRST_CHUNK

    def __len__(self) -> int:
        """Rows that do not run yet."""
        return sum(len(job.rows) for job in self._waiting)

    def add(self, rows: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        jobs: dict[int, PrefillJob] = {}
        for row in rows:
            job = jobs.get(id(row.request.prompt))
            if job is None or len(job.rows) >= self._max_rows:
                job = jobs[id(row.request.prompt)] = PrefillJob([])
                job.rows.append(row)
                self._stop_where_it_parts(job)
                self._waiting.append(job)
            else:
                job.rows.append(row)

    def drop(self, gone: Callable[[Row], bool]) -> None:
        """Forget the waiting rows for which `gone` is true."""
        for job in self._waiting:
            job.rows = [row for row in job.rows if not gone(row)]
        self._waiting = deque(job for job in self._waiting if job.rows)

    def rows(self) -> Iterator[Row]:
        """All waiting rows."""
        for job in self._waiting:
            yield from job.rows

    def prefill(self) -> None:
        """Prefill for as long as the running rows may wait, at least one chunk; let finished rows join."""
        stall = self._max_stall if len(self._batch) else self._max_stall * _GATHER
        deadline = time.monotonic() + stall
        joining: list[tuple[Row, RowCache]] = []
        while self._waiting:
            job = self._waiting[0]
            try:
                if len(self._batch) + len(joining) + len(job.rows) > self._capacity(job):
                    break
                self._advance(job)
            except Exception as error:
                self._waiting.popleft()
                for row in job.rows:
                    self._emit(row, Failure(_row_error("prefilling this prompt failed", error)))
                continue
            if job.left <= 0:
                self._waiting.popleft()
                assert job.cache is not None
                joining += [(row, job.cache) for row in job.rows]
            if time.monotonic() + self._max_stall / 4 >= deadline:
                break
        if joining:
            self._join(joining)

    # -----------------------------------------------------------------------------------------------------------

    def _capacity(self, job: PrefillJob) -> int:
        if job.cache is None:
            job.cache = self._model.new_cache()
        if can_batch(job.cache):
            return self._max_rows
        # Rows that cannot share a batch run one at a time, the choices of one request included.
        while len(job.rows) > 1:
            self._waiting.insert(1, PrefillJob([job.rows.pop()]))
        return 1

    def _advance(self, job: PrefillJob) -> None:
        """Run one chunk of a prompt, sized to fit `max_stall` when rows are waiting for their next token."""
        if not job.begun:
            self._begin(job)
        if job.left <= 0:
            return
        assert job.cache is not None
        size = min(job.left, self._prefill_chunk)
        if job.stops:
            size = min(size, job.stops[0] - job.done)
        if len(self._batch):
            size = min(size, max(16, int(self._max_stall / self._seconds_per_token)))
        start = time.monotonic()
        # The last chunk of a prompt that has the engine to itself needs no waiting for: the next step's graph is built
        # meanwhile. Beside others it is waited for, so that a prompt that fails does so alone.
        wait = bool(len(self._batch)) or len(self._waiting) > 1 or size < job.left
        self._model.prefill(job.tokens[job.done : job.done + size], job.cache, wait=wait)
        if wait and size >= _FIRST_CHUNK // 2:  # shorter ones measure the overhead of a pass rather than the speed
            spent = (time.monotonic() - start) / size
            self._seconds_per_token += 0.5 * (spent - self._seconds_per_token)
        job.done += size
        if job.stops and job.done == job.stops[0] and self._prefixes is not None:
            stop = job.tokens[: job.stops.pop(0)]
            self._prefixes.keep(job.prompt.salt, stop, partial(copied, job.cache))

    def _begin(self, job: PrefillJob) -> None:
        """Start from what is known of the prompt, and say where on the way to keep it."""
        job.begun = True
        if self._prefixes is None:
            return
        found = self._prefixes.start(job.prompt)
        if found is not None:
            job.cache, job.done = found
        if job.prompt.cached_tokens is None:
            job.prompt.cached_tokens = job.done
        end = len(job.tokens) - 1
        stops = set() if self._prefixes.cuts_anywhere else {*job.prompt.boundaries, *job.stops}
        if not any(end - _CLOSE <= stop <= end for stop in stops):
            stops.add(end)
        job.stops = sorted(stop for stop in stops if job.done < stop <= end)

    def _stop_where_it_parts(self, job: PrefillJob) -> None:
        """Where rows cannot be cut, have the prompts before this one kept where this one can go on from."""
        if self._prefixes is None or self._prefixes.cuts_anywhere:
            return
        for other in reversed(self._waiting):
            if other.prompt.salt != job.prompt.salt or other.tokens[:_SHARED] != job.tokens[:_SHARED]:
                continue
            at = min(common_length(other.tokens, job.tokens), len(job.tokens) - 1, len(other.tokens) - 1)
            if at >= _SHARED and at > other.done and at not in other.stops:
                bisect.insort(other.stops, at)
            return

    def _join(self, joining: Sequence[tuple[Row, RowCache]]) -> None:
        try:
            self._batch.join(joining)
        except Exception as error:
            # The batch's cache may hold the rows in some layers only: nothing in it can go on.
            failure = _row_error("joining the batch failed", error)
            self._batch.fail(failure)
            for row, _ in joining:
                self._emit(row, Failure(failure))


def _row_error(what: str, cause: Exception) -> RowError:
    error = RowError(f"{what}: {cause!r}")
    error.__cause__ = cause
    return error
