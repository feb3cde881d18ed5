"""A row whose logits are not finite numbers fails with an error of its own; its neighbors and successors do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.row import Row
from localai_shim.models.text import TextModel
from localai_shim.types import EmbeddingRequest, GenerationRequest, Prompt, RowError, SamplingParams, Token
from tests import inside
from tests.architectures import text_model
from tests.engine.constraints import Only
from tests.engine.guessing import AUTO, Ahead, speculate
from tests.engine.harness import Running, generate, request
from tests.engine.sampled_rows import SAMPLINGS, prompt
from tests.samples import only

POISON = 61
"""A token whose embedding is NaN; `prompt` never has it alone in rows 0 to 3."""
MATCH = "not finite"


def poisoned(name: str = "qwen3", *, on_device: bool = False) -> Callable[[], TextModel]:
    def make() -> TextModel:
        model = text_model(name, tie_word_embeddings=False)
        for part, value in (("embed_tokens", float("nan")), ("lm_head", 0.0)):  # no row says it by itself
            [layer] = [module for name, module in inside.network(model).named_modules() if name.endswith(part)]
            weight = mx.array(layer.weight)
            weight[POISON] = value
            layer.weight = weight
        model.samples_on_device = on_device
        return model

    return make


def clean(i: int) -> list[int]:
    return [token if token != POISON else 5 for token in prompt(i)]


def spoiled(length: int = 30) -> list[int]:
    return [*range(3, 3 + length), POISON, 9]


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("place", range(len(SAMPLINGS)))
def test_a_row_of_nan_fails_however_it_is_sampled_and_all_kinds_of_neighbors_go_on(place: int, on_device: bool) -> None:
    engine = Engine(poisoned(on_device=on_device), EngineOptions(speculation="off"))
    try:
        others = [request(clean(i), sampling, 16) for i, sampling in enumerate(SAMPLINGS)]
        expected = generate(engine, *others)
        running = [Running(engine, other) for other in others]
        for each in running:
            each.read(2)
        bad = Running(engine, request(spoiled(), SAMPLINGS[place], 16))
        with pytest.raises(RowError, match=MATCH):
            bad.finish()
        assert len(bad.events[0]) == 1, "no token of it is an answer"
        assert [each.finish()[0] for each in running] == expected
    finally:
        engine.close()


@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[3]], ids=["greedy", "top_k"])
def test_a_constrained_row_of_nan_fails_and_a_constrained_neighbor_goes_on(sampling: SamplingParams) -> None:
    engine = Engine(poisoned(), EngineOptions(speculation="off"))
    try:
        [expected] = generate(engine, request(clean(2), sampling, 12, constraint=Only(range(10, 40))))
        good = Running(engine, request(clean(2), sampling, 12, constraint=Only(range(10, 40))))
        good.read(2)
        with pytest.raises(RowError, match=MATCH):
            Running(engine, request(spoiled(), sampling, 12, constraint=Only(range(10, 40)))).finish()
        assert good.finish()[0] == expected
    finally:
        engine.close()


@pytest.mark.parametrize("name", only(["qwen3", "gemma3_text"], ["qwen3", "gemma3_text", "qwen3_next", "qwen3_moe"]))
@pytest.mark.parametrize("leaves", ["fails", "is canceled"])
def test_a_row_that_takes_the_slot_of_one_with_nan_is_not_spoiled(name: str, leaves: str) -> None:
    """Masked attention multiplies what it may not see by 0, and NaN times 0 is NaN."""
    engine = Engine(poisoned(name), EngineOptions(speculation="off", prefix_cache_bytes=0))
    try:
        short = request(clean(2), max_tokens=60)
        [expected] = generate(engine, short)
        neighbor = Running(engine, request(clean(2), max_tokens=60))
        neighbor.read(3)
        bad = Running(engine, request(spoiled(40), max_tokens=5))
        if leaves == "fails":
            with pytest.raises(RowError, match=MATCH):
                bad.finish()
        else:
            neighbor.read(4)
            bad.cancel()
        assert Running(engine, request(clean(2), max_tokens=60)).finish()[0] == expected
        assert neighbor.finish()[0] == expected
    finally:
        engine.close()


def test_no_prompt_of_nan_is_kept_for_the_next_one(warnings: list[str]) -> None:
    engine = Engine(poisoned(), EngineOptions(speculation="off"))
    try:
        neighbor = Running(engine, request(clean(2), max_tokens=60))
        neighbor.read(3)
        with pytest.raises(RowError, match=MATCH):
            Running(engine, request(spoiled(), max_tokens=5)).finish()
        before = engine.stats().cache_hits
        with pytest.raises(RowError, match=MATCH):
            Running(engine, request([*spoiled(), 7, 8, 9], max_tokens=5)).finish()
        assert engine.stats().cache_hits == before
        neighbor.finish()
        assert not warnings
    finally:
        engine.close()


@pytest.mark.parametrize("sampling", [{}, {"repetition_penalty": 1.1}], ids=["all at once", "one by one"])
def test_a_row_that_comes_to_nan_in_a_step_of_several_tokens_has_what_came_before(
    sampling: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(poisoned(), EngineOptions(speculation="off"))
    good = request(clean(4), max_tokens=24)
    expected = Running(engine, good).finish()
    engine.close()

    class ForTheBad(Ahead):
        def takes(self, row: Row) -> bool:
            return bool(row.sampling.logit_bias)

    speculate(monkeypatch, ForTheBad([POISON] * 24, 4))
    engine = Engine(poisoned(), AUTO)
    try:
        running = Running(engine, good)
        bad = Running(engine, request(clean(3), SamplingParams(logit_bias={POISON: 1000.0}, **sampling), 24))
        with pytest.raises(RowError, match=MATCH):
            bad.finish()
        came, _ = bad.events[0]
        assert isinstance(came, Token) and came.id == POISON
        assert running.finish() == expected
    finally:
        engine.close()


def test_scores_of_a_prompt_with_nan_fail_it_alone() -> None:
    engine = Engine(poisoned(), EngineOptions(speculation="off"))

    def scored(tokens: list[int]) -> GenerationRequest:
        return GenerationRequest(Prompt(tokens, top_logprobs=2), SamplingParams(temperature=0.0), 4)

    try:
        running = [Running(engine, scored(tokens)) for tokens in (clean(2), spoiled(), clean(4))]
        with pytest.raises(RowError, match=MATCH):
            running[1].finish()
        for each in (running[0], running[2]):
            each.finish()
            scores: Any = each.requests[0].prompt.scores
            assert len(scores) == len(each.requests[0].prompt.tokens) - 1
    finally:
        engine.close()


def test_a_text_whose_vector_is_nan_fails_its_request_alone() -> None:
    engine = Engine(poisoned())
    try:
        works: list[Any] = [EmbeddingRequest([tokens]) for tokens in (clean(2), spoiled(), clean(4))]
        jobs = [Running(engine, [work]) for work in works]
        with pytest.raises(RowError, match=MATCH):
            jobs[1].finish()
        for each in (jobs[0], jobs[2]):
            each.finish()
    finally:
        engine.close()
