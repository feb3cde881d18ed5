"""Rows in slots that share first tokens compute what each computes alone, whatever joins, leaves, and moves."""

from __future__ import annotations

import weakref

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.cache_contents import KeyValues
from localai_shim.engine.kv import row as of_rows
from localai_shim.engine.kv import slots as module
from localai_shim.engine.kv.row import OneRow, leaves, whole
from localai_shim.engine.kv.shared import Groups, Prefix
from tests.engine.segments import arrays_of
from tests.engine.sharing_rows import MOST, World
from tests.samples import only

MODELS = ["qwen3", "gemma3_text", "lfm2", "falcon_h1", "olmoe"]
"""Full attention, with windows, two hybrids, of which the second has two caches per layer, and experts."""
QUICK = ["qwen3", "gemma3_text", "lfm2"]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity in steps of 16 tokens, so that it grows often."""
    monkeypatch.setattr(module, "SLOT_STEP_TOKENS", 16)


@pytest.fixture(params=only(QUICK, MODELS))
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def run(world: World, steps: int = 3) -> None:
    for _ in range(steps):
        world.step()


# -- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [20, 45], ids=["fewer than a window", "more"])
@pytest.mark.parametrize("copies", [False, True], ids=["prefilled behind them", "prefilled with them"])
def test_rows_that_all_share_compute_what_they_compute_alone(world: World, length: int, copies: bool) -> None:
    prefix = world.prefix(length)
    world.join((prefix, 3), (prefix, 3), (prefix, 9), copies=copies)
    run(world, 20)


def test_rows_of_one_length_are_called_without_a_mask_behind_what_they_share() -> None:
    world = World("qwen3")
    prefix = world.prefix(20)
    world.join((prefix, 3), (prefix, 3))
    [layer, *_] = world.cache.advance()
    assert layer.offset == 23 and layer.make_mask(1) is None
    assert [part.keys.shape[2] for part in layer.shared.parts] == [20] and layer.shared.order is None
    keys, _ = layer.update_and_fetch(*(mx.zeros((2, 2, 1, 16)),) * 2)
    assert keys.shape == (2, 2, 4, 16), "the slots hold the others"


def test_two_groups_and_rows_outside_compute_what_they_compute_alone(world: World) -> None:
    one, two = world.prefix(20), world.prefix(37)
    world.join((one, 3), (None, 5), (two, 2), (one, 1), (two, 30), (None, 41))
    run(world, 6)


def test_rows_that_share_first_tokens_of_different_length_compute_what_they_compute_alone(world: World) -> None:
    prefix = world.prefix(40)
    world.join((prefix, 3), (prefix.first(17), 3), (prefix, 1), (prefix.first(17), 26))
    run(world, 6)


def test_rows_leave_and_others_join_on_the_same_tokens(world: World) -> None:
    prefix = world.prefix(25)
    slots = world.join((prefix, 3), (prefix, 8), (prefix, 1))
    run(world)
    world.leave(slots[1])
    run(world)
    assert world.join((prefix, 12)) == [slots[1]]
    run(world)
    world.leave(slots[0], slots[2])
    run(world)
    world.leave(slots[1])
    world.join((None, 7), (prefix, 1))
    run(world)


def test_a_slot_is_another_row_s_without_what_the_last_one_shared(world: World) -> None:
    prefix = world.prefix(25)
    slots = world.join((prefix, 3), (prefix, 8))
    run(world)
    world.leave(slots[0])
    assert world.join((None, 6)) == [slots[0]]
    run(world)


def test_what_no_row_shares_is_let_go() -> None:
    world = World("qwen3")
    prefix = world.prefix(25)
    world.join((prefix, 3), (prefix, 8))
    run(world)
    held = weakref.ref(prefix)
    del prefix
    world.leave(0)
    assert held() is not None
    world.leave(1)
    assert world.cache.width == 0
    world.join((None, 3), (None, 4))
    run(world, 1)
    assert held() is None


def test_compaction_moves_a_row_with_what_it_shares(world: World) -> None:
    one, two = world.prefix(25), world.prefix(18)
    world.join((None, 4), (None, 9), (one, 3), (two, 2), (one, 8))
    run(world)
    world.leave(0, 2)
    assert world.compact() == {3: 0, 4: 2}
    assert world.prefixes == {0: two, 2: one}
    run(world, 6)
    for slot in range(3):
        world.check_read(slot)


def test_a_row_that_held_a_copy_shares_from_now_on(world: World) -> None:
    prefix = world.prefix(45)
    slot = world.join_copy(prefix, 4)
    world.join((None, 3))
    run(world)
    capacity = world.cache.capacity
    world.share(slot, prefix)
    assert world.cache.capacity <= 16 < capacity, "nothing is as long now as the copy was"
    run(world)
    world.join((prefix, 1), (prefix, 19))
    run(world, 14)
    world.check_read(slot)


# -- steps of several tokens -----------------------------------------------------------------------------------------


def test_rows_keep_any_number_of_a_step_s_tokens(world: World) -> None:
    one, two = world.prefix(29), world.prefix(12)
    world.join((one, 3), (two, 1), (None, 6), (one, 15))
    for i in range(12):
        world.several()
        if not any(world.replay.values()) and i % 3 == 2:
            world.step()
        if i == 6:
            world.leave(1)
            world.join((two, 4))


@pytest.mark.parametrize("name", only(["qwen3", "gemma3_text"], ["qwen3", "gemma3_text", "olmoe"]))
def test_steps_that_were_built_ahead_compute_what_rows_compute_alone(name: str) -> None:
    world = World(name)
    one, two = world.prefix(29), world.prefix(12)
    world.join((one, 3), (two, 1), (None, 2), (one, 7))
    begun = ahead(world, 10)
    world.leave(0)
    assert begun + ahead(world, 10) > 8


def ahead(world: World, steps: int) -> int:
    """Run steps of several tokens, each of which is built while the one before it runs; returns how many were used."""
    begun, made = 0, None
    for _ in range(steps):
        blocks = world.blocks()
        counts = {slot: len(block) for slot, block in blocks.items()}
        if made is not None and world.cache.can_begin(made[0], counts):
            built, view, logits = made
            world.cache.begin_built(built, counts)
            view[...] = world.padded(blocks, built.step.tokens)
            begun += 1
        else:
            layers = world.cache.advance(counts)
            logits = world.model(mx.array(world.padded(blocks, max(counts.values()))), cache=layers)
        made = None
        with world.cache.build(MOST) as following:
            if following is not None:
                inputs = mx.zeros((world.cache.width, MOST), mx.int32)
                mx.eval(inputs)
                made = following, np.array(inputs, copy=False), world.model(inputs, cache=following.layers)
        world.settle(blocks, logits)
    return begun


@pytest.mark.parametrize("first", [17, 22, 27])
def test_steps_are_not_built_beyond_a_window_s_places(first: int) -> None:
    """Windows hold shared tokens as well: they may be full to the last place where other layers' slots are not."""
    world = World("gemma3_text", sliding_window=64)
    prefix = world.prefix(first)
    world.join((prefix, 1), (prefix, 2), (None, 1))
    ahead(world, 14)
    for slot in range(3):
        world.check_read(slot)


# -- whatever happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", only([0], range(6)))
def test_rows_compute_what_they_compute_alone_whatever_happens(world: World, seed: int) -> None:
    world.random.seed(seed)
    choose, long = world.random, world.prefix(44)
    prefixes = [long, long.first(18), world.prefix(33), None]
    copies = dict[int, Prefix]()
    world.join((long, 2))
    for _ in range(25):
        if choose.random() < 0.3 and len(world.alone) < 7:
            rows = [(choose.choice(prefixes), choose.choice([1, 2, 18, 35])) for _ in range(choose.randint(1, 2))]
            world.join(*rows, copies=choose.random() < 0.5)
        if choose.random() < 0.15:
            copies[world.join_copy(long, 3)] = long
        if copies and choose.random() < 0.5:
            world.share(*copies.popitem())
        if len(world.alone) > 1 and choose.random() < 0.25:
            slot = choose.choice(sorted(world.alone))
            world.leave(slot)
            copies.pop(slot, None)
        if world.cache.wants_compaction or choose.random() < 0.15:
            copies = {moves.get(slot, slot): its for moves in [world.compact()] for slot, its in copies.items()}
        if any(world.replay.values()) or choose.random() < 0.5:
            world.several()
        else:
            world.step()
        slot = choose.choice(sorted(world.alone))
        if not world.replay[slot]:
            world.check_read(slot, choose.randrange(len(world.tokens[slot])))


# -- reading, and memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 7, 24, 25, 26, 31], ids=lambda start: f"from {start} on")
def test_a_row_is_read_from_any_token_on(world: World, start: int) -> None:
    """Before the end of what it shares, at it, and behind it."""
    prefix = world.prefix(25)
    slots = world.join((prefix, 4), (prefix, 9), (None, 30))
    run(world, 4)
    for slot in slots:
        world.check_read(slot, start)


def test_a_row_that_was_read_joins_again_and_goes_on(world: World) -> None:
    prefix = world.prefix(25)
    world.join((prefix, 4), (prefix, 9))
    run(world)
    again = World("qwen3")
    again.text, again.model, again.alone, again.tokens = world.text, world.model, world.alone, world.tokens
    again.replay = world.replay
    rows = [of_rows.write_row(world.cache.read(slot)) for slot in range(2)]
    assert again.cache.join(rows, [prefix, None]) == [0, 1]
    run(again)


def test_shared_tokens_take_their_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOT_STEP_TOKENS", 64)
    world = World("qwen3")
    prefix = world.prefix(512)
    row = world.behind(prefix, world.drawn(5))
    world.cache.join([row] * 16, [prefix] * 16)
    per_token = prefix.nbytes / 512
    held = world.cache.nbytes + prefix.nbytes
    assert held <= 1.15 * per_token * (512 + 16 * 64)
    assert held < per_token * 16 * 517 / 5, "of what copies would take"


def test_a_row_alone_holds_what_it_shares_itself() -> None:
    world = World("qwen3")
    prefix = world.prefix(20)
    row = world.behind(prefix, world.drawn(4))
    alone = whole(row)
    assert alone is not row and whole(alone) is alone
    cache = OneRow(alone)
    assert cache.lengths() == [24] and cache.takes_several
    cache.share(0, prefix)
    assert cache.prefix is prefix, "once it gets a slot"
    for layer in leaves(cache.read(0, 22)):
        assert isinstance(layer, KeyValues) and layer.arrays[0].shape[2] == 2 and not layer.before


# -- groups ----------------------------------------------------------------------------------------------------------


def prefix_of(*tokens: int) -> Prefix:
    return Prefix(None, np.array(tokens, np.int64), arrays_of(tokens))


def test_one_group_of_all_slots_in_order_needs_no_list_of_them() -> None:
    prefix = prefix_of(1, 2, 3)
    groups = Groups(2, {1: prefix, 0: prefix})
    [part] = groups.shared(0).parts
    assert part.rows is groups.shared(0).order is None and groups.lengths.tolist() == [3, 3]
    assert part.keys is prefix.arrays[0] and part.values is prefix.arrays[1]
    assert groups.shared(0) is groups.shared(0)


def test_several_groups_say_where_their_rows_are() -> None:
    one, two = prefix_of(1, 2, 3), prefix_of(4)
    groups = Groups(5, {0: two, 2: one, 4: two})
    shared = groups.shared(0)
    rows = [part.rows.tolist() for part in shared.parts if part.rows is not None]
    assert rows == [[0, 4], [2]] and groups.lengths.tolist() == [1, 0, 3, 0, 1]
    assert shared.order is not None and shared.order.tolist() == [0, 3, 2, 3, 1], "those that share nothing come last"
