"""Prompts that begin alike: one prefills what they share, the others wait for that and go on from there."""

from __future__ import annotations

import mlx.core as mx
import pytest

from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.ports import StepInput
from localai_shim.engine.prompts import prefill
from localai_shim.types import RowError
from tests.engine.counting import counting, expected, tokens
from tests.engine.harness import Running, engine_for, eventually, request, rows_of
from tests.engine.recording import MakeWorld, World, refusing
from tests.samples import only

SHARED = [50] * 100


def branch(token: int, length: int = 20) -> list[int]:
    """A prompt that begins as others do."""
    return [*SHARED, *[token] * length]


def others_prefilled(w: World) -> int:
    """Tokens that were run and are not of the shared beginning."""
    return w.meter.prefilled_tokens - w.prefilled(50)


def test_what_is_shared_is_prefilled_once(world: MakeWorld) -> None:
    w = world()
    rows = [w.ask(branch(i))[0] for i in range(1, 9)]
    w.run()
    assert w.prefilled(50) == 100 and others_prefilled(w) == 8 * 19
    assert all(map(w.is_done, rows))
    assert [row.request.prompt.cached_tokens for row in rows] == [0] + [100] * 7


def test_prompts_that_waited_for_a_prefix_are_run_together_afterwards(world: MakeWorld) -> None:
    w = world()
    for i in range(1, 9):
        w.ask(branch(i))
    w.run()
    assert sorted(len(rows) for rows in w.model.passes) in ([1, 1, 7], [1, 8])


def test_a_short_beginning_is_not_worth_waiting_for(world: MakeWorld) -> None:
    w = world()
    for i in range(1, 5):
        w.ask([*[50] * 63, *[i] * 30])
    w.run()
    assert w.prefilled(50) == 4 * 63 and [len(rows) for rows in w.model.passes] == [4]


def test_a_prompt_waits_for_the_longest_shared_beginning(world: MakeWorld) -> None:
    """Two documents under one system prompt, two questions about each."""
    w = world()
    first, second = ([*SHARED, *[token] * 200] for token in (60, 70))
    for prompt in (first, second):
        for question in (1, 2):
            w.ask([*prompt, *[question] * 10])
    w.run()
    assert (w.prefilled(50), w.prefilled(60), w.prefilled(70)) == (100, 200, 200)


@pytest.mark.parametrize("came_first", ["long", "short"])
def test_nobody_waits_for_more_of_a_long_prompt_than_is_shared(world: MakeWorld, came_first: str) -> None:
    w = world(chunk=50, seconds_per_token=1.0)  # a chunk per step
    asked = {"long": branch(900, 5000), "short": branch(1)}
    order = [came_first, *(set(asked) - {came_first})]
    rows = {name: w.ask(asked[name])[0] for name in order}
    while not w.is_done(rows["short"]):
        w.step()
    assert w.prefilled(900) < 500
    w.run()
    assert w.prefilled(50) == 100 and w.is_done(rows["long"])


def test_a_prompt_that_comes_when_the_shared_prefix_is_done_goes_on_from_there(world: MakeWorld) -> None:
    w = world(chunk=50, seconds_per_token=1.0)
    [long] = w.ask(branch(900, 5000))
    for _ in range(6):
        w.step()
    assert w.prefilled(900) > 50
    [short] = w.ask(branch(1))
    while not w.is_done(short):
        w.step()
    assert w.prefilled(900) < 1000 and not w.is_done(long)
    w.run()
    assert w.prefilled(50) == 100


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "qwen3_next"])
def test_prompts_that_share_a_prefix_say_what_each_says_alone(kind: str) -> None:
    with counting(kind, EngineOptions(prefill_chunk=48)) as c:
        long = tokens(300)
        prompts = [long, *[[*long[: 90 + 10 * i], *tokens(5 + i, i)] for i in range(5)]]
        running = Running(c.engine, [request(p, max_tokens=8) for p in prompts])
        assert running.finish() == [expected(kind, p, 8) for p in prompts]
        assert c.prefilled <= 299 + sum(5 + i for i in range(5)) + 5


# -- who does not wait -------------------------------------------------------------------------------------------------


def test_an_urgent_one_does_not_wait_for_one_that_is_not(world: MakeWorld) -> None:
    w = world(max_rows=1)
    w.ask(branch(1), priority=1)
    [urgent] = w.ask(branch(2), priority=0)
    w.ask(branch(3), priority=1)
    w.run()
    assert w.order[0] is urgent and w.prefilled(50) == 100


def test_without_a_prefix_cache_nobody_waits(world: MakeWorld) -> None:
    w = world(prefix_cache=0)
    for i in range(1, 5):
        w.ask(branch(i))
    w.run()
    assert w.prefilled(50) == 400 and [len(rows) for rows in w.model.passes] == [4]


def test_different_salts_do_not_wait_for_each_other(world: MakeWorld) -> None:
    w = world()
    for i, salt in enumerate(["a", "b", None, "a", "b", None], 1):
        w.ask(branch(i), salt=salt)
    w.run()
    assert w.prefilled(50) == 300 and others_prefilled(w) == 6 * 19


# -- the one that is waited for goes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1])
def test_when_the_first_is_cancelled_the_next_takes_its_place(world: MakeWorld, steps: int) -> None:
    w = world(chunk=50, seconds_per_token=1.0)
    rows = [w.ask(branch(i))[0] for i in range(1, 6)]
    for _ in range(steps):
        w.step()
    w.cancel(rows[0])
    w.run()
    assert all(map(w.is_done, rows[1:])) and not w.events[rows[0]]
    assert w.prefilled(50) == 100 + 50 * steps, "what a cancelled row ran is not kept"
    assert w.prefilled(1) == 0


def test_all_may_be_cancelled_and_nothing_stays(world: MakeWorld) -> None:
    w = world(chunk=50, seconds_per_token=1.0)
    rows = [w.ask(branch(i))[0] for i in range(1, 6)]
    w.step()
    w.cancel(*rows)
    assert len(w.prompts) == len(w.prompts.queue._entries) == len(w.prompts.begun) == len(w.prompts._last_alike) == 0


def test_dependents_that_are_cancelled_are_not_run(world: MakeWorld) -> None:
    w = world(chunk=50, seconds_per_token=1.0)
    rows = [w.ask(branch(i))[0] for i in range(1, 6)]
    w.step()
    w.cancel(rows[2], rows[4])
    w.run()
    assert [w.served(row) for row in rows] == [1, 1, 0, 1, 0] and {3, 5} & set(w.begun()) == set()


def test_when_the_first_fails_it_fails_alone(world: MakeWorld) -> None:
    def refuse(rows: list[list[int]]) -> None:
        if any(1 in row for row in rows) or not w.model.passes:
            raise RuntimeError("bad prompt")

    w = world()
    w.model.before = refuse
    rows = [w.ask(branch(i))[0] for i in range(1, 6)]
    w.model.passes.append([[50]])  # the shared part runs
    w.run()
    assert [w.failed(row) for row in rows] == [True] + [False] * 4
    assert w.prefilled(50) == 101


def test_when_what_is_shared_fails_each_is_tried_and_fails(world: MakeWorld) -> None:
    w = world()
    w.model.before = refusing(50)
    rows = [w.ask(branch(i))[0] for i in range(1, 6)]
    [other] = w.ask([7] * 200)
    w.run()
    assert all(map(w.failed, rows)) and w.served(other) == 1


def test_dependents_are_served_where_nothing_can_be_kept_for_them(world: MakeWorld) -> None:
    w = world(prefix_cache=100)  # bytes
    rows = [w.ask(branch(i))[0] for i in range(1, 30)]
    w.run()
    assert all(map(w.is_done, rows)) and w.prefilled(50) == 29 * 100


def test_in_the_engine_a_leader_that_fails_frees_the_others() -> None:
    engine = engine_for("qwen3")
    try:
        prefill = engine.model.prefill
        shared = [token for token in tokens(100) if token != 13][:90]

        def refuse(step: StepInput, *, wait: bool = True) -> mx.array | None:
            if any(13 in row for row in rows_of(step)):
                raise RuntimeError("bad prompt")
            return prefill(step, wait=wait)

        engine.model.prefill = refuse  # type: ignore[method-assign]
        bad = Running(engine, request([*shared, 13, *[30] * 30]))
        good = [Running(engine, request([*shared, 20 + i, *[40] * 20], max_tokens=5)) for i in range(3)]
        with pytest.raises(RowError, match="bad prompt"):
            bad.finish()
        for i, run in enumerate(good):
            assert run.finish() == [expected("qwen3", [*shared, 20 + i, *[40] * 20], 5)]
        assert eventually(lambda: engine.stats().waiting == 0)
    finally:
        engine.close()


# -- thousands ---------------------------------------------------------------------------------------------------------


class Counted:
    """How many times two prompts were compared."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.times = 0
        compare = prefill.common_length

        def counting(a: list[int], b: list[int]) -> int:
            self.times += 1
            return compare(a, b)

        patch.setattr(prefill, "common_length", counting)


@pytest.mark.parametrize(
    ("max_rows", "prefix_cache"), only([(8, 100), (64, 2**30)], [(8, 100), (8, 2**30), (64, 100), (64, 2**30)])
)
def test_thousands_with_one_beginning_are_compared_a_few_times_each(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, max_rows: int, prefix_cache: int
) -> None:
    counted, many = Counted(monkeypatch), 1000
    w = world(max_rows=max_rows, prefix_cache=prefix_cache)
    rows = [w.ask([*SHARED, 100 + i, 101 + i])[0] for i in range(many)]
    w.run()
    assert all(map(w.is_done, rows))
    kept = prefix_cache > 100
    assert w.prefilled(50) == (100 if kept else 100 * many)
    assert counted.times <= (3 if kept else max_rows + 2) * many


def test_thousands_that_are_cancelled_at_once_leave_nothing(world: MakeWorld) -> None:
    w = world(max_rows=8)
    rows = [w.ask([*SHARED, 100 + i])[0] for i in range(3000)]
    w.step()
    left = {row for row in rows if not w.events[row]}
    w.cancel(*left)
    w.run()
    assert len(w.prompts.queue._entries) == len(w.prompts._last_alike) == 0
    assert sum(map(w.served, rows)) <= 16


@pytest.mark.parametrize(
    ("kind", "many"), only([("qwen3", 500)], [("qwen3", 500), ("qwen3", 3000), ("qwen3_next", 500)])
)
def test_thousands_with_one_beginning_are_all_served(kind: str, many: int) -> None:
    with counting(kind) as c:
        shared = tokens(100)
        requests = [request([*shared, 5 + i % 390, 5 + i // 390], max_tokens=1) for i in range(many)]
        said = Running(c.engine, requests).finish()
        assert all(len(ids) == 1 for ids in said)
        for i in range(0, many, many // 7):
            assert said[i] == expected(kind, requests[i].prompt.tokens, 1)
        assert c.prefilled == 100 + 390, "one token of each is its own, and each of these is run once"
