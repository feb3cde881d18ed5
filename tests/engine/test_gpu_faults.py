"""Errors of Metal's command buffers: one that ends an engine, and those that make passes smaller.

There is no GPU here. The texts are those of MLX and of Metal; steps and passes raise them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.backends.machine import gpu_fault, is_out_of_memory
from localai_shim.engine import threads
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import EngineClosedError, ModelLoadError, RowError
from tests import inside
from tests.engine.counting import tokens
from tests.engine.harness import Running, engine_for, eventually, generate, prefilling, request, stepping
from tests.tiny import tiny


def failed(reason: str) -> str:
    return f"[METAL] Command buffer execution failed: {reason}."


REFUSED = failed(
    "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
)
TIMEOUT = failed("Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)")
HANG = failed("Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)")
INTERACTIVITY = failed("Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)")
VICTIM = failed("Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)")
NO_MEMORY = failed("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)")
TOO_MANY_BUFFERS = "[metal::malloc] Resource limit (499000) exceeded."


@pytest.fixture(autouse=True)
def _working_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that refuses work does so for the whole process."""
    monkeypatch.setattr(threads, "_refused", None)


@pytest.fixture
def engine() -> Iterator[Engine[TextModel]]:
    made = engine_for("qwen3", EngineOptions(prefill_chunk=256))
    yield made
    made.close()


def raising(text: str, times: int = 1) -> Callable[[], None]:
    """Raises what MLX would, so many times."""
    left = [None] * times

    def first() -> None:
        if left:
            left.pop()
            raise RuntimeError(text)

    return first


@pytest.mark.parametrize(
    ("text", "fault", "memory"),
    [
        (REFUSED, "refuses", False),
        (TIMEOUT, "timeout", False),
        (HANG, "timeout", False),
        (INTERACTIVITY, "timeout", False),
        (VICTIM, None, False),
        (NO_MEMORY, None, True),
        (TOO_MANY_BUFFERS, None, True),
        ("[matmul] Last dimension of first input with shape (2,3) must match", None, False),
    ],
)
def test_errors_of_metal_are_told_apart(text: str, fault: str | None, memory: bool) -> None:
    error = RuntimeError(text)
    assert (gpu_fault(error), is_out_of_memory(error)) == (fault, memory)


# -- the GPU refuses further work ------------------------------------------------------------------------------------


def test_an_engine_whose_gpu_refuses_work_ends_and_says_what_to_do(engine: Engine[TextModel]) -> None:
    with stepping(engine, raising(REFUSED)):
        running = [Running(engine, request([5, 6, i], max_tokens=500)) for i in (7, 8)]
        for each in running:
            with pytest.raises(EngineClosedError, match=r"restart the process.*SubmissionsIgnored"):
                each.finish()
        assert inside.worker(engine).wait(60), "its thread has ended"
    with pytest.raises(EngineClosedError, match="restart the process"):
        engine.submit([request([5])], running[0].sink)
    assert "restart the process" in engine.stats().failure


def test_prompts_that_wait_fail_with_the_same_reason(engine: Engine[TextModel]) -> None:
    submitted: list[Running] = []

    def first() -> None:
        submitted.append(Running(engine, request([1, 2, 3])))  # is not taken from the inbox any more
        raise RuntimeError(REFUSED)

    with prefilling(engine, first):
        first_one = Running(engine, request(tokens(40, 1)))
        with pytest.raises(EngineClosedError, match="restart the process"):
            first_one.finish()
        assert inside.worker(engine).wait(60)
    for each in submitted:
        with pytest.raises(EngineClosedError, match="restart the process"):
            each.finish()


def test_engines_of_the_same_process_refuse_work_too_and_none_is_loaded(engine: Engine[TextModel]) -> None:
    other = engine_for("llama")
    generate(other, request([5, 6, 7]))
    with stepping(engine, raising(REFUSED)), pytest.raises(EngineClosedError):
        generate(engine, request([5, 6, 7]))
    with pytest.raises(EngineClosedError, match="restart the process"):
        generate(other, request([5, 6, 7]))
    with pytest.raises(EngineClosedError, match="restart the process"):
        engine_for("llama")
    other.close()


def test_a_gpu_that_refuses_work_at_load_is_named_in_the_error() -> None:
    def load() -> Any:
        raise RuntimeError(REFUSED)

    engine: Engine[Any] = Engine(load)
    assert eventually(lambda: engine.is_ready)
    assert isinstance(engine.failure, ModelLoadError) and "restart the process" in str(engine.failure)
    engine.close()


def test_an_engine_that_loads_meanwhile_fails_its_requests_also_those_that_are_cancelled(
    engine: Engine[TextModel],
) -> None:
    go = threading.Event()

    def load() -> Any:
        assert go.wait(60)
        return load_model(str(tiny("llama")), LoadOptions())

    other: Engine[Any] = Engine(load)
    waiting = [Running(other, request([1, 2, each])) for each in (3, 4)]
    with stepping(engine, raising(REFUSED)), pytest.raises(EngineClosedError):
        generate(engine, request([5, 6, 7]))
    waiting[0].cancel()
    go.set()
    with pytest.raises(EngineClosedError, match="restart the process"):
        waiting[1].finish()
    assert inside.worker(other).wait(60), "its thread has ended"
    other.close()


def test_clients_get_the_reason_immediately_and_so_do_their_statistics() -> None:
    with LocalOpenAI(tiny("qwen3"), keep_alive=0) as client:
        engine = inside.engine(client)
        assert isinstance(engine, Engine)
        with stepping(engine, raising(REFUSED)):
            for _ in range(2):
                with pytest.raises(openai.APIConnectionError, match=r"The GPU refuses all .* restart the process"):
                    client.responses.create(model="any", input="Hello")
        assert inside.engine(client) is engine, "nothing is loaded again"
        assert "restart the process" in client.stats().failure


def test_a_refusal_that_is_found_while_nothing_runs_is_noted(
    engine: Engine[TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was launched for rows that have left is waited for when the engine rests."""
    generate(engine, request([5, 6, 7]))
    fail = raising(REFUSED)
    monkeypatch.setattr(mx, "synchronize", fail)
    with contextlib.suppress(EngineClosedError):  # it may rest from the first one only now
        generate(engine, request([5, 6, 7]))
    assert eventually(lambda: threads.refusal() is not None)
    with pytest.raises(EngineClosedError, match="restart the process"):
        generate(engine, request([5, 6, 7]))


# -- work that takes too long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [TIMEOUT, INTERACTIVITY, HANG])
def test_a_pass_that_takes_too_long_fails_its_prompt_and_halves_later_ones(
    text: str, engine: Engine[TextModel], caplog: pytest.LogCaptureFixture
) -> None:
    expected = generate(engine, request(tokens(300, 2)))
    sizes: list[int] = []
    prefill = engine.model.prefill

    def noting(step: Any, **more: Any) -> Any:
        sizes.append(step.tokens.shape[1])
        return prefill(step, **more)

    engine.model.prefill = noting  # type: ignore[method-assign]
    with prefilling(engine, raising(text)), pytest.raises(RowError, match=r"GPU|Interactivity"):
        generate(engine, request(tokens(300, 1)))
    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: "at most 128 prompt tokens" in caplog.text)
    sizes.clear()
    inside.setup(engine).prefixes.renew("other")  # type: ignore[union-attr]
    assert generate(engine, request(tokens(300, 2))) == expected
    assert max(sizes) == 128
    assert engine.stats().failure == ""


def test_a_step_that_takes_too_long_halves_passes_once_for_all_of_its_rows(
    engine: Engine[TextModel], caplog: pytest.LogCaptureFixture
) -> None:
    gate = [Running(engine, request([5, 6, i], max_tokens=400)) for i in (7, 8)]
    for each in gate:
        each.read(2)
    with stepping(engine, raising(TIMEOUT)):
        for each in gate:
            with pytest.raises(RowError, match="GPU Timeout"):
                each.finish()
    generate(engine, request([5, 6, 7]))
    assert inside.setup(engine) is not None and inside.setup(engine).chunks.share == 0.5
    assert caplog.text.count("took too long") == 1


def test_another_programs_fault_changes_nothing(engine: Engine[TextModel]) -> None:
    with stepping(engine, raising(VICTIM)), pytest.raises(RowError, match="InnocentVictim"):
        generate(engine, request([5, 6, 7]))
    generate(engine, request([5, 6, 7]))
    assert inside.setup(engine) is not None and inside.setup(engine).chunks.share == 1


def test_a_model_that_meets_the_limit_of_buffers_may_load_later() -> None:
    def load() -> Any:
        raise RuntimeError(TOO_MANY_BUFFERS)

    engine: Engine[Any] = Engine(load)
    assert eventually(lambda: engine.is_ready)
    failure = engine.failure
    assert failure is not None and failure.transient
    engine.close()
