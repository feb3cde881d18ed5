"""An engine whose drafts are switched off and on every few steps: for ratios near one, on machines with other work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.decode.in_flight import Idle, Verifying
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.pieces import Collect, Deliver, Piece
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.scheduler import Decoding, Scheduler
from localai_shim.models.loading import load_model
from localai_shim.types import Failure, GenerationRequest, Prompt, SamplingParams

BLOCK_STEPS, SKIPPED_STEPS = 8, 2  # after a switch, steps were begun in the other mode

Rates = tuple[list[float], list[float]]
"""Tokens per second of blocks without drafts, and of those that followed them with drafts."""


class _Switch:
    """Takes the place of what chooses a batch's steps, and asks for drafts or not."""

    def __init__(self, batch: Batch, scheduler: Scheduler, decoding: Decoding, rows: int) -> None:
        self._batch, self._next, self._decoding, self._rows = batch, scheduler.next, decoding, rows
        self._drafts = decoding.speculation
        self._steps = 0
        self._counted: list[Row] | None = None
        self._before, self._start = 0, 0.0
        self._blocks: dict[int, tuple[float, int]] = {}

    def __call__(self) -> Piece | None:
        piece = self._next()
        if isinstance(piece, Collect):
            self._begin()
        elif isinstance(piece, Deliver):
            self._end()
        return piece

    def _begin(self) -> None:
        block, at = divmod(self._steps, BLOCK_STEPS)
        self._steps += 1
        batch, rows, self._counted = self._batch, self._batch.rows, None
        joined = isinstance(batch.in_flight, Idle) and batch.in_flight.joined
        if len(rows) == self._rows and not joined:
            if not block % 2 and isinstance(batch.in_flight, Verifying):  # it was begun with drafts, and ends so
                batch.settle()
                if not batch.rows:
                    return
            self._decoding.speculation = self._drafts if block % 2 else None
            self._counted = rows if at >= SKIPPED_STEPS else None
        self._before, self._start = sum(row.generated for row in rows), time.perf_counter()

    def _end(self) -> None:
        rows = self._counted
        if rows is not None and rows is self._batch.rows:
            block = (self._steps - 1) // BLOCK_STEPS
            seconds, tokens = self._blocks.get(block, (0.0, 0))
            tokens += sum(row.generated for row in rows) - self._before
            self._blocks[block] = seconds + time.perf_counter() - self._start, tokens

    def rates(self) -> Rates:
        rates = {block: tokens / seconds for block, (seconds, tokens) in self._blocks.items() if tokens}
        pairs = [(rate, rates[block + 1]) for block, rate in rates.items() if block % 2 == 0 and block + 1 in rates]
        return [off for off, _ in pairs[1:]], [on for _, on in pairs[1:]]  # costs are learned in the first


def compare(folder: Path, prompts: Sequence[Sequence[int]], new_tokens: int) -> Rates:
    """Sampled rows, all at once."""
    engine = Engine(lambda: load_model(str(folder), {}), EngineOptions(speculation="auto", prefix_cache_bytes=0))
    try:
        engine.wait()
        batcher = engine._loop._batcher
        assert batcher is not None and batcher.rows is not None
        scheduler, rows = batcher.scheduler, batcher.rows
        assert scheduler.decoding is not None
        switch = _Switch(rows.batch, scheduler, scheduler.decoding, len(prompts))
        scheduler.next = switch  # type: ignore[method-assign]
        sink, running = SyncSink(), len(prompts)
        made = [
            GenerationRequest(Prompt(prompt), SamplingParams(seed=i), new_tokens, ignore_eos=True)
            for i, prompt in enumerate(prompts)
        ]
        engine.submit(made, sink)
        while running:
            _, event = sink.get(600)
            if isinstance(event, Failure):
                raise event.error
            running -= event.finish_reason is not None
        return switch.rates()
    finally:
        engine.close()
