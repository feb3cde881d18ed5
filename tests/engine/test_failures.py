"""One request fails alone, and a failed model step does not end the engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from localai_shim.engine.engine import Engine
from localai_shim.engine.ports import PassOutput
from localai_shim.types import EngineClosedError, ModelLoadError, RowError, SamplingParams
from tests import inside
from tests.engine.harness import Running, engine_for, eventually, generate, request, rows_of


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = engine_for("qwen3")
    yield made
    made.close()


class Exploding:
    """A stop check that fails at its third token."""

    def __init__(self) -> None:
        self.seen = 0

    def feed(self, token_id: int) -> bool:
        self.seen += 1
        if self.seen == 3:
            raise ValueError("no")
        return False


def test_a_stop_check_that_throws_ends_its_own_row_only(engine: Engine) -> None:
    undisturbed = generate(engine, request([5, 6, 7], max_tokens=30))
    good = Running(engine, request([5, 6, 7], max_tokens=30))
    bad = Running(engine, request([8, 9], max_tokens=30, stop=Exploding()))
    with pytest.raises(RowError, match="stop check"):
        bad.finish()
    assert len(bad.events[0]) == 3
    assert good.finish() == undisturbed


def test_a_prompt_whose_prefill_fails_does_not_disturb_running_rows(engine: Engine) -> None:
    undisturbed = generate(engine, request([5, 6, 7], max_tokens=30))
    prefill = engine.model.prefill

    def failing(step, **more):
        if 13 in rows_of(step)[0]:
            raise RuntimeError("bad prompt")
        return prefill(step, **more)

    engine.model.prefill = failing  # type: ignore[method-assign]
    good = Running(engine, request([5, 6, 7], max_tokens=30))
    good.read(3)
    with pytest.raises(RowError, match="bad prompt"):
        Running(engine, request([13, 14, 15])).finish()
    assert good.finish() == undisturbed


def test_a_cache_that_cannot_be_made_fails_its_request_only(engine: Engine) -> None:
    new_cache = engine.model.new_cache
    good = Running(engine, request([5, 6, 7], max_tokens=300))
    good.read(3)

    def failing():
        raise MemoryError("no room")

    engine.model.new_cache = failing  # type: ignore[method-assign]
    with pytest.raises(RowError, match="no room"):
        Running(engine, request([8, 9])).finish()
    engine.model.new_cache = new_cache  # type: ignore[method-assign]
    assert len(good.finish()[0]) == 300


def test_a_request_that_cannot_be_admitted_fails_alone(engine: Engine) -> None:
    good = Running(engine, request([5, 6, 7], max_tokens=300))
    with pytest.raises(RowError, match="admitted"):
        Running(engine, request([8, 9], SamplingParams(seed="seven"))).finish()  # type: ignore[arg-type]
    assert len(good.finish()[0]) == 300


@pytest.mark.parametrize("lazily", [False, True])
def test_when_the_model_step_fails_its_rows_fail_and_the_next_request_is_served(lazily: bool, engine: Engine) -> None:
    expected = generate(engine, request([5, 6, 7]))
    forward = engine.model.forward
    broken = [True]

    def failing(step):
        if broken and len(step.tokens) == 2:
            broken.clear()
            if not lazily:
                raise RuntimeError("device lost")
            return PassOutput(forward(step).logits[:, :, :, None])  # a shape that only the sampler trips over
        return forward(step)

    engine.model.forward = failing  # type: ignore[method-assign]
    rows = [Running(engine, request([i, i + 1], max_tokens=500)) for i in (3, 4)]
    for row in rows:
        with pytest.raises(RowError, match="the model failed"):
            row.finish()
    assert generate(engine, request([5, 6, 7])) == expected
    assert engine.stats().running == 0


def test_a_sink_that_throws_loses_its_row_only(engine: Engine) -> None:
    undisturbed = generate(engine, request([5, 6, 7], max_tokens=30))

    class Broken:
        waker = None

        def put(self, index, event):
            raise OSError("consumer is gone")

    engine.submit([request([9, 9], max_tokens=10_000)], Broken())
    assert generate(engine, request([5, 6, 7], max_tokens=30)) == undisturbed
    assert eventually(lambda: engine.stats().running == 0)


def test_a_model_that_cannot_be_loaded_is_reported_to_everyone_who_waits() -> None:
    def load():
        raise ValueError("weights are damaged")

    engine: Engine = Engine(load)
    with pytest.raises(ModelLoadError, match="weights are damaged"):
        _ = engine.model
    with pytest.raises(EngineClosedError):
        Running(engine, request([1, 2]))


def test_a_request_that_waits_for_a_model_fails_with_the_error_of_loading_it() -> None:
    submitted = threading.Event()

    def load():
        assert submitted.wait(60)
        raise ValueError("weights are damaged")

    engine: Engine = Engine(load)
    waiting = Running(engine, request([1, 2]))
    submitted.set()
    with pytest.raises(ModelLoadError, match="weights are damaged"):
        waiting.finish()


def test_closing_fails_what_is_in_flight_and_refuses_what_comes() -> None:
    engine = engine_for("qwen3")
    running = Running(engine, request([5, 6, 7], max_tokens=100_000))
    waiting = Running(engine, request(list(range(3, 300)), max_tokens=100_000))
    running.read(2)
    engine.close()
    for run in (running, waiting):
        with pytest.raises(EngineClosedError):
            run.finish()
    with pytest.raises(EngineClosedError):
        Running(engine, request([1]))
    engine.close()


def test_the_thread_ends_when_nobody_holds_the_engine_any_more() -> None:
    engine = engine_for("qwen3")
    work = inside.worker(engine)
    Running(engine, request([5, 6, 7], sampling=SamplingParams())).finish()
    del engine
    assert eventually(lambda: work.wait(0))
