"""Rows with pictures beside others say what their model says alone: over a small model that sees (`seeing.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.types import EngineClosedError, GenerationRequest, Prompt, RowError, SamplingParams
from tests import inside
from tests.engine.counting import KINDS, PER_TOKEN, tokens
from tests.engine.harness import GREEDY, Gate, Running, eventually, generate, leave_room_for
from tests.engine.media import going_on, picture, prompt_of, spread
from tests.engine.seeing import Seeing, alone, seeing
from tests.engine.traffic import ids_in_traffic
from tests.samples import exhaustive, only

HOW = [{}, {"in_one": True}]
SAMPLED = SamplingParams(temperature=0.9, top_p=0.9, seed=5)


def request(prompt: Prompt, count: int = 12, sampling: SamplingParams = GREEDY, **more: Any) -> GenerationRequest:
    return GenerationRequest(prompt, sampling, count, ignore_eos=True, **more)


@contextmanager
def engine_of(kind: str, options: EngineOptions | None = None, **how: Any) -> Iterator[Engine[Seeing]]:
    engine = seeing(kind, options, **how)
    try:
        yield engine
    finally:
        engine.close()


def mixed(seed: int = 0) -> list[Prompt]:
    """Eight: text, one picture, three."""
    text = [prompt_of(tokens(20 + 9 * i, 1 + i + seed)) for i in range(3)]
    one = [prompt_of(tokens(5 + 20 * i, 2 + i), picture(10 + i + seed, 4 + 7 * i), tokens(6, 3 + i)) for i in range(3)]
    last = [spread(31, 3, 10, 7), tokens(30, 8)]
    three = [
        prompt_of(picture(20 + i + seed), tokens(12, i), picture(10 + seed, 4), tokens(3, 4), *last) for i in range(2)
    ]
    return [text[0], one[0], three[0], text[1], one[1], one[2], three[1], text[2]]


@pytest.mark.parametrize("how", [HOW[0], pytest.param(HOW[1], marks=exhaustive)], ids=["pieces", "in one"])
@pytest.mark.parametrize("kind", only(["qwen3_next"], KINDS))
@pytest.mark.parametrize("prefix_cache", only([2**30], [0, 2**30]))
def test_eight_that_join_cancel_and_finish_at_different_times(kind: str, how: Any, prefix_cache: int) -> None:
    options = EngineOptions(prefix_cache_bytes=prefix_cache, prefill_chunk=16)
    with engine_of(kind, options, **how) as engine:
        for turn in range(2 if prefix_cache else 1):  # the second time from what the first left
            made = [request(prompt, 6 + 5 * (i % 4)) for i, prompt in enumerate(mixed())]
            said = ids_in_traffic(engine, made, lambda i: request(mixed(50)[i], 40))
            assert said == [alone(kind, each.prompt, each.max_tokens, **how) for each in made], turn


@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
@pytest.mark.parametrize("chunk", [3, 2048])
def test_in_pieces_as_in_one(kind: str, chunk: int) -> None:
    with engine_of(kind, EngineOptions(prefix_cache_bytes=0, prefill_chunk=chunk)) as engine:
        prompts = mixed()
        assert generate(engine, *map(request, prompts)) == [alone(kind, prompt, 12) for prompt in prompts]


# -- turns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW, ids=["pieces", "in one"])
@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
@pytest.mark.parametrize("prefix_cache", only([2**30], [0, 2**30]))
def test_three_turns(kind: str, how: Any, prefix_cache: int) -> None:
    with engine_of(kind, EngineOptions(prefix_cache_bytes=prefix_cache), **how) as engine:
        model, prompt = engine.model, prompt_of(tokens(30), picture(1, 20), tokens(10, 2))
        for turn in range(3):
            [said] = generate(engine, request(prompt, 10))
            assert said == alone(kind, prompt, 10, **how)
            if prefix_cache and turn and not (how and turn == 1):
                assert (prompt.cached_tokens or 0) >= 60, "also where a later picture is new"
            new = [tokens(9, 5)] if turn else [tokens(4, 7), picture(2, 9), tokens(5, 9)]
            prompt = going_on(prompt, said, *new)
        assert model.items == [1, 2], "each once, in whatever turn"


def test_what_is_kept_of_one_picture_does_not_serve_another() -> None:
    with engine_of("qwen3") as engine:
        for digest in (1, 2, 1):
            prompt = prompt_of(tokens(30), picture(digest, 20), tokens(10, 2))
            assert generate(engine, request(prompt)) == [alone("qwen3", prompt, 12)]
            assert prompt.cached_tokens == {0: 0, 1: 30, 2: 59}[engine.stats().cache_hits]


def test_a_prefix_that_ends_within_a_picture_is_gone_on_from() -> None:
    with engine_of("qwen3") as engine:
        shared = [tokens(70), picture(1, 24)]
        whole = prompt_of(*shared, tokens(4))
        generate(engine, request(whole, 4))
        prefixes = inside.setup(engine).prefixes
        assert prefixes is not None
        start = prefixes.start
        prefixes.start = lambda salt, keys, least=0, shared=None: start(salt, keys[:81], least)  # type: ignore[method-assign]
        again = prompt_of(*shared, tokens(9, 3))
        assert generate(engine, request(again)) == [alone("qwen3", again, 12)]
        assert again.cached_tokens == 80 and engine.model.items == [1]


@pytest.mark.parametrize("kind", only(["qwen3"], ["qwen3", "qwen3_next"]))
def test_turns_outlive_the_process(kind: str, tmp_path: Path) -> None:
    prompt = prompt_of(tokens(30), picture(2**63 - 1, 20), picture(1), tokens(10, 2))
    with engine_of(kind, EngineOptions(cache_dir=tmp_path)) as engine:
        [said] = generate(engine, request(prompt, 6))
    prompt = going_on(prompt, said, tokens(8, 4))
    with engine_of(kind, EngineOptions(cache_dir=tmp_path)) as engine:
        assert generate(engine, request(prompt, 6)) == [alone(kind, prompt, 6)]
        assert (prompt.cached_tokens or 0) >= 66 and engine.model.items == []


# -- what requests may ask for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["qwen3"], KINDS))
def test_choices_share_a_picture_and_a_state(kind: str) -> None:
    with engine_of(kind, EngineOptions(prefix_cache_bytes=0)) as engine:
        prompt, other = mixed()[1], mixed()[2]
        both = Running(engine, [request(prompt, 9), request(prompt, 4), request(prompt, 9, SAMPLED)])
        beside = Running(engine, request(other, 15))
        greedy, shorter, sampled = both.finish()
        assert (greedy, shorter) == (alone(kind, prompt, 9), alone(kind, prompt, 4))
        assert beside.finish() == [alone(kind, other, 15)]
        assert generate(engine, request(prompt, 9, SAMPLED)) == [sampled], "seeded: the same alone"
        assert engine.model.items.count(10) == 1 or engine.stats().feature_hits > 0


def test_rows_that_are_preempted_go_on_with_their_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [prompt_of(tokens(40, 1 + i), picture(1 + i, 15), tokens(10, 2)) for i in range(4)]
    with engine_of("qwen3", EngineOptions(prefix_cache_bytes=0, vision_cache_bytes=0)) as engine:
        leave_room_for(engine, prompts, monkeypatch)
        said = generate(engine, *[request(prompt, 40) for prompt in prompts])
        assert said == [alone("qwen3", prompt, 40) for prompt in prompts]
        assert engine.stats().preempted > 0 and engine.stats().tower_runs > 4


@pytest.mark.parametrize("kv", [Quantised(32, 4)])
def test_quantised_rows(kv: Quantised) -> None:
    prompts = mixed()
    with engine_of("qwen3", kv=kv, head_dim=32) as engine:
        together = generate(engine, *[request(prompt, 8) for prompt in prompts])
        for prompt, said in zip(prompts, together, strict=True):
            assert generate(engine, request(prompt, 8)) == [said]


def test_the_prompt_s_own_logprobs_are_those_with_its_pictures() -> None:
    prompt = mixed()[1]
    with engine_of("qwen3") as engine:
        found = []
        for chunk in (4, 2**24):
            engine.wait()
            inside.rows(engine).prefiller.portion = chunk  # type: ignore[union-attr]
            scored = Prompt(prompt.tokens, keys=prompt.keys, media=prompt.media, top_logprobs=2)
            assert generate(engine, request(scored, 6)) == [alone("qwen3", prompt, 6)]
            assert scored.scores is not None and len(scored.scores) == len(prompt.tokens) - 1
            found.append([score.logprob for score in scored.scores])
        assert found[0] == pytest.approx(found[1], abs=1e-4)
        bare = Prompt(prompt.tokens, top_logprobs=2)
        generate(engine, request(bare, 1))
        assert bare.scores is not None
        assert [score.logprob for score in bare.scores][-5:] != pytest.approx(found[0][-5:], abs=1e-2)
        assert engine.model.items == [10]


# -- failing, cancelling, closing ------------------------------------------------------------------------------------


def test_a_tower_that_fails_leaves_the_neighbours_tokens_as_they_were() -> None:
    good = [prompt for prompt in mixed() if not any(span.media.digest == 10 for span in prompt.media)]
    with engine_of("qwen3") as engine:

        def refuse(digest: int) -> None:
            if digest == 10:
                raise MemoryError("too large")

        engine.model.before_item = refuse
        running = [Running(engine, request(prompt, 20)) for prompt in good]
        bad = [Running(engine, request(prompt_of(tokens(i + 3), picture(10), tokens(4)))) for i in range(3)]
        for run in bad:
            with pytest.raises(RowError, match="too large"):
                run.finish()
        assert [run.finish()[0] for run in running] == [alone("qwen3", prompt, 20) for prompt in good]
        engine.model.before_item = lambda digest: None
        again = prompt_of(tokens(3), picture(10), tokens(4))
        assert generate(engine, request(again)) == [alone("qwen3", again, 12)]


def test_a_row_that_is_cancelled_while_the_tower_runs_for_it() -> None:
    with engine_of("qwen3") as engine:
        gate = Gate(lambda: True)
        engine.model.before_item = lambda digest: gate()
        gone = Running(engine, request(prompt_of(picture(1), tokens(4), picture(2), tokens(4))))
        text = Running(engine, request(mixed()[0]))
        gate.wait()
        gone.cancel()
        gate.open()
        assert text.finish() == [alone("qwen3", mixed()[0], 12)]
        assert eventually(lambda: engine.stats().waiting == 0)
        assert inside.setup(engine).features.pinned_bytes == 0
        prompt = prompt_of(picture(1), tokens(4))
        assert generate(engine, request(prompt)) == [alone("qwen3", prompt, 12)]
        assert engine.model.items.count(1) == 1, "what it gave is kept"


def test_an_engine_that_closes_while_the_tower_runs_fails_what_waits_for_it() -> None:
    engine = seeing("qwen3")
    gate = Gate(lambda: True)
    engine.model.before_item = lambda digest: gate()
    running = [Running(engine, request(prompt)) for prompt in mixed()[1:3]]
    gate.close(engine)
    for run in running:
        with pytest.raises(EngineClosedError):
            run.finish()
    engine.close()
    assert engine.stats().feature_bytes == 0


def test_the_engine_counts_what_the_tower_did() -> None:
    with engine_of("qwen3", EngineOptions(prefix_cache_bytes=0)) as engine:
        prompt = mixed()[1]
        for _ in range(3):
            generate(engine, request(prompt, 2))
        stats = engine.stats()
        assert (stats.tower_runs, stats.feature_hits) == (1, 2)
        assert stats.feature_bytes == 4 * 64 * 4  # placeholders, width, float32


def test_what_pictures_take_comes_out_of_what_others_may() -> None:
    """Rows wait until there is room for their features, and the prefix cache gives up what they need."""
    prompts = [prompt_of(tokens(5), picture(1 + i, 100), tokens(5)) for i in range(6)]
    with engine_of("qwen3") as engine:
        weights = engine.model.weight_bytes
    limit = weights + int(1500 * PER_TOKEN / 0.9)
    with engine_of("qwen3", EngineOptions(memory_limit=limit)) as engine:
        for _ in range(2):
            said = generate(engine, *[request(prompt, 5) for prompt in prompts])
            assert said == [alone("qwen3", prompt, 5) for prompt in prompts]
        stats = engine.stats()
        assert stats.kv_budget is not None
        assert stats.feature_bytes + stats.cache_bytes <= stats.kv_budget
