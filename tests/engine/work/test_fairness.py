"""Who is prefilled next: long prompts and short ones share the time, urgent ones go first, nobody starves."""

from __future__ import annotations

import pytest

from localai_shim.engine.work.queue import OLDEST_EVERY
from localai_shim.engine.work.rows import TURN_TOKENS
from tests.engine.recording import PER_TOKEN, MakeWorld, World
from tests.samples import only


def ones(token: int, length: int) -> list[int]:
    """A prompt that can be told from others by any of its tokens."""
    return [token] * length


# -- long ones and short ones ------------------------------------------------------------------------------------------


def test_a_short_prompt_begins_before_a_long_one_that_is_being_prefilled_is_done(world: MakeWorld) -> None:
    w = world(chunk=100, seconds_per_token=0.1)  # a chunk takes longer than prefill may in a step
    [long] = w.ask(ones(900, 801))
    w.step()
    w.step()
    assert w.begun() == [900, 900]
    [short] = w.ask(ones(1, 20))
    w.run()
    assert 2 <= w.begun().index(1) <= 4
    assert w.order == [short, long]
    assert w.prefilled(900) == 800 and w.prefilled(1) == 19


def test_the_first_chunk_of_a_long_prompt_does_not_have_to_wait_for_short_ones_either(world: MakeWorld) -> None:
    w = world(chunk=100, seconds_per_token=0.1)
    for i in range(1, 4):
        w.ask(ones(i, 250))
    w.ask(ones(900, 801))
    w.run()
    assert w.begun().index(900) < 12, "before the last of those three is done"


@pytest.mark.parametrize("running", [0, 1])
def test_a_flow_of_short_prompts_leaves_half_of_the_prefill_to_a_long_one(world: MakeWorld, running: int) -> None:
    w = world(chunk=100, seconds_per_token=0.01, max_stall=1.0)
    for _ in range(running):
        w.ask(ones(800, 2), max_tokens=10_000)
        w.step()
    w.model.passes.clear()
    [long] = w.ask(ones(900, 5001))
    came = 0
    while not w.is_done(long):
        for _ in range(10):  # more than there is time for
            came += 1
            w.ask(ones(1000 + came, 90))
        w.step()
    mine = w.prefilled(900)
    assert mine == 5000
    others = sum(len(row) for rows in w.model.passes for row in rows) - mine
    assert others <= 1.2 * mine, "the long one had its half"
    assert others >= 0.4 * mine, "and the short ones theirs"


def test_the_shortest_of_those_that_wait_comes_every_other_time(world: MakeWorld) -> None:
    w = world(max_rows=1)
    lengths = [300, 200, 400, 150, 500]
    for i, length in enumerate(lengths):
        w.ask(ones(i + 1, length))
    w.run()
    assert w.begun() == [1, 4, 2, 3, 5], "oldest, shortest, oldest, shortest, the rest"


# -- priorities --------------------------------------------------------------------------------------------------------


def test_a_lower_priority_goes_first(world: MakeWorld) -> None:
    w = world(max_rows=1)
    for i, priority in enumerate([3, 0, -2, 1, -2]):
        w.ask(ones(i + 1, 150), priority=priority)
    w.run()
    assert w.begun() == [3, 5, 2, 4, 1]


def test_an_urgent_prompt_begins_before_a_long_one_that_is_being_prefilled_goes_on(world: MakeWorld) -> None:
    w = world(chunk=100, seconds_per_token=1.0)
    w.ask(ones(900, 1001))
    w.step()
    w.ask(ones(1, 301), priority=-1)
    w.run()
    assert w.begun()[1:4] == [1, 1, 1]


@pytest.mark.parametrize("max_tokens", only([1, 7, 8, 9, 16, 17], range(1, 18)))
@pytest.mark.parametrize("chunks", [1, 2])
def test_under_a_flow_of_urgent_ones_every_eighth_that_begins_is_the_oldest(
    world: MakeWorld, max_tokens: int, chunks: int
) -> None:
    """However long each of the urgent ones runs: the steps of theirs must not fall into step with the choices."""
    w = world(max_rows=1, chunk=100, seconds_per_token=1.0)
    patient = [w.ask(ones(900 + i, 100), priority=5)[0] for i in range(3)]
    came = 0
    for _ in range(60 * (max_tokens + chunks)):
        if len(w.prompts) < 6:
            came += 1
            w.ask(ones(came, 1 + 100 * chunks), max_tokens, priority=0)
        w.step()
        if all(map(w.is_done, patient)):
            break
    began = list(dict.fromkeys(w.begun()))
    at = [began.index(900 + i) for i in range(3)]
    assert at == sorted(at)
    assert at[0] >= 5, "the urgent ones have the most"
    assert at[-1] <= 3 * 8


def test_a_patient_prompt_that_has_its_turn_keeps_its_place_for_some_tokens(
    world: MakeWorld,
) -> None:
    w = world(max_rows=1)
    [patient] = w.ask(ones(900, 20), 3 * TURN_TOKENS, priority=5)
    came = 0
    while not w.is_done(patient):
        if len(w.prompts) < 6:
            came += 1
            w.ask(ones(came, 20), 3)
        w.step()
    assert 1 <= w.meter.preempted <= 3, "after each turn at most"
    assert came <= 4 * OLDEST_EVERY + 6


def test_equals_are_served_in_the_order_in_which_they_came(world: MakeWorld) -> None:
    w = world(max_rows=3, chunk=64, seconds_per_token=0.01)
    rows = [w.ask(ones(i + 1, 200), max_tokens=3)[0] for i in range(20)]
    w.run()
    assert w.order == rows


# -- room --------------------------------------------------------------------------------------------------------------


def fits(w: World, lengths: list[int]) -> int:
    memory = w.rows.room.memory
    assert memory is not None
    return memory.batch(lengths) + sum(memory.row(length) for length in lengths)


def blocked_by_rows(world: MakeWorld) -> World:
    """Three of four places are taken, and the oldest that waits wants two."""
    w = world(max_rows=4)
    for i in range(3):
        w.ask(ones(800 + i, 2), max_tokens=30)
    w.step()
    assert len(w.batch) == 3
    w.ask(ones(900, 150), n=2)
    return w


def blocked_by_memory(world: MakeWorld) -> World:
    """A row runs, and there is no memory for the oldest beside it."""
    w = world(memory=10**12)
    assert w.rows.room.memory is not None
    w.rows.room.memory.budget = fits(w, [130, 130]) + 100 * PER_TOKEN
    w.ask(ones(800, 2), max_tokens=30)
    w.step()
    assert len(w.batch) == 1
    w.ask(ones(900, 10**6))
    return w


@pytest.mark.parametrize("blocked", [blocked_by_rows, blocked_by_memory])
def test_nobody_goes_past_the_oldest_for_which_there_is_no_room(world: MakeWorld, blocked: object) -> None:
    w: World = blocked(world)  # type: ignore[operator]
    later = [w.ask(ones(i + 1, 20 + i), priority=-i % 2)[0] for i in range(6)]
    for _ in range(25):
        w.step()
    assert 900 not in w.begun() and not any(w.events[row] for row in later)
    w.run()
    assert set(w.begun()) >= {1, 2, 3, 4, 5, 6, 900} and all(map(w.is_done, w.events))


def test_prompts_that_fit_beside_what_runs_do_not_wait(world: MakeWorld) -> None:
    w = blocked_by_memory(world)
    w.cancel(*[row for row in w.events if not w.events[row] and len(row.prompt_tokens) > 1000])
    [small] = w.ask(ones(1, 20))
    while not w.is_done(small):
        w.step()
    assert len(w.batch) == 1, "beside the one that runs"


def test_a_request_with_more_choices_than_places_begins_with_as_many_as_there_are(world: MakeWorld) -> None:
    w = world(max_rows=3)
    rows = w.ask(ones(1, 50), n=7, max_tokens=4)
    most = 0
    while len(w.batch) or len(w.prompts):
        w.step()
        most = max(most, len(w.batch))
    assert most == 3
    assert w.order == rows and all(w.served(row) == 4 for row in rows)
    assert w.prefilled(1) == 49, "what they share is prefilled once"
