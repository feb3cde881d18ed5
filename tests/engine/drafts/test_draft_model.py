"""A small model that drafts: what it says is what it would say alone, and what rows emit does not depend on it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.cache_contents import Quantised
from localai_shim.engine.costs.cost_model import MIN_PLAIN_STEPS, CostModel
from localai_shim.engine.drafts import draft_model
from localai_shim.engine.drafts.draft_model import DraftModel
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.memory import Memory
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.engine.ports import StepInput
from localai_shim.engine.probes import takes_several
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.types import GenerationRequest, ModelLoadError, SamplingParams
from tests import inside
from tests.architectures import text_model
from tests.drafting import split
from tests.engine.guessing import speculate, steps_counted
from tests.engine.harness import GREEDY, Running, before_each_step, quantised_by, request
from tests.engine.sampled_rows import outputs, prompt, requests, same
from tests.engine.traffic import ids_in_traffic, reversed_prompts
from tests.samples import only
from tests.tiny import VOCABULARY, tiny

DRAFTS = 4


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and its first quarter, which says the same most of the time."""
    large, small = split(tiny("qwen3", num_hidden_layers=4), tmp_path_factory.mktemp("pair") / "models", 1, 0.08)
    return str(large), str(small)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are run whatever they cost, and come from models only."""
    speculate(monkeypatch)
    monkeypatch.setattr(DraftModel, "seconds", lambda self, rows, drafts, plain: 0.0)


def path_of(kind: str, **changes: Any) -> str:
    return str(tiny(kind, **changes))


def engine_of(path: str, draft: str | None = None, kv: Quantised | None = None, **options: Any) -> Engine[TextModel]:
    made = EngineOptions(prefill_chunk=48)
    made.update(options)  # type: ignore[typeddict-item]
    load_draft = None if draft is None else lambda model: load_model(draft, {})
    return Engine(lambda: load_model(path, quantised_by(kv)), made, load_draft=load_draft)


def drafter(engine: Engine[Any]) -> DraftModel:
    engine.wait()
    speculation = inside.setup(engine).speculation
    assert speculation is not None and isinstance(speculation.costly, DraftModel)
    return speculation.costly


def counts(engine: Engine[Any]) -> tuple[int, int]:
    """(drafted, accepted)"""
    drafted, accepted = engine.stats().drafts.get("model", (0, 0))
    return drafted, accepted


@contextmanager
def passes_counted(model: Any) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of what a model runs meanwhile, prompts and steps."""
    sizes: list[tuple[int, ...]] = []
    forward, prefill = model.forward, model.prefill

    def stepped(step: StepInput) -> Any:
        sizes.append(step.tokens.shape)
        return forward(step)

    def filled(step: StepInput, *, wait: bool = True) -> Any:
        sizes.append(step.tokens.shape)
        return prefill(step, wait=wait)

    model.forward, model.prefill = stepped, filled
    try:
        yield sizes
    finally:
        model.forward, model.prefill = forward, prefill


# -- what it says ------------------------------------------------------------------------------------------------------


def row_of(tokens: Sequence[int], model: TextModel, sampling: SamplingParams = GREEDY) -> Row:
    made = Row(request(tokens, sampling, 10_000), SyncSink(), 0, model)
    made.count_token(5, frozenset())
    return made


def said_alone(model: TextModel, row: Row, count: int) -> list[int]:
    """The greedy tokens after all of a row's, computed from the start."""
    cache, tokens, out = model.new_cache(), [*row.prompt_tokens, *row.output_tokens], []
    for _ in range(count):
        logits = model.forward(StepInput(mx.array([tokens]), cache)).logits[0, -1]
        tokens = [int(np.argmax(np.array(logits)))]
        out += tokens
    return out


ALONE = [("qwen3", DRAFTS), ("gemma3_text", 12), ("gemma3_text", 15), ("deepseek_v3", DRAFTS), ("llama4_text", DRAFTS)]


@pytest.mark.parametrize(("kind", "longest"), only(ALONE[:2], ALONE))
def test_drafts_are_what_the_model_says_alone_whatever_rows_do(kind: str, longest: int) -> None:
    """Oracle: the same model from the start of each row. Rows come, go, are right, wrong, far ahead, not asked."""
    rng, model = random.Random(4), text_model(kind)
    drafts = DraftModel(model, longest, model, 60.0, CostModel())
    rows: list[Row] = []
    compared = 0
    for step in range(16 if longest == DRAFTS else 9):
        if len(rows) < 5 and step % 3 == 0:
            rows.append(row_of([rng.randrange(3, VOCABULARY) for _ in range(rng.choice([1, 7, 40, 70]))], model))
        if step % 11 == 10:
            rows.remove(rng.choice(rows))
            drafts.keep(rows)
        asked = [row for row in rows if rng.random() < 0.8] or rows[:1]
        most = [rng.randint(1, longest) for _ in asked]
        for row, n, its in zip(asked, most, drafts.draft(asked, most), strict=True):
            expected = said_alone(model, row, n)
            assert list(its) == expected
            compared += n
            right = rng.choice([0, n, rng.randint(0, n)])
            came = [*expected[:right], rng.randrange(3, VOCABULARY)]
            for token in came * (1 if rng.random() < 0.9 else 8):
                row.count_token(token, frozenset())
    assert compared > 80


def test_rows_of_one_bucket_are_drafted_for_in_one_pass_per_token() -> None:
    model = text_model("qwen3")
    drafts = DraftModel(model, DRAFTS, model, 60.0, CostModel())
    rows = [row_of([5 + i] * (3 + i), model) for i in range(4)]
    drafts.draft(rows, [DRAFTS] * 4)
    for row in rows:
        row.count_token(6, frozenset())
    with passes_counted(model) as sizes:
        assert all(len(found) == DRAFTS for found in drafts.draft(rows, [DRAFTS] * 4))
    assert [slots for slots, _ in sizes] == [4] * DRAFTS
    rows.pop(1)
    drafts.keep(rows)
    for row in rows:
        row.count_token(6, frozenset())
    with passes_counted(model) as sizes:
        drafts.draft(rows, [2] * 3)
    assert len(sizes) == 2, "and of those that stay in as few"


def test_rows_that_sample_are_drafted_for_with_their_own_noise(always: None) -> None:
    """A model that agrees in all logits agrees in all tokens then, except for rows whose history counts."""
    path = path_of("qwen3")
    engine = engine_of(path, path)
    samplings = [GREEDY, SamplingParams(seed=3), SamplingParams(temperature=0.8, top_p=0.9, seed=4)]
    samplings += [SamplingParams(temperature=0.9, logit_bias={7: 3.0}, top_k=20, top_logprobs=2, seed=5)]
    outputs(engine, [request(prompt(i), p, 40, ignore_eos=True) for i, p in enumerate(samplings)])
    drafted, accepted = counts(engine)
    engine.close()
    assert drafted == accepted > 4 * 25


def test_a_part_of_the_model_is_right_most_of_the_time(pair: tuple[str, str], always: None) -> None:
    engine = engine_of(*pair)
    outputs(engine, [request(prompt(i), GREEDY, 60, ignore_eos=True) for i in range(6)])
    drafted, accepted = counts(engine)
    engine.close()
    assert 0.4 < accepted / drafted < 0.95


# -- what rows emit ----------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, Quantised | None, dict[str, Any]]] = {
    "dense": ("qwen3", None, {}),
    "sliding window": ("gemma3_text", None, {}),
    "hybrid": ("qwen3_next", None, {}),
    "quantised": ("qwen3", Quantised(32, 8), {"head_dim": 32}),
}


def drafts_for(name: str) -> str:
    return path_of("gemma3_text" if name == "gemma3_text" else "qwen3")


@pytest.mark.parametrize("kind", only(["sliding window", "hybrid"], KINDS))
def test_rows_of_all_kinds_emit_what_they_emit_without(kind: str, always: None) -> None:
    name, kv, changes = KINDS[kind]
    engine = engine_of(path_of(name, **changes), kv=kv)
    expected = outputs(engine, requests())
    engine.close()
    engine = engine_of(path_of(name, **changes), drafts_for(name), kv)
    same(outputs(engine, requests()), expected)
    assert counts(engine)[0] > 50
    engine.close()


@pytest.mark.parametrize("share", only(["first layers"], ["itself", "first layers", "another"]))
def test_tokens_do_not_depend_on_how_many_drafts_are_right(share: str, pair: tuple[str, str], always: None) -> None:
    large, small = pair
    other = path_of("llama", seed=9)
    engine = engine_of(large)
    expected = outputs(engine, requests())
    engine.close()
    engine = engine_of(large, {"itself": large, "first layers": small, "another": other}[share])
    same(outputs(engine, requests()), expected)
    drafted, accepted = counts(engine)
    engine.close()
    assert drafted and (share == "another" or accepted > drafted / 16)  # by chance: fewer than 1 of 64


def test_joins_cancellations_and_preemption_change_nothing(pair: tuple[str, str], always: None) -> None:
    large, small = pair
    made = requests(20)
    engine = engine_of(large)
    expected = [[t.id for t in said] for said in outputs(engine, made)]
    engine.close()
    engine = engine_of(large, small)
    own = drafter(engine)
    rows, steps = inside.rows(engine), iter(range(10_000))

    def preempted() -> Iterator[Piece]:
        if next(steps) % 6 == 5 and len(rows.batch) > 1:
            victim = rows.batch.rows[-1]
            yield Preempt(victim.number)
            assert victim not in own._seats

    before_each_step(rows, preempted)
    assert ids_in_traffic(engine, requests(20), reversed_prompts(made)) == expected
    Running(engine, request([5, 6], GREEDY, 2)).finish()
    assert not own._seats and not own._filling and own.nbytes == 0
    assert counts(engine)[0] > 50
    engine.close()


def test_a_long_prompt_is_run_in_chunks_beside_rows_that_go_on(
    pair: tuple[str, str], always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine; a prompt that the prefix cache has is run here all the same."""
    large, small = pair
    long = [3 + 7 * i % (VOCABULARY - 3) for i in range(208)]
    engine = engine_of(large)
    expected = Running(engine, request(long, GREEDY, 16, ignore_eos=True)).finish()
    engine.close()
    monkeypatch.setattr("localai_shim.engine.costs.chunks.Pace.chunk", lambda self, left: 32)
    monkeypatch.setattr("localai_shim.engine.costs.chunks.Pace.is_enough", lambda self, left: False)
    engine = engine_of(large, small)
    own = drafter(engine)
    neighbour = Running(engine, request(prompt(3), GREEDY, 600, ignore_eos=True))
    neighbour.read(8)
    for _ in range(2):
        with passes_counted(inside.network(own)) as sizes, steps_counted(engine) as steps:
            assert Running(engine, request(long, GREEDY, 16, ignore_eos=True)).finish() == expected
        chunks = [shape for shape in sizes if shape[1] == 32]
        assert len(chunks) >= 6 and max(tokens for _, tokens in sizes) == 32, "and the neighbour's drafts go on"
        assert len(steps) > len(chunks), "a step after each chunk"
    assert engine.stats().cache_hits == 1
    neighbour.cancel()
    engine.close()


def test_choices_of_one_prompt_have_it_run_once(pair: tuple[str, str], always: None) -> None:
    large, small = pair
    long = [3 + 7 * i % (VOCABULARY - 3) for i in range(150)]
    made = [request(long, SamplingParams(seed=seed), 25, ignore_eos=True) for seed in range(4)]
    made = [GenerationRequest(made[0].prompt, r.sampling, r.max_tokens, ignore_eos=True) for r in made]
    engine = engine_of(large)
    expected = Running(engine, made).finish()
    engine.close()
    engine = engine_of(large, small, max_stall=60.0)
    with passes_counted(inside.network(drafter(engine))) as sizes:
        assert Running(engine, made).finish() == expected
    engine.close()
    assert sum(rows * tokens for rows, tokens in sizes if tokens > 16) == 149


@pytest.mark.parametrize("what", ["forward", "prefill"])
@pytest.mark.parametrize("after", only([3], [0, 3]))
def test_a_model_that_fails_midway_is_not_asked_any_more_and_nobody_notices(
    what: str, after: int, pair: tuple[str, str], always: None, caplog: pytest.LogCaptureFixture
) -> None:
    large, small = pair
    made = [request(prompt(i) * 4, SamplingParams(seed=i), 25, ignore_eos=True) for i in (1, 3, 7)]
    engine = engine_of(large)
    expected = [run.finish()[0] for run in [Running(engine, r) for r in made]]
    engine.close()
    engine = engine_of(large, small)
    own = drafter(engine)
    run, calls = getattr(inside.network(own), what), iter(range(10_000))

    def failing(*args: Any, **more: Any) -> Any:
        if next(calls) >= after:
            raise RuntimeError("out of luck")
        return run(*args, **more)

    setattr(inside.network(own), what, failing)
    with caplog.at_level(logging.ERROR, "localai_shim"):
        assert [run.finish()[0] for run in [Running(engine, r) for r in made]] == expected
    if next(calls) > after:
        assert "drafts by 'model' failed; its requests continue without drafts" in caplog.text
    assert next(calls) <= after + 2 + len(made)
    setattr(inside.network(own), what, run)
    before = counts(engine)[0]
    assert [run.finish()[0] for run in [Running(engine, r) for r in made]] == expected
    assert counts(engine)[0] > before, "new rows are drafted for again"
    engine.close()


def test_rows_that_want_no_drafts_are_not_run(pair: tuple[str, str], always: None) -> None:
    engine = engine_of(*pair)
    with passes_counted(inside.network(drafter(engine))) as sizes:
        Running(engine, request(prompt(3), GREEDY, 20, speculation=False)).finish()
    engine.close()
    assert not sizes


def test_rows_beyond_its_context_and_long_prompts_of_short_answers_are_not_run(pair: tuple[str, str]) -> None:
    model = load_model(pair[1], {"context_length": 50})
    own = DraftModel(model, DRAFTS, model, 1.0, CostModel())
    rows = [request(range(3, 43)), request(range(3, 51)), request([4] * 40, GREEDY, 500), request([4] * 200, GREEDY, 2)]
    model.context_length = None
    takes = [own.takes(Row(each, SyncSink(), 0, model)) for each in rows]
    assert takes == [True, True, True, False]
    model.context_length = 50
    assert [own.takes(Row(each, SyncSink(), 0, model)) for each in rows[:2]] == [True, False]


def test_an_engine_that_is_to_have_one_and_gets_none_is_refused() -> None:
    with pytest.raises(ValueError, match="`draft_model` says what `load_draft` loads"):
        Engine(lambda: text_model("qwen3"), EngineOptions(draft_model="some/id"))


def test_passes_of_a_draft_model_are_measured_by_rows_and_priced_by_its_share_of_the_weights_before() -> None:
    model, costs = text_model("qwen3"), CostModel()
    own = DraftModel(model, DRAFTS, model, 60.0, costs)
    rows = [row_of([5 + i] * 3, model) for i in range(3)]
    assert own.seconds(3, 2, 0.01) == pytest.approx(2 * 0.01 * draft_model.UNKNOWN_COST)
    for _ in range(MIN_PLAIN_STEPS + 1):
        own.draft(rows, [DRAFTS] * 3)
        for row in rows:
            row.count_token(6, frozenset())
    measured = costs.seconds("draft", (3, 1))
    assert measured and own.seconds(3, 2, 0.01) == own.seconds(3, 2, 0.5) == pytest.approx(2 * measured)


# -- loading -----------------------------------------------------------------------------------------------------------


def test_weights_and_caches_of_a_draft_model_are_part_of_the_plan(pair: tuple[str, str], always: None) -> None:
    large, small = pair
    alone, both = engine_of(large, memory_limit=2**30), engine_of(large, small, memory_limit=2**30)
    alone.wait()
    own, plan = drafter(both), inside.setup(both).memory
    assert isinstance(plan, Memory)
    assert plan.weights == alone.model.weight_bytes + inside.network(own).weight_bytes
    assert both.stats().kv_bytes_per_token == alone.stats().kv_bytes_per_token * 5 // 4
    assert plan.row(300) > Memory(both.model, 2**30, 48).row(300)
    assert (both.stats().kv_budget or 0) < (alone.stats().kv_budget or 0)
    running = Running(both, request(prompt(3), GREEDY, 200, ignore_eos=True))
    running.read(60)
    assert own.nbytes and both.stats().kv_bytes > own.nbytes
    running.cancel()
    for engine in (alone, both):
        engine.close()


@pytest.mark.parametrize(
    ("model", "draft", "why"),
    [
        ("qwen3", "qwen3_next", "'tiny-qwen3_next' cannot draft: it has recurrent layers"),
        ("qwen3", "qwen3:one_token", "'tiny-qwen3' cannot draft: its code gives wrong results for several tokens"),
        ("qwen3:one_token", "qwen3", "'tiny-qwen3' takes one token per step: drafts cannot be run"),
    ],
)
def test_models_that_cannot_draft_or_be_drafted_for_fail_loading(model: str, draft: str, why: str) -> None:
    def load(name: str) -> Callable[..., TextModel]:
        def made(*given: Any) -> TextModel:
            kind, _, flag = name.partition(":")
            # Other numbers than in other tests: what models are able to is known by their weights.
            loaded = load_model(path_of(kind, rope_theta=3.0e4) if flag else path_of(kind), {})
            loaded.one_token = bool(flag)
            return loaded

        return made

    def fail() -> int:
        engine = Engine(load(model), load_draft=load(draft))
        with pytest.raises(ModelLoadError, match=why):
            _ = engine.model
        engine.close()
        return mx.get_active_memory()

    before = fail()  # fills bounded caches, such as cosines of positions
    assert fail() <= before + 4096


def test_a_folder_is_split_into_models_that_are_loaded(pair: tuple[str, str]) -> None:
    models = [load_model(path, {}) for path in pair]
    assert [len(model.new_cache()) for model in models] == [4, 1]
    assert all(Path(path, "tokenizer.json").exists() for path in pair)
    assert takes_several(models[1]) == VOCABULARY
