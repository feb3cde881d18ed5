"""A head that drafts: what it guesses is what it guesses alone, and what rows emit does not depend on it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.costs.cost_model import MAX_STEP_TOKENS, MIN_PLAIN_STEPS, CostModel
from localai_shim.engine.drafts import head as drafting
from localai_shim.engine.drafts.head import HeadDrafter
from localai_shim.engine.memory import Memory
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.mtp.head import MTPHead
from localai_shim.models.text import TextModel
from localai_shim.types import GenerationRequest, SamplingParams
from tests import heads, inside
from tests.engine.guessing import speculate
from tests.engine.harness import GREEDY, Running, before_each_step, generate, request
from tests.engine.head_engines import (
    DRAFTS,
    SHARE,
    counts,
    drafter,
    engine_of,
    guessed_alone,
    guesses_compared,
    states_of,
)
from tests.engine.sampled_rows import outputs, prompt, requests, same
from tests.engine.traffic import ids_in_traffic, reversed_prompts
from tests.samples import only
from tests.tiny import VOCABULARY


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a model of a kind and its head, made once for each."""
    made: dict[tuple[str, bool], str] = {}

    def folder(kind: str, agrees: bool = True) -> str:
        if (kind, agrees) not in made:
            path = tmp_path_factory.mktemp("heads") / kind
            made[kind, agrees] = str(heads.model_with_head(path, kind, share=SHARE, agrees=agrees))
        return made[kind, agrees]

    return folder


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are run whatever they cost, and come from heads only."""
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad heads stay on."""
    monkeypatch.setattr(drafting, "MIN_AGREEMENT", 0.0)


# -- what it guesses ---------------------------------------------------------------------------------------------------


def row_of(tokens: Sequence[int], model: TextModel, sampling: SamplingParams = GREEDY) -> Row:
    made = Row(request(tokens, sampling, 10_000), SyncSink(), 0, model)
    made.count_token(5, frozenset())
    return made


def ran(drafts: HeadDrafter, model: TextModel, row: Row, count: int) -> None:
    """A row's last tokens have run."""
    states = states_of(model, row)
    drafts.ran([row], states, [len(states) - count], [count])


@pytest.mark.parametrize("kind", only(["qwen3_5", "glm4_moe_lite"], heads.KINDS))
@pytest.mark.parametrize("longest", only([DRAFTS], [DRAFTS, 12]))
@pytest.mark.parametrize("keeps", [False, True])
def test_guesses_are_what_the_head_guesses_alone_whatever_rows_do(
    kind: str, longest: int, keeps: bool, folders: Any
) -> None:
    """Oracle: the head from the start of each row's states. Rows come, go, are right, wrong, far ahead, not asked."""
    rng, model = random.Random(4), load_model(folders(kind, False), {})
    assert isinstance(model, TextModel)
    head = load_draft_model(None, {}, model)
    assert isinstance(head, MTPHead)
    drafts = HeadDrafter(head, longest, model, 60.0, CostModel())
    drafts._keeps_guesses = keeps
    rows: list[Row] = []
    starts: dict[Row, int] = {}
    own: dict[Row, dict[int, mx.array]] = {}
    """States of right guesses, which the head has made itself."""
    compared = kept = 0
    for step in range(16):
        if len(rows) < 5 and step % 3 == 0:
            rows.append(row_of([rng.randrange(3, VOCABULARY) for _ in range(rng.choice([1, 7, 40, 70]))], model))
            whole = rng.random() < 0.5
            starts[rows[-1]] = 0 if whole else len(rows[-1].prompt_tokens) - 1
            ran(drafts, model, rows[-1], len(rows[-1].prompt_tokens) if whole else 1)
        if step % 11 == 10:
            rows.remove(rng.choice(rows))
            drafts.keep(rows)
        asked = [row for row in rows if rng.random() < 0.8] or rows[:1]
        most = [rng.randint(1, longest) for _ in asked]
        for row, n, its in zip(asked, most, drafts.draft(asked, most), strict=True):
            length, states = len(row.prompt_tokens) + row.generated, dict(own.get(row, {}))
            expected = guessed_alone(head, model, row, starts[row], max(most), states)
            assert list(its) == expected[:n]
            compared += n
            right = rng.choice([0, n, rng.randint(0, n)])
            came = [*expected[:right], rng.randrange(3, VOCABULARY)]
            if keeps and row in own:  # the first drafts of a row are not kept
                own[row] |= {length - 1 + i: states[length - 1 + i] for i in range(min(right, max(most) - 1))}
                kept += min(right, max(most) - 1)
            own.setdefault(row, {})
            for token in came * (1 if rng.random() < 0.9 else 8):
                row.count_token(token, frozenset())
            if rng.random() < 0.1:  # some states are lost
                came, starts[row] = [0], len(row.prompt_tokens) + row.generated - 2
                own.pop(row)
                ran(drafts, model, row, 1)
            else:
                ran(drafts, model, row, len(row.prompt_tokens) + row.generated - 1 - drafts._trails[row].stop)
    assert compared > 60 and (kept > 20) == keeps


def test_rows_of_one_bucket_are_drafted_for_in_one_pass_per_token(folders: Any) -> None:
    model = load_model(folders("qwen3_5"), {})
    assert isinstance(model, TextModel)
    head = load_draft_model(None, {}, model)
    assert isinstance(head, MTPHead)
    drafts = HeadDrafter(head, DRAFTS, model, 60.0, CostModel())
    rows = [row_of([5 + i] * (3 + i), model) for i in range(4)]
    sizes: list[tuple[int, ...]] = []
    forward = head.forward

    def counted(tokens: mx.array, *more: Any) -> Any:
        sizes.append(tokens.shape)
        return forward(tokens, *more)

    head.forward = counted  # type: ignore[method-assign]
    for row in rows:
        ran(drafts, model, row, 1)
    assert all(len(found) == DRAFTS for found in drafts.draft(rows, [DRAFTS] * 4))
    assert sizes == [(4, 1)] * DRAFTS


@pytest.mark.parametrize("has_seat", [False, True])
def test_many_states_are_read_in_pieces_and_at_least_one_each_time(has_seat: bool, folders: Any) -> None:
    """There is no time for any: a step waits for one piece."""
    model = load_model(folders("qwen3_5", False), {})
    assert isinstance(model, TextModel)
    head = load_draft_model(None, {}, model)
    assert isinstance(head, MTPHead)
    drafts = HeadDrafter(head, DRAFTS, model, 0.0, CostModel())
    row, total = row_of([5, 9] if has_seat else [3 + 7 * i % 390 for i in range(1200)], model), 1200
    ran(drafts, model, row, len(row.prompt_tokens))
    if has_seat:
        assert drafts.draft([row], [2])[0]
        for i in range(total):
            row.count_token(3 + 7 * i % 390, frozenset())
        ran(drafts, model, row, total)
    found = [list(drafts.draft([row], [2])[0]) for _ in range(3)]
    assert found == [[], [], guessed_alone(head, model, row, 0, 2)]


def test_rows_whose_states_are_not_known_are_not_drafted_for(folders: Any) -> None:
    model = load_model(folders("qwen3_5"), {})
    assert isinstance(model, TextModel)
    head = load_draft_model(None, {}, model)
    assert isinstance(head, MTPHead)
    drafts = HeadDrafter(head, DRAFTS, model, 60.0, CostModel())
    rows = [row_of([5 + i] * 3, model) for i in range(2)]
    ran(drafts, model, rows[0], 1)
    assert [drafts.takes(row) for row in rows] == [True, False]
    assert [len(found) for found in drafts.draft(rows, [2, 2])] == [2, 0]


@pytest.mark.parametrize("kind", only(["qwen3_5"], heads.KINDS))
def test_head_reads_the_whole_prompt_however_it_runs(kind: str, folders: Any, always: None, trusting: None) -> None:
    """Alone and with others, in pieces, ended by its pass or not, and behind what the prefix cache has."""
    engine = engine_of(folders(kind, False), max_stall=60.0)
    drafter(engine)._keeps_guesses = False  # so that all states are the model's
    long = [3 + 7 * i % (VOCABULARY - 3) for i in range(150)]
    with guesses_compared(engine) as seen:
        for each in ([1], [5, 9], long[:40], long):
            generate(engine, request(each, GREEDY, 8, ignore_eos=True))
        Running(engine, [request([i, *prompt(i)], GREEDY, 8, ignore_eos=True) for i in range(4, 9)]).finish()
        neighbor = Running(engine, request([8, 8], GREEDY, 60, ignore_eos=True))
        neighbor.read(5)
        generate(engine, *[request(long[i : 60 + 9 * i], GREEDY, 8, ignore_eos=True) for i in (1, 2)])
        neighbor.finish()
        again = request([*long, 17, 4, 9], GREEDY, 8, ignore_eos=True)
        generate(engine, again)
        assert again.prompt.cached_tokens
    engine.close()
    assert sum(map(len, (its for _, its, _ in seen))) > 200
    assert all(its == expected for _, its, expected in seen)


# -- what rows emit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agrees", [True, False])
@pytest.mark.parametrize("kind", only(["qwen3_5", "glm4_moe_lite"], heads.KINDS))
def test_rows_emit_what_they_emit_without_a_head(
    kind: str, agrees: bool, folders: Any, always: None, trusting: None
) -> None:
    engine = engine_of(folders(kind, agrees), drafts=False)
    expected = outputs(engine, requests())
    engine.close()
    engine = engine_of(folders(kind, agrees))
    same(outputs(engine, requests()), expected)
    drafted, accepted = counts(engine)
    engine.close()
    assert drafted > 50
    assert accepted > drafted / 8 if agrees else accepted < drafted / 8


@pytest.mark.parametrize("kind", only(["qwen3_5_moe"], heads.KINDS))
def test_greedy_tokens_are_those_of_mlx_lm_alone(kind: str, folders: Any, always: None) -> None:
    from mlx_lm.generate import generate_step

    path = folders(kind)
    model = load_model(path, {})
    assert isinstance(model, TextModel)
    engine = engine_of(path)
    made = [request(prompt(i), GREEDY, 40, ignore_eos=True) for i in (1, 3, 6)]
    found = generate(engine, *made)
    assert counts(engine)[0] > 20
    engine.close()
    for its, each in zip(found, made, strict=True):
        alone = generate_step(mx.array(list(each.prompt.tokens)), model._model, max_tokens=40)
        assert [int(token) for token, _ in alone] == its


@pytest.mark.parametrize("kind", only(["qwen3_5", "glm4_moe"], heads.KINDS))
def test_joins_cancellations_and_preemption_change_nothing(kind: str, folders: Any, always: None) -> None:
    made = requests(20)
    engine = engine_of(folders(kind), drafts=False)
    expected = [[t.id for t in said] for said in outputs(engine, made)]
    engine.close()
    engine = engine_of(folders(kind))
    own = drafter(engine)
    rows, steps = inside.rows(engine), iter(range(10_000))

    def preempted() -> Iterator[Piece]:
        if next(steps) % 6 == 5 and len(rows.batch) > 1:
            victim = rows.batch.rows[-1]
            yield Preempt(victim.number)
            assert victim not in own._seats and victim not in own._trails

    before_each_step(rows, preempted)
    assert ids_in_traffic(engine, requests(20), reversed_prompts(made)) == expected
    Running(engine, request([5, 6], GREEDY, 2)).finish()
    assert not own._seats and not own._trails and own.nbytes == 0
    assert counts(engine)[0] > 50
    engine.close()


def test_choices_of_one_prompt_and_prompts_from_the_prefix_cache_emit_the_same(folders: Any, always: None) -> None:
    long = [3 + 7 * i % (VOCABULARY - 3) for i in range(150)]
    made = [request(long, SamplingParams(seed=seed), 25, ignore_eos=True) for seed in range(4)]
    made = [GenerationRequest(made[0].prompt, r.sampling, r.max_tokens, ignore_eos=True) for r in made]
    engine = engine_of(folders("qwen3_5"), drafts=False)
    expected = Running(engine, made).finish()
    engine.close()
    engine = engine_of(folders("qwen3_5"))
    assert Running(engine, made).finish() == expected
    before = counts(engine)[0]
    again = [request(long, each.sampling, 25, ignore_eos=True) for each in made]
    assert [Running(engine, each).finish()[0] for each in again] == expected
    assert engine.stats().cache_hits and counts(engine)[0] > before > 0
    engine.close()


def test_rows_that_sample_are_drafted_for_with_their_own_uniforms(folders: Any, always: None) -> None:
    """Nearly as many guesses are right as of greedy rows: other uniforms agree in one of hundreds."""
    samplings = [SamplingParams(temperature=t, seed=int(9 * t)) for t in (0.5, 0.8, 1.0)]
    engine = engine_of(folders("qwen3_5"), drafts=False)
    made = [request(prompt(i), p, 40, ignore_eos=True) for i, p in enumerate(samplings)]
    expected = outputs(engine, made)
    engine.close()
    engine = engine_of(folders("qwen3_5"))
    same(outputs(engine, made), expected)
    drafted, accepted = counts(engine)
    engine.close()
    assert accepted > drafted / 8 > 10


def test_rows_that_want_no_drafts_leave_no_states(folders: Any, always: None) -> None:
    engine = engine_of(folders("qwen3_5"))
    own = drafter(engine)
    running = Running(engine, request(prompt(3), GREEDY, 200, speculation=False))
    running.read(20)
    assert not own._trails
    running.cancel()
    engine.close()


def test_a_head_that_fails_midway_is_not_asked_any_more_and_nothing_else_fails(
    folders: Any, always: None, caplog: pytest.LogCaptureFixture
) -> None:
    made = [request(prompt(i), SamplingParams(seed=i), 25, ignore_eos=True) for i in (1, 3, 7)]
    engine = engine_of(folders("qwen3_5"), drafts=False)
    expected = generate(engine, *made)
    engine.close()
    engine = engine_of(folders("qwen3_5"))
    head = drafter(engine)._head
    assert isinstance(head, MTPHead)
    forward, calls = head.forward, iter(range(10_000))

    def failing(*args: Any) -> Any:
        if next(calls) >= 3:
            raise RuntimeError("out of luck")
        return forward(*args)

    head.forward = failing  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR, "localai_shim"):
        assert generate(engine, *made) == expected
    assert "drafts by 'mtp' failed; its requests continue without drafts" in caplog.text
    head.forward = forward  # type: ignore[method-assign]
    before = counts(engine)[0]
    assert generate(engine, *made) == expected
    assert counts(engine)[0] > before, "new rows are drafted for again"
    engine.close()


# -- whether it is any good --------------------------------------------------------------------------------------------


def test_a_head_that_is_seldom_right_is_turned_off_with_a_reason(
    folders: Any, always: None, caplog: pytest.LogCaptureFixture
) -> None:
    made = [request(prompt(i), GREEDY, 60, ignore_eos=True) for i in range(6)]
    engine = engine_of(folders("qwen3_5", False), drafts=False)
    expected = generate(engine, *made)
    engine.close()
    engine = engine_of(folders("qwen3_5", False))
    own = drafter(engine)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        assert generate(engine, *made) == expected
        assert generate(engine, *made) == expected
    [line] = [record.getMessage() for record in caplog.records if "turned off" in record.getMessage()]
    assert line.startswith("the MTP head of 'qwen3_5' was right in ")
    assert line.endswith(
        "Probably its norms are of the other form (its norms were used as they are), or it belongs to other weights"
    )
    assert not own.reads_hidden and not own._trails and not own._seats and own.nbytes == 0
    drafted = counts(engine)[0]
    generate(engine, *made)
    assert counts(engine)[0] == drafted
    engine.close()


def test_a_head_that_agrees_stays_on(folders: Any, always: None, caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_of(folders("qwen3_5"))
    own = drafter(engine)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        generate(engine, *[request(prompt(i), GREEDY, 60, ignore_eos=True) for i in range(6)])
    assert own._compared >= drafting.PROOF_GUESSES and own.reads_hidden
    assert own._right > drafting.MIN_AGREEMENT * own._compared and "turned off" not in caplog.text
    [trust] = inside.setup(engine).speculation._trust[False].values()
    assert trust.share == pytest.approx(own._right / own._compared, abs=0.2)
    engine.close()


def test_guesses_of_rows_whose_tokens_the_model_does_not_decide_prove_nothing(folders: Any, always: None) -> None:
    engine = engine_of(folders("qwen3_5", False))
    own = drafter(engine)
    samplings = [SamplingParams(temperature=3.0, seed=1), SamplingParams(temperature=0.0, presence_penalty=0.9)]
    outputs(engine, [request(prompt(i), p, 60, ignore_eos=True) for i, p in enumerate(samplings)])
    assert counts(engine)[0] and not own._compared
    engine.close()


# -- its cost ----------------------------------------------------------------------------------------------------------


def test_passes_of_a_head_are_measured_by_rows_and_priced_by_what_they_read_before(folders: Any) -> None:
    model, costs = load_model(folders("qwen3_5"), {}), CostModel()
    assert isinstance(model, TextModel)
    head = load_draft_model(None, {}, model)
    assert isinstance(head, MTPHead)
    output = VOCABULARY * 64 * 4
    assert head.read_bytes == head.weight_bytes + output
    own = HeadDrafter(head, DRAFTS, model, 60.0, costs)
    rows = [row_of([5 + i] * 3, model) for i in range(3)]
    assert own.seconds(3, 2, 0.01) == pytest.approx(2 * 0.01 * head.read_bytes / model.weight_bytes)
    for row in rows:
        ran(own, model, row, 1)
    for _ in range(MIN_PLAIN_STEPS + 1):
        own.draft(rows, [DRAFTS] * 3)
        for row in rows:
            row.count_token(6, frozenset())
            ran(own, model, row, 1)
    measured = costs.seconds("draft", (3, 1))
    assert measured and own.seconds(3, 2, 0.01) == own.seconds(3, 2, 0.5) == pytest.approx(2 * measured)


def test_what_a_head_reads_is_part_of_what_its_drafts_cost(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, now, seat = load_model(folders("qwen3_5"), {}), [0.0], HeadDrafter._seat
    assert isinstance(model, TextModel)

    def slow(self: HeadDrafter, *given: Any) -> None:
        seat(self, *given)
        now[0] += 6.0

    monkeypatch.setattr(HeadDrafter, "_seat", slow)
    head, costs = load_draft_model(None, {}, model), CostModel(lambda: now[0])
    assert isinstance(head, MTPHead)
    own, row = HeadDrafter(head, DRAFTS, model, 60.0, costs), row_of([5] * 3, model)
    for _ in range(MIN_PLAIN_STEPS):
        ran(own, model, row, 1)
        own.draft([row], [DRAFTS])
        row.count_token(6, frozenset())
    assert costs.seconds("draft", (1, 1)) == pytest.approx(6.0 / drafting.READ_CALLS / DRAFTS)


def test_weights_and_caches_of_a_head_are_part_of_the_plan(folders: Any) -> None:
    alone, both = (engine_of(folders("qwen3_5"), drafts=drafts, memory_limit=2**30) for drafts in (False, True))
    alone.wait()
    head = drafter(both)._head
    plan = inside.setup(both).memory
    assert head is not None and isinstance(plan, Memory)
    assert plan.weights == alone.model.weight_bytes + head.weight_bytes
    assert both.stats().kv_bytes_per_token == alone.stats().kv_bytes_per_token * 3 // 2
    for engine in (alone, both):
        engine.close()


def test_states_that_wait_are_bounded(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts never pay: rows keep the last states only."""
    monkeypatch.setattr(drafting, "TRAIL_BYTES", 0)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 1e9)
    engine = engine_of(folders("qwen3_5"))
    own = drafter(engine)
    running = Running(engine, request(prompt(3), GREEDY, 900, ignore_eos=True))
    running.read(150)
    [waiting] = map(len, own._trails.values())
    assert drafting.MIN_TRAIL_TOKENS <= waiting < drafting.MIN_TRAIL_TOKENS + MAX_STEP_TOKENS
    running.cancel()
    engine.close()
