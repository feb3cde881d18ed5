"""When tokens reach their consumers, and how decoding and prefill take turns."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import RowError, SamplingParams
from tests.engine.harness import GREEDY, Running, eventually, request
from tests.tiny import tiny

SAMPLED = SamplingParams(temperature=1.0, top_p=0.9, seed=3)
WAYS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


class Watched:
    """A model that says what it is called for, and may be made to wait before a decode step."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self.calls: list[str] = []
        self.before_step: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self if name in ("_model", "calls", "before_step") else self._model, name, value)

    def prefill(self, step: StepInput, *, wait: bool = True) -> PassOutput[mx.array | None]:
        self.calls.append("prefill")
        return self._model.prefill(step, wait=wait)

    def forward(self, step: StepInput) -> PassOutput[mx.array]:
        self.calls.append("step")
        if self.before_step is not None:
            self.before_step(self.calls.count("step"))
        return self._model.forward(step)


def watched(options: EngineOptions | None = None) -> Engine[Any]:
    path = str(tiny("qwen3"))
    return Engine(lambda: Watched(load_model(path, LoadOptions())), options)


@WAYS
def test_a_first_token_is_there_before_the_second_step_is_launched(sampling: SamplingParams) -> None:
    engine = watched()
    model = engine.model
    model.calls.clear()
    seen, in_time = threading.Event(), []
    model.before_step = lambda number: in_time.append(seen.wait(20)) if number == 2 else None
    try:
        row = Running(engine, request([5, 6, 7, 8], sampling, max_tokens=4, ignore_eos=True))
        row.read(1)
        seen.set()
        row.finish()
        assert in_time == [True]
    finally:
        engine.close()


@WAYS
def test_while_prompts_wait_there_is_one_step_between_two_passes_of_prefill(sampling: SamplingParams) -> None:
    engine = watched(EngineOptions(max_stall=0.001, prefix_cache_bytes=0))
    model = engine.model
    try:
        first = Running(engine, request([9, 8, 7], sampling, max_tokens=200, ignore_eos=True))
        first.read(5)
        model.calls.clear()
        prompts = [[10 + i, *range(20, 220)] for i in range(6)]
        rows = Running(engine, [request(tokens, sampling, max_tokens=3, ignore_eos=True) for tokens in prompts])
        rows.finish()
        first.cancel()
    finally:
        engine.close()
    passes = [i for i, call in enumerate(model.calls) if call == "prefill"]
    assert len(passes) >= 6
    steps = [later - earlier - 1 for earlier, later in pairwise(passes)]
    assert set(steps) <= {0, 1}, "a second step would delay the prompts that wait"
    assert 1 in steps, "running rows are not left out"


def test_a_sink_that_fails_once_tells_its_consumer_and_the_others_go_on() -> None:
    engine = watched()
    try:
        other = Running(engine, request([9, 8, 7], max_tokens=20, ignore_eos=True))
        row = Running(engine, request([5, 6, 7], max_tokens=20, ignore_eos=True))
        put, failing = row.sink.put, [True]

        def once(index: int, event: Any) -> None:
            if failing:
                failing.clear()
                raise MemoryError("no memory for an event")
            put(index, event)

        row.sink.put = once  # type: ignore[method-assign]
        with pytest.raises(RowError, match=r"could not be delivered: .*no memory for an event"):
            row.finish()
        assert len(other.finish()[0]) == 20
        assert eventually(lambda: not (engine.stats().running or engine.stats().waiting))
    finally:
        engine.close()
