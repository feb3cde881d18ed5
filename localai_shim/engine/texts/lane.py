"""Texts that wait for their vectors: which run in one pass, and how much of the time is theirs beside running rows."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import EmbeddingRequest, Event, Failure, Sink, Token
from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel, Stopwatch
from ..costs.meter import Meter
from ..ports import Encoder, Reading
from ..row import row_error
from ..step_plan import Texts

log = logging.getLogger("localai_shim")

PASS_TOKENS = 16_384  # of a pass of several texts, padding included: GPUs run small models no slower for more
IDLE_STALLS = 4  # stalls that a pass may take while no row waits: what comes meanwhile waits for it
MIN_PASS_TOKENS = 32  # however slow the machine is
MIN_LENGTH_SHARE = 0.8  # of the longest text of a pass, which the others have at least: the rest is padding
LIKE_TOKENS = 8  # by which lengths may differ however short they are
SHARE = 1 / 8  # of the time, that texts of all engines have while rows run; what is around a pass takes a little more
OLDEST_EVERY = 8  # one choice of so many is for the request that has waited longest, however urgent the others are

MAX_PASS_SECONDS = 5.0  # that rows are owed for: in a longer one the process was stopped, or the clock jumped
MAX_PAUSE_SECONDS = 0.005  # after which an engine that leaves the time to others looks into its inbox

decoding: set[object] = set()
"""Engines of this process that have rows; each adds and removes itself."""
waiting: set[object] = set()
"""Those that have texts."""


class _Turns:
    """Time that engines of a process with rows leave to texts: the time of the next pass, whoever runs it."""

    resumes = 0.0
    """When the next pass may come; in the time of `CostModel.now`."""
    last: object = None
    """The engine that ran the last one: another one that has texts goes first."""


_turns = _Turns()

_DONE = Token(0, finish_reason="stop")

Vectors = npt.NDArray[np.float32]


class EmbeddingJob:
    """One request, and the vectors so far.

    Args:
        request: what is asked for.
        sink: takes its one event.
        index: its place in its submission.
    """

    def __init__(self, request: EmbeddingRequest, sink: Sink, index: int) -> None:
        self.request, self.sink, self.index = request, sink, index
        self.number = 0
        """Its name in plans, from 1: smaller for those that came earlier."""
        self.vectors: Vectors | None
        self.waiting: list[tuple[int, int]]
        """(length, place) of the texts that no pass has, the shortest first."""
        self.waiting_tokens: int
        """Those of these texts."""
        self.kind = (request.ranks, request.skip, request.adapter)
        """Those of one kind may share a pass."""
        self.left: int
        """Texts that have no vector yet."""
        self.reading: tuple[int, Reading] | None
        """The place of a long text that is read in pieces, and how far that is."""
        self.restart()

    def restart(self) -> None:
        """Make all texts wait, also those that have a vector."""
        self.waiting = sorted((len(text), i) for i, text in enumerate(self.request.texts))
        self.waiting_tokens = sum(length for length, _ in self.waiting)
        self.vectors, self.left, self.reading = None, len(self.request.texts), None

    def take(self, place: int) -> None:
        """Remove a text from those that wait, unless it was removed before."""
        key = len(self.request.texts[place]), place
        at = bisect.bisect_left(self.waiting, key)
        if self.waiting[at : at + 1] == [key]:
            del self.waiting[at]
            self.waiting_tokens -= key[0]

    @property
    def tokens(self) -> int:
        """Of the texts that wait."""
        return self.waiting_tokens + (0 if self.reading is None else self.reading[1].left)


Text = tuple[EmbeddingJob, int]
"""A request, and the place of one of its texts."""
Emit = Callable[[EmbeddingJob, Event], None]


class EmbeddingLane:
    """Runs texts in passes of similar lengths, for at most `max_stall` seconds between two tokens of running rows.

    While rows run, in this engine or in others of the process, texts of all engines have an eighth of the time: what a
    pass has taken, rows get seven times of before the next one. Engines that have texts take turns.
    Half of the passes begin with a text of the request that came first, half with one of the shortest request, so that
    a query need not wait for a library; more urgent requests go first, but for one choice in eight. A pass takes texts
    of others where the request has no more of a like length. A text that is longer than a pass is read in pieces, a
    piece in the place of a pass, where the model can do that; one such text at a time.

    Args:
        model: makes the vectors.
        emit: takes a request's event.
        wait_for_step: returns when the decode step in flight has run.
        engine: the one that runs them.
        most_tokens: most tokens of a pass of several texts, padding included.
        chunks: limits of passes, and of the pieces of long texts.
        max_stall: seconds that a pass may take beside running rows.
        meter: what counts.
        costs: what passes take.
    """

    def __init__(
        self,
        model: Encoder,
        emit: Emit,
        wait_for_step: Callable[[], None],
        *,
        engine: object,
        most_tokens: int,
        chunks: ChunkLimit,
        max_stall: float,
        meter: Meter,
        costs: CostModel,
    ) -> None:
        self._model, self._emit, self._wait_for_step, self._meter = model, emit, wait_for_step, meter
        self._engine, self._most_tokens, self._chunks = engine, most_tokens, chunks
        self._costs = costs
        self._pace = costs.pace("texts", max_stall)
        self._idle_pace = costs.pace("texts alone", IDLE_STALLS * max_stall)
        self._jobs: dict[int, EmbeddingJob] = {}
        """By number."""
        self._alone: list[Text] = []
        """Those whose pass has failed: each is run by itself, and only the one that is to blame fails."""
        self._arrivals = self._turn = self._choices = 0
        self._owed = 0.0
        """Seconds that running rows get before the next pass."""

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._jobs)

    def enter(self, work: EmbeddingRequest, sink: Sink, index: int) -> EmbeddingJob:
        """Make the job of a request.

        Raises:
            ValueError: it has no text, or one without a token.
        """
        if not work.texts or not all(work.texts):
            raise ValueError("there is no text, or one that has no token")
        return EmbeddingJob(work, sink, index)

    def add(self, entries: Sequence[EmbeddingJob]) -> None:
        """Queue requests."""
        for job in entries:
            self._arrivals += 1
            job.number = self._arrivals
            self._jobs[job.number] = job
            waiting.add(self._engine)

    def drop(self, gone: Collection[EmbeddingJob]) -> None:
        """Drop requests, which may be gone; no event is sent. Where that fails, all others fail."""
        try:
            for job in gone:
                self._finish(job)
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End every request with an error."""
        failure = Failure(row_error("choosing texts failed", error))
        for job in [*self._jobs.values()]:
            self._finish(job)
            self._emit(job, failure)

    def restart(self) -> None:
        """Have every request begin again: the model is to change, and vectors of two models are not alike."""
        self._alone = []
        for job in self._jobs.values():
            job.restart()

    def stepped(self, seconds: float) -> None:
        """Running rows have had so much time."""
        self._owed = max(0.0, self._owed - seconds)

    def is_due(self, beside: bool, prompts: int | None) -> bool:
        """True if a pass comes next.

        Args:
            beside: rows are running.
            prompts: the priority of the prompts that wait; None: there are none.
        """
        if not self._jobs or (beside and self._owed > 0) or self.pause:
            return False
        self._turn += 1
        own = min(job.request.priority for job in self._jobs.values())
        if prompts is None or own == prompts:
            return prompts is None or self._turn % 2 == 0
        return (own < prompts) == (self._turn % OLDEST_EVERY != 0)

    @property
    def pause(self) -> float:
        """Seconds for which rows, or the texts of others, have the time that engines share: at most
        `MAX_PAUSE_SECONDS`."""
        others = len(waiting) > (self._engine in waiting)
        if not (self._has_neighbours or (others and decoding)):
            return 0.0
        resumes = _turns.resumes + (MAX_PAUSE_SECONDS if others and _turns.last is self._engine else 0)
        return min(MAX_PAUSE_SECONDS, max(0.0, resumes - self._costs.now()))

    @property
    def _has_neighbours(self) -> bool:
        """Rows of other engines run."""
        return len(decoding) > (self._engine in decoding)

    def note_rows(self, running: bool) -> None:
        """Have other engines know if rows of this one run."""
        (decoding.add if running else decoding.discard)(self._engine)

    def close(self) -> None:
        """The engine has neither rows nor texts any more."""
        decoding.discard(self._engine)
        waiting.discard(self._engine)

    def pieces(self, *, beside: bool) -> Iterator[Texts]:
        """Choose the next pass, sized for what a pass may take.

        Args:
            beside: rows are running.
        """
        short = beside or self._has_neighbours
        pace = self._pace if short else self._idle_pace
        most = max(1, int(self._most_tokens * self._chunks.share))
        most = min(max(MIN_PASS_TOKENS, pace.chunk()), most)
        texts = self._choose(most, fitting=short)
        yield Texts(tuple((job.number, place) for job, place in texts), most, beside)

    def run(self, piece: Texts) -> None:
        """Run a pass, and emit what is done. What fails with more than its texts fails all."""
        try:
            texts = [(self._jobs[number], place) for number, place in piece.texts]
            self._take(texts)
            self._wait_for_step()
            watch = self._costs.start()
            try:
                self._run(texts, piece.most, watch)
            finally:
                self._note_turn(watch.seconds, beside=piece.beside)
        except BaseException as error:
            log.exception("running texts failed; waiting requests fail, the engine continues")
            self.fail(error)

    def _note_turn(self, seconds: float, *, beside: bool) -> None:
        """Have rows get their share of the time, after a pass that took so long."""
        now, owed = self._costs.now(), min(seconds, MAX_PASS_SECONDS) * (1 / SHARE - 1)
        # Two may have begun at once: then rows get what both have taken.
        _turns.resumes, _turns.last = max(now, _turns.resumes if decoding else 0.0) + owed, self._engine
        if beside:
            self._owed = owed
            self._meter.stalled(seconds)

    # -----------------------------------------------------------------------------------------------------------

    def _run(self, texts: Sequence[Text], most: int, watch: Stopwatch) -> None:
        try:
            vectors, tokens, end = self._read_on(texts, most) or self._embed(texts)
            for each in (self._pace, self._idle_pace):
                each.note(tokens, watch.seconds, end)
            if vectors is not None:
                if not np.isfinite(vectors).all():
                    raise ValueError("the model computed numbers that are not finite")
                self._store(texts, vectors)
        except BaseException as error:
            self._failed(texts, error)
            return
        self._emit_done(texts)

    @property
    def _long(self) -> EmbeddingJob | None:
        """The request of which a text is read in pieces."""
        return next((job for job in self._jobs.values() if job.reading is not None), None)

    def _choose(self, most: int, *, fitting: bool) -> list[Text]:
        """The texts of the next pass: at least one, and beyond it as many as fit into so many tokens.

        Args:
            most: tokens of a pass.
            fitting: the first one fits as well, if one of its request's does.
        """
        if self._alone:
            return self._alone[-1:]
        first = self._first(most)
        if first.reading is not None:
            return [(first, first.reading[0])]
        fitting = fitting or self._long is not None
        at = bisect.bisect_right(first.waiting, (most, len(first.request.texts))) if fitting else len(first.waiting)
        length, place = first.waiting[at := max(0, at - 1)]
        texts: list[Text] = [(first, place)]
        shortest = min(MIN_LENGTH_SHARE * length, length - LIKE_TOKENS)
        rows = max(1, most // length)
        spare = self._pace.pass_tokens if _on_gpu() else 0  # padding that costs less than one more pass
        for job in (first, *(job for job in self._jobs.values() if job is not first and job.kind == first.kind)):
            if len(texts) >= rows:
                break
            start = end = at if job is first else bisect.bisect_right(job.waiting, (length, len(job.request.texts)))
            while start and len(texts) + end - start < rows:
                its = job.waiting[start - 1][0]
                if its < shortest and (spare := spare - (length - its)) < 0:
                    break
                start -= 1
            texts += [(job, place) for _, place in job.waiting[start:end]]
        return texts

    def _take(self, texts: Sequence[Text]) -> None:
        """These wait no longer; a text that is read in pieces has not since its first one."""
        self._alone = [text for text in self._alone if text not in texts]
        for job, place in texts:
            job.take(place)

    def _first(self, most: int) -> EmbeddingJob:
        """The request whose longest text is run next. Beside a text that is read in pieces, none begins that is longer
        than a pass."""
        self._choices += 1
        jobs = [job for job in self._jobs.values() if job.waiting]
        if (long := self._long) is not None:
            jobs = [long, *(job for job in jobs if job.waiting[0][0] <= most and job is not long)]
        if self._choices % OLDEST_EVERY == 0:
            return min(jobs, key=lambda job: job.number)
        if self._choices % 2:
            return min(jobs, key=lambda job: (job.request.priority, job.number))
        return min(jobs, key=lambda job: (job.request.priority, job.tokens, job.number))

    def _read_on(self, texts: Sequence[Text], most: int) -> tuple[Vectors | None, int, int] | None:
        """Read a piece of a text that is longer than a pass: its vector, where it ends, and the piece's tokens and end.

        None: these are no such text, or the model sees all of a text at once.
        """
        [(job, i), *others] = texts
        # One whose pass with others has failed comes by itself, and may be longer than this pass: it is not begun
        # beside another one that is read.
        if self._long is None and not others and len(job.request.texts[i]) > most:
            request = job.request
            reading = self._model.begin(request.texts[i], request.skip, ranks=request.ranks)
            if reading is not None:
                self._note_begun(texts)
                job.reading = i, reading
        if job.reading is None or job.reading[0] != i:
            return None
        reading = job.reading[1]
        before = reading.done
        vector = None
        with self._adapted(job.request):
            reading.run(self._chunks.bound(most, before))
            if not reading.left:
                vector = np.array(reading.result())
                job.reading = None
        return vector, reading.done - before, reading.done

    def _embed(self, texts: Sequence[Text]) -> tuple[Vectors, int, int]:
        """Run one pass: vectors, its tokens, and 0."""
        self._note_begun(texts)
        request, tokens = texts[0][0].request, [job.request.texts[i] for job, i in texts]
        with self._adapted(request):
            made = self._model.score(tokens) if request.ranks else self._model.encode(tokens, request.skip)
            mx.eval(made)
        return np.array(made), len(tokens) * max(map(len, tokens)), 0

    def _adapted(self, request: EmbeddingRequest) -> AbstractContextManager[None]:
        return nullcontext() if request.adapter is None else self._model.adapted([request.adapter])

    def _note_begun(self, texts: Sequence[Text]) -> None:
        for job, _ in texts:
            job.request.timings.begin()

    def _store(self, texts: Sequence[Text], vectors: Vectors) -> None:
        for (job, i), vector in zip(texts, vectors, strict=True):
            if job.vectors is None:
                job.vectors = np.empty((len(job.request.texts), vectors.shape[1]), np.float32)
            job.vectors[i] = vector
        self._meter.embedded_texts += len(texts)
        self._meter.embedded_tokens += sum(len(job.request.texts[i]) for job, i in texts)
        for job, _ in texts:  # all of them have a vector, or none counts as having one
            job.left -= 1

    def _emit_done(self, texts: Sequence[Text]) -> None:
        for job in dict.fromkeys(job for job, _ in texts):
            if not job.left:
                job.request.vectors = job.vectors
                self._finish(job)
                self._emit(job, _DONE)

    def _failed(self, texts: Sequence[Text], error: BaseException) -> None:
        if len(texts) > 1:
            self._alone += texts
            return
        [(job, i)] = texts
        self._finish(job)
        what = "scoring document" if job.request.ranks else "embedding text"
        self._emit(job, Failure(row_error(f"{what} {i} failed", error)))

    def _finish(self, job: EmbeddingJob) -> None:
        self._jobs.pop(job.number, None)
        if not self._jobs:
            waiting.discard(self._engine)
        job.reading = None
        self._alone = [text for text in self._alone if text[0] is not job]


@cache
def _on_gpu() -> bool:
    """True where launching a pass may take longer than computing it."""
    return bool(mx.default_device() == mx.Device(mx.gpu))
