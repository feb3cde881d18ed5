"""Short prompts are prefilled in one pass, and each computes what it computes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv import read_row
from localai_shim.engine.kv.row import leaves
from localai_shim.engine.ports import StepInput
from localai_shim.models.text import TextModel
from localai_shim.types import RowError, SamplingParams
from tests.engine.counting import expected, tokens
from tests.engine.harness import Running, engine_for, eventually, generate, request, rows_of
from tests.engine.recording import MakeWorld, World, refusing
from tests.samples import only

LENGTHS = [2, 3, 5, 9, 12, 17, 24, 30, 31, 40, 63, 64, 65, 90, 110, 128]


class Passes:
    """What an engine's model is asked to prefill: the tokens of each row of each pass."""

    def __init__(self, engine: Engine[TextModel]) -> None:
        self.passes: list[list[list[int]]] = []
        prefill = engine.model.prefill

        def watched(step: StepInput, *, wait: bool = True) -> mx.array | None:
            self.passes.append(rows_of(step))
            logits = prefill(step, wait=wait)
            if step.counts is None:
                return logits
            for layer in leaves(read_row(step.layers)):
                ring = getattr(layer, "ring", None)
                assert ring is None or layer.length <= ring.size, "a window would have forgotten the wrong tokens"
            return logits

        engine.model.prefill = watched  # type: ignore[method-assign]


@contextmanager
def passes(
    kind: str, options: EngineOptions | None = None, kv: Quantised | None = None, **changes: Any
) -> Iterator[tuple[Engine[TextModel], list[list[list[int]]]]]:
    engine = engine_for(kind, options, kv, **changes)
    try:
        yield engine, Passes(engine).passes
    finally:
        engine.close()


# -- how many passes ---------------------------------------------------------------------------------------------------


def rows_of_passes(w: World, *, prompts: int, length: int) -> list[int]:
    """How many rows each pass has when so many prompts of a length are run."""
    for i in range(1, prompts + 1):
        w.ask([i] * length)
    w.run()
    return [len(rows) for rows in w.model.passes]


def test_prompts_of_about_a_length_take_one_pass(world: MakeWorld) -> None:
    w = world()
    for i in range(1, 9):
        w.ask([i] * (40 + i))
    w.run()
    assert [len(rows) for rows in w.model.passes] == [8]
    assert {len(row) for row in w.model.passes[0]} == {47}, "padded to the longest"
    assert w.meter.prefilled_tokens == sum(39 + i for i in range(1, 9)), "and padding is not counted"


def test_nobody_is_padded_to_more_than_twice_the_length(world: MakeWorld) -> None:
    w = world()
    for i, length in enumerate([10, 11, 14, 20, 22, 40, 44, 80, 90, 120, 128]):
        w.ask([i + 1] * length)
    w.run()
    assert len(w.model.passes) < 8
    for rows in w.model.passes:
        filled = [len([token for token in row if token]) for row in rows]
        assert 2 * min(filled) >= max(filled)
    assert sorted(set(w.begun())) == list(range(1, 12))


def test_a_pass_is_of_a_chunk_at_most(world: MakeWorld) -> None:
    assert rows_of_passes(world(), prompts=40, length=101) == [20] * 2


def test_long_prompts_are_run_alone(world: MakeWorld) -> None:
    assert rows_of_passes(world(), prompts=4, length=130) == [1] * 4


def test_beside_running_rows_a_pass_is_as_large_as_a_chunk_may_be(world: MakeWorld) -> None:
    w = world(seconds_per_token=0.01, max_stall=0.5)  # 50 tokens
    w.ask([99, 99], max_tokens=300)
    w.step()
    for i in range(1, 21):
        w.ask([i] * 11)
    stalls = []
    while len(w.prompts):
        before = w.clock.now
        w.step()
        stalls.append(w.clock.now - before)
    assert max(stalls) <= 0.5 * 1.5 + 0.01
    assert max(len(rows) for rows in w.model.passes) > 1


def test_each_row_gets_its_own_tokens_without_the_padding(world: MakeWorld) -> None:
    w = world()
    prompts = [[i] * (20 + i) for i in range(1, 7)]
    for prompt in prompts:
        w.ask(prompt, max_tokens=100)
    w.step()
    for row, place in zip(w.batch.rows, w.batch._places, strict=True):
        [layer] = w.batch._cache.read(place)
        assert layer.arrays[0].flatten().tolist() == row.prompt_tokens[:-1]  # type: ignore[union-attr]


def test_prompts_that_go_on_from_the_same_length_are_run_together_too(world: MakeWorld) -> None:
    w = world()
    shared = [50] * 100
    w.ask(shared)
    w.run()
    w.model.passes.clear()
    prompts = [[*shared, *[i] * 20] for i in range(1, 7)]
    for prompt in prompts:
        w.ask(prompt, max_tokens=100)
    w.step()
    [together] = w.model.passes
    assert sorted(map(len, together)) == [19] * 6 and w.meter.prefilled_tokens == 99 + 6 * 19
    for row, place in zip(w.batch.rows, w.batch._places, strict=True):
        [layer] = w.batch._cache.read(place)
        assert layer.arrays[0].flatten().tolist() == row.prompt_tokens[:-1]  # type: ignore[union-attr]


def test_prompts_of_which_everything_is_known_do_not_keep_others_from_it(world: MakeWorld) -> None:
    w = world()
    for i in range(1, 5):
        w.ask([i] * 30)
    w.run()
    w.model.passes.clear()
    for i in range(1, 9):
        w.ask([i] * 30)
    w.run()
    assert [sorted(row[0] for row in rows) for rows in w.model.passes] == [[5, 6, 7, 8]]


# -- what they compute -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["gemma3_text"], ["qwen3", "gemma3_text", "llama", "qwen3_moe", "qwen3_next"]))
def test_prompts_run_together_say_what_each_says_alone(kind: str) -> None:
    with passes(kind) as (engine, ran):
        prompts = [tokens(n, n) for n in LENGTHS]
        assert Running(engine, [request(p, max_tokens=6) for p in prompts]).finish() == [
            expected(kind, p, 6) for p in prompts
        ]
        assert kind == "qwen3_next" or any(len(rows) > 1 for rows in ran)


def test_quantised_rows_are_run_together_and_say_what_each_says_alone() -> None:
    with passes("qwen3", EngineOptions(prefix_cache_bytes=0), Quantised(32, 8), head_dim=32) as (engine, ran):
        requests = [request(tokens(n, n), max_tokens=12) for n in LENGTHS]
        each = [generate(engine, one)[0] for one in requests]
        ran.clear()
        assert Running(engine, requests).finish() == each
        assert len(ran) < len(LENGTHS)


def test_recurrent_models_are_never_padded() -> None:
    with passes("qwen3_next") as (engine, ran):
        Running(engine, [request(tokens(n, n), max_tokens=2) for n in LENGTHS]).finish()
        assert ran and all(len(rows) == 1 for rows in ran)


def test_prompts_that_would_overfill_a_window_are_run_alone() -> None:
    window = 32
    with passes("gemma3_text", EngineOptions(max_stall=60)) as (engine, ran):  # each prompt in one pass
        Running(engine, [request(tokens(n, n), max_tokens=2) for n in LENGTHS]).finish()
        for rows in ran:
            assert len(rows) == 1 or len(rows[0]) < window
        assert sorted(len(rows[0]) for rows in ran if len(rows[0]) >= window) == [39, 62, 63, 64, 89, 109, 127]


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text"])
def test_a_window_is_not_overfilled_after_a_shared_beginning_either(kind: str) -> None:
    with passes(kind) as (engine, ran):
        shared = tokens(20)
        generate(engine, request(shared, max_tokens=1))
        ran.clear()
        prompts = [[*shared, *tokens(n, n)] for n in (8, 9, 10, 11, 12, 13, 14, 15)]
        assert Running(engine, [request(p, max_tokens=12) for p in prompts]).finish() == [
            expected(kind, p, 12) for p in prompts
        ]
        together = [rows for rows in ran if len(rows) > 1]
        assert together and (kind == "qwen3" or all(19 + len(rows[0]) <= 32 for rows in together))


def test_seeded_rows_draw_the_same_together_and_alone() -> None:
    with passes("qwen3", EngineOptions(prefix_cache_bytes=0)) as (engine, ran):
        requests = [
            request(tokens(20 + i, i), SamplingParams(temperature=1.1, top_p=0.9, seed=i), max_tokens=25)
            for i in range(6)
        ]
        each = [generate(engine, one)[0] for one in requests]
        ran.clear()
        assert Running(engine, requests).finish() == each
        assert [len(rows) for rows in ran] == [6]


def test_what_they_leave_is_found_afterwards() -> None:
    with passes("qwen3") as (engine, ran):
        prompts = [tokens(40 + i, i) for i in range(6)]
        Running(engine, [request(p, max_tokens=3) for p in prompts]).finish()
        assert [len(rows) for rows in ran] == [6]
        ran.clear()
        going_on = [[*p, *tokens(30, 9)] for p in prompts]
        assert generate(engine, *[request(p, max_tokens=8) for p in going_on]) == [
            expected("qwen3", p, 8) for p in going_on
        ]
        assert sum(len([t for t in row if t]) for rows in ran for row in rows) <= 6 * 30


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_prompt_whose_prefill_fails_fails_alone(world: MakeWorld) -> None:
    w = world()
    w.model.before = refusing(13)
    rows = [w.ask([i] * 30)[0] for i in range(10, 18)]
    w.run()
    assert [w.failed(row) for row in rows] == [i == 13 for i in range(10, 18)]
    assert all(w.served(row) == 1 for i, row in enumerate(rows, 10) if i != 13)
    assert len(w.meter.step_seconds()) and w.meter.prefilled_tokens == 7 * 29


def test_in_the_engine_too_the_others_say_what_they_say_without_it() -> None:
    with passes("qwen3") as (engine, _):
        prefill = engine.model.prefill

        def refusing(step: StepInput, *, wait: bool = True) -> mx.array | None:
            if any(13 in row for row in rows_of(step)):
                raise RuntimeError("bad prompt")
            return prefill(step, wait=wait)

        engine.model.prefill = refusing  # type: ignore[method-assign]
        good = [[i] * 3 + [40, 50 + i] for i in range(20, 26)]
        running = [Running(engine, [request(p, max_tokens=9) for p in good[:3]] + [request([13, 14, 15, 16, 17])])]
        running.append(Running(engine, [request(p, max_tokens=9) for p in good[3:]]))
        with pytest.raises(RowError, match="bad prompt"):
            running[0].finish()
        assert running[1].finish() == [expected("qwen3", p, 9) for p in good[3:]]
        while not all(len(events) == 9 for events in running[0].events[:3]):
            running[0].read(1)
        assert eventually(lambda: engine.stats().running + engine.stats().waiting == 0)


def test_a_prompt_that_is_cancelled_while_it_waits_leaves_the_others(world: MakeWorld) -> None:
    w = world()
    rows = [w.ask([i] * 30)[0] for i in range(1, 9)]
    w.cancel(rows[3], rows[6])
    w.run()
    assert [w.served(row) for row in rows] == [1, 1, 1, 0, 1, 1, 0, 1]
    assert [len(passed) for passed in w.model.passes] == [6] and {4, 7} & set(w.begun()) == set()


def test_a_prompt_that_is_cancelled_between_two_passes_leaves_the_others(world: MakeWorld) -> None:
    """Some of a group that was begun go on later, where a pass had no place for all."""
    w = world(seconds_per_token=0.01, max_stall=0.3)
    w.ask([99, 99], max_tokens=100)
    w.step()
    rows = [w.ask([i] * 20)[0] for i in range(1, 9)]
    w.step()
    begun = set(w.begun()) - {99}
    assert 0 < len(begun) < 8
    w.cancel(*rows[::2])
    w.run()
    assert all(w.is_done(row) for row in rows[1::2])
    assert not any(w.is_done(row) for i, row in enumerate(rows[::2]) if 2 * i + 1 not in begun)
