"""An engine whose drafts are switched off and on every few steps: for ratios near one, on machines with other work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localai_shim.engine.decode.batch import Batch
from localai_shim.engine.decode.in_flight import Idle
from localai_shim.engine.decode.verify import Verifying
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.plan.planner import Planner
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.step_plan import Decode
from localai_shim.models.loading import load_model
from localai_shim.types import Failure, GenerationRequest, Prompt, SamplingParams

BLOCK_STEPS, SKIPPED_STEPS = 8, 2  # after a switch, steps were begun in the other mode

Rates = tuple[list[float], list[float]]
"""Tokens per second of blocks without drafts, and of those that followed them with drafts."""


class _Switch:
    """Takes the place of a batch's `step`, and has the planner ask for drafts or not."""

    def __init__(self, batch: Batch, planner: Planner, rows: int) -> None:
        self._batch, self._planner, self._rows = batch, planner, rows
        self._step, self._drafts = batch.step, planner._speculation
        self._steps = 0
        self._blocks: dict[int, tuple[float, int]] = {}

    def __call__(self, plan: Callable[[], Decode]) -> None:
        block, at = divmod(self._steps, BLOCK_STEPS)
        self._steps += 1
        batch, rows = self._batch, self._batch.rows
        joined = isinstance(batch.in_flight, Idle) and batch.in_flight.joined
        if len(rows) == self._rows and not joined:
            if not block % 2 and isinstance(batch.in_flight, Verifying):  # it was begun with drafts, and ends so
                batch._settle()
                if not batch.rows:
                    return
            self._planner._speculation = self._drafts if block % 2 else None
        before, start = sum(row.generated for row in rows), time.perf_counter()
        self._step(plan)
        if len(rows) == self._rows and rows is batch.rows and not joined and at >= SKIPPED_STEPS:
            seconds, tokens = self._blocks.get(block, (0.0, 0))
            tokens += sum(row.generated for row in rows) - before
            self._blocks[block] = seconds + time.perf_counter() - start, tokens

    def rates(self) -> Rates:
        rates = {block: tokens / seconds for block, (seconds, tokens) in self._blocks.items() if tokens}
        pairs = [(rate, rates[block + 1]) for block, rate in rates.items() if block % 2 == 0 and block + 1 in rates]
        return [off for off, _ in pairs[1:]], [on for _, on in pairs[1:]]  # costs are learned in the first


def compare(folder: Path, prompts: Sequence[Sequence[int]], new_tokens: int) -> Rates:
    """Sampled rows, all at once."""
    engine = Engine(lambda: load_model(str(folder), {}), EngineOptions(speculation="auto", prefix_cache_bytes=0))
    try:
        engine.wait()
        parts = engine._loop._parts
        assert parts is not None and parts.rows is not None
        batch = parts.rows.batch
        switch = batch.step = _Switch(batch, parts.planner, len(prompts))  # type: ignore[method-assign]
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
