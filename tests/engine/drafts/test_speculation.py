"""What rows emit does not depend on drafts: whose they are, how many are right, and who joins, leaves or fails."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest

from localai_shim.engine.decode.in_flight import Verifying
from localai_shim.engine.drafts.controller import MAX_FAILURES, Speculation
from localai_shim.engine.drafts.sources import ForcedTokens, PredictedText, PromptLookup
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.engine.kv import buckets
from localai_shim.engine.pieces import Decode
from localai_shim.engine.ports import PassOutput
from localai_shim.engine.row import Row
from localai_shim.models import text
from localai_shim.output.prediction import Prediction
from localai_shim.stats import NO_DRAFTS
from localai_shim.types import Failure, GenerationRequest, SamplingParams, Token
from tests import inside
from tests.engine.constraints import Only
from tests.engine.guessing import AUTO, KINDS, Ahead, Failing, Oracle, key, preempting, speculate, steps_counted
from tests.engine.harness import GREEDY, Running, engine_for, eventually, is_last, request, tokens_of
from tests.engine.sampled_rows import SAMPLINGS, EndsAt, outputs, prompt, requests, same
from tests.engine.traffic import in_traffic, reversed_prompts
from tests.samples import only
from tests.tiny import tiny

SHARES = {"some": [0.5, 1.0], "none and most": [0.0, 0.9]}
"""Of the drafts that are right."""


def with_right_drafts(monkeypatch: pytest.MonkeyPatch, made: GenerationRequest) -> tuple[Engine[Any], list[int]]:
    """What a request's row emits without drafts, and an engine whose drafts are that."""
    engine = engine_for("qwen3")
    [expected] = Running(engine, made).finish()
    engine.close()
    speculate(monkeypatch, Oracle(1.0, {key(made): expected}))
    return engine_for("qwen3", AUTO), expected


@pytest.mark.parametrize("shares", only(["some"], SHARES))
@pytest.mark.parametrize("kind", only(["hybrid", "wide", "wide hybrid"], KINDS))
def test_rows_of_all_kinds_emit_what_they_emit_without_drafts(
    kind: str, shares: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, kv, changes = KINDS[kind]
    engine = engine_for(name, EngineOptions(prefill_chunk=48), kv, **changes)
    expected = outputs(engine, requests())
    engine.close()
    known = {key(r): [t.id for t in said] for r, said in zip(requests(), expected, strict=True)}
    for share in SHARES[shares]:
        oracle = Oracle(share, known)
        with monkeypatch.context() as patch:
            speculate(patch, oracle)
            engine = engine_for(name, AUTO, kv, **changes)
            with steps_counted(engine) as sizes:
                same(outputs(engine, requests()), expected)
            engine.close()
        assert oracle.asked and any(tokens > 4 for _, tokens in sizes)


@pytest.mark.parametrize(
    ("kind", "preempted"),
    only([("dense", False), ("hybrid", True)], [(kind, preempted) for kind in KINDS for preempted in (False, True)]),
)
def test_joins_cancellations_and_preemption_change_nothing(
    kind: str, preempted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, kv, changes = KINDS[kind]
    engine = engine_for(name, EngineOptions(prefill_chunk=48), kv, **changes)
    expected = [outputs(engine, [r])[0] for r in requests(40)]
    engine.close()
    known = {key(r): [t.id for t in said] for r, said in zip(requests(40), expected, strict=True)}
    speculate(monkeypatch, Oracle(0.6, known))
    engine = engine_for(name, AUTO, kv, **changes)
    with preempting(engine) if preempted else nullcontext([]) as drafted:
        same(in_traffic(engine, requests(40), reversed_prompts(requests(40))), expected)
    engine.close()
    assert not preempted or sum(count > 0 for count in drafted) > 5


def test_rows_in_two_buckets_get_their_own_tokens_from_a_step_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "FREE_PADDING_BYTES", 1)
    starts = {8: 3, 700: 11, 9: 40, 650: 23}
    made = [
        request([3 + (start + 7 * i) % 90 for i in range(length)], SamplingParams(seed=length), 40)
        for length, start in starts.items()
    ]
    engine = engine_for("qwen3", EngineOptions(speculation="off"))
    expected = [Running(engine, each).finish()[0] for each in made]
    engine.close()
    speculate(monkeypatch, Oracle(0.7, {key(each): said for each, said in zip(made, expected, strict=True)}))
    launch, passes = Verifying.launch, list[int]()

    def noting(self: Verifying, model: Any) -> None:
        passes.append(len(self.steps))
        launch(self, model)

    monkeypatch.setattr(Verifying, "launch", noting)
    engine = engine_for("qwen3", AUTO)
    running = [Running(engine, each) for each in made]
    assert [run.finish()[0] for run in running] == expected
    engine.close()
    assert passes.count(2) > 5


def test_engines_look_for_drafts_unless_they_are_told_not_to() -> None:
    made = [request(prompt(i), p, 40) for i, p in enumerate(SAMPLINGS)]
    engine = engine_for("qwen3", EngineOptions(speculation="off"))
    expected = outputs(engine, made)
    assert inside.setup(engine).speculation is None
    engine.close()
    engine, other = engine_for("qwen3"), engine_for("qwen3")
    same(outputs(engine, made), expected)
    other.wait()
    mine, its = inside.setup(engine).speculation, inside.setup(other).speculation
    assert mine is not None and its is not None
    size = (len(made), 1)
    assert mine.costs.seconds("step", size), "each learns what its own steps take"
    assert its.costs.seconds("step", size) is None
    engine.close()
    other.close()


def test_first_tokens_come_by_the_prompts_pass_or_by_ordinary_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 30)
    engine, expected = with_right_drafts(monkeypatch, made)
    for cached in (False, True):
        with steps_counted(engine) as sizes:
            assert Running(engine, made).finish() == [expected]
        assert (sizes[0] == (1, 1)) is cached and any(tokens > 1 for _, tokens in sizes)
    engine.close()


def test_choices_of_one_prompt_have_drafts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [request(prompt(3), SamplingParams(seed=seed), 25) for seed in range(4)]
    engine = engine_for("qwen3")
    expected = Running(engine, made).finish()
    engine.close()
    known = {key(r): said for r, said in zip(made, expected, strict=True)}
    speculate(monkeypatch, Oracle(0.8, known))
    engine = engine_for("qwen3", AUTO)
    shared = made[0].prompt
    assert Running(engine, [GenerationRequest(shared, r.sampling, r.max_tokens) for r in made]).finish() == expected
    engine.close()


def test_oracle_drafts_take_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 60)
    engine, expected = with_right_drafts(monkeypatch, made)
    with steps_counted(engine) as sizes:
        assert Running(engine, made).finish() == [expected]
    engine.close()
    assert len(sizes) < 30


@pytest.mark.parametrize(("tokens", "accepted"), [(6, 4), (7, 5), (8, 6), (10, 8), (11, 8)])
def test_a_draft_that_a_row_ends_with_counts_as_accepted(
    tokens: int, accepted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token by an ordinary step, then five by each step with four drafts: four of them and one behind."""
    engine = engine_for("qwen3")
    [said] = Running(engine, request(prompt(3), GREEDY, 40)).finish()
    engine.close()
    speculate(monkeypatch, Ahead(said, 4))
    engine = engine_for("qwen3", AUTO)
    made = request(prompt(3), GREEDY, 40, stop=EndsAt(tokens))
    assert Running(engine, made).finish() == [said[:tokens]]
    counts = engine.stats().drafts["test"]
    engine.close()
    assert counts == made.timings.drafts == (4 * -(-(tokens - 1) // 5), accepted)


def test_the_next_step_runs_while_what_came_of_drafts_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 60)
    engine, expected = with_right_drafts(monkeypatch, made)
    engine.wait()
    loop, batch, flying = inside.loop(engine), inside.rows(engine).batch, []
    assert batch is not None
    flush = loop._flush

    def noting() -> None:
        if loop._out:
            flying.append(isinstance(batch.in_flight, Verifying))
        flush()

    loop._flush = batch._deliver = noting  # type: ignore[method-assign]
    assert Running(engine, made).finish() == [expected]
    engine.close()
    assert sum(flying) > len(flying) / 2


def test_what_came_of_drafts_is_delivered_before_the_next_step_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host samples, a model may compute a step of several tokens as it builds the graph."""
    monkeypatch.setattr(text, "has_gpu", lambda: False)
    made = request(prompt(3), GREEDY, 60)
    engine, expected = with_right_drafts(monkeypatch, made)
    engine.wait()
    loop, batch = inside.loop(engine), inside.rows(engine).batch
    assert batch is not None and engine.model is not None
    undelivered, forward = [], engine.model.forward

    def computing(step: Any) -> Any:
        if step.tokens.shape[1] > 1:
            undelivered.append(len(loop._out))
        return forward(step)

    monkeypatch.setattr(engine.model, "forward", computing)
    assert Running(engine, made).finish() == [expected]
    engine.close()
    assert undelivered and not any(undelivered)


@pytest.mark.parametrize("gone", [1, 2])
def test_rows_may_leave_while_what_came_of_drafts_is_delivered(gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their consumers turn out to be gone, when the next step has begun and is not launched."""
    made = [request(prompt(i), GREEDY, 40) for i in (3, 4)]
    engine = engine_for("qwen3")
    expected = [Running(engine, each).finish()[0] for each in made]
    engine.close()
    speculate(monkeypatch, Oracle(0.8, {key(each): said for each, said in zip(made, expected, strict=True)}))
    engine = engine_for("qwen3", AUTO)
    engine.wait()
    loop, batch = inside.loop(engine), inside.rows(engine).batch
    assert batch is not None
    flush, left = loop._flush, list[Row]()

    def delivering() -> None:
        flush()
        if (
            len(batch.rows) == 2
            and isinstance(batch.in_flight, Verifying)
            and all(row.generated > 4 for row in batch.rows)
        ):
            left.extend(batch.rows[-gone:])
            loop._drop(batch.rows[-gone:])

    monkeypatch.setattr(batch, "_deliver", delivering)
    both = Running(engine, made)
    assert eventually(lambda: len(left) == gone)
    if gone == 1:
        events = both.events[1 - left[0].index]
        while not (events and is_last(events[-1])):
            both.read(1)
        assert tokens_of(events) == expected[1 - left[0].index]
    assert eventually(lambda: not engine.stats().running)
    assert Running(engine, made[0]).finish() == [expected[0]]
    engine.close()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_next"])
def test_rows_that_leave_while_their_drafts_run_change_nothing_for_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before, between and behind those that stay; then all but one, which is alone in its bucket."""
    made = [request(prompt(i), SamplingParams(seed=i), 60) for i in range(5)]
    engine = engine_for(kind)
    expected = [run.finish()[0] for run in [Running(engine, each) for each in made]]
    engine.close()
    speculate(monkeypatch, Oracle(0.8, {key(each): said for each, said in zip(made, expected, strict=True)}))
    engine = engine_for(kind, AUTO)
    engine.wait()
    batch = inside.rows(engine).batch
    assert batch is not None
    running: list[Running] = []
    run, left = batch.run, []

    def running_step(piece: Decode) -> None:
        run(piece)
        due = {12: [0, 2], 24: [4]}
        at = max((row.generated for row in batch.rows), default=0)
        for tokens, which in due.items():
            if isinstance(batch.in_flight, Verifying) and at >= tokens and which not in left:
                left.append(which)
                inside.loop(engine)._drop([row for row in batch.rows if any(row.request is made[i] for i in which)])

    batch.run = running_step  # type: ignore[method-assign]
    running += [Running(engine, each) for each in made]
    for i in (1, 3):
        assert running[i].finish() == [expected[i]]
    assert left == [[0, 2], [4]]
    for i in (0, 2, 4):
        running[i].read(running[i].sink._queue.qsize())
        said = [event.id for event in running[i].events[0] if isinstance(event, Token)]
        assert said == expected[i][: len(said)] and len(said) < 60
    engine.close()


def test_a_drafter_that_raises_is_not_asked_again_and_nobody_notices(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    made = [request(prompt(i), SamplingParams(seed=i), 20) for i in range(3)]
    engine = engine_for("qwen3")
    expected = [run.finish()[0] for run in [Running(engine, r) for r in made]]
    engine.close()
    failing = Failing(after=2)
    speculate(monkeypatch, failing)
    engine = engine_for("qwen3", AUTO)
    running = [Running(engine, r) for r in made]
    assert [run.finish()[0] for run in running] == expected
    engine.close()
    assert 1 <= failing.raised <= 3
    assert any("drafts by 'failing' failed" in text for text in warnings)


def test_a_failure_of_choosing_drafts_ends_them_for_the_rows_that_run_only(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    made = request(prompt(3), GREEDY, 60)
    engine, expected = with_right_drafts(monkeypatch, made)
    decide, failures = Speculation._decide, iter([True] * 3)

    def failing(self: Speculation, *given: Any, **more: Any) -> Any:
        if next(failures, False):
            raise ValueError("no idea")
        return decide(self, *given, **more)

    monkeypatch.setattr(Speculation, "_decide", failing)
    for _ in range(3):
        before = engine.stats().drafts.get("oracle", NO_DRAFTS).drafted
        assert Running(engine, made).finish() == [expected]
        assert engine.stats().drafts.get("oracle", NO_DRAFTS).drafted == before
    assert Running(engine, made).finish() == [expected]
    assert engine.stats().drafts["oracle"].accepted > 30
    engine.close()
    assert [text for text in warnings if text.startswith("drafts failed")] == [
        "drafts failed; rows continue without them"
    ] * 3


def test_an_engine_that_fails_to_choose_drafts_again_and_again_gives_up(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    made = request(prompt(3), GREEDY, 12)
    engine, expected = with_right_drafts(monkeypatch, made)

    def failing(*given: Any, **more: Any) -> Any:
        raise ValueError("no idea")

    monkeypatch.setattr(Speculation, "_decide", failing)
    for _ in range(MAX_FAILURES + 3):
        assert Running(engine, made).finish() == [expected]
    engine.close()
    told = [text for text in warnings if text.startswith("drafts failed")]
    assert len(told) == MAX_FAILURES and "this engine runs no more drafts" in told[-1]


def test_a_row_that_fails_amid_its_drafts_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(EndsAt):
        def feed(self, token_id: int) -> bool:
            if super().feed(token_id):
                raise ValueError("broken")
            return False

    class Refuses(Only):
        def mask(self, out: Any) -> bool:
            if len(self.taken) > 6:
                raise ValueError("stuck")
            return super().mask(out)

    well = request(prompt(3), SamplingParams(seed=3), 25)
    engine = engine_for("qwen3")
    [expected] = Running(engine, well).finish()
    engine.close()
    known = {key(well): expected}
    for seed in (5, 6):
        known[(*prompt(5), seed)] = [30] * 40
    speculate(monkeypatch, Oracle(1.0, known))
    engine = engine_for("qwen3", AUTO)
    neighbour = Running(engine, well)
    broken = Running(engine, request(prompt(5), SamplingParams(seed=5), 30, stop=Breaks(8)))
    stuck = Running(engine, request(prompt(5), SamplingParams(seed=6), 30, constraint=Refuses([30])))
    assert neighbour.finish() == [expected]
    for run, count in ((broken, 7), (stuck, 7)):
        with pytest.raises(Exception, match=r"broken|stuck"):
            run.finish()
        assert [type(event) for event in run.events[0]] == [Token] * count + [Failure]
    engine.close()


def test_a_step_that_fails_fails_its_rows_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 30)
    engine, expected = with_right_drafts(monkeypatch, made)
    forward, failed = engine.model.forward, []

    def failing(step: Any) -> Any:
        if step.tokens.shape[1] > 1 and not failed:
            failed.append(step)
            raise RuntimeError("out of luck")
        return forward(step)

    engine.model.forward = failing  # type: ignore[method-assign]
    with pytest.raises(Exception, match="out of luck"):
        Running(engine, made).finish()
    assert Running(engine, made).finish() == [expected]
    engine.close()


@pytest.mark.parametrize("source", ["lookup", "prediction", "grammar"])
def test_own_sources_change_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forcing(Only):
        def forced(self) -> list[int]:
            return [40, 41] if len(self.taken) % 3 else [42]

    drafter = {"lookup": PromptLookup(), "prediction": PredictedText(), "grammar": ForcedTokens()}[source]
    engine = engine_for("qwen3")
    plain = [request(prompt(i), p, 40) for i, p in enumerate(SAMPLINGS)]
    expected = outputs(engine, plain)
    made = []
    for i, (row, said) in enumerate(zip(plain, expected, strict=True)):
        ids = [t.id for t in said]
        prediction = [*ids[:9], 5, *ids[10:24], *ids[26:]]
        constraint = Forcing(range(40, 44)) if source == "grammar" and i % 2 else None
        made.append(
            request(
                row.prompt.tokens, row.sampling, 40, prediction=Prediction(prediction).follow, constraint=constraint
            )
        )
    if source == "grammar":
        again = [
            request(r.prompt.tokens, r.sampling, 40, constraint=r.constraint and Only(range(40, 44))) for r in made
        ]
        expected = outputs(engine, again)
    engine.close()
    speculate(monkeypatch, drafter)
    engine = engine_for("qwen3", AUTO)
    with steps_counted(engine) as sizes:
        same(outputs(engine, made), expected)
    assert any(tokens > 1 for _, tokens in sizes)
    counts = inside.setup(engine).speculation
    engine.close()
    assert counts is not None and counts.counts[source].accepted > 0


def test_rows_that_want_no_drafts_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = request(prompt(3), GREEDY, 30, speculation=False)
    oracle = Oracle(1.0, {key(made): [5] * 30})
    speculate(monkeypatch, oracle)
    engine = engine_for("qwen3", AUTO)
    with steps_counted(engine) as sizes:
        Running(engine, made).finish()
    engine.close()
    assert not oracle.asked and {tokens for _, tokens in sizes} == {1}


def test_of_equally_likely_tokens_the_same_is_emitted_with_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [request(prompt(i), GREEDY, 30) for i in (3, 4, 5)]

    def engine(options: EngineOptions) -> Engine[Any]:
        engine = engine_for("qwen3", options)
        engine.wait()
        assert engine.model is not None
        forward = engine.model.forward

        monkeypatch.setattr(engine.model, "forward", lambda step: PassOutput(mx.round(forward(step).logits / 4)))
        return engine

    first = engine(EngineOptions(speculation="off"))
    expected = Running(first, made).finish()
    first.close()
    speculate(monkeypatch, Oracle(0.7, {key(each): said for each, said in zip(made, expected, strict=True)}))
    second = engine(AUTO)
    with steps_counted(second) as sizes:
        assert Running(second, made).finish() == expected
    second.close()
    assert any(tokens > 1 for _, tokens in sizes)
    alone, _ = mlx_lm.load(str(tiny("qwen3")))
    for each, said in zip(made, expected, strict=True):
        logits = mx.round(alone(mx.array([[*each.prompt.tokens, *said]]))[0, len(each.prompt.tokens) - 1 : -1] / 4)
        assert ((logits == logits.max(axis=-1, keepdims=True)).sum(axis=-1) > 1).any(), "it had to choose"
