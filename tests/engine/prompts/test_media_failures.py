"""What becomes of prompts whose picture fails or that are cancelled before the tower: over a model that records."""

from __future__ import annotations

import pytest

from localai_shim.engine.row import Row
from localai_shim.types import Failure, Prompt, RowError
from tests.engine.counting import tokens
from tests.engine.media import QUESTION, TEXT, asking, going_on, picture, prompt_of
from tests.engine.recording import MakeWorld, World, running


def error_of(w: World, row: Row) -> str:
    [event] = w.events[row]
    assert isinstance(event, Failure) and isinstance(event.error, RowError)
    return str(event.error)


def refusing(*digests: int):
    def refuse(digest: int) -> None:
        if digest in digests:
            raise RuntimeError("a broken picture")

    return refuse


def test_a_picture_that_fails_fails_those_that_need_it_and_the_next_one_tries_again(world: MakeWorld) -> None:
    w = world()
    others = running(w)
    w.model.before_item = refusing(7)
    bad = [w.ask(asking(7, 120 + i))[0] for i in range(3)]
    bad += w.ask(prompt_of(picture(8), TEXT, picture(7), QUESTION), n=2)
    good = [*w.ask(asking(9)), *w.ask(tokens(12, 5)), *w.ask(prompt_of(picture(8), QUESTION))]
    while not all(w.is_done(row) for row in [*bad, *good]):
        w.step()
    assert all("image" in error_of(w, row) and "a broken picture" in error_of(w, row) for row in bad)
    assert all(w.served(row) == 1 for row in good)
    assert not w.failed(others[0]) and 7 not in w.model.items
    w.model.before_item = refusing()
    [again] = w.ask(asking(7))
    while not w.is_done(again):
        w.step()
    assert w.served(again) == 1 and w.model.items.count(7) == 1 and w.features.pinned_bytes == 0


def test_a_picture_that_fails_is_tried_once_for_all_prompts_that_wait_for_it(world: MakeWorld) -> None:
    w, tries = world(), []

    def refuse(digest: int) -> None:
        tries.append(digest)
        raise MemoryError("[metal::malloc] attempting to allocate too much")

    w.model.before_item = refuse
    shared = tokens(100)  # they would wait for the first one's prefix
    rows = [w.ask(prompt_of(shared, picture(7), [120 + i, 4]))[0] for i in range(5)]
    w.run()
    assert tries == [7] and all("allocate" in error_of(w, row) for row in rows)
    assert len(w.prompts) == 0


def test_a_prompt_that_waits_for_another_s_prefix_fails_once(world: MakeWorld) -> None:
    w = world(chunk=16, seconds_per_token=0.1)
    running(w)
    w.model.before_item = refusing(7)
    shared = tokens(200)
    [first] = w.ask(shared)
    w.step()
    [second] = w.ask(prompt_of(shared, picture(7), QUESTION))
    [bad] = w.ask(asking(7), priority=-1)
    while not w.is_done(bad):
        w.step()
    assert "a broken picture" in error_of(w, second) and not w.is_done(first)
    while not w.is_done(first):
        w.step()
    assert w.served(first) == 1 and len(w.events[second]) == 1


def test_prompts_that_have_a_failing_picture_in_their_prefix_do_not_fail_with_it(world: MakeWorld) -> None:
    w = world(features=0)
    prompt = prompt_of(tokens(40), picture(7), QUESTION)
    w.ask(prompt, max_tokens=2)
    w.run()
    w.model.before_item = refusing(7)
    running(w)
    [other] = w.ask(asking(7))
    [turn] = w.ask(going_on(prompt, tokens(5)))
    while not (w.is_done(other) and w.is_done(turn)):
        w.step()
    assert w.failed(other) and w.served(turn) == 1


@pytest.mark.parametrize("method", ["row_state", "first_pass"])
def test_a_state_that_cannot_be_made_is_the_row_s_failure(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    w = world()
    bad = prompt_of(tokens(100), picture(1), QUESTION)

    def refuse(prompt: Prompt) -> int:
        if prompt is bad:
            raise RuntimeError("no positions")
        return 0

    monkeypatch.setattr(w.model, method, refuse)
    [row] = w.ask(bad)
    good = [*w.ask(asking(2)), *w.ask(prompt_of(tokens(100), picture(1), TEXT))]
    w.run()
    assert "no positions" in error_of(w, row) and 1 in w.model.items, "another one needs it"
    assert all(w.served(row) == 1 for row in good)


def test_a_prompt_that_ends_with_a_picture_is_refused(world: MakeWorld) -> None:
    w = world()
    [row] = w.ask(prompt_of(TEXT, picture(1)))
    w.run()
    assert "some text has to follow it" in error_of(w, row) and w.model.items == []


def test_a_picture_that_only_a_cancelled_row_needed_is_not_run(world: MakeWorld) -> None:
    w = world(prefix_cache=0)
    running(w)
    [first] = w.ask(prompt_of(picture(1), QUESTION, picture(2), QUESTION))
    [second] = w.ask(prompt_of(picture(3), QUESTION, picture(4), QUESTION))
    while not w.model.items:
        w.step()
    gone, stays = (first, second) if w.model.items == [1] else (second, first)
    w.cancel(gone)
    while not w.is_done(stays):
        w.step()
    assert len(w.model.items) == 3 and w.features.pinned_bytes == 0
    assert not w.events[gone]


def test_a_cancelled_row_s_picture_is_run_for_others_that_need_it(world: MakeWorld) -> None:
    w = world()
    running(w)
    shared = tokens(100)
    rows = [w.ask(prompt_of(shared, picture(1), QUESTION, picture(2), [120 + i, 4]))[0] for i in range(3)]
    while not w.model.items:
        w.step()
    w.cancel(rows[0])
    while not all(w.is_done(row) for row in rows[1:]):
        w.step()
    assert w.model.items == [1, 2] and w.features.pinned_bytes == 0
