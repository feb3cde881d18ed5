"""Greedy tokens equal mlx_lm.stream_generate on the same float32 model, whatever joins and leaves the batch."""

from __future__ import annotations

import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from tests.engine.harness import Running, engine_for, request
from tests.engine.oracle import alone
from tests.engine.traffic import ids_in_traffic
from tests.samples import only
from tests.tiny import CONFIGS, VOCABULARY, WIDE, tiny


def prompts(n: int) -> list[list[int]]:
    """Prompts of many lengths, one token among them and some longer than the sliding window and a prefill chunk."""
    lengths = [1, 2, 3, 5, 8, 13, 21, 34, 40, 55, 64, 70, 89, 100, 120, 144]
    return [[(7 * i + 11 * j * (i + 1)) % (VOCABULARY - 3) + 3 for j in range(lengths[i % 16])] for i in range(n)]


@pytest.mark.parametrize("kind", only(["gemma3_text", "qwen3_next", *WIDE], CONFIGS | WIDE))
def test_sixteen_prompts_with_staggered_joins_cancellations_and_finishes(kind: str) -> None:
    engine = engine_for(kind, EngineOptions(prefill_chunk=48))
    lengths = [8 + 3 * (i % 6) for i in range(16)]
    made = [request(prompt, max_tokens=length) for prompt, length in zip(prompts(16), lengths, strict=True)]
    try:
        said = ids_in_traffic(engine, made, lambda i: request(prompts(16)[i][::-1], max_tokens=200))
        assert said == [alone(kind, tuple(each.prompt.tokens), each.max_tokens) for each in made]
    finally:
        engine.close()


@pytest.mark.parametrize("kind", only(["qwen3_next", *WIDE], ["qwen3", "gemma3_text", "qwen3_next", *WIDE]))
def test_choices_that_share_a_prompt_are_prefilled_once_and_equal_the_oracle(kind: str) -> None:
    engine = engine_for(kind)
    try:
        calls: list[int] = []
        prefill = engine.model.prefill
        engine.model.prefill = lambda step, **more: (
            calls.append(step.tokens.size),
            prefill(step, **more),
        )[1]  # type: ignore[method-assign]
        neighbour = Running(engine, request(prompts(4)[3], max_tokens=60))
        neighbour.read(2)
        calls.clear()
        shared = request(prompts(12)[11], max_tokens=20)
        results = Running(engine, [shared] * 4).finish()
        assert results == [alone(kind, tuple(shared.prompt.tokens), 20)] * 4
        assert sum(calls) == len(shared.prompt.tokens) - 1
        assert neighbour.finish() == [alone(kind, tuple(prompts(4)[3]), 60)]
    finally:
        engine.close()


@pytest.mark.parametrize("kind", WIDE)
def test_rows_of_1100_and_4200_tokens_share_a_batch(kind: str) -> None:
    """Metal reads keys in two passes from 1,024 or 4,096 on, which depends on the chip."""
    ragged = [[(5 * i + 3 * n * i + n) % (VOCABULARY - 3) + 3 for i in range(n)] for n in (1100, 4200)]
    rows_of_steps: list[int] = []

    def load() -> TextModel:
        model = load_model(str(tiny(kind)), LoadOptions())
        model.weight_bytes = 2**32  # padding costs nothing compared with these: all rows share each pass
        forward = model.forward
        model.forward = lambda step: (  # type: ignore[method-assign]
            rows_of_steps.append(len(step.tokens)),
            forward(step),
        )[1]
        return model

    engine = Engine(load)
    try:
        running = [Running(engine, request(prompt, max_tokens=24)) for prompt in ragged]
        shorter = Running(engine, request(prompts(4)[3], max_tokens=6))  # it joins and leaves meanwhile
        assert shorter.finish() == [alone(kind, tuple(prompts(4)[3]), 6)]
        for run, prompt in zip(running, ragged, strict=True):
            assert run.finish() == [alone(kind, tuple(prompt), 24)]
        again = [[*prompt, *alone(kind, tuple(prompt), 24), 7, 8, 9] for prompt in ragged]  # from the prefix cache
        running = [Running(engine, request(prompt, max_tokens=8)) for prompt in again]
        for run, prompt in zip(running, again, strict=True):
            assert run.finish() == [alone(kind, tuple(prompt), 8)]
            assert run.requests[0].prompt.cached_tokens >= len(prompt) - 5
        assert rows_of_steps.count(2) > 8
    finally:
        engine.close()


def test_a_batch_larger_than_max_rows_waits_and_loses_nothing() -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=3))
    try:
        running = [Running(engine, request(p, max_tokens=15)) for p in prompts(10)]
        many = Running(engine, [request(prompts(5)[4], max_tokens=9)] * 1 + [request(prompts(6)[5], max_tokens=9)] * 5)
        for run, prompt in zip(running, prompts(10), strict=True):
            assert run.finish() == [alone("qwen3", tuple(prompt), 15)]
        assert many.finish()[1:] == [alone("qwen3", tuple(prompts(6)[5]), 9)] * 5
    finally:
        engine.close()


def test_rows_whose_caches_cannot_be_merged_run_one_after_another() -> None:
    from mlx_lm.models.cache import ConcatenateKVCache

    def load() -> TextModel:
        model = load_model(str(tiny("qwen3")), LoadOptions())
        layers = len(model.new_cache())
        model.new_cache = lambda: [ConcatenateKVCache() for _ in range(layers)]  # type: ignore[method-assign]
        return model

    engine = Engine(load)
    try:
        running = [Running(engine, request(p, max_tokens=15)) for p in prompts(5)[1:]]
        several = Running(engine, [request(prompts(6)[5], max_tokens=9)] * 3)
        for run, prompt in zip(running, prompts(5)[1:], strict=True):
            assert run.finish() == [alone("qwen3", tuple(prompt), 15)]
        assert several.finish() == [alone("qwen3", tuple(prompts(6)[5]), 9)] * 3
    finally:
        engine.close()
