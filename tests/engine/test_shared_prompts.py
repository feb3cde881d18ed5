"""Rows that begin alike share what their first tokens left, and say what each says alone, whatever others do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv import buckets
from localai_shim.engine.ports import PassOutput, StepInput
from localai_shim.engine.prefix import sharing
from localai_shim.models.text import TextModel
from localai_shim.types import Adapter, GenerationRequest, Prompt, SamplingParams
from tests.engine.harness import GREEDY, Running, engine_for, eventually, generate, request
from tests.engine.oracle import alone
from tests.samples import only
from tests.tiny import CONFIGS

KINDS = [*CONFIGS]
"""Dense, windowed, hybrid, and with experts."""
SYSTEM = [5 + 7 * i % 200 for i in range(120)]


@pytest.fixture(autouse=True)
def _short_prompts_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MIN_SHARED_TOKENS", 16)
    monkeypatch.setattr(sharing, "MOST_SAVED_TOKENS", 0)


def agent(number: int, own: int = 9) -> list[int]:
    """A prompt that begins with the system's."""
    return [*SYSTEM, *[11 + (number * 31 + 3 * i) % 180 for i in range(own)]]


@contextmanager
def engine(kind: str = "qwen3", **options: Any) -> Iterator[Engine[TextModel]]:
    made = engine_for(kind, EngineOptions(**options))
    try:
        made.wait()
        yield made
    finally:
        made.close()


def shared_bytes(made: Engine[TextModel]) -> int:
    return made.stats().shared_bytes


def expected(kind: str, prompt: list[int], count: int = 24) -> list[int]:
    return alone(kind, tuple(prompt), count)


def prefix_bytes(made: Engine[TextModel]) -> int:
    return len(SYSTEM) * made.stats().kv_bytes_per_token


@pytest.mark.parametrize("kind", KINDS)
def test_agents_under_one_system_prompt_say_what_each_says_alone(kind: str) -> None:
    prompts = [agent(i, 5 + 3 * i) for i in range(6)]
    with engine(kind) as made:
        running = [Running(made, request(prompt, max_tokens=24)) for prompt in prompts]
        assert eventually(lambda: shared_bytes(made) > 0)
        assert [run.finish()[0] for run in running] == [expected(kind, prompt) for prompt in prompts]
        assert eventually(lambda: not shared_bytes(made))


@pytest.mark.parametrize("kind", KINDS)
def test_choices_of_one_prompt_share_all_of_it(kind: str) -> None:
    with engine(kind) as made:
        prompt = Prompt(agent(1))
        run = Running(made, [GenerationRequest(prompt, GREEDY, 40) for _ in range(5)])
        assert eventually(lambda: shared_bytes(made) > 0)
        assert run.finish() == [expected(kind, prompt.tokens, 40)] * 5


@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
def test_rows_that_join_later_share_with_those_that_run(kind: str) -> None:
    """The first one held a copy until then."""
    with engine(kind) as made:
        first = Running(made, request(agent(0), max_tokens=300, ignore_eos=True))
        first.read(3)
        assert not shared_bytes(made)
        second = Running(made, request(agent(1), max_tokens=24))
        second.read(1)
        assert shared_bytes(made) >= 0.9 * prefix_bytes(made)
        assert second.finish()[0] == expected(kind, agent(1))
        third = Running(made, request(agent(2, 30), max_tokens=24))
        assert third.finish()[0] == expected(kind, agent(2, 30))
        first.cancel()


@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
def test_a_row_next_to_rows_that_share_may_share_nothing(kind: str) -> None:
    other = [9 + 5 * i % 170 for i in range(70)]
    with engine(kind) as made:
        running = [Running(made, request(prompt)) for prompt in (agent(0), other, agent(1), other[::-1])]
        said = [run.finish()[0] for run in running]
    assert said == [expected(kind, prompt) for prompt in (agent(0), other, agent(1), other[::-1])]


def test_two_groups_share_each_its_own_prompt() -> None:
    other = [9 + 5 * i % 170 for i in range(70)]
    prompts = [agent(0), [*other, 8, 9], agent(1), [*other, 4, 5, 6], agent(2)]
    with engine() as made:
        running = [Running(made, request(prompt, max_tokens=60, ignore_eos=True)) for prompt in prompts]
        assert eventually(lambda: shared_bytes(made) >= 1.4 * prefix_bytes(made))
        said = [run.finish()[0] for run in running]
        alone_too = [generate(made, request(prompt, max_tokens=60, ignore_eos=True))[0] for prompt in prompts]
    assert said == alone_too


@pytest.mark.parametrize("kind", only(["gemma3_text"], KINDS))
def test_a_row_that_is_cancelled_frees_nothing_that_others_read(kind: str) -> None:
    with engine(kind, prefix_cache_bytes=200_000) as made:
        gone = [Running(made, request(agent(i), max_tokens=400, ignore_eos=True)) for i in range(3)]
        for run in gone:
            run.read(2)
        stays = Running(made, request(agent(7), max_tokens=24))
        stays.read(1)
        for run in gone:
            run.cancel()
        unrelated = [[13 + (i * 7 + j) % 190 for j in range(90)] for i in range(6)]
        generate(made, *[request(prompt, max_tokens=2) for prompt in unrelated])  # the prefix cache drops what it can
        assert stays.finish()[0] == expected(kind, agent(7))


def test_prompts_with_another_salt_share_nothing() -> None:
    with engine() as made:
        running = [
            Running(made, GenerationRequest(Prompt(agent(i), salt=f"tenant {i}"), GREEDY, 40, ignore_eos=True))
            for i in range(3)
        ]
        for run in running:
            run.read(2)
        assert not shared_bytes(made)
        for run in running:
            run.finish()


def test_adapters_keep_their_prompts_apart() -> None:
    """Keys and values depend on the adapter: its fingerprint is part of the salt."""
    adapter = Adapter("pirate", "f1", "nowhere")
    assert Prompt(agent(0), adapter=adapter).salt != Prompt(agent(0)).salt


@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
def test_drafts_behind_shared_tokens_change_no_token(kind: str) -> None:
    prompts = [[*agent(i), *[40, 41, 42, 43] * 6] for i in range(4)]
    with engine(kind, speculation="auto") as made:
        running = [
            Running(made, request(prompt, prediction=tuple(expected(kind, prompt, 40)), max_tokens=40))
            for prompt in prompts
        ]
        assert [run.finish()[0] for run in running] == [expected(kind, prompt, 40) for prompt in prompts]


@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
def test_a_second_turn_shares_what_other_agents_hold(kind: str) -> None:
    with engine(kind) as made:
        answers = generate(made, *[request(agent(i), max_tokens=12) for i in range(3)])
        turns = [[*agent(i), *answer, 30, 31, 32 + i] for i, answer in enumerate(answers)]
        running = [Running(made, request(turn, max_tokens=24)) for turn in turns]
        assert [run.finish()[0] for run in running] == [expected(kind, turn) for turn in turns]


def test_rows_in_a_tight_memory_are_preempted_and_continue() -> None:
    with engine() as free:
        per_token = free.stats().kv_bytes_per_token
    prompts = [agent(i) for i in range(8)]
    weights = 10_000_000
    with engine(max_rows=8, memory_limit=weights + 1500 * per_token) as made:
        said = generate(made, *[request(prompt, max_tokens=200, ignore_eos=True) for prompt in prompts])
    with engine() as roomy:
        assert said == [generate(roomy, request(p, max_tokens=200, ignore_eos=True))[0] for p in prompts]


@pytest.mark.parametrize("seed", only([1], range(8)))
@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_and_go_in_any_order(kind: str, seed: int) -> None:
    """Prompts of a family tree, joins in mid-stream, cancellations, several choices, and sampled neighbors."""
    rng = random.Random(f"{kind} {seed}")
    beginnings = [SYSTEM, [*SYSTEM, *[33 + i % 60 for i in range(40)]], [17 + 3 * i % 150 for i in range(50)]]
    with engine(kind, prefix_cache_bytes=rng.choice([0, 300_000, 100_000_000])) as made:
        kept: list[tuple[list[int], int, Running]] = []
        for _ in range(14):
            prompt = [*rng.choice(beginnings), *[rng.randrange(4, 200) for _ in range(rng.randrange(1, 30))]]
            count = rng.randrange(2, 30)
            run = Running(
                made, [GenerationRequest(one, GREEDY, count) for one in [Prompt(prompt)] * rng.choice([1, 1, 3])]
            )
            kept.append((prompt, count, run))
            for _ in range(rng.randrange(3)):
                other = [*rng.choice(beginnings), *[rng.randrange(4, 200) for _ in range(5)]]
                sampled = Running(made, request(other, SamplingParams(temperature=1.0, seed=3), max_tokens=300))
                sampled.read(rng.randrange(1, 4))
                sampled.cancel()
        for prompt, count, run in kept:
            for tokens in run.finish():
                assert tokens == expected(kind, prompt, count)
        assert eventually(lambda: not shared_bytes(made))


@pytest.mark.parametrize("broken", ["choose", "_hold"])
def test_rows_hold_copies_if_nothing_can_be_shared(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("no memory for what rows share")

    with engine() as made:
        first = Running(made, request(agent(0), max_tokens=200, ignore_eos=True))
        first.read(2)
        monkeypatch.setattr(sharing.Sharing, broken, refuse)
        monkeypatch.setattr(sharing.Sharing, "for_prompt", lambda *_: None)
        assert generate(made, request(agent(1)))[0] == expected("qwen3", agent(1))
        assert not shared_bytes(made)
        monkeypatch.undo()
        assert len(first.finish()[0]) == 200


def test_rows_that_share_run_in_one_pass_with_the_one_that_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own tokens decide which rows share a pass, not the copy that it held until then."""
    monkeypatch.setattr(buckets, "FREE_PADDING_BYTES", 0)
    widths: list[int] = []
    system = SYSTEM * 8
    with engine() as made:
        model = made.model
        assert model is not None
        forward = model.forward

        def counted(step: StepInput) -> PassOutput[mx.array]:
            widths.append(step.tokens.shape[0])
            return forward(step)

        model.forward = counted  # type: ignore[method-assign]
        first = Running(made, request([*system, 8], max_tokens=200, ignore_eos=True))
        first.read(2)
        others = [Running(made, request([*system, i], max_tokens=20, ignore_eos=True)) for i in range(10, 13)]
        for run in others:
            run.finish()
        first.cancel()
    assert max(widths) == 4
