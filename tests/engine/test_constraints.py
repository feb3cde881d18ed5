"""Constrained rows in the engine: their output is what is allowed, and their neighbours' what it would be alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from localai_shim.engine.engine import Engine
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import Failure, GenerationRequest, RowError, SamplingParams, Token
from tests.conftest import Oracle
from tests.engine.constraints import Only, Stepped
from tests.engine.harness import GREEDY, Running, decode, engine_for, generate, request
from tests.samples import only
from tests.tiny import VOCABULARY, tiny

FREE = [[5 + i, 6, 7 * i + 3] for i in range(8)]
"""Prompts of rows that have no constraint."""


def seeded(i: int) -> SamplingParams:
    return SamplingParams(temperature=1.1, top_p=0.95 if i % 2 else 1.0, seed=100 + i)


class Replay(Only):
    """Lets one list of tokens come, and ends."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__(tokens[:1])
        self.tokens = list(tokens)

    def accept(self, token_id: int) -> bool:
        self.taken.append(token_id)
        self.allowed = self.tokens[len(self.taken) :][:1]
        return not self.allowed


class Failing(Only):
    """Fails once it was told `after` tokens."""

    def __init__(self, how: str, after: int) -> None:
        super().__init__(range(3, 200))
        self.how, self.after = how, after

    def mask(self, out: Any) -> bool:
        if len(self.taken) < self.after or self.how == "accept":
            return super().mask(out)
        if self.how == "mask":
            raise ValueError("no way on")
        if self.how == "beyond":
            out.view(np.uint32)[-1] = 0xFFFF << VOCABULARY % 32  # bits that no token has
        return True

    def accept(self, token_id: int) -> bool:
        if len(self.taken) == self.after and self.how == "accept":
            raise ValueError("no way on")
        return super().accept(token_id)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine[TextModel]]:
    engine = engine_for("qwen3")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def model() -> TextModel:
    """For batches that the test steps itself."""
    return load_model(str(tiny("qwen3")), LoadOptions())


def some_tokens(i: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(i).choice(np.arange(3, VOCABULARY), 5 + 8 * i, replace=False)]


# -- what guided rows say ---------------------------------------------------------------------------------------------


def test_guided_rows_say_the_likeliest_of_what_is_allowed_alone_and_in_company(
    engine: Engine[TextModel], oracle: Oracle
) -> None:
    constraints = [Only(some_tokens(i)) for i in range(6)]
    expected = [oracle.greedy([9, 8, 7 + i], 12, constraint.adjust) for i, constraint in enumerate(constraints)]
    alone = Only(constraints[0].allowed)
    assert generate(engine, request([9, 8, 7], max_tokens=12, constraint=alone)) == expected[:1]
    assert alone.taken == expected[0]
    together = [
        request([9, 8, 7 + i], max_tokens=12, constraint=constraint) for i, constraint in enumerate(constraints)
    ]
    assert generate(engine, *together, *(request(p) for p in FREE[:3]))[:6] == expected
    assert all(set(constraint.taken) <= set(constraint.allowed) for constraint in constraints)


@pytest.mark.parametrize("sampling", [lambda i: GREEDY, seeded], ids=["greedy", "seeded"])
def test_eight_free_rows_beside_eight_guided_ones_say_what_they_say_undisturbed(
    engine: Engine[TextModel], sampling: Any
) -> None:
    free = [request(p, sampling(i), max_tokens=40) for i, p in enumerate(FREE)]
    undisturbed = generate(engine, *free)
    running: list[Running] = []
    guided: list[tuple[Running, Only]] = []
    for i in range(8):  # they join in turn, some of them leave early, and the cancelled leave in mid-stream
        constraint = Only(some_tokens(i))
        params = GREEDY if i % 2 else seeded(i)
        guided.append(
            (Running(engine, request([4, 4 + i], params, max_tokens=5 + 9 * i, constraint=constraint)), constraint)
        )
        running.append(Running(engine, free[i]))
        if i % 3 == 1:
            guided[-1][0].read(2)
            guided[-1][0].cancel()
    assert [run.finish()[0] for run in running] == undisturbed
    for i, (run, constraint) in enumerate(guided):
        if i % 3 != 1:
            [tokens] = run.finish()
            assert len(tokens) == 5 + 9 * i and constraint.taken == tokens
        assert set(constraint.taken) <= set(constraint.allowed)


def test_a_seeded_guided_row_says_the_same_alone_and_in_company(engine: Engine[TextModel]) -> None:
    def guided() -> GenerationRequest:
        return request([9, 8, 7], seeded(1), max_tokens=30, constraint=Only(some_tokens(6)))

    [alone] = generate(engine, guided())
    assert len(set(alone)) > 5
    others = [Running(engine, request(p, seeded(i), max_tokens=8 * i + 1)) for i, p in enumerate(FREE)]
    assert generate(engine, guided(), guided()) == [alone, alone]
    for other in others:
        other.finish()


def test_a_row_ends_with_the_token_after_which_its_guide_lets_nothing_follow(engine: Engine[TextModel]) -> None:
    said: list[int] = []

    class Listening:
        def feed(self, token_id: int) -> bool:
            said.append(token_id)
            return False

    running = Running(engine, request([5, 6], constraint=Replay([30, 20, 10, 20]), stop=Listening()))
    assert running.finish() == [[30, 20, 10, 20]]
    last = running.events[0][-1]
    assert isinstance(last, Token) and last.finish_reason == "stop" and not last.is_eos
    assert said == [30, 20, 10, 20]
    short = Running(engine, request([5, 6], constraint=Replay([30, 20, 10, 20]), max_tokens=3))
    assert short.finish() == [[30, 20, 10]]
    assert isinstance(last := short.events[0][-1], Token) and last.finish_reason == "length"


def test_the_model_cannot_end_where_its_guide_lets_no_end_come(engine: Engine[TextModel]) -> None:
    [eos] = engine.model.eos_token_ids
    wants_to_end = SamplingParams(temperature=0.0, logit_bias={eos: 100.0})
    constraint = Only([30, 40])
    [held] = generate(engine, request([5, 6], wants_to_end, max_tokens=9, constraint=constraint))
    assert len(held) == 9 and set(held) <= {30, 40}
    may_end = Only([30, 40, eos])
    running = Running(engine, request([5, 6], wants_to_end, constraint=may_end))
    assert running.finish() == [[eos]]
    assert may_end.taken == []
    assert isinstance(last := running.events[0][0], Token) and last.is_eos and last.finish_reason == "stop"
    goes_on = Only([30, 40, eos])
    assert generate(engine, request([5, 6], wants_to_end, max_tokens=4, constraint=goes_on, ignore_eos=True)) == [
        [eos] * 4
    ]
    assert goes_on.taken == [eos] * 4


def test_a_row_that_may_only_end_ends_before_its_min_tokens(engine: Engine[TextModel]) -> None:
    [eos] = engine.model.eos_token_ids
    for sampling in (GREEDY, SamplingParams(temperature=1.0, top_k=4, seed=5)):
        assert generate(engine, request([5, 6], sampling, min_tokens=6, constraint=Only([eos]))) == [[eos]]
        [tokens] = generate(engine, request([5, 6], sampling, min_tokens=6, max_tokens=6, constraint=Only([eos, 30])))
        assert tokens == [30] * 6


def test_an_escape_comes_where_the_model_wants_it_most(engine: Engine[TextModel], oracle: Oracle) -> None:
    taken = passed = 0
    for i, prompt in enumerate(FREE):
        for escape in oracle.greedy(prompt, 1):
            constraint = Only(some_tokens(1), escape=escape)
            expected = oracle.greedy(prompt, 10, constraint.adjust)
            neighbour = Running(engine, request([4, 5 + i], seeded(i), max_tokens=6))
            assert generate(engine, request(prompt, max_tokens=10, constraint=constraint)) == [expected]
            neighbour.finish()
            assert expected[0] == escape
            taken += expected.count(escape)
            passed += 10 - expected.count(escape)
    assert taken >= 8 and passed >= 20


# -- when constraints are asked ---------------------------------------------------------------------------------------


def test_what_may_come_next_is_asked_once_per_token_while_the_forward_pass_is_in_flight(model: TextModel) -> None:
    stepped = Stepped(model)
    constraints = [Only(some_tokens(3)), Only(some_tokens(4))]
    rows = stepped.join(
        *(request([5, 6], max_tokens=50, constraint=constraint) for constraint in constraints), request([7, 8])
    )
    for step in range(1, 6):
        decode(stepped.batch)
        for row, constraint in zip(rows, constraints, strict=False):
            assert len(stepped.tokens(row)) == len(constraint.taken) == step - 1
            assert constraint.asked == step


def test_a_guide_is_asked_again_when_a_neighbour_leaves_and_says_the_same(
    model: TextModel, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "samples_on_device", False)  # a step is built before the token that it starts with
    stepped = Stepped(model)
    constraint = Only(some_tokens(3))
    row, other = stepped.join(request([5, 6], max_tokens=50, constraint=constraint), request([7, 8], max_tokens=50))
    for _ in range(3):
        decode(stepped.batch)
    stepped.batch.drop([other])
    decode(stepped.batch)
    stepped.join(request([9, 9], max_tokens=50, constraint=Only(some_tokens(2))))
    for _ in range(4):
        decode(stepped.batch)
    said = stepped.tokens(row)
    assert len(said) == 8  # two were drawn for the row to join: in flight, and built after it
    assert said == oracle.greedy([5, 6], 8, constraint.adjust)
    assert constraint.asked == 8 + 1 + 1  # once per token, for the one in flight, and once more


def test_guides_that_are_idle_are_forgotten_and_the_batch_queues_ahead_again(
    model: TextModel, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "samples_on_device", False)
    stepped = Stepped(model)
    constraint = Only(some_tokens(3), idle_after=3)
    [row] = stepped.join(request([5, 6], max_tokens=12, constraint=constraint))
    known: list[int] = []  # how many tokens the host knew at each forward pass
    forward = model.forward

    def counting(step: StepInput) -> Any:
        known.append(len(stepped.tokens(row)))
        return forward(step)

    model.forward = counting  # type: ignore[method-assign]
    try:
        while len(stepped.batch):
            decode(stepped.batch)
    finally:
        del model.forward  # type: ignore[method-assign]
    assert stepped.tokens(row) == oracle.greedy([5, 6], 12, constraint.adjust)
    assert constraint.asked == 3
    # While a constraint holds, each step is built before the token that it starts with is sampled, and run afterwards:
    # all but the second one, before which the row's first token is delivered.
    assert known == [0, 1, 1, 2, 4, *range(4, 11)]


def test_a_guide_that_is_idle_from_the_start_is_never_asked(engine: Engine[TextModel]) -> None:
    constraint = Only([3], idle_after=0)
    assert generate(engine, request([5, 6], constraint=constraint)) == generate(engine, request([5, 6]))
    assert constraint.asked == 0 and constraint.taken == []


def test_a_guide_may_let_everything_come_at_a_step(engine: Engine[TextModel], oracle: Oracle) -> None:
    class EveryOther(Only):
        def mask(self, out: Any) -> bool:
            super().mask(out)
            return len(self.taken) % 2 == 0

    def adjust(logits: np.ndarray, out: list[int]) -> np.ndarray:
        return constraint.adjust(logits, out) if len(out) % 2 == 0 else logits

    constraint = EveryOther(some_tokens(0))
    expected = oracle.greedy([5, 6], 10, adjust)
    assert any(token not in constraint.allowed for token in expected)
    neighbour = Running(engine, request([7, 8], constraint=Only(some_tokens(1)), max_tokens=20))
    assert generate(engine, request([5, 6], max_tokens=10, constraint=constraint)) == [expected]
    neighbour.finish()


def test_a_guide_with_fewer_tokens_than_the_model_leaves_the_rest_out(engine: Engine[TextModel]) -> None:
    class Narrow(Only):
        """Knows 40 tokens and allows all of them; the model tells 400 apart."""

        def mask(self, out: Any) -> bool:
            out[:1] = -1
            out[1] = 0xFF
            return len(out) == 13

    for sampling in (GREEDY, SamplingParams(temperature=2.0, seed=1)):
        [tokens] = generate(engine, request([5, 6], sampling, max_tokens=30, constraint=Narrow([]), ignore_eos=True))
        assert len(tokens) == 30 and max(tokens) < 40


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "after"),
    only(
        [("mask", 0), ("mask", 3), ("accept", 3), ("nothing", 3), ("beyond", 0)],
        itertools.product(["mask", "accept", "nothing", "beyond"], [0, 3]),
    ),
)
def test_a_guide_that_fails_ends_its_own_row_only(engine: Engine[TextModel], how: str, after: int) -> None:
    free = [request(p, seeded(i) if i % 2 else GREEDY, max_tokens=30) for i, p in enumerate(FREE)]
    undisturbed = generate(engine, *free, request([9, 9], constraint=Only(some_tokens(2))))
    running = [Running(engine, r) for r in free]
    good = Running(engine, request([9, 9], constraint=Only(some_tokens(2))))
    good.read(2)
    bad = Running(engine, request([8, 9], seeded(1), constraint=Failing(how, after)))
    with pytest.raises(RowError, match=r"grammar of this request failed.*(no way on|no token)") as caught:
        bad.finish()
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(bad.events[0]) == after + 1
    assert [run.finish()[0] for run in [*running, good]] == undisturbed
    with pytest.raises(RowError, match="grammar"):
        generate(engine, request([8, 9], constraint=Failing(how, after)))


def test_rows_whose_guides_fail_at_once_leave_the_others_logits_in_flight(model: TextModel, oracle: Oracle) -> None:
    stepped = Stepped(model)
    constraint = Only(some_tokens(4))
    bad, good, free, also_bad = stepped.join(
        request([8, 9], constraint=Failing("mask", 2)),
        request([5, 6], constraint=constraint, max_tokens=8),
        request([7, 8], max_tokens=8),
        request([8, 9, 9], constraint=Failing("nothing", 2)),
    )
    for _ in range(3):
        decode(stepped.batch)
    assert stepped.batch.rows == [good, free]
    for row in (bad, also_bad):
        assert len(stepped.events[row]) == 3
        assert isinstance(stepped.events[row][-1], Failure)
    while len(stepped.batch):
        decode(stepped.batch)
    assert stepped.tokens(good) == oracle.greedy([5, 6], 8, constraint.adjust)
    assert stepped.tokens(free) == oracle.greedy([7, 8], 8)


def test_a_guide_may_fail_when_it_is_asked_again_while_another_row_joins(model: TextModel, oracle: Oracle) -> None:
    class FailsWhenAskedTwice(Only):
        def mask(self, out: Any) -> bool:
            if self.asked:
                raise ValueError("asked twice")
            return super().mask(out)

    stepped = Stepped(model)
    bad, other = stepped.join(request([8, 9], constraint=FailsWhenAskedTwice([30])), request([7, 8]))
    decode(stepped.batch)
    stepped.batch.drop([other])
    [free] = stepped.join(request([5, 6], max_tokens=5))
    assert [type(event) for event in stepped.events[bad]] == [Failure]
    assert stepped.batch.rows == [free]
    while len(stepped.batch):
        decode(stepped.batch)
    assert stepped.tokens(free) == oracle.greedy([5, 6], 5)


def test_when_all_guides_fail_the_next_request_is_served(engine: Engine[TextModel]) -> None:
    expected = generate(engine, request([5, 6]))
    running = [Running(engine, request([8, 9 + i], constraint=Failing("mask", 2))) for i in range(4)]
    for run in running:
        with pytest.raises(RowError, match="no way on"):
            run.finish()
    assert generate(engine, request([5, 6])) == expected
