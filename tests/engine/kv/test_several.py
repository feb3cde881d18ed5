"""Rows that take several tokens in a step compute what they compute one by one, whatever is taken back of them."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.engine.kv import Buckets, Place, RowCache, read_row, slots
from localai_shim.engine.kv import step as of_steps
from tests.engine.row_caches import CHANGES, KINDS, QUICK, load, prefilled
from tests.samples import only
from tests.tiny import VOCABULARY

MOST = 6
MISREAD = ("unknown", "mlx-vlm's: unknown", "mlx-vlm's: two caches per layer")
"""Kinds that take one token at a time, and a model whose code does not look at how many tokens count."""


class World:
    """A batch, and each of its rows a second time on a plain cache of its own, which takes one token at a time."""

    def __init__(self, kind: str, seed: int) -> None:
        name, self.make, _ = KINDS[kind]
        self.tolerance = 2e-2 if "quantised" in kind else 2e-3  # rounding may move a number to the next of 256
        self.model: Any = load(name, **CHANGES.get(kind, {}))
        self.random = random.Random(seed)
        self.cache = Buckets(0, most_tokens=MOST)
        self.alone: dict[Place, RowCache] = {}
        self.replay: dict[Place, list[int]] = {}
        self.replayed = self.full = 0

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(3, VOCABULARY) for _ in range(count)]

    def join(self, *lengths: int) -> None:
        prompts = [self.tokens(n) for n in lengths]
        places = self.cache.join([prefilled(self.model, self.make, p) for p in prompts])
        for place, prompt in zip(places, prompts, strict=True):
            self.alone[place] = prefilled(self.model, self.make, prompt)
            self.replay[place] = []

    def leave(self, place: Place) -> None:
        self.cache.leave([place])
        del self.alone[place], self.replay[place]

    def compact(self) -> None:
        moves = self.cache.compact()
        for mine in (self.alone, self.replay):
            taken = {new: mine.pop(old) for old, new in moves.items()}
            mine.update(taken)  # type: ignore[arg-type]

    def one_each(self) -> None:
        """An ordinary step."""
        places = sorted(self.alone)
        tokens = dict(zip(places, self.tokens(len(places)), strict=True))
        for step in self.cache.advance(places):
            name = next(name for name, slot in places if (name, slot) in tokens and slot in step.slots)
            ids = [tokens.get((name, slot), 5) for slot in range(step.width)]
            logits = self.model(mx.array(ids)[:, None], cache=step.layers)
            for slot in step.slots:
                self.check((name, slot), [ids[slot]], logits[slot])

    def several(self) -> None:
        """A step in which each row takes some tokens, of which it keeps some."""
        blocks = {
            place: [*self.replay[place], *self.tokens(self.random.randint(1, MOST - len(self.replay[place])))]
            for place in sorted(self.alone)
        }
        kept = {p: self.random.randint(len(self.replay[p]) + 1, len(block)) for p, block in blocks.items()}
        steps = self.cache.advance_several({place: len(block) for place, block in blocks.items()})
        names = dict.fromkeys(name for name, _ in blocks)
        for name, step in zip(names, steps, strict=True):
            ids = [[5] * step.tokens for _ in range(step.width)]
            for slot in step.slots:
                block = blocks[name, slot]
                ids[slot][: len(block)] = block
            logits = self.model(mx.array(ids), cache=step.layers)
            for slot in step.slots:
                done = len(self.replay[name, slot])
                self.check((name, slot), blocks[name, slot][done : kept[name, slot]], logits[slot, done:])
        for place, count in self.cache.settle(kept).items():
            self.replay[place] = blocks[place][count : kept[place]]
            self.replayed += bool(self.replay[place])
            self.full += count == len(blocks[place])

    def check(self, place: Place, tokens: list[int], logits: mx.array) -> None:
        cache = self.alone[place]
        expected = mx.concatenate([self.model(mx.array([[token]]), cache=cache)[:, -1] for token in tokens])
        close = mx.isclose(logits[: len(tokens)], expected, rtol=1e-3, atol=self.tolerance).all(axis=-1).tolist()
        assert all(close), f"tokens {close} of {place}"


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity in steps of 16 tokens, so that it grows often."""
    monkeypatch.setattr(slots, "SLOT_STEP_TOKENS", 16)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", only(QUICK, [kind for kind in KINDS if kind not in MISREAD]))
def test_rows_keep_any_number_of_a_steps_tokens(kind: str) -> None:
    world = World(kind, seed=7)
    world.join(3, 1, 30)
    for i in range(14):
        if i in (4, 9):
            world.join(world.random.choice([5, 18, 23, 41]))
        if i in (6, 7, 11):
            world.leave(world.random.choice(sorted(world.alone)))
        if world.cache.wants_compaction:
            world.compact()
        if i % 4 == 3 and not any(world.replay.values()):
            world.one_each()
        else:
            world.several()
    assert world.full
    assert bool(world.replayed) == kind.endswith(("recurrent and dense", "two caches per layer"))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["dense", "sliding window", "ring that keeps its first tokens", "recurrent and dense"])
def test_a_row_that_is_alone_takes_several_too(kind: str) -> None:
    world = World(kind, seed=3)
    world.join(22)
    for i in range(12):
        if i % 3 == 0 and not any(world.replay.values()):
            world.one_each()
        world.several()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["dense", "sliding window", "recurrent and dense"])
def test_layers_that_a_gpu_computes_while_the_others_are_built(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[mx.array] = []
    monkeypatch.setattr(of_steps, "_on_gpu", lambda: True)
    monkeypatch.setattr(of_steps, "LAYERS_AT_ONCE", 1)
    monkeypatch.setattr(of_steps, "_async_eval", lambda *arrays: mx.async_eval(*arrays) or begun.extend(arrays))
    world = World(kind, seed=9)
    world.join(3, 1, 30)
    for _ in range(5):
        world.several()
    assert begun


@pytest.mark.usefixtures("small_steps")
def test_a_row_that_is_taken_out_of_a_ring_with_places_to_spare_is_whole() -> None:
    world = World("sliding window", seed=5)
    world.join(30, 34)
    for _ in range(7):
        world.several()
        for place, alone in world.alone.items():
            ours = world.cache.read(place)
            for mine, theirs in zip(ours, read_row(alone), strict=True):
                assert mine.length == theirs.length  # type: ignore[union-attr]
                for a, b in zip(mine.arrays, theirs.arrays, strict=True):  # type: ignore[union-attr]
                    assert mx.allclose(a, b, rtol=1e-3, atol=2e-3)


def test_kinds_that_slots_cannot_hold_take_one_token_at_a_time() -> None:
    world = World("unknown", seed=1)
    world.join(4, 6)
    with pytest.raises(ValueError, match="one token per row"):
        world.several()
