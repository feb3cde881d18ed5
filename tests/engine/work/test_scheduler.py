"""Prefill lets running rows decode between chunks, and nobody starves."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.ports import StepInput
from localai_shim.types import Prompt
from tests.engine.harness import Running, engine_for, generate, request
from tests.engine.recording import World, running


class Log:
    """What the model was asked to do, in order: ("prefill", tokens) and ("decode", rows)."""

    def __init__(self, model: Any) -> None:
        self.calls: list[tuple[str, int]] = []
        prefill, forward = model.prefill, model.forward

        def logged_prefill(step: StepInput, **more: Any) -> Any:
            self.calls.append(("prefill", step.tokens.shape[1]))
            return prefill(step, **more)

        def logged_forward(step: StepInput) -> Any:
            self.calls.append(("decode", step.tokens.shape[0]))
            return forward(step)

        model.prefill, model.forward = logged_prefill, logged_forward


def test_running_rows_get_a_token_between_two_chunks_of_a_long_prompt() -> None:
    w = World(chunk=64, max_stall=1e-4, seconds_per_token=1e-3, prefix_cache=0)
    [row] = running(w)
    [long] = w.ask([60] * 600)
    before = w.model.passes.copy()
    served = []
    while not w.is_done(long):
        count = len(w.model.passes)
        w.step()
        served.append(len(w.model.passes) - count)
    chunks = [len(tokens) for rows in w.model.passes[len(before) :] for tokens in rows]
    assert sum(chunks) == 599 and max(chunks) <= 64
    assert max(served) == 1 and w.served(row) > len(chunks), "a token after each chunk"


def test_chunks_are_large_while_nobody_waits_for_a_token() -> None:
    engine = engine_for("qwen3", EngineOptions(max_stall=1e-4))
    try:
        log = Log(engine.model)
        generate(engine, request([(3 * i) % 390 + 5 for i in range(600)], max_tokens=2))
        assert [size for what, size in log.calls if what == "prefill"] == [599]
    finally:
        engine.close()


def test_prompts_that_come_together_start_to_decode_together() -> None:
    engine = engine_for("qwen3", EngineOptions(max_stall=10))
    try:
        log = Log(engine.model)
        Running(engine, [request([5 + i, 6, 7], max_tokens=4) for i in range(6)]).finish()
        assert [rows for what, rows in log.calls if what == "decode"] == [6, 6, 6], "first tokens took no step"
    finally:
        engine.close()


def test_a_row_that_needs_no_further_token_costs_no_further_step() -> None:
    engine = engine_for("qwen3")
    try:
        log = Log(engine.model)
        generate(engine, request([5, 6, 7], max_tokens=1))
        assert log.calls == [("prefill", 3)]
    finally:
        engine.close()


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_rows_are_served_in_the_order_in_which_they_came(max_rows: int) -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=max_rows))
    try:
        order: list[int] = []
        shared = [request([5 + i, 6], max_tokens=3) for i in range(9)]

        class Ordered:
            waker = None

            def put(self, index: int, event: Any) -> None:
                if index not in order:
                    order.append(index)

        engine.submit(shared, Ordered())
        generate(engine, request([5, 6], max_tokens=1))
        assert order == list(range(9))
    finally:
        engine.close()


def test_a_cancelled_request_leaves_others_to_their_shared_prefill() -> None:
    engine = engine_for("qwen3")
    try:
        prompt = Prompt([(3 * i) % 390 + 5 for i in range(50)])
        [alone] = generate(engine, request(prompt.tokens, max_tokens=10))
        same = [request(prompt.tokens, max_tokens=10) for _ in range(3)]
        first, second, third = (Running(engine, type(r)(prompt, r.sampling, r.max_tokens)) for r in same)
        engine.cancel(second.ticket)
        assert [first.finish(), third.finish()] == [[alone], [alone]]
        assert engine.stats().generated_tokens < 40
    finally:
        engine.close()
