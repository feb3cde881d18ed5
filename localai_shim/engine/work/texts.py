"""Texts that wait for their vectors, and which of them run in one pass."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import EmbeddingRequest, Failure, Sink
from ..pieces import Texts
from ..ports import Reading
from ..row import row_error
from .lane import Parts, WaitingJobs

IDLE_STALLS = 4  # stalls that a pass may take while no row waits: what comes meanwhile waits for it
MIN_PASS_TOKENS = 32  # however slow the machine is
MIN_LENGTH_SHARE = 0.8  # of the longest text of a pass, which the others have at least: the rest is padding
LIKE_TOKENS = 8  # by which lengths may differ however short they are

Vectors: TypeAlias = npt.NDArray[np.float32]


class EmbeddingJob:
    """One request, and the vectors so far.

    Args:
        request: what is asked for.
        sink: takes its one event.
        index: its place in its submission.
    """

    def __init__(self, request: EmbeddingRequest, sink: Sink, index: int) -> None:
        self.request, self.sink, self.index = request, sink, index
        self.number = self.arrival = 0
        """Its name in plans, from 1: smaller for those that came earlier."""
        self.priority = request.priority
        self.form = (request.task, request.skip, request.adapter)
        """Texts of one form may share a pass."""
        self.restart()

    def restart(self) -> None:
        """Make all texts wait, also those that have a vector."""
        self.waiting = sorted((len(text), i) for i, text in enumerate(self.request.texts))
        """(length, place) of the texts that no pass has, the shortest first."""
        self.waiting_tokens = sum(length for length, _ in self.waiting)
        self.vectors: Vectors | None = None
        self.left = len(self.request.texts)
        """Texts that have no vector yet."""
        self.reading: tuple[int, Reading] | None = None
        """The place of a long text that is read in pieces, and how far that is."""

    def take(self, place: int) -> None:
        """Remove a text from those that wait, unless it was removed before."""
        key = len(self.request.texts[place]), place
        at = bisect.bisect_left(self.waiting, key)
        if self.waiting[at : at + 1] == [key]:
            del self.waiting[at]
            self.waiting_tokens -= key[0]

    @property
    def length(self) -> tuple[int]:
        """Tokens of the texts that wait."""
        return (self.waiting_tokens + (0 if self.reading is None else self.reading[1].left),)


Text: TypeAlias = tuple[EmbeddingJob, int]
"""A request, and the place of one of its texts."""


class TextJobs(WaitingJobs[EmbeddingJob]):
    """Requests for vectors. Texts of similar lengths share a pass, of at most `max_stall` seconds while rows run.

    The queue chooses whose text begins a pass. A pass takes texts of other requests if this one has no more of a
    similar length. A text that is longer than a pass is read in pieces, if the model can do that: one piece instead of
    a pass, and one such text at a time.

    Args:
        parts: those of the engine. Requests with texts that no pass has wait in the queue.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, EmbeddingJob, "choosing texts")
        self._setup = setup = parts.setup
        self._pace = setup.costs.pace("texts", setup.max_stall)
        self._idle_pace = setup.costs.pace("texts alone", IDLE_STALLS * setup.max_stall)
        self._alone: list[Text] = []
        """Texts whose pass has failed. Each runs separately, so that only the text that causes the error fails."""

    def enter(self, work: EmbeddingRequest, sink: Sink, index: int) -> EmbeddingJob:
        """Make the job of a request.

        Raises:
            ValueError: it has no text, or one without a token.
        """
        if not work.texts or not all(work.texts):
            raise ValueError("there is no text, or one that has no token")
        return EmbeddingJob(work, sink, index)

    def restart(self) -> None:
        """Make every request begin again: the model will change, and vectors of two models are not alike."""
        self._alone = []
        for job in self._jobs.values():
            job.restart()
            self.requeue(job)

    # -- the next pass ------------------------------------------------------------------------------------------

    def next_pass(self, *, beside: bool) -> Texts:
        """The texts of the next pass, as many as a pass may take. `beside` is true while rows are running."""
        short = beside or self._share.has_neighbors
        pace = self._pace if short else self._idle_pace
        most = max(1, int(self._setup.text_tokens * self._setup.chunks.share))
        most = min(max(MIN_PASS_TOKENS, pace.chunk()), most)
        texts = self._choose(most, fitting=short)
        return Texts(tuple((job.number, place) for job, place in texts), most, beside)

    @property
    def long(self) -> EmbeddingJob | None:
        """The request of which a text is read in pieces."""
        return next((job for job in self._jobs.values() if job.reading is not None), None)

    def _choose(self, most: int, *, fitting: bool) -> list[Text]:
        """The texts of the next pass: at least one, and beyond it as many as fit into a number of tokens.

        Args:
            most: tokens of a pass.
            fitting: the first one fits as well, if one of its request's does.
        """
        if self._alone:
            return self._alone[-1:]
        first, long = self._first(most), self.long
        if first.reading is not None:
            return [(first, first.reading[0])]
        fitting = fitting or long is not None
        at = bisect.bisect_right(first.waiting, (most, len(first.request.texts))) if fitting else len(first.waiting)
        length, place = first.waiting[at := max(0, at - 1)]
        texts: list[Text] = [(first, place)]
        shortest = min(MIN_LENGTH_SHARE * length, length - LIKE_TOKENS)
        rows = max(1, most // length)
        spare = self._pace.pass_tokens if _on_gpu() else 0  # padding that costs less than one more pass
        for job in (first, *(job for job in self._jobs.values() if job is not first and job.form == first.form)):
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

    def _first(self, most: int) -> EmbeddingJob:
        """The request whose longest text is run next. While a text is read in pieces, no other one begins that is
        longer than a pass."""
        order, long = self._queue.turn(EmbeddingJob), self.long
        first = self._queue.first(
            EmbeddingJob, order, lambda job: long is None or (job is not long and job.waiting[0][0] <= most)
        )
        jobs = [job for job in (long, first) if job is not None]
        return min(jobs, key=order)

    # -- what came of it ----------------------------------------------------------------------------------------

    def take(self, piece: Texts) -> list[Text]:
        """The texts of a pass, which wait no longer; a text that is read in pieces has not since its first one."""
        texts = [(self._jobs[number], place) for number, place in piece.texts]
        self._alone = [text for text in self._alone if text not in texts]
        for job, place in texts:
            job.take(place)
        for job in dict.fromkeys(job for job, _ in texts):
            self.requeue(job)
        return texts

    def note_tokens(self, tokens: int, seconds: float, end: int) -> None:
        """Measured: a pass of these tokens, up to the `end` of a text that is read in pieces, took these seconds."""
        for pace in (self._pace, self._idle_pace):
            pace.note(tokens, seconds, end)

    def failed(self, texts: Sequence[Text], error: BaseException) -> None:
        """A pass failed: each of its texts is run by itself, and then fails alone."""
        if len(texts) > 1:
            self._alone += texts
            return
        [(job, i)] = texts
        self.finish(job)
        self._emit(job, Failure(row_error(f"{job.request.what} {i} failed", error)))

    def finish(self, job: EmbeddingJob) -> None:
        """Remove a request, which may be gone."""
        super().finish(job)
        job.reading = None
        self._alone = [text for text in self._alone if text[0] is not job]

    def requeue(self, job: EmbeddingJob) -> None:
        """Queue a request again after its length has changed, if some of its texts still wait."""
        self._queue.discard(job)
        if job.waiting:
            self._queue.add(job)


@cache
def _on_gpu() -> bool:
    """True if launching a pass may take longer than computing it."""
    return bool(mx.default_device() == mx.Device(mx.gpu))
