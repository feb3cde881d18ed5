"""Rows in slots compute what each computes alone, whatever joins, leaves, moves and is rolled back around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import cache as upstream
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from localai_shim.engine import kv
from localai_shim.engine.kv import RowCache, slots
from localai_shim.engine.kv.row import MergedCache, OneRow, write_row
from localai_shim.engine.kv.slots import SlotCache
from tests import vlm_architectures
from tests.engine.row_caches import CHANGES, KINDS, QUICK, MakeCache, OwnKVCache, caches_of, forward, load, prefilled
from tests.samples import only
from tests.tiny import VOCABULARY


def extract(cache: kv.BatchCache, slot: int) -> kv.RowCache:
    """A plain cache with a copy of one row."""
    return write_row(cache.read(slot))


class World:
    """A batch, and each of its rows a second time on a plain cache of its own."""

    def __init__(self, model: Any, make: MakeCache, seed: int) -> None:
        self.model, self.make = model, make
        self.random = random.Random(seed)
        self.cache: kv.BatchCache | None = None
        self.alone: dict[int, RowCache] = {}
        self.lengths: dict[int, int] = {}
        self.moved = self.rolled_back = 0

    def prompt(self, length: int) -> list[int]:
        return [self.random.randrange(3, VOCABULARY) for _ in range(length)]

    def join(self, lengths: list[int]) -> None:
        prompts = [self.prompt(n) for n in lengths]
        rows = [prefilled(self.model, self.make, p) for p in prompts]
        self.cache, joined = kv.join(self.cache, rows)
        assert not set(joined) & set(self.alone)
        for slot, prompt in zip(joined, prompts, strict=True):
            self.alone[slot] = prefilled(self.model, self.make, prompt)
            self.lengths[slot] = len(prompt)

    def leave(self, slot: int) -> None:
        del self.alone[slot], self.lengths[slot]
        if self.alone:
            assert self.cache is not None
            self.cache.leave([slot])
        else:
            self.cache = None

    def compact(self) -> None:
        assert self.cache is not None
        moves = self.cache.compact()
        self.moved += len(moves)
        for mine in (self.alone, self.lengths):
            taken = {new: mine.pop(old) for old, new in moves.items()}
            mine.update(taken)
        assert sorted(self.alone) == list(range(self.cache.width))

    def roll_back(self, slot: int, tokens: int) -> None:
        """Forget tokens of a row here and there, where its cache alone can."""
        assert self.cache is not None
        if not all(layer.is_trimmable() for layer in self.alone[slot]) or isinstance(self.cache, MergedCache):
            return
        self.cache.rollback(slot, tokens)
        for layer in self.alone[slot]:
            layer.trim(tokens)
        self.lengths[slot] -= tokens
        self.rolled_back += 1

    def step(self) -> None:
        assert self.cache is not None
        tokens = {slot: self.random.randrange(3, VOCABULARY) for slot in self.alone}
        layers = self.cache.advance()
        logits = forward(self.model, [tokens.get(slot, 5) for slot in range(self.cache.width)], layers)
        expected = mx.concatenate([forward(self.model, [tokens[slot]], alone) for slot, alone in self.alone.items()])
        close = mx.isclose(logits[mx.array(list(self.alone))], expected, rtol=1e-3, atol=2e-3).all(axis=-1).tolist()
        for slot, is_close in zip(self.alone, close, strict=True):
            assert is_close, f"slot {slot} of {self.cache.width}"
            self.lengths[slot] += 1

    def check_extracted(self, slot: int) -> None:
        """A row that is taken out goes on as the one that stayed."""
        assert self.cache is not None
        taken = extract(self.cache, slot)
        again = extract(self.cache, slot)
        for token in self.prompt(3):
            expected = forward(self.model, [token], again)
            assert mx.allclose(forward(self.model, [token], taken), expected)
        for layer in again:  # what the copies did is not seen here
            mx.eval(layer.state)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity in steps of 16 tokens, so that it grows often."""
    monkeypatch.setattr(slots, "SLOT_STEP_TOKENS", 16)


SEEDS = {(20, False): 1, (20, True): 8, (40, False): 3, (40, True): 3}
"""With which rows are moved and rolled back within so many steps; those that cannot be rolled back draw otherwise."""


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("steps", only([20], [20, 40]))
@pytest.mark.parametrize("kind", only(QUICK, KINDS))
def test_rows_compute_what_they_compute_alone(kind: str, steps: int) -> None:
    name, make, trimmable = KINDS[kind]
    world = World(load(name, **CHANGES.get(kind, {})), make, seed=SEEDS[steps, "unknown" in kind])
    choose = world.random
    widest = 0
    world.join([0, 1, 7])
    for _ in range(steps):
        if choose.random() < 0.25 and len(world.alone) < 9:
            world.join([choose.choice([0, 1, 5, 19, 20, 33, 70]) for _ in range(choose.randint(1, 3))])
        if world.alone and choose.random() < 0.25:
            world.leave(choose.choice(sorted(world.alone)))
        if not world.alone:
            continue
        assert world.cache is not None
        if choose.random() < 0.2:
            slot = choose.choice(sorted(world.alone))
            if world.lengths[slot] > 2:
                world.roll_back(slot, choose.randint(1, 2))
        if world.cache.wants_compaction or choose.random() < 0.1:
            world.compact()
        world.step()
        if choose.random() < 0.1:
            world.check_extracted(choose.choice(sorted(world.alone)))
        widest = max(widest, world.cache.width)
    assert widest > 4 and world.moved
    assert world.rolled_back or not trimmable


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", only(QUICK, [kind for kind in KINDS if "unknown" not in kind]))
def test_an_extracted_row_goes_on_as_the_one_that_stays(kind: str) -> None:
    name, make, _ = KINDS[kind]
    model = load(name, **CHANGES.get(kind, {}))
    world = World(model, make, 3)
    world.join([30, 9, 50])
    for _ in range(4):
        world.step()
    assert world.cache is not None
    taken = {slot: extract(world.cache, slot) for slot in range(3)}
    for _ in range(10):
        tokens = world.prompt(3)
        logits = forward(model, tokens, world.cache.advance())
        for slot, row in taken.items():
            assert mx.allclose(logits[slot], forward(model, [tokens[slot]], row)[0], rtol=1e-3, atol=2e-3)
    # What was extracted can join again, too.
    again, joined = kv.join(None, [taken[0], taken[2]])
    assert joined == [0, 1]
    tokens = world.prompt(3)
    before = forward(model, tokens, world.cache.advance())
    after = forward(model, [tokens[0], tokens[2]], again.advance())
    assert mx.allclose(after, before[mx.array([0, 2])], rtol=1e-3, atol=2e-3)


def test_rows_of_one_length_are_called_as_a_plain_cache_is_without_a_mask() -> None:
    model = load("qwen3")
    world = World(model, make_prompt_cache, 4)
    world.join([12, 12, 12])
    assert world.cache is not None
    [layer, *_] = world.cache.advance()
    assert layer.offset == 12 and layer.make_mask(1) is None
    assert layer.make_mask(1, window_size=4).tolist() == [[[[i > 8 for i in range(13)]]]] * 3
    world.cache.rollback(1, 2)
    [layer, *_] = world.cache.advance()
    assert layer.offset.tolist() == [13, 11, 13]
    assert mx.sum(layer.make_mask(1), axis=-1).tolist() == [[[14]], [[12]], [[14]]]


def test_a_window_is_looked_back_in_a_ring_that_is_larger() -> None:
    ring = [RotatingKVCache(8, keep=2)]
    other = [RotatingKVCache(8, keep=2)]
    for tokens, row in ((21, ring), (5, other)):
        row[0].update_and_fetch(*(mx.arange(tokens, dtype=mx.float32).reshape(1, 1, tokens, 1),) * 2)
    cache, _ = kv.join(None, [ring, other])
    [layer] = cache.advance()
    mask = layer.make_mask(1, window_size=4)
    keys, _ = layer.update_and_fetch(*(mx.array([21.0, 5.0]).reshape(2, 1, 1, 1),) * 2)
    rows = zip(keys[:, 0, :, 0].tolist(), mask[:, 0, 0].tolist(), strict=True)
    seen = [sorted(key for key, kept in zip(*row, strict=True) if kept) for row in rows]
    assert seen == [[18, 19, 20, 21], [2, 3, 4, 5]]
    assert sorted(keys[0, 0, :, 0].tolist()) == [0, 1, 16, 17, 18, 19, 20, 21]


def test_a_row_that_is_alone_stays_on_its_own_cache_until_another_joins() -> None:
    model = load("qwen3")
    world = World(model, make_prompt_cache, 5)
    row = prefilled(model, make_prompt_cache, world.prompt(9))
    cache, [slot] = kv.join(None, [row])
    assert slot == 0 and cache.advance() is row
    cache, joined = kv.join(cache, [prefilled(model, make_prompt_cache, world.prompt(4))])
    assert isinstance(cache, SlotCache) and joined == [1]
    assert extract(cache, 0)[0].offset == 9


def test_a_kind_that_cannot_be_merged_takes_one_row() -> None:
    row: RowCache = [upstream.ConcatenateKVCache()]
    assert not kv.can_batch(row)
    cache, _ = kv.join(None, [row])
    with pytest.raises(ValueError, match="one row at a time"):
        kv.join(cache, [[upstream.ConcatenateKVCache()]])


def test_kinds_that_do_not_say_their_size_are_counted() -> None:
    model = vlm_architectures.make("deepseek_v41")
    rows = [make_prompt_cache(model) for _ in range(2)]
    assert not any(hasattr(layer, "nbytes") for row in rows for layer in row)
    for row in rows:
        model(mx.array([[5, 9, 30, 7]]), cache=row)
    alone = kv.join(None, rows[:1])[0].nbytes
    assert alone > 0 and kv.join(None, rows)[0].nbytes >= 2 * alone


def test_a_kind_that_inherits_how_it_is_merged_takes_one_row() -> None:
    """What it adds to the class above it would be lost."""

    class Derived(KVCache):
        pass

    assert not kv.can_batch([Derived()]) and not kv.can_batch([upstream.CacheList(KVCache(), Derived())])
    assert kv.can_batch([OwnKVCache()]) and kv.can_batch([upstream.CacheList(KVCache(), OwnKVCache())])


@pytest.mark.parametrize("kind", ["mlx-vlm's: dense", "mlx-vlm's: sliding window", "mlx-vlm's: quantised"])
def test_models_of_mlx_vlm_need_not_ask_the_device_what_attention_reads(kind: str) -> None:
    """They find how many positions there are, as in mlx-vlm's own batches, less the one that is written now."""
    name, make, _ = KINDS[kind]
    world = World(load(name, **CHANGES.get(kind, {})), make, 4)
    world.join([12, 3, 70])
    assert world.cache is not None
    for _ in range(3):
        for layer in world.cache.advance():
            assert layer.left_padding is None and not hasattr(layer, "merge") and not hasattr(layer, "extract")
            assert isinstance(layer._idx, int)
            shape = (3, *layer_shape(layer))
            keys, _ = layer.update_and_fetch(mx.zeros(shape), mx.zeros(shape))
            read = keys[0].shape[2] if isinstance(keys, tuple) else keys.shape[2]
            assert layer._idx == read - 1


def layer_shape(layer: Any) -> tuple[int, int, int]:
    """(heads, tokens, dim) of a token."""
    [(heads, dim), *_] = layer._shapes
    return heads, 1, 32 if layer._how is not None else dim


@pytest.mark.parametrize("kind", ["dense", "sliding window", "quantised"])
def test_models_of_mlx_lm_find_what_they_always_found(kind: str) -> None:
    name, make, _ = KINDS[kind]
    world = World(load(name, **CHANGES.get(kind, {})), make, 4)
    world.join([12, 3])
    assert world.cache is not None
    for layer in world.cache.advance():
        assert not hasattr(layer, "left_padding") and not hasattr(layer, "_idx")


def test_an_unknown_kind_is_merged_by_its_own_means() -> None:
    def rows(kind: type) -> list[RowCache]:
        return [prefilled(load("qwen3"), caches_of(kind), [5, 6, n]) for n in (7, 8)]

    assert isinstance(kv.join(None, rows(OwnKVCache))[0], MergedCache)
    assert isinstance(kv.join(None, rows(KVCache))[0], SlotCache)


# -- cost -------------------------------------------------------------------------------------------------------------

LAYERS, HEADS, DIM = 12, 4, 32


def synthetic(tokens: int) -> RowCache:
    row = [KVCache() for _ in range(LAYERS)]
    numbers = mx.ones((1, HEADS, tokens, DIM))
    for layer in row:
        layer.update_and_fetch(numbers, numbers)
    mx.eval([layer.state for layer in row])
    return row


def size_of(row: RowCache) -> int:
    return sum(layer.nbytes for layer in row)


def step(cache: kv.BatchCache) -> None:
    token = mx.ones((cache.width, HEADS, 1, DIM))
    mx.eval([layer.update_and_fetch(token, token) for layer in cache.advance()])


def peak_of(what: Callable[[], Any]) -> int:
    """Bytes that something takes beyond what is there before it."""
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    what()
    return max(0, mx.get_peak_memory() - before)


def test_a_step_writes_in_place() -> None:
    cache, _ = kv.join(None, [synthetic(1000) for _ in range(3)])
    step(cache)
    assert peak_of(lambda: step(cache)) < cache.nbytes / 100


def test_joining_and_leaving_copy_nothing_but_the_row_itself() -> None:
    cache, joined = kv.join(None, [synthetic(1000) for _ in range(8)])
    step(cache)
    row = synthetic(1000)
    assert peak_of(lambda: cache.leave(joined[3:4])) == 0
    assert peak_of(lambda: cache.join([row])) < size_of(row) / 10
    step(cache)


def test_a_device_is_waited_for_as_often_however_many_layers_and_rows_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[Any] = []
    evaluate = mx.eval
    cache, joined = kv.join(None, [synthetic(100) for _ in range(8)])
    step(cache)
    cache.leave(joined[:4])
    row = synthetic(100)
    monkeypatch.setattr(mx, "eval", lambda *arrays: (waits.append(arrays), evaluate(*arrays)))
    cache.join([row, row, row])
    assert len(waits) == 3
    cache.read(joined[-1])
    assert len(waits) == 4


def test_growing_has_one_layer_twice_and_no_more() -> None:
    cache, _ = kv.join(None, [synthetic(1000) for _ in range(8)])
    step(cache)
    before, row = cache.nbytes, synthetic(1000)
    extra = peak_of(lambda: cache.join([row]))  # the ninth: there are twelve slots now
    grown = cache.nbytes - before
    assert grown == before / 2
    assert extra < grown + before / LAYERS


def test_a_row_that_fits_joins_within_the_memory_that_is_there() -> None:
    cache, joined = kv.join(None, [synthetic(1000) for _ in range(8)])
    row = synthetic(900)
    cache.leave(joined[-1:])
    mx.reset_peak_memory()
    cache.join([row])
    assert mx.get_peak_memory() < 1.1 * (cache.nbytes + size_of(row))


def test_room_is_given_back_when_few_rows_are_left() -> None:
    cache, joined = kv.join(None, [synthetic(100) for _ in range(16)])
    full = cache.nbytes
    cache.leave([slot for slot in joined if slot not in (3, 9)])
    assert cache.wants_compaction
    assert cache.compact() == {3: 0, 9: 1} and cache.width == 2
    assert cache.nbytes == full // 8
    step(cache)


def test_a_freed_slot_waits_a_few_steps_for_a_row_to_take_it() -> None:
    cache, joined = kv.join(None, [synthetic(10) for _ in range(4)])
    cache.leave(joined[1:2])
    for _ in range(3):
        assert not cache.wants_compaction and cache.width == 4
        step(cache)
    assert cache.join([synthetic(10)]) == [1]
    cache.leave(joined[:1])
    for _ in range(4):
        step(cache)
    assert cache.wants_compaction and cache.compact() == {3: 0} and cache.width == 3
    cache.leave([2])  # the last one: no slot is in the way
    assert cache.width == 2 and not cache.wants_compaction


def test_slots_come_in_buckets() -> None:
    assert [slots.slots_for(n) for n in (1, 2, 3, 5, 9, 17, 25, 33, 49, 65)] == [1, 2, 3, 6, 12, 24, 32, 48, 64, 96]


def test_one_row_can_be_rolled_back_and_copied() -> None:
    cache = OneRow(synthetic(10))
    copy = extract(cache, 0)
    cache.rollback(0, 3)
    assert (cache.row[0].offset, copy[0].offset) == (7, 10)
