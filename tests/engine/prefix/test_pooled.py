"""Models that pool tokens in groups reuse prompts that end anywhere in a group, and answer as without reuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv import copied, read_row
from localai_shim.engine.kv.segments import build_row, part_of, ratios, take_segment, take_snapshot
from localai_shim.engine.ports import StepInput
from localai_shim.engine.prefix.store import file_pieces, parse_file
from localai_shim.types import GenerationRequest, Prompt
from tests import architectures, vlm_architectures
from tests.engine.harness import GREEDY, Running
from tests.engine.turns import tokens

LIBRARIES: dict[str, Any] = {"deepseek_v4": vlm_architectures, "deepseek_v41": architectures}
MAX_TOKENS = 12

pooling = pytest.mark.parametrize("name", LIBRARIES)


@pytest.fixture
def engine(name: str) -> Iterator[Engine[Any]]:
    made = LIBRARIES[name].engine_of(name)
    yield made
    made.close()


def alone(name: str, prompt: list[int]) -> list[int]:
    said: list[int] = LIBRARIES[name].Alone(name).tokens(tuple(prompt), MAX_TOKENS)
    return said


def run(engine: Engine[Any], *prompts: Prompt) -> list[list[int]]:
    running = [Running(engine, GenerationRequest(prompt, GREEDY, MAX_TOKENS)) for prompt in prompts]
    return [row.finish()[0] for row in running]


@pooling
def test_a_follow_up_turn_reuses_the_prompt_and_the_answer(name: str, engine: Engine[Any]) -> None:
    prompt, reused = tokens(101, 3), 0
    for turn in range(3):
        [said] = run(engine, Prompt(prompt))
        assert said == alone(name, prompt)
        assert engine.stats().cache_tokens == reused
        prompt = [*prompt, *said]
        reused += len(prompt) - 1
        prompt += tokens(7, 20 + turn)


@pooling
@pytest.mark.parametrize("length", [40, 41, 42, 43])
def test_prompts_reuse_what_they_share(name: str, engine: Engine[Any], length: int) -> None:
    prompts = [[*tokens(length, 3), *tokens(30 + i, 30 + i)] for i in range(3)]
    for prompt in prompts:
        assert run(engine, Prompt(prompt, boundaries=[length])) == [alone(name, prompt)]
    assert engine.stats().cache_tokens == 2 * length


@pooling
def test_prompts_that_come_together_run_what_they_share_once(name: str, engine: Engine[Any]) -> None:
    prompts = [[*tokens(201, 3), *tokens(10 + i, 30 + i)] for i in range(3)]
    assert run(engine, *map(Prompt, prompts)) == [alone(name, prompt) for prompt in prompts]
    assert engine.stats().cache_tokens >= 201


@pooling
def test_what_is_cached_survives_the_process(name: str, tmp_path: Path) -> None:
    prompt = tokens(101, 3)
    for hits in (0, 1):
        engine = LIBRARIES[name].engine_of(name, EngineOptions(cache_dir=str(tmp_path)))
        try:
            assert run(engine, Prompt(prompt)) == [alone(name, prompt)]
            assert engine.stats().cache_hits == hits
        finally:
            engine.close()


@pooling
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("cut", [2, 31, 32])
def test_a_row_is_made_of_its_parts(name: str, cut: int, stored: bool) -> None:
    model, text = LIBRARIES[name].text_model(name), tokens(130, 3)
    row, empty = model.new_cache(), read_row(model.new_cache())
    model.prefill(StepInput(mx.array([text[:117]]), row))
    whole = take_segment(copied(row), 0, 117)
    parts = [part_of(whole, ratios(empty), 0, 0, cut), take_segment(copied(row, cut), cut, 117)]
    snapshot = take_snapshot(copied(row), 117)
    if stored:
        parts[1], snapshot = parse_file(b"".join(map(bytes, file_pieces({}, parts[1], snapshot))))
    again = build_row(empty, parts, snapshot, 117, 140)
    for token in text[117:]:
        expected, made = (model.forward(StepInput(mx.array([[token]]), each)).logits for each in (row, again))
        assert mx.array_equal(made, expected)
