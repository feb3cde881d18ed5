"""Prompts on their way into the batch: the scheduler says piece by piece what is run, and here it is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ..costs.chunk_limit import ChunkLimit
from ..costs.cost_model import CostModel
from ..costs.meter import Meter
from ..decode.batch import Batch
from ..decode.joining import join
from ..memory import Memory
from ..ports import MediaSpan, Model
from ..prefix.cache import PrefixCache
from ..prompts.features import FeatureCache, Tower
from ..prompts.prefill import Prefiller, PrefillJob
from ..row import Emit, Row
from ..step_plan import Chunk, Item, Join, Limit, Open, Piece, Preempt
from .queue import PromptQueue
from .room import TURN_TOKENS, Room
from .scheduler import Scheduler

log = logging.getLogger("localai_shim")


class PromptRunner:
    """Runs what the scheduler plans. An error in a prompt's prefill is its own, one in choosing that of all that wait.

    Args:
        model: what prefills.
        batch: what prefilled rows join.
        emit: takes a row's failure.
        max_rows: most rows that decode together.
        max_stall: seconds that prefill may take between two tokens of the running rows.
        ends_prompts: the model can give the logits of prompts' last tokens, and gives the right ones.
        chunks: limits of prompts' passes.
        meter: what counts.
        costs: what passes take.
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
        chunks: ChunkLimit,
        meter: Meter,
        costs: CostModel,
        prefixes: PrefixCache | None = None,
        memory: Memory | None = None,
        features: FeatureCache | None = None,
        ends_prompts: bool = False,
    ) -> None:
        self._batch, self._emit, self._meter = batch, emit, meter
        self._max_stall, self._costs, self._prefixes = max_stall, costs, prefixes
        self._tower = tower = Tower(model, features or FeatureCache(0))
        self._prefiller = prefiller = Prefiller(model, meter, prefixes, batch.wait, ends_prompts, costs)
        self.queue = queue = PromptQueue(prefiller, tower, emit, max_rows)
        self._room = Room(batch, queue, tower, max_rows, memory)
        self.scheduler = Scheduler(batch, queue, self._room, prefiller, tower, max_stall, chunks, meter, costs)

    def __len__(self) -> int:
        """Number of rows that do not run yet."""
        return len(self.queue)

    def add(self, rows: Sequence[Row]) -> None:
        """Queue rows; those that share a `Prompt` object are prefilled once."""
        self.scheduler.added()
        self._batch.insert_prompts()  # for these to find
        self.queue.add(rows)

    def drop(self, gone: Collection[Row]) -> None:
        """Drop waiting rows; no event is sent."""
        self.queue.drop(gone)

    def restart(self) -> None:
        """Take all rows out of the batch, and begin every prompt again."""
        for row in [*self._batch.rows]:
            self._take(row)
        self.queue.restart()

    def fail(self, error: BaseException) -> None:
        """End every row that does not run yet with an error, and start afresh."""
        self.queue.fail_all(error)

    def run(self, piece: Piece) -> bool:
        """Run a piece. What it raises fails its prompt, or else all that wait: then this step has no more of them."""
        try:
            self._run(piece)
        except BaseException as error:
            log.exception("running prompts failed; waiting requests fail, the engine continues")
            self.fail(error)
            return False
        return True

    def _run(self, piece: Piece) -> None:
        if isinstance(piece, Preempt):
            self._preempt(piece)
        elif isinstance(piece, Limit):
            self._limit(piece.spare)
        elif isinstance(piece, Join):
            self._join()
        elif isinstance(piece, Open | Item | Chunk):
            job = self.queue.job(piece.prompts[0] if isinstance(piece, Chunk) else piece.prompt)
            try:
                self._advance(job, piece)
            except BaseException as error:
                self.queue.fail(job, error)
            self.queue.release()

    def _advance(self, job: PrefillJob, piece: Open | Item | Chunk) -> None:
        if isinstance(piece, Open):
            self.queue.take(job, piece.rows)
            for row in job.rows if piece.turn else ():
                row.keeps_place = row.generated + TURN_TOKENS
            if piece.spare is not None:
                self._limit(piece.spare)
            self._prefiller.begin(job)
        self._tower.pin(job)
        if isinstance(piece, Item):
            self._run_item(job, piece.digest)
        elif isinstance(piece, Chunk):
            self._run_chunk(job, piece)

    def _limit(self, spare: int) -> None:
        features = self._tower.features
        if features.bytes:
            self._tower.limit(spare)
            spare -= features.bytes - features.pinned_bytes
        if self._prefixes is not None:
            self._prefixes.limit(spare)

    def _preempt(self, piece: Preempt) -> None:
        [row] = (row for row in self._batch.rows if row.number == piece.row)
        self._meter.preempted += self._take(row)

    def _take(self, row: Row) -> bool:
        """Have a running row wait, with what it has generated; False if it has ended meanwhile."""
        taken = self._batch.take(row)
        if taken:
            self.queue.put(PrefillJob([row], row.request.prompt, row.arrival, row.output_tokens))
        return taken

    def _run_chunk(self, job: PrefillJob, piece: Chunk) -> None:
        """Run one pass, and note what it took.

        The last chunk of a prompt that has the engine to itself is not waited for: the next step's graph is built
        meanwhile. Beside others it is, so that a prompt that fails does so alone.
        """
        first = not piece.beside
        pace = self._costs.pace("prompts" if job.scores is None else "scores", self._max_stall)
        if len(piece.prompts) > 1:
            together = [self.queue.job(number) for number in piece.prompts]
            size, seconds = self._prefiller.run_together(together, piece.most, first=first)
        else:
            wait = not (piece.last and first)
            size, seconds = self._prefiller.run(job, piece.most, wait=wait, last=piece.last, first=first)
        if seconds is not None:
            pace.note(size, seconds, job.done)

    def _run_item(self, job: PrefillJob, digest: int) -> None:
        """Run an item through the tower; where that fails, all prompts fail that wait for it."""
        item = next(span for span in job.spans() if span.media.digest == digest)
        try:
            self._tower.run(job, item)
        except BaseException as error:
            what = f"running this prompt's {item.media.kind} through the model failed"
            for other in [other for other in self.queue if self._needs(other, item)]:
                self.queue.fail(other, error, what)

    def _needs(self, job: PrefillJob, item: MediaSpan) -> bool:
        """True if a job still needs the features of an item."""
        digest = item.media.digest
        if digest in job.features or all(span.media.digest != digest for span in job.prompt.media):
            return False
        self._prefiller.estimate(job)
        return any(span.media.digest == digest for span in job.spans())

    def _join(self) -> None:
        jobs = self.queue.joined()
        for job in jobs:
            self._meter.prompt_tokens += 0 if job.resumed else len(job.rows) * len(job.tokens)
            for row in job.rows:
                row.state = job.state
                row.request.timings.join(self._meter.steps)
        self._room.joined()
        join(self._batch, jobs, self._emit)
