"""Rows wait for memory, give it up to each other, and say what they would say with plenty of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.backends import machine
from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.memory import Memory
from localai_shim.engine.ports import StepInput
from localai_shim.engine.work import rows as of_rows
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from localai_shim.stats import EngineStats
from localai_shim.types import ModelLoadError, RowError, SamplingParams
from tests import inside
from tests.engine.counting import PER_TOKEN, counting, tokens
from tests.engine.harness import (
    GREEDY,
    Gate,
    Running,
    engine_for,
    eventually,
    generate,
    request,
    step_of,
    stepping,
)
from tests.engine.oracle import alone
from tests.samples import only
from tests.tiny import tiny

KINDS = ["qwen3", "gemma3_text", "qwen3_next"]
SAMPLED = SamplingParams(temperature=0.9, top_p=0.9, seed=1, presence_penalty=0.5, top_logprobs=2)
BANNING = SamplingParams(
    temperature=1.0, top_k=4, seed=4, bad_words=tuple((i, j) for i in range(0, 400, 2) for j in (5, 80, 199))
)


def room_for(token_count: int) -> EngineOptions:
    """Memory for about so many tokens of tiny qwen3, and no prefix cache in it."""
    bytes_needed = int(token_count * PER_TOKEN / 0.9) + 1
    return EngineOptions(memory_limit=weights("qwen3") + bytes_needed, prefix_cache_bytes=0)


@functools.cache
def weights(kind: str) -> int:
    """Bytes of a tiny model's weights."""
    return load_model(str(tiny(kind)), LoadOptions()).weight_bytes


@contextmanager
def seen_by_steps(engine: Engine) -> Iterator[list[EngineStats]]:
    """The engine's statistics at each step of the batch."""
    seen: list[EngineStats] = []
    with stepping(engine, lambda: seen.append(engine.stats())):
        yield seen


# -- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["gemma3_text"], KINDS))
def test_what_a_row_takes_is_what_was_reckoned(kind: str) -> None:
    with closing(engine_for(kind)) as engine:
        model, memory = engine.model, Memory(engine.model, None, 2048)
        for count in (3, 200, 700):
            row = model.new_cache()
            model.prefill(step_of([1] * count, row))
            held = sum(layer.nbytes for layer in row)
            assert 0.5 * memory.row(count) <= held <= memory.row(count)


@pytest.mark.parametrize("kind", only(["gemma3_text"], KINDS))
def test_a_batch_takes_no_more_than_was_reckoned(kind: str) -> None:
    with closing(engine_for(kind, EngineOptions(prefix_cache_bytes=0))) as engine:
        engine.wait()
        memory = inside.setup(engine).memory
        assert memory is not None
        prompts = [tokens(30 + 90 * i, i) for i in range(5)]
        most = memory.batch([len(p) + 48 for p in prompts])
        with seen_by_steps(engine) as seen:
            running = [Running(engine, request(p, max_tokens=48)) for p in prompts]
            assert [run.finish()[0] for run in running] == [alone(kind, tuple(p), 48) for p in prompts]
        assert max(stats.running for stats in seen) == len(prompts)
        assert all(stats.kv_bytes <= most for stats in seen)


# -- admission -------------------------------------------------------------------------------------------------------


def test_rows_for_which_there_is_no_memory_wait_for_those_that_run() -> None:
    with closing(engine_for("qwen3", room_for(2600))) as engine:
        with seen_by_steps(engine) as seen:
            running = [Running(engine, request(tokens(300, i), max_tokens=24)) for i in range(8)]
            assert [run.finish()[0] for run in running] == [alone("qwen3", tuple(tokens(300, i)), 24) for i in range(8)]
        assert 1 < max(stats.running for stats in seen) < 8, "some, not all, fit"
        assert engine.stats().preempted == 0, "all of their answers was reserved"


def test_choices_of_one_prompt_that_do_not_fit_at_once_come_one_after_another() -> None:
    with closing(engine_for("qwen3", room_for(1600))) as engine:
        one = request(tokens(200), max_tokens=20)
        assert Running(engine, [one] * 6).finish() == [alone("qwen3", tuple(tokens(200)), 20)] * 6


def test_the_prefix_cache_gives_way_to_rows() -> None:
    options = room_for(3000)
    with counting("qwen3", EngineOptions(memory_limit=options["memory_limit"])) as c:
        for i in range(6):
            c.ask(tokens(400, i), n=1)
        held = c.engine.stats().cache_bytes
        prompts = [tokens(250, 50 + i) for i in range(4)]
        with seen_by_steps(c.engine) as seen:
            running = [Running(c.engine, request(p, max_tokens=24)) for p in prompts]
            assert [r.finish()[0] for r in running] == [alone("qwen3", tuple(p), 24) for p in prompts]
        together = [stats for stats in seen if stats.running > 1]
        assert together and all(stats.cache_bytes < held for stats in together)
        budget = c.engine.stats().kv_budget
        assert all(stats.cache_bytes + stats.kv_bytes <= (budget or 0) * 1.1 for stats in seen)


def test_the_context_is_as_long_as_a_row_that_has_all_memory() -> None:
    with closing(engine_for("qwen3", room_for(800))) as engine:
        length = engine.model.context_length
        assert length == 768, "caches grow by 256 tokens at a time"
        [said] = generate(engine, request(tokens(length - 5), max_tokens=100, ignore_eos=True))
        assert len(said) == 5


def test_a_limit_below_the_weights_is_said_when_the_model_is_loaded() -> None:
    engine = engine_for("qwen3", EngineOptions(memory_limit=1000))
    with pytest.raises(ModelLoadError, match="memory_limit is 1000 bytes"):
        _ = engine.model
    engine.close()


# -- preemption ------------------------------------------------------------------------------------------------------


@pytest.fixture
def little_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows begin with room for a little of their answers; one of a batch takes twice as much from 205 tokens on."""
    monkeypatch.setattr(of_rows, "RESERVED_TOKENS", 16)
    monkeypatch.setattr(of_rows, "FURTHER_TOKENS", 16)


@pytest.mark.usefixtures("little_reserved")
@pytest.mark.parametrize(
    "sampling", only([BANNING], [GREEDY, SAMPLED, BANNING]), ids=["greedy", "sampled", "with bad words"]
)
def test_rows_that_are_preempted_go_on_as_if_nothing_had_been(sampling: SamplingParams) -> None:
    plenty = engine_for("qwen3", EngineOptions(prefix_cache_bytes=0))
    prompts = [tokens(170 + i, i) for i in range(4)]
    expected = [generate(plenty, request(p, sampling, 60, ignore_eos=True))[0] for p in prompts]
    plenty.close()
    with closing(engine_for("qwen3", room_for(900))) as engine:
        running = [Running(engine, request(p, sampling, 60, ignore_eos=True)) for p in prompts]
        assert [run.finish()[0] for run in running] == expected
        assert engine.stats().preempted > 0
        assert engine.stats().prompt_tokens >= sum(map(len, prompts))


@pytest.mark.usefixtures("little_reserved")
def test_the_oldest_and_most_urgent_rows_are_never_preempted() -> None:
    with closing(engine_for("qwen3", room_for(1800))) as engine:
        urgent = Running(engine, request(tokens(170, 1), max_tokens=80, priority=-1, ignore_eos=True))
        urgent.read(1)
        others = [Running(engine, request(tokens(170, i), max_tokens=80, ignore_eos=True)) for i in (2, 3, 4, 5)]
        steps = engine.stats().steps
        urgent.finish()
        assert engine.stats().steps - steps < 100, "a token in each step"
        assert [len(run.finish()[0]) for run in others] == [80] * 4
        assert engine.stats().preempted > 0


@pytest.mark.usefixtures("little_reserved")
def test_a_preempted_row_can_be_cancelled_and_leaves_the_others_alone() -> None:
    with closing(engine_for("qwen3", room_for(1800))) as engine:
        gate = Gate(lambda: engine.stats().preempted > 0)
        with stepping(engine, gate):
            running = [Running(engine, request(tokens(170, i), max_tokens=60)) for i in range(5)]
            gate.wait()
            running[-1].cancel()  # the youngest: one that was preempted
            gate.open()
            assert [r.finish()[0] for r in running[:4]] == [alone("qwen3", tuple(tokens(170, i)), 60) for i in range(4)]
        assert eventually(lambda: engine.stats().running + engine.stats().waiting == 0)


# -- quantised keys and values -----------------------------------------------------------------------------------------


@pytest.fixture(params=[4, 8])
def bits(request: pytest.FixtureRequest) -> int:
    made: int = request.param
    return made


@pytest.fixture
def quantised(bits: int) -> Iterator[Engine]:
    made = engine_for("qwen3", kv=Quantised(32, bits), head_dim=32)
    yield made
    made.close()


def test_quantised_rows_take_what_is_said_and_less(bits: int, quantised: Engine) -> None:
    stats = quantised.stats() if quantised.model else None
    assert stats is not None
    assert stats.kv_bytes_per_token_unquantised == 2 * 2 * 2 * 32 * 4
    # A scale and a bias of 32 bits for each 32 numbers.
    assert stats.kv_bytes_per_token == stats.kv_bytes_per_token_unquantised * (bits + 2) // 32
    gate = Gate(lambda: quantised.stats().running == 3)
    with stepping(quantised, gate):
        running = [Running(quantised, request(tokens(100, i), max_tokens=40)) for i in range(3)]
        gate.wait()
        assert quantised.stats().kv_bytes == 3 * 256 * stats.kv_bytes_per_token
        gate.open()
    for run in running:
        run.finish()


def test_quantised_rows_say_the_same_alone_in_a_batch_and_from_the_prefix_cache(quantised: Engine) -> None:
    prompts = [tokens(60 + 7 * i, i) for i in range(4)]
    each = [generate(quantised, request(p, max_tokens=30))[0] for p in prompts]
    hits = quantised.stats().cache_hits
    running = [Running(quantised, request(p, max_tokens=30)) for p in prompts]
    assert [run.finish()[0] for run in running] == each
    assert quantised.stats().cache_hits == hits + 4


def test_eight_bits_say_nearly_what_all_of_them_say() -> None:
    plain, engine = (
        engine_for("qwen3", head_dim=32),
        engine_for("qwen3", kv=Quantised(32, 8), head_dim=32),
    )
    wanting = SamplingParams(temperature=0.0, top_logprobs=1)
    try:
        for seed in range(4):
            runs = [Running(e, request(tokens(50, seed), wanting, 1)) for e in (plain, engine)]
            for run in runs:
                run.finish()
            first, second = (run.events[0][0].logprob for run in runs)  # type: ignore[union-attr]
            assert first == pytest.approx(second, abs=0.05)
    finally:
        plain.close()
        engine.close()


def test_a_model_that_cannot_be_quantised_is_refused_when_it_is_loaded() -> None:
    for kind, changes in (("qwen3", {}), ("gemma3_text", {"head_dim": 32, "sliding_window_pattern": 100})):
        engine = engine_for(kind, kv=Quantised(64, 4), **changes)
        with pytest.raises(ModelLoadError, match=r"could not be loaded: .*kv_bits"):
            _ = engine.model
        engine.close()


@pytest.mark.parametrize(
    ("head", "group", "advice"), [(16, 64, "this model's cannot be quantized"), (32, 64, "pass kv_group_size=32")]
)
def test_groups_that_do_not_divide_a_head_are_said_when_the_model_is_loaded(head: int, group: int, advice: str) -> None:
    engine = engine_for("qwen3", kv=Quantised(group, 4), head_dim=head)
    with pytest.raises(ModelLoadError, match=rf"{head} numbers per head here, and groups of {group} .*{advice}"):
        _ = engine.model
    engine.close()


# -- faults ----------------------------------------------------------------------------------------------------------


def test_a_row_that_fails_while_it_is_prefilled_again_fails_alone(
    monkeypatch: pytest.MonkeyPatch, little_reserved: None
) -> None:
    with closing(engine_for("qwen3", room_for(1800))) as engine:
        prefill = engine.model.prefill

        def failing(step: StepInput, *, wait: bool = True) -> mx.array | None:
            if engine.stats().preempted:
                raise RuntimeError("no more")
            return prefill(step, wait=wait)

        engine.model.prefill = failing  # type: ignore[method-assign]
        running = [Running(engine, request(tokens(170, i), max_tokens=60)) for i in range(5)]
        with pytest.raises(RowError, match="no more"):
            running[-1].finish()
        assert running[0].finish()[0] == alone("qwen3", tuple(tokens(170, 0)), 60)


# -- scores of attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text"])
def test_a_pass_has_no_more_scores_than_there_is_memory_for(kind: str) -> None:
    options = EngineOptions(memory_limit=weights(kind) + 2**24, prefix_cache_bytes=0)
    with closing(engine_for(kind, options)) as engine:
        engine.wait()
        setup = inside.setup(engine)
        assert setup is not None and isinstance(setup.memory, Memory)
        sizes, prefill = list[int](), engine.model.prefill

        def counted(step: StepInput, **more: Any) -> Any:
            sizes.append(step.tokens.shape[1])
            return prefill(step, **more)

        engine.model.prefill = counted
        generate(engine, request(tokens(2600), max_tokens=1))
        ends = list(itertools.accumulate(sizes))
        heads = engine.model.query_heads
        assert ends[-1] == 2600 and heads > 1
        assert all(heads * 4 * size * end <= setup.memory.scores for size, end in zip(sizes, ends, strict=True))
        assert len(sizes) > 2, "the default of 2,048 tokens would not fit"


def test_layers_whose_attention_is_fused_hold_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(engine_for("gemma3_text")) as engine:
        engine.wait()
        heads = engine.model.query_heads
        windows = {window for score, window in Memory(engine.model, None, 2048).unfused if score == 4 * heads}
        assert None in windows and len(windows) == 2, "those with a window, too"
        monkeypatch.setattr(machine, "fuses_attention", lambda *dims, half: True)
        assert not Memory(engine.model, None, 2048).unfused


def test_a_system_that_watches_its_gpu_bounds_passes_at_long_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_watched", lambda: True)
    monkeypatch.setattr(machine, "fuses_attention", lambda *dims, half: True)
    monkeypatch.setattr(machine, "step_jumps", lambda group: (4, 8))
    with closing(engine_for("qwen3")) as engine:
        engine.wait()
        setup, heads = inside.setup(engine), engine.model.query_heads
        assert setup is not None and setup.costs.sizes == (1, 2, 3, 4, 8, 16)
        far = 32 * 100_000 // heads
        assert setup.chunks.tokens(0) == 2048 and setup.chunks.tokens(far) == 320
