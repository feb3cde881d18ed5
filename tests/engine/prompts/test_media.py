"""Which pictures go through the tower, and when: over a model that records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localai_shim.types import Prompt
from tests.engine.counting import tokens
from tests.engine.harness import decode
from tests.engine.media import PATCHES, QUESTION, TEXT, asking, going_on, picture, prompt_of, spread
from tests.engine.recording import PER_TOKEN, MakeWorld, World, running

# -- how often -------------------------------------------------------------------------------------------------------


def test_a_picture_goes_through_the_tower_before_its_prompt_is_prefilled(world: MakeWorld) -> None:
    w = world()
    w.model.before_item = lambda digest: asserts(not w.model.passes)
    [row] = w.ask(prompt_of(TEXT, picture(1), QUESTION, picture(2), QUESTION))
    w.run()
    assert w.model.items == [1, 2] and w.served(row) == 1 and len(w.model.passes) == 1


def asserts(holds: bool) -> None:
    assert holds


@pytest.mark.parametrize("prefix_cache", [0, 2**20])
@pytest.mark.parametrize("beside", [0, 3])
def test_many_prompts_with_one_picture_run_the_tower_once(world: MakeWorld, prefix_cache: int, beside: int) -> None:
    w = world(prefix_cache=prefix_cache)
    running(w, beside)
    rows = [w.ask(asking(7, 120 + i), max_tokens=3)[0] for i in range(16)]
    while not all(w.is_done(row) for row in rows):
        w.step()
    assert w.model.items == [7]
    assert all(w.served(row) == 3 for row in rows)
    if not prefix_cache:
        assert (w.features.runs, w.features.hits) == (1, 15)
    later = w.ask(asking(7, 180))[0]
    while not w.is_done(later):
        w.step()
    assert w.model.items == [7], "later turns do not run it at all"


def test_one_picture_several_times_in_a_prompt_is_run_once(world: MakeWorld) -> None:
    w = world()
    [row] = w.ask(prompt_of(picture(3), TEXT, picture(3), QUESTION, picture(3), QUESTION))
    w.run()
    assert w.model.items == [3] and w.served(row) == 1
    [step] = [step for step in w.model.steps if step.media]
    assert [span.start for span, _ in step.media] == [0, PATCHES + 3, 2 * PATCHES + 5]
    assert len({id(features) for _, features in step.media}) == 1


def test_a_picture_within_the_cached_prefix_is_not_run(world: MakeWorld) -> None:
    w = world(features=0)
    prompt = prompt_of(tokens(40), picture(1), QUESTION)
    w.ask(prompt, max_tokens=4)
    w.run()
    w.ask(going_on(prompt, tokens(5), picture(2), QUESTION))
    w.run()
    assert w.model.items == [1, 2] and w.features.bytes == 0
    assert [[span.media.digest for span, _ in step.media] for step in w.model.steps if step.media] == [[1], [2]]


def test_without_a_budget_a_picture_is_run_again_for_a_later_prompt(world: MakeWorld) -> None:
    w = world(features=0, prefix_cache=0)
    for _ in range(2):
        w.ask(asking(1))
        w.run()
    assert w.model.items == [1, 1] and (w.features.bytes, w.features.hits) == (0, 0)


def test_the_least_recently_used_pictures_go_and_none_that_a_prompt_still_needs(world: MakeWorld) -> None:
    w = world(features=2 * PATCHES * 4, prefix_cache=0)
    for digest in (1, 2, 1, 3, 1, 2):
        w.ask(asking(digest))
        w.run()
    assert w.model.items == [1, 2, 3, 2]
    w.ask(prompt_of(*[part for digest in range(10, 20) for part in (picture(digest), QUESTION)]))
    w.run()
    assert w.model.items[4:] == list(range(10, 20)), "each once, though there is no budget for all"
    assert w.features.bytes <= 2 * PATCHES * 4 and w.features.pinned_bytes == 0


def test_salts_share_no_pictures(world: MakeWorld) -> None:
    w = world()
    for salt in ("a", "b", "a"):
        w.ask(prompt_of(TEXT, picture(1), QUESTION, salt=salt))
        w.run()
    assert w.model.items == [1, 1]


# -- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.01, 0.3, 5.0])
def test_running_rows_get_a_token_between_two_pictures(world: MakeWorld, seconds: float) -> None:
    w = world(seconds_per_token=0.001, prefix_cache=0)
    w.model.seconds_per_item = seconds
    running(w, 2)
    steps: list[int] = []  # of the batch, before each picture
    w.model.before_item = lambda digest: steps.append(sum(step.tokens.shape[0] > 1 for step in w.model.steps))
    rows = [w.ask(prompt_of(picture(10 + i), QUESTION, picture(20 + i), QUESTION))[0] for i in range(4)]
    while not all(w.is_done(row) for row in rows):
        start = w.clock.now
        w.step()
        assert w.clock.now - start <= seconds + 1.0 + 0.1, "one picture, and within the stall beside it"
    assert len(set(steps)) == len(steps) == 8
    assert sorted(w.model.items) == [10, 11, 12, 13, 20, 21, 22, 23]


def test_a_picture_s_time_counts_as_the_stall_s(world: MakeWorld) -> None:
    w = world(seconds_per_token=0.01, max_stall=1.0)
    w.model.seconds_per_item = 5.0
    running(w)
    w.ask(asking(1))
    w.ask(tokens(50, 9))
    w.step()
    w.step()
    assert w.model.items == [1]
    longest = w.meter.stall_seconds().max
    assert 5.0 <= longest <= 5.0 + 1.1


def test_in_what_the_picture_leaves_of_the_stall_prompts_are_prefilled(world: MakeWorld) -> None:
    w = world(seconds_per_token=0.001)
    w.model.seconds_per_item = 0.2
    running(w)
    w.ask(asking(1), max_tokens=5)
    w.step()
    assert w.model.items == [1] and len(w.batch) == 2


def test_texts_are_not_kept_waiting_by_pictures_that_came_first(world: MakeWorld) -> None:
    w = world(seconds_per_token=0.001, prefix_cache=0)
    w.model.seconds_per_item = 2.0
    running(w)
    pictures = [w.ask(asking(1 + i))[0] for i in range(8)]
    [text] = w.ask(tokens(30, 4))
    while not w.is_done(text):
        w.step()
    assert len(w.model.items) <= 2
    w.step()
    while not all(w.is_done(row) for row in pictures):
        w.step()
    assert sorted(w.model.items) == list(range(1, 9))


def test_more_urgent_prompts_have_their_pictures_run_first(world: MakeWorld) -> None:
    w = world(prefix_cache=0)
    w.model.seconds_per_item = 2.0
    running(w)
    for digest, priority in ((1, 5), (2, 5), (3, 0)):
        w.ask(asking(digest), priority=priority)
    for _ in range(8):
        w.step()
    assert w.model.items[0] == 3


# -- what the model is given -----------------------------------------------------------------------------------------


def decoded(w: World) -> list[Sequence[object] | None]:
    return [step.state for step in w.model.steps if step.tokens.shape[1] == 1 and not step.media]


def test_text_alone_has_no_states(world: MakeWorld) -> None:
    w = world()
    w.ask(tokens(20), max_tokens=4, n=2)
    w.run()
    assert [(step.state, bool(step.media)) for step in w.model.steps] == [(None, False)] * len(w.model.steps)
    assert w.model.steps


def test_each_row_has_its_state_in_each_step(world: MakeWorld) -> None:
    w = world(prefix_cache=0)
    running(w)
    before = len(w.model.steps)
    first, second = asking(1), asking(2)
    rows = [*w.ask(first, max_tokens=6, n=2), *w.ask(second, max_tokens=6)]
    while not all(w.served(row) for row in rows):
        w.step()
    last = w.model.steps[-1]
    assert last.state is not None
    assert {row: last.state[i] for i, row in enumerate(w.batch.rows)} == {row: row.state for row in w.batch.rows}
    assert [row.state for row in rows] == [first, first, second], "of the prompt, shared"
    while len(w.batch) > 1:
        w.step()
    w.step()
    assert w.model.steps[before].state is None or w.model.steps[before].media
    assert decoded(w)[-1] is None, "nobody has one any more"


def test_freed_slots_have_the_state_of_the_row_whose_token_they_run(world: MakeWorld) -> None:
    w = world(prefix_cache=0)
    rows = [w.ask(asking(1 + i), max_tokens=100)[0] for i in range(4)]
    while not all(w.served(row) for row in rows):
        w.step()
    w.cancel(rows[1])
    decode(w.batch)
    decode(w.batch)
    wide = w.model.steps[-1]
    assert wide.state is not None and len(wide.state) == wide.tokens.shape[0] == 4
    assert wide.state[0] is wide.state[1] is rows[0].state and wide.state[3] is rows[3].state


@pytest.mark.parametrize("chunk", [1, 4, 7, 64])
def test_a_chunk_has_the_pictures_that_stand_in_it(world: MakeWorld, chunk: int) -> None:
    w = world(chunk=chunk, prefix_cache=0)
    prompt = prompt_of(TEXT, picture(1), QUESTION, spread(2, 3, 1, 4), TEXT)
    w.ask(prompt)
    w.run()
    start = 0
    for step in w.model.steps[:-1]:
        end = start + step.tokens.shape[1]
        assert step.state == [prompt]
        assert [span for span, _ in step.media] == [
            span for span in prompt.media if any(start <= place < end for place in span.places)
        ]
        start = end
    assert start == len(prompt.tokens) - 1


def test_prompts_with_pictures_share_no_padded_pass(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(prefix_cache=0)
    monkeypatch.setattr(w.model, "row_state", lambda prompt: None)
    for i in range(4):
        w.ask(asking(1 + i))
        w.ask(tokens(9, i))
    w.run()
    for step in w.model.steps:
        assert not step.media or step.tokens.shape[0] == 1
    assert any(len(rows) == 4 for rows in w.model.passes)


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("patches", "order"), [(20, [2, 4, 3]), (100, [2, 3, 4])], ids=["both", "one"])
def test_prompts_wait_until_there_is_room_for_what_the_tower_makes(
    world: MakeWorld, patches: int, order: list[int]
) -> None:
    w = world(memory=2**30, prefix_cache=0)
    w.ask([200, 50, 51], max_tokens=40, priority=-1)  # its row is nobody's to take
    w.ask(prompt_of(picture(1), QUESTION))  # says how much a placeholder takes: four bytes
    while not w.model.items:
        w.step()
    memory = w.rows.room.memory
    assert memory is not None
    memory.budget = memory.batch([200] * 3) + 2 * memory.row(200) + 600
    [long] = w.ask(prompt_of(picture(2, patches), QUESTION, picture(3), QUESTION))
    while len(w.model.items) < 2:
        w.step()
    [short] = w.ask(prompt_of(picture(4, patches), QUESTION), priority=-1)  # overtakes it where there is room for both
    while not w.is_done(long) or not w.is_done(short):
        w.step()
    assert not w.failed(long) and not w.failed(short) and w.model.items[1:] == order


def test_pictures_and_prefixes_share_what_rows_leave(world: MakeWorld) -> None:
    w = world(memory=8 * 256 * PER_TOKEN, features=2**20)
    for i in range(40):
        w.ask(prompt_of(tokens(30, i), picture(1 + i, 60), QUESTION), max_tokens=2)
        w.run()
        assert w.prefixes is not None and w.features.bytes + w.prefixes.bytes <= 8 * 256 * PER_TOKEN
    w.ask(tokens(1500), max_tokens=2)
    w.run()
    assert w.features.bytes + w.prefixes.bytes <= 8 * 256 * PER_TOKEN


# -- a first pass ----------------------------------------------------------------------------------------------------


def lengths(w: World) -> list[int]:
    return [len(row) for rows in w.model.passes for row in rows]


@pytest.mark.parametrize("beside", [0, 1])
def test_the_first_pass_is_one_whatever_the_chunks_are(world: MakeWorld, beside: int) -> None:
    w = world(chunk=8, seconds_per_token=0.1, prefix_cache=0)
    running(w, beside)
    w.model.passes.clear()
    w.model.first = 30
    [row] = w.ask(prompt_of(tokens(24), picture(1), tokens(20, 2)))
    while not w.is_done(row):
        w.step()
    assert lengths(w)[0] == 30 and sum(lengths(w)) == 49 and max(lengths(w)[1:]) <= 8


def test_a_prefix_that_is_shorter_than_the_first_pass_is_not_used(world: MakeWorld) -> None:
    w = world()
    head = tokens(40)
    w.ask(prompt_of(head, picture(1), QUESTION))
    w.run()
    w.model.first, w.model.passes = 40 + PATCHES, []
    prompt = prompt_of(head, picture(2), QUESTION)
    w.ask(prompt)
    w.run()
    assert lengths(w) == [40 + PATCHES, 1] and prompt.cached_tokens == 0
    w.model.passes.clear()
    w.ask(prompt_of(head, picture(2), TEXT))
    w.run()
    assert lengths(w) == [2], "one that is as long is"


@pytest.mark.parametrize("cuts_anywhere", [True, False])
def test_nothing_is_kept_of_the_midst_of_a_first_pass(world: MakeWorld, cuts_anywhere: bool) -> None:
    w = world()
    assert w.prefixes is not None
    w.prefixes.cuts_anywhere = cuts_anywhere
    w.model.first = 100 + PATCHES
    inserted: list[int] = []
    insert = w.prefixes.insert
    w.prefixes.insert = lambda salt, keys, read: (inserted.append(len(keys)), insert(salt, keys, read))
    head = tokens(100)
    running(w)
    for i in range(3):  # alike up to the picture
        w.ask(prompt_of(head, picture(1 + i), QUESTION, boundaries=(50, 90)))
    assert not any(job.dependents for job in w.prompts), "what they share is of no use"
    for _ in range(12):
        w.step()
    assert w.model.items == [1, 2, 3]
    assert all(length >= 100 + PATCHES for length in inserted if length > 4)


def test_prompts_that_are_alike_beyond_a_first_pass_wait_for_the_first_one(world: MakeWorld) -> None:
    w = world(features=0)
    w.model.first = 100 + PATCHES
    prompts = [prompt_of(tokens(100), picture(1), [120 + i, 3, 4]) for i in range(5)]
    for prompt in prompts:
        w.ask(prompt)
    w.run()
    assert w.model.items == [1] and [p.cached_tokens for p in prompts] == [0, *[100 + PATCHES] * 4]


def test_where_it_is_the_whole_prompt_no_other_s_prefix_will_do(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world()
    monkeypatch.setattr(w.model, "first_pass", lambda prompt: len(prompt.tokens) - 1)
    longer = prompt_of(picture(1), tokens(90))
    prompts = [longer, Prompt(longer.tokens[:80], keys=longer.keys[:80], media=longer.media), longer]
    for prompt in [*prompts, Prompt(tokens(90)), Prompt(tokens(80))]:
        w.ask(prompt)
        w.run()
        assert lengths(w)[-1] == len(prompt.tokens) - 1
    assert len(lengths(w)) == 5
