"""A head's entries for rows that left serve rows that begin with the same tokens, and no others."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.costs.cost_model import CostModel
from localai_shim.engine.drafts import controller
from localai_shim.engine.drafts import head as drafting
from localai_shim.engine.drafts.head import HeadDrafter
from localai_shim.engine.drafts.past import MAX_BEGINNINGS, MAX_MISSING, Past
from localai_shim.engine.pieces import Piece, Preempt
from localai_shim.engine.ports import PassOutput
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.row import Row
from localai_shim.engine.sinks import SyncSink
from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.mtp.head import MTPHead
from localai_shim.models.text import TextModel
from localai_shim.types import GenerationRequest, Prompt, SamplingParams
from tests import heads, inside
from tests.engine.guessing import speculate
from tests.engine.harness import GREEDY, Running, before_each_step, generate, request
from tests.engine.head_engines import counts, drafter, engine_of, guessed_alone, states_of
from tests.tiny import VOCABULARY

DRAFTS = 3
LONG = [3 + 7 * i % (VOCABULARY - 3) for i in range(60)]


class World:
    """A drafter whose head guesses badly, so that each entry counts, and what it keeps."""

    def __init__(self, folder: str, budget: int = 2**24) -> None:
        model = load_model(folder, {})
        assert isinstance(model, TextModel)
        head = load_draft_model(None, {}, model)
        assert isinstance(head, MTPHead)
        self.model, self.head = model, head
        self.kept = PrefixCache(model.new_cache(), "", budget)
        past = Past(self.kept.companion(head.new_cache()))
        self.drafter = HeadDrafter(head, DRAFTS, model, 60.0, CostModel(), past)

    def row(self, tokens: list[int], cached: int = 0, salt: str | None = None) -> Row:
        """A row with its first token, whose prompt's states behind the cached ones are known."""
        asked = GenerationRequest(Prompt(tokens, salt=salt), GREEDY, 10_000)
        row = Row(asked, SyncSink(), 0, self.model)
        row.count_token(5, frozenset())
        states = states_of(self.model, row)
        self.drafter.ran([row], states, [cached], [len(states) - cached])
        return row

    def guesses(self, row: Row) -> list[int]:
        return list(self.drafter.draft([row], [DRAFTS])[0])

    def alone(self, row: Row, start: int) -> list[int]:
        """The head's guesses with entries from this token on."""
        return guessed_alone(self.head, self.model, row, start, DRAFTS)

    def leaves(self, row: Row) -> None:
        self.guesses(row)
        self.drafter.keep([])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("past") / "qwen3"
    return str(heads.model_with_head(path, "qwen3", share=0.5, agrees=False))


def test_row_with_a_known_prompt_is_drafted_for_as_if_the_head_had_read_it(folder: str) -> None:
    world = World(folder)
    row = world.row(LONG, len(LONG) - 1)
    assert world.guesses(row) == world.alone(row, len(LONG) - 1)
    world.drafter.keep([])
    world.leaves(world.row(LONG))
    row = world.row(LONG, len(LONG) - 1)
    assert world.guesses(row) == world.alone(row, 0) != world.alone(row, len(LONG) - 1)


def test_row_that_runs_leaves_its_prompt_for_others(folder: str) -> None:
    world = World(folder)
    first = world.row(LONG)
    world.guesses(first)
    second = world.row(LONG, len(LONG) - 1)
    assert world.guesses(second) == world.alone(second, 0)


def test_next_turn_goes_on_behind_a_few_tokens_that_the_head_did_not_read(folder: str) -> None:
    """The token behind the known ones is another than it was, so that the entry for it is not known either."""
    world = World(folder)
    world.leaves(world.row(LONG))
    row = world.row([*LONG, 9, 8, 7, 11], len(LONG))
    trail = world.drafter._trails[row]
    found = world.guesses(row)
    seat = world.drafter._seats[row]
    assert (seat.start, seat.ran) == (0, len(LONG) + 4) and trail.stop == len(LONG) + 4
    assert seat.place[1] == 0 and len(found) == DRAFTS
    states = states_of(world.model, row)
    places = [*range(len(LONG) - 1), len(LONG), *range(len(LONG), len(states))]  # the first known state is used twice
    tokens = [*row.prompt_tokens, *row.output_tokens]
    logits = world.head.forward(
        mx.array([tokens[1:]]), states[mx.array(places)][None], world.head.new_cache(), [len(places) - 1]
    ).logits
    assert found[0] == int(mx.argmax(logits[0]).item())


def test_rows_that_begin_otherwise_or_with_another_salt_find_nothing(folder: str) -> None:
    world = World(folder)
    world.leaves(world.row(LONG, salt="a"))
    for tokens, salt in (([4, *LONG[1:]], "a"), (LONG, "b"), (LONG, None)):
        row = world.row(tokens, len(LONG) - 1, salt)
        world.guesses(row)
        assert world.drafter._seats[row].start == len(LONG) - 1
        world.drafter.keep([])


@pytest.mark.parametrize("missing", [MAX_MISSING, MAX_MISSING + 1])
def test_too_many_missing_tokens_are_not_stood_in_for(missing: int, folder: str) -> None:
    world = World(folder)
    world.leaves(world.row(LONG[:30]))
    row = world.row([*LONG[:30], *([8] * 80)], 30 - 1 + missing)
    world.guesses(row)
    assert world.drafter._seats[row].start == (0 if missing == MAX_MISSING else 29 + missing)


def test_end_of_a_long_prompt_is_found_as_well(folder: str) -> None:
    """The head has read its last tokens only."""
    world = World(folder)
    world.leaves(world.row(LONG, 20))
    row = world.row(LONG, len(LONG) - 1)
    assert world.guesses(row) == world.alone(row, 20)
    world.drafter.keep([])
    other = world.row([8, *LONG[1:]], len(LONG) - 1)
    world.guesses(other)
    assert world.drafter._seats[other].start == len(LONG) - 1, "other tokens come before them"


def test_what_is_kept_is_bounded_and_part_of_the_prefix_cache(folder: str) -> None:
    world = World(folder)
    for i in range(MAX_BEGINNINGS + 5):
        world.leaves(world.row([3 + i, *LONG], i))
    past = world.drafter._past
    assert past is not None and [at for at, _ in past._beginnings] == [5 + i for i in range(MAX_BEGINNINGS)]
    assert world.kept.bytes > 0, "the head's are all there is"
    world.kept.limit(0)
    assert world.kept.bytes == 0
    world.kept.limit(2**30)
    world.leaves(world.row(LONG))
    whole = world.kept.bytes
    world.kept.shrink(0.5)
    assert 0 <= world.kept.bytes <= whole / 2
    world.kept.shrink(None)
    world.leaves(world.row([6, *LONG]))
    assert world.kept.bytes
    world.kept.renew("other weights")
    assert world.kept.bytes == 0


def test_prompts_are_answered_alike_with_and_without_what_is_kept(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same prompts, next turns, neighbors that share a beginning, choices of one prompt; greedy and sampled."""
    speculate(monkeypatch)
    monkeypatch.setattr(drafting, "MIN_AGREEMENT", 0.0)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    turns = [LONG, LONG, [*LONG, 9, 8, 7], [*LONG, 9, 8, 7, 5, 4, 11], [*LONG[:40], 12, 13]]
    made = [
        request(tokens, GREEDY if i % 2 else SamplingParams(seed=i), 20, ignore_eos=True)
        for i, tokens in enumerate([*turns, *turns])
    ]
    engine = engine_of(folder, drafts=False)
    expected = [generate(engine, each) for each in made[:5]] + [generate(engine, *made[5:])]
    engine.close()
    engine = engine_of(folder)
    found = [generate(engine, each) for each in made[:5]] + [generate(engine, *made[5:])]
    assert found == expected and counts(engine)[0] > 50
    prefixes = inside.setup(engine).prefixes
    assert drafter(engine)._past is not None and prefixes is not None and prefixes._companion is not None
    assert prefixes._companion.hits and prefixes.bytes > prefixes._companion.bytes > 0
    engine.close()
    assert prefixes.bytes == 0


def test_engine_without_a_prefix_cache_keeps_nothing(folder: str) -> None:
    engine = engine_of(folder, prefix_cache_bytes=0)
    assert drafter(engine)._past is None
    engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_heads_that_fail_while_rows_leave_and_memory_ends_change_no_answer(
    seed: int, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Passes raise or give NaN; rows are cancelled and preempted; nothing may be kept, or the weights are others."""
    speculate(monkeypatch)
    monkeypatch.setattr(drafting, "MIN_AGREEMENT", 0.0)
    monkeypatch.setattr(controller, "MAX_FAILURES", 10**9)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    rng = random.Random(seed)
    made = [
        request([*LONG[: rng.choice([20, 40, 60])], 5 + i], SamplingParams(seed=i), 20, ignore_eos=True)
        for i in range(16)
    ]
    engine = engine_of(folder, drafts=False)
    expected = [generate(engine, each)[0] for each in made]
    engine.close()
    engine = engine_of(folder)
    own, prefixes, rows = drafter(engine), inside.setup(engine).prefixes, inside.rows(engine)
    assert prefixes is not None
    forward = own._head.forward

    def failing(*args: Any) -> PassOutput[mx.array]:
        chance, out = rng.random(), forward(*args)
        if chance < 0.05:
            raise RuntimeError("out of luck")
        assert out.hidden is not None
        return PassOutput(out.logits * math.nan, out.hidden * math.nan) if chance < 0.1 else out

    def trouble() -> Iterator[Piece]:
        chance = rng.random()
        if chance < 0.2:
            prefixes.limit(0 if chance < 0.1 else 2**30)
        elif chance < 0.23:
            own.renew()
        elif chance < 0.3 and len(rows.batch) > 1:
            yield Preempt(rows.batch.rows[-1].number)

    monkeypatch.setattr(own._head, "forward", failing)
    before_each_step(rows, trouble)
    for group in range(0, len(made), 8):
        gone = Running(engine, request([*LONG, 7], GREEDY, 200, ignore_eos=True))
        running = [Running(engine, each) for each in made[group : group + 8]]
        gone.read(3)
        gone.cancel()
        assert [each.finish()[0] for each in running] == expected[group : group + 8]
    assert counts(engine)[0] > 50 and "the prefix cache failed" not in caplog.text
    engine.close()
