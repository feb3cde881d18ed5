"""Pieces of single steps: what the scheduler names, given rows, prompts, and room."""

from __future__ import annotations

import gc
import weakref

import pytest

from localai_shim.engine.drafts.controller import Speculation
from localai_shim.engine.pieces import Chunk, Join, Open, Preempt, StepRecord
from localai_shim.engine.row import Row
from tests.engine.recording import PER_TOKEN, MakeWorld, World, running


def last(w: World) -> StepRecord:
    return w.scheduler.records[-1]


def test_the_first_plan_of_a_prompt_opens_it_runs_it_and_has_its_row_join(world: MakeWorld) -> None:
    w = world()
    [row] = w.ask([5] * 40, max_tokens=3)
    w.step()
    assert last(w).decode is None
    assert last(w).beside == [Open(row.number, 1, None), Chunk((row.number,), 2048, False, True), Join((row.number,))]
    w.step()
    assert last(w).decode is not None and last(w).decode.rows == (row.number,) and not last(w).beside


def test_nothing_is_built_behind_a_step_before_which_rows_have_joined_or_behind_which_they_may(
    world: MakeWorld,
) -> None:
    w = world()
    w.ask([5] * 40, max_tokens=30)
    w.step()
    w.step()
    assert last(w).decode is not None and not last(w).decode.ahead, "it has just joined"
    w.step()
    assert last(w).decode is not None and last(w).decode.ahead
    w.ask([6] * 40, max_tokens=3)
    w.step()
    assert last(w).decode is not None and not last(w).decode.ahead and last(w).beside


def test_prompts_of_one_length_that_come_together_share_a_pass(world: MakeWorld) -> None:
    w = world()
    numbers = tuple(row.number for i in range(3) for row in w.ask([20 + i] * 12))
    w.step()
    [chunk] = [piece for piece in last(w).beside if isinstance(piece, Chunk)]
    assert sorted(chunk.prompts) == sorted(numbers)


def test_choices_that_there_is_no_room_for_begin_later(world: MakeWorld) -> None:
    w = world(memory=60 * PER_TOKEN * 3, max_rows=8)
    rows = w.ask([5] * 40, max_tokens=10, n=4)
    w.step()
    [first] = [piece for piece in last(w).beside if isinstance(piece, Open)]
    assert first.prompt == rows[0].number and 0 < first.rows < 4
    w.run()
    assert all(w.served(row) == 10 for row in rows)
    opened = [p for plan in w.scheduler.records for p in plan.beside if isinstance(p, Open)]
    assert sum(piece.rows for piece in opened) == 4


def test_a_row_that_a_more_urgent_prompt_needs_the_place_of_is_preempted_before_that_opens(world: MakeWorld) -> None:
    w = world(max_rows=1)
    [row] = running(w)
    [urgent] = w.ask([8] * 20, max_tokens=2, priority=-1)
    w.step()
    assert [type(piece) for piece in last(w).beside][:2] == [Preempt, Open]
    assert last(w).beside[0] == Preempt(row.number) and last(w).beside[1].prompt == urgent.number  # type: ignore[union-attr]


def test_no_row_is_preempted_for_a_prompt_that_would_have_no_room_without_it_either(world: MakeWorld) -> None:
    w = world(max_rows=2)
    [as_urgent], [other] = w.ask([7] * 20, max_tokens=9, priority=-1), w.ask([5] * 20, max_tokens=9)
    while not (w.served(as_urgent) and w.served(other)):
        w.step()
    urgent = w.ask([8] * 20, max_tokens=2, priority=-1, n=2)
    w.step()
    assert w.meter.preempted == 0, "both places are needed"
    w.run()
    assert [w.served(row) for row in (as_urgent, other, *urgent)] == [9, 9, 2, 2]


def test_a_row_that_cannot_be_preempted_fails_those_that_wait_and_the_step_ends(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(max_rows=1)
    [row] = running(w)
    [urgent] = w.ask([8] * 20, max_tokens=2, priority=-1)
    with monkeypatch.context() as patch:
        patch.setattr(w.batch, "take", lambda row: 1 / 0)
        w.step()
    assert (
        w.failed(urgent)
        and not w.failed(row)
        and last(w).beside
        == [
            Preempt(row.number),
        ]
    )
    w.step()
    [later] = w.ask([9] * 20, max_tokens=2, priority=-1)
    while not w.is_done(later):
        w.step()
    assert not w.failed(later) and not w.failed(row)


def test_rows_are_preempted_for_no_prompt_that_leaves_meanwhile(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(max_rows=3)
    running(w, 3)
    urgent, take = w.ask([8] * 20, max_tokens=2, n=3, priority=-1), w.batch.take

    def taking(row: Row) -> bool:
        taken = take(row)
        w.cancel(*urgent)
        return taken

    monkeypatch.setattr(w.batch, "take", taking)
    w.step()
    assert w.meter.preempted == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_scheduler_and_its_rows_are_released_without_garbage_collection(
    fails: bool, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that starts afresh makes another one, and what rows of this one have must not stay in memory."""
    w = world()
    running(w)
    if fails:
        monkeypatch.setattr(w.meter, "stepped", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            w.step()
    scheduler, batch = weakref.ref(w.scheduler), weakref.ref(w.batch)
    gc.disable()
    try:
        w.prepare()
        assert scheduler() is None and batch() is None
    finally:
        gc.enable()


class Noting(Speculation):
    """Has no drafts, and notes what is measured."""

    def __init__(self) -> None:
        super().__init__([])
        self.measured: list[float] = []

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        self.measured.append(seconds)


def test_steps_beside_which_something_ran_are_not_measured(world: MakeWorld) -> None:
    w, noting = world(seconds_per_token=0.01), Noting()
    running(w)
    assert w.scheduler.decoding is not None
    w.scheduler.decoding.speculation = noting
    for _ in range(6):
        w.step()
    before = len(noting.measured)
    assert before and not any(noting.measured), "time stands still but for prompts"
    w.ask([6] * 40, max_tokens=1)
    for _ in range(6):
        w.step()
    assert len(noting.measured) > before and not any(noting.measured)
