"""A scheduler and a batch that a test steps itself, over a model that computes nothing and remembers what it was asked.

Time stands still, except that each token of a prefill takes as long as the test says: whatever depends on the clock
comes out the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from localai_shim.engine.costs.chunks import ChunkLimit
from localai_shim.engine.costs.cost_model import CostModel, Meter
from localai_shim.engine.kv import RowCache
from localai_shim.engine.memory import Memory
from localai_shim.engine.ports import Features, PassOutput, ProcessedMedia, StepInput
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prompts.features import FeatureCache
from localai_shim.engine.row import Row
from localai_shim.engine.setup import Setup
from localai_shim.engine.sinks import SyncSink
from localai_shim.engine.work.lane import Parts, Share
from localai_shim.engine.work.rows import Rows
from localai_shim.engine.work.runner import RowRunner
from localai_shim.engine.work.scheduler import Scheduler
from localai_shim.types import Event, Failure, GenerationRequest, Prompt, SamplingParams, Token
from tests.engine.harness import GREEDY, is_last, rows_of

PER_TOKEN = 8
"""Bytes that a token takes in a row of `Recording`."""


class Clock:
    """Takes the place of the cost model's."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refusing(token: int) -> Callable[[list[list[int]]], None]:
    """For `Recording.before`: passes with this token raise."""

    def refuse(rows: list[list[int]]) -> None:
        if any(token in row for row in rows):
            raise RuntimeError("bad prompt")

    return refuse


class Recording:
    """One layer that keeps the tokens themselves, so that what a cache holds can be read back.

    Attributes:
        passes: what was prefilled: for each pass, the tokens of each row in it.
        before: called with the rows of a pass before it is run; may raise.
        items: digests of what went through the tower, which takes `seconds_per_item`; `before_item` may raise.
        steps: of each pass, prefill and decode, what was run.
        first: tokens at the beginning of prompts that have to be run in one pass.
    """

    context_length: int | None = None
    eos_token_ids: frozenset[int] = frozenset()
    samples_on_device = False
    weight_bytes = 0
    fingerprint = "recording"
    end_tokens = 1000
    query_heads = 1

    def __init__(self, clock: Clock | None = None, seconds_per_token: float = 0.0) -> None:
        self.passes: list[list[list[int]]] = []
        self.before: Callable[[list[list[int]]], None] = lambda rows: None
        self.items: list[int] = []
        self.seconds_per_item = 0.0
        self.before_item: Callable[[int], None] = lambda digest: None
        self.steps: list[StepInput] = []
        self.first = 0
        self._clock, self._seconds = clock, seconds_per_token

    def new_cache(self) -> RowCache:
        return [KVCache()]

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        rows = rows_of(step)
        self.before(rows)
        self.passes.append(rows)
        if self._clock is not None:
            self._clock.now += self._seconds * sum(map(len, rows))
        self._write(step)
        return PassOutput(mx.zeros((len(rows), 16)) if step.ends else None)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self._write(step)
        return PassOutput(mx.zeros((*step.tokens.shape, 16)))

    def embed(self, media: ProcessedMedia) -> Features:
        self.before_item(media.digest)
        self.items.append(media.digest)
        if self._clock is not None:
            self._clock.now += self.seconds_per_item
        return Features(mx.zeros((len(media.tokens), 1)))

    def row_state(self, prompt: Prompt) -> object | None:
        return prompt if prompt.media else None

    def first_pass(self, prompt: Prompt) -> int:
        return self.first

    def _write(self, step: StepInput) -> None:
        self.steps.append(step)
        contents = step.tokens[:, None, :, None].astype(mx.float32)
        mx.eval(step.layers[0].update_and_fetch(contents, contents))


class Alone(Share):
    """The share of an engine that tells no other engine of its rows."""

    def note_rows(self, running: bool) -> None:
        pass


class World:
    """Rows come and are served, one step at a time, on the test's own thread."""

    def __init__(
        self,
        *,
        max_rows: int = 64,
        chunk: int = 2048,
        max_stall: float = 1.0,
        seconds_per_token: float = 0.0,
        prefix_cache: int = 2**20,
        memory: int | None = None,
        features: int = 2**20,
        ends_prompts: bool = False,
    ) -> None:
        self.clock, self.meter = Clock(), Meter()
        self.costs, self.chunks = CostModel(self.clock), ChunkLimit(chunk)
        self.model = Recording(self.clock, seconds_per_token)
        self.events: dict[Row, list[Event]] = {}
        self.order: list[Row] = []
        """Rows in the order in which they got their first event."""
        known: Memory | None = None
        if memory is not None:
            known = Memory(self.model, None, chunk)
            known.close()  # otherwise engines of other tests, which end now or later, change its budget
            known.budget = memory
            self.model.passes.clear()
        self.prefixes = PrefixCache(self.model.new_cache(), "", prefix_cache) if prefix_cache else None
        self.features = FeatureCache(features)
        self.setup = Setup(
            known,
            ends_prompts=ends_prompts,
            prefixes=self.prefixes,
            features=self.features,
            costs=self.costs,
            chunks=self.chunks,
            max_rows=max_rows,
            max_stall=max_stall,
        )
        self.prepare()

    def prepare(self, **changes: Any) -> None:
        """Begin without rows, with some changes of the setup."""
        self.setup = replace(self.setup, **changes)
        parts = Parts(self.model, self.setup, self.meter, Alone(self, self.setup.costs, self.meter), self._emit)
        self.rows = Rows(parts)
        self.batch, self.prompts = self.rows.batch, self.rows.prompts
        self.scheduler, self.runner = Scheduler(self.rows, (), parts), RowRunner(self.rows, parts)

    def ask(
        self,
        prompt: Sequence[int] | Prompt,
        max_tokens: int = 1,
        *,
        n: int = 1,
        priority: int = 0,
        salt: str | None = None,
        sampling: SamplingParams = GREEDY,
    ) -> list[Row]:
        """Queue a request of so many choices; its rows."""
        if not isinstance(prompt, Prompt):
            prompt = Prompt(prompt, salt=salt)
        one = GenerationRequest(prompt, sampling, max_tokens, priority=priority)
        rows = [Row(one, SyncSink(), i, self.model) for i in range(n)]
        self.events.update((row, []) for row in rows)
        self.rows.add(rows)
        return rows

    def step(self) -> None:
        """What the engine does between two looks at its inbox."""
        while (piece := self.scheduler.next()) is not None:
            try:
                self.runner.run(piece)
            except BaseException as error:
                self.scheduler.failed(piece, error)

    def run(self, most: int = 100_000) -> int:
        """Step until everything is served; returns how many steps that took."""
        for steps in range(most):
            if not len(self.batch) and not len(self.prompts):
                return steps
            self.step()
        raise AssertionError(f"not served after {most} steps")

    def cancel(self, *rows: Row) -> None:
        self.rows.drop(rows)

    def is_done(self, row: Row) -> bool:
        return bool(self.events[row]) and is_last(self.events[row][-1])

    def failed(self, row: Row) -> bool:
        return any(isinstance(event, Failure) for event in self.events[row])

    def served(self, row: Row) -> int:
        """Tokens that a row has got."""
        return sum(isinstance(event, Token) for event in self.events[row])

    def prefilled(self, token: int) -> int:
        """How many times a token was run in a prefill."""
        return sum(row.count(token) for rows in self.model.passes for row in rows)

    def begun(self) -> list[int]:
        """The last token of each row of each pass, padding aside, in order: who was prefilled when."""
        return [[token for token in row if token][-1] for rows in self.model.passes for row in rows]

    def _emit(self, row: Row, event: Event) -> None:
        if not self.events[row]:
            self.order.append(row)
        self.events[row].append(event)


def play_prompts(scheduler: Scheduler, runner: RowRunner) -> None:
    """Run prompts for as long as rows may wait."""
    prefill = scheduler.prefill
    assert prefill is not None
    while (piece := prefill.next()) is not None:
        try:
            runner.run(piece)
        except BaseException as error:
            if not prefill.failed(piece, error):
                raise


MakeWorld = Callable[..., World]


def running(w: World, count: int = 1) -> list[Row]:
    """Rows that decode, and go on for long."""
    rows = [row for i in range(count) for row in w.ask([200 + i, 50, 51], max_tokens=10_000)]
    while not all(w.served(row) for row in rows):
        w.step()
    return rows
