"""The runner: it runs the pieces that the scheduler names, one after the other, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import mlx.core as mx
import numpy as np

from ...types import EmbeddingRequest, Token
from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel
from ..costs.meter import Meter
from ..decode.batch import Batch
from ..decode.joining import join
from ..pieces import Chunk, Collect, Decode, Deliver, Item, Join, Limit, Open, Piece, Preempt, Texts
from ..ports import Encoder, MediaSpan
from ..prefix.cache import PrefixCache
from ..prompts.features import Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Emit as EmitOfRow
from ..row import Row
from .prompts import PromptJobs
from .room import TURN_TOKENS, Room
from .texts import Emit, Text, TextJobs, Vectors

_DONE = Token(0, finish_reason="stop")


class RowRunner:
    """Runs decode steps, and prompts on their way into the batch.

    Args:
        batch: the rows that decode.
        prompts: those that do not run yet.
        prefiller: runs their chunks.
        tower: runs their images, videos, and sounds.
        room: has to know when rows join.
        emit: takes a row's failure.
        deliver: delivers events.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        meter: what counts.
        costs: gets what passes took.
        prefixes: shrinks to what rows leave.
    """

    def __init__(
        self,
        batch: Batch,
        prompts: PromptJobs,
        prefiller: Prefiller,
        tower: Tower,
        room: Room,
        emit: EmitOfRow,
        deliver: Callable[[], None],
        *,
        max_stall: float,
        meter: Meter,
        costs: CostModel,
        prefixes: PrefixCache | None,
    ) -> None:
        self._batch, self._prompts, self._prefiller, self._tower, self._room = batch, prompts, prefiller, tower, room
        self._emit, self._deliver, self._max_stall = emit, deliver, max_stall
        self._meter, self._costs, self._prefixes = meter, costs, prefixes

    def run(self, piece: Piece) -> None:
        """Run a piece. What it raises fails what the piece is for."""
        match piece:
            case Collect():
                self._batch.collect()
            case Decode():
                self._batch.run(piece)
            case Deliver():
                self._deliver()
            case Preempt(number):
                [row] = (row for row in self._batch.rows if row.number == number)
                self._meter.preempted += self.take(row)
            case Limit(spare):
                self._limit(spare)
            case Open(number):
                self._open(self._prompts.job(number), piece)
            case Item(number, digest):
                self._run_item(self._prompts.job(number), digest)
            case Chunk():
                self._run_chunk(piece)
            case Join():
                self._join()
        if isinstance(piece, Open | Item | Chunk):
            self._prompts.release()

    def take(self, row: Row) -> bool:
        """Make a running row wait, with what it has generated; False if it has ended meanwhile."""
        taken = self._batch.take(row)
        if taken:
            self._prompts.put(PrefillJob([row], row.request.prompt, row.arrival, row.output_tokens))
        return taken

    def _limit(self, spare: int) -> None:
        features = self._tower.features
        if features.bytes:
            self._tower.limit(spare)
            spare -= features.bytes - features.pinned_bytes
        if self._prefixes is not None:
            self._prefixes.limit(spare)

    def _open(self, job: PrefillJob, piece: Open) -> None:
        self._prompts.take(job, piece.rows)
        for row in job.rows if piece.turn else ():
            row.keeps_place = row.generated + TURN_TOKENS
        if piece.spare is not None:
            self._limit(piece.spare)
        self._prefiller.begin(job)
        self._tower.pin(job)

    def _run_chunk(self, piece: Chunk) -> None:
        """Run one pass, and note what it took.

        The last chunk of a prompt that has the engine to itself is not waited for: the next step's graph is built
        meanwhile. If others wait it is, so that a prompt that fails does so alone.
        """
        job, first = self._prompts.job(piece.prompts[0]), not piece.beside
        self._tower.pin(job)
        pace = self._costs.pace("prompts" if job.scores is None else "scores", self._max_stall)
        if len(piece.prompts) > 1:
            together = [self._prompts.job(number) for number in piece.prompts]
            size, seconds = self._prefiller.run_together(together, piece.most, first=first)
        else:
            wait = not (piece.last and first)
            size, seconds = self._prefiller.run(job, piece.most, wait=wait, last=piece.last, first=first)
        if seconds is not None:
            pace.note(size, seconds, job.done)

    def _run_item(self, job: PrefillJob, digest: int) -> None:
        """Run an item through the tower; if that fails, all prompts fail that wait for it."""
        self._tower.pin(job)
        item = next(span for span in job.spans() if span.media.digest == digest)
        try:
            self._tower.run(job, item)
        except BaseException as error:
            what = f"running this prompt's {item.media.kind} through the model failed"
            for other in [other for other in self._prompts if self._needs(other, item)]:
                self._prompts.fail(other, error, what)

    def _needs(self, job: PrefillJob, item: MediaSpan) -> bool:
        """True if a job still needs the features of an item."""
        digest = item.media.digest
        if digest in job.features or all(span.media.digest != digest for span in job.prompt.media):
            return False
        self._prefiller.estimate(job)
        return any(span.media.digest == digest for span in job.spans())

    def _join(self) -> None:
        jobs = self._prompts.joined()
        for job in jobs:
            self._meter.prompt_tokens += 0 if job.resumed else len(job.rows) * len(job.tokens)
            for row in job.rows:
                row.state = job.state
                row.request.timings.join(self._meter.steps)
        self._room.joined()
        join(self._batch, jobs, self._emit)


class TextRunner:
    """Runs passes of texts.

    Args:
        model: makes the vectors.
        texts: the requests.
        emit: takes a request's event.
        wait_for_step: returns when the decode step in flight has run.
        chunks: limits of the pieces of long texts.
        meter: what counts.
        costs: measures passes.
    """

    def __init__(
        self,
        model: Encoder,
        texts: TextJobs,
        emit: Emit,
        wait_for_step: Callable[[], None],
        *,
        chunks: ChunkLimit,
        meter: Meter,
        costs: CostModel,
    ) -> None:
        self._model, self._texts, self._emit, self._wait_for_step = model, texts, emit, wait_for_step
        self._chunks, self._meter, self._costs = chunks, meter, costs

    def run(self, piece: Texts) -> None:
        """Run a pass, and emit what is done. What it raises fails all requests: more than its texts has failed."""
        texts = self._texts.take(piece)
        self._wait_for_step()
        watch = self._costs.start()
        try:
            try:
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
            self._texts.note_pass(watch.seconds, beside=piece.beside)

    def _read_on(self, texts: Sequence[Text], most: int) -> tuple[Vectors | None, int, int] | None:
        """Read a piece of a text that is longer than a pass: its vector, where it ends, and the piece's tokens and end.

        None: these are no such text, or the model sees all of a text at once.
        """
        [(job, i), *others] = texts
        # One whose pass with others has failed comes by itself, and may be longer than this pass: it is not begun
        # beside another one that is read.
        if self._texts.long is None and not others and len(job.request.texts[i]) > most:
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
                self._texts.requeue(job)
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
                self._texts.finish(job)
                self._emit(job, _DONE)
