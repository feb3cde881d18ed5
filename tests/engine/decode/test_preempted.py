"""A row that is alone when a more urgent prompt takes its place goes on as if nobody had come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.types import GenerationRequest, SamplingParams
from tests.engine.constraints import Only
from tests.engine.guessing import Oracle, key, speculate
from tests.engine.harness import GREEDY, Running, engine_for, request, stepping
from tests.engine.sampled_rows import SAMPLINGS
from tests.tiny import VOCABULARY

ONE_ROW = EngineOptions(max_rows=1)
PROMPT = [5, 6, 7]
TOKENS = 40
ROWS = {str(i): (sampling, dict[str, Any]()) for i, sampling in enumerate(SAMPLINGS)}
ROWS |= {f"seed {seed}": (SamplingParams(seed=seed), {}) for seed in range(100, 102)}
ROWS["min_tokens"] = (GREEDY, {"min_tokens": 25, "stop_token_ids": frozenset(range(VOCABULARY // 2))})
ROWS["sampled min_tokens"] = (SamplingParams(seed=4), ROWS["min_tokens"][1])
ROWS["greedy bad words"] = (SamplingParams(temperature=0.0, bad_words=((11, 12), (30,))), {})


def made(name: str) -> GenerationRequest:
    sampling, more = ROWS[name]
    return request(PROMPT, sampling, TOKENS, **more)


def constrained(sampling: SamplingParams) -> GenerationRequest:
    return request(PROMPT, sampling, TOKENS, constraint=Only(range(20, 60)))


@contextmanager
def urgent_prompts(engine: Engine[Any], every: int = 7) -> Iterator[None]:
    """A more urgent prompt comes every few passes, and has the only place for two tokens."""
    passes = [0]

    def instead() -> None:
        passes[0] += 1
        if passes[0] % every == 0:
            Running(engine, request([9, passes[0]], max_tokens=2, priority=-1))

    with stepping(engine, instead):
        yield


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    """Tokens of each row undisturbed."""
    engine = engine_for("qwen3", ONE_ROW)
    try:
        return {name: Running(engine, made(name)).finish()[0] for name in ROWS}
    finally:
        engine.close()


def preempted(engine: Engine[Any], request: GenerationRequest) -> list[int]:
    before = engine.stats().preempted
    with urgent_prompts(engine):
        [output] = Running(engine, request).finish()
    assert engine.stats().preempted > before
    return output


@pytest.mark.parametrize("prefix_cache", [0, 2**30], ids=["prefilled again", "from the prefix cache"])
def test_sampling_of_a_preempted_row_goes_on_where_it_was(prefix_cache: int, expected: dict[str, list[int]]) -> None:
    engine = engine_for("qwen3", EngineOptions(max_rows=1, prefix_cache_bytes=prefix_cache))
    try:
        assert {name: preempted(engine, made(name)) for name in ROWS} == expected
    finally:
        engine.close()


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=3), SamplingParams(seed=4, presence_penalty=0.9)])
def test_the_grammar_constraint_of_a_preempted_row_goes_on_where_it_was(sampling: SamplingParams) -> None:
    engine = engine_for("qwen3", ONE_ROW)
    try:
        [undisturbed] = Running(engine, constrained(sampling)).finish()
        assert preempted(engine, constrained(sampling)) == undisturbed
    finally:
        engine.close()


def test_with_drafts_its_sampling_goes_on_where_it_was(
    expected: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two rows that have one seed would have one another's drafts.
    for name in ROWS:
        with monkeypatch.context() as patch:
            speculate(patch, Oracle(0.6, {key(made(name)): expected[name]}))
            engine = engine_for("qwen3", EngineOptions(max_rows=1, speculation="auto"))
            try:
                assert preempted(engine, made(name)) == expected[name], name
            finally:
                engine.close()
