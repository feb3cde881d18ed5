"""Runners of rows and of texts: they run the pieces that the scheduler names, and decide nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

import mlx.core as mx
import numpy as np

from ...types import EmbeddingRequest, Failure, Token
from ..decode.batch import Batch
from ..kv import RowCache
from ..kv.buckets import size_of
from ..pieces import Chunk, Collect, Decode, Deliver, Item, Join, Limit, Open, Piece, Preempt, Texts
from ..prompts.prefill import PrefillJob
from ..row import Emit, Row, row_error
from .lane import Parts
from .rows import TURN_TOKENS, Rows
from .texts import Text, TextJobs, Vectors

_DONE = Token(0, finish_reason="stop")


class RowRunner:
    """Runs decode steps, and prompts on their way into the batch.

    Args:
        rows: those of the engine.
        parts: what it runs on.
    """

    pieces = (Collect, Decode, Deliver, Preempt, Limit, Open, Item, Chunk, Join)

    def __init__(self, rows: Rows, parts: Parts) -> None:
        self._rows, self._setup, self._meter = rows, parts.setup, parts.meter
        self._emit, self._deliver = parts.emit, parts.deliver

    def run(self, piece: Piece) -> None:
        """Run a piece. An exception fails the work that the piece is for."""
        rows = self._rows
        match piece:
            case Collect():
                rows.batch.collect()
            case Decode():
                rows.batch.run(piece)
            case Deliver():
                self._deliver()
            case Preempt(number):
                rows.preempt(number)
            case Limit(spare):
                self._limit(rows, spare)
            case Open(number):
                self._open(rows, rows.prompts.job(number), piece)
            case Item(number, digest):
                self._run_item(rows, rows.prompts.job(number), digest)
            case Chunk(numbers):
                self._run_chunk(rows, [rows.prompts.job(number) for number in numbers], piece)
            case Join():
                self._join(rows)
        if isinstance(piece, (Open, Item, Chunk)):
            rows.prompts.release()

    def _limit(self, rows: Rows, spare: int) -> None:
        features = rows.tower.features
        if features.bytes:
            rows.tower.limit(spare)
            spare -= features.bytes - features.pinned_bytes
        if self._setup.prefixes is not None:
            self._setup.prefixes.limit(spare)

    def _open(self, rows: Rows, job: PrefillJob, piece: Open) -> None:
        rows.prompts.take(job, piece.rows)
        for row in job.rows if piece.turn else ():
            row.keeps_place = row.generated + TURN_TOKENS
        if piece.spare is not None:
            self._limit(rows, piece.spare)
        rows.prefiller.begin(job)
        rows.tower.pin(job)

    def _run_chunk(self, rows: Rows, jobs: list[PrefillJob], piece: Chunk) -> None:
        """Run one pass, and note what it took.

        The last chunk of a prompt that has the engine to itself is not waited for: the next step's graph is built
        meanwhile. If others wait it is, so that a prompt that fails does so alone.
        """
        job, first = jobs[0], not piece.beside
        rows.tower.pin(job)
        pace = self._setup.costs.pace("prompts" if job.scores is None else "scores", self._setup.max_stall)
        if len(jobs) > 1:
            size, seconds = rows.prefiller.run_together(jobs, piece.most, first=first)
        else:
            wait = not (piece.last and first)
            size, seconds = rows.prefiller.run(job, piece.most, wait=wait, last=piece.last, first=first)
        if seconds is not None:
            pace.note(size, seconds, job.done)

    def _run_item(self, rows: Rows, job: PrefillJob, digest: int) -> None:
        """Run an item through the tower; if that fails, all prompts fail that wait for it."""
        rows.tower.pin(job)
        item = next(span for span in job.spans() if span.media.digest == digest)
        try:
            rows.tower.run(job, item)
        except BaseException as error:
            what = f"running this prompt's {item.media.kind} through the model failed"
            for other in [other for other in rows.prompts if rows.needs(other, digest)]:
                rows.prompts.fail(other, error, what)

    def _join(self, rows: Rows) -> None:
        jobs = rows.prompts.joined()
        for job in jobs:
            self._meter.prompt_tokens += 0 if job.resumed else len(job.rows) * len(job.tokens)
            for row in job.rows:
                row.state = job.state
                row.request.timings.join(self._meter.steps)
        rows.room.joined()
        join(rows.batch, jobs, self._emit)
        if (speculation := self._setup.speculation) is not None:
            for job in jobs:
                speculation.joined(job.rows, job.states)


Joining = tuple[Row, RowCache, mx.array | None]
"""A row, its cache, and the logits of its next token where it has them."""


def join(batch: Batch, jobs: Sequence[PrefillJob], emit: Emit) -> None:
    """Add the rows of jobs to the batch. Those with logits come first, to a batch without rows: the others' joining
    samples them.
    """
    inserting = {row for job in jobs for row in job.rows if job.batch_inserts}
    every = [(row, job.cache, job.logits) for job in jobs for row in job.rows if job.cache is not None]
    for ended in (True, False):
        some: list[Joining] = [each for each in every if (each[2] is not None) is ended]
        while some:
            some = _join(batch, some, inserting, emit)


def _join(batch: Batch, joining: Sequence[Joining], inserting: Collection[Row], emit: Emit) -> list[Joining]:
    """Add rows together; returns those that may join without the ones that cannot, which have failed."""
    pairs = [(row, cache) for row, cache, _ in joining]
    logits = [each for *_, each in joining if each is not None]
    try:
        batch.join(pairs, [row for row, _ in pairs if row in inserting], logits)
    except BaseException as error:
        bad = {row: found for row, cache in pairs if (found := _unfit(row, cache)) is not None}
        bad = bad or dict.fromkeys((row for row, _ in pairs), error)
        for row, found in bad.items():
            emit(row, Failure(row_error("joining the batch failed", found)))
        return [each for each in joining if each[0] not in bad]
    return []


def _unfit(row: Row, cache: RowCache) -> BaseException | None:
    """Why a row cannot join; None: there is no reason that is its own."""
    try:
        _ = row.last_token, size_of(cache)
    except BaseException as error:
        return error
    return None


class TextRunner:
    """Runs passes of texts.

    Args:
        texts: the requests for vectors.
        parts: what it runs on.
    """

    pieces = (Texts,)

    def __init__(self, texts: TextJobs, parts: Parts) -> None:
        self._texts, self._model, self._setup = texts, parts.model, parts.setup
        self._meter, self._share, self._emit = parts.meter, parts.share, parts.emit

    def run(self, piece: Texts) -> None:
        """Run a pass, and emit the finished requests.

        An exception fails all requests, because more has failed than the pass's texts.
        """
        texts = self._texts.take(piece)
        watch = self._setup.costs.start()
        try:
            try:
                for job, _ in texts:
                    job.request.timings.begin()
                vectors, tokens, end = self._read_on(texts, piece.most) or self._embed(texts)
                self._texts.note_tokens(tokens, watch.seconds, end)
                if vectors is not None:
                    if not np.isfinite(vectors).all():
                        raise ValueError("the model computed numbers that are not finite")
                    self._store(texts, vectors)
            except BaseException as error:
                self._texts.failed(texts, error)
                return
            self._emit_done(texts)
        finally:
            self._share.note_pass(watch.seconds, beside=piece.beside)

    def _read_on(self, texts: Sequence[Text], most: int) -> tuple[Vectors | None, int, int] | None:
        """Read a piece of a text that is longer than a pass: its vector, where it ends, and the piece's tokens and end.

        None: these are no such text, or the model sees all of a text at once.
        """
        [(job, i), *others] = texts
        # One whose pass with others has failed comes by itself, and may be longer than this pass: it is not begun
        # beside another one that is read.
        if self._texts.long is None and not others and len(job.request.texts[i]) > most:
            request = job.request
            reading = self._model.heads[request.task].begin(request.texts[i], request.skip)
            if reading is not None:
                job.reading = i, reading
        if job.reading is None or job.reading[0] != i:
            return None
        reading = job.reading[1]
        before = reading.done
        vector = None
        with self._adapted(job.request):
            reading.run(self._setup.chunks.bound(most, before))
            if not reading.left:
                vector = np.array(reading.result())
                job.reading = None
                self._texts.requeue(job)
        return vector, reading.done - before, reading.done

    def _embed(self, texts: Sequence[Text]) -> tuple[Vectors, int, int]:
        """Run one pass: vectors, its tokens, and 0."""
        request, tokens = texts[0][0].request, [job.request.texts[i] for job, i in texts]
        with self._adapted(request):
            made = self._model.heads[request.task](tokens, request.skip)
            mx.eval(made)
        return np.array(made), len(tokens) * max(map(len, tokens)), 0

    def _adapted(self, request: EmbeddingRequest) -> AbstractContextManager[None]:
        return nullcontext() if request.adapter is None else self._model.adapted([request.adapter])

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
                self._texts.finish(job)
                self._emit(job, _DONE)
