"""Rows that take several tokens in a step compute what they compute one by one, whatever is taken back of them."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from localai_shim.engine.kv import Buckets, BucketStep, BuiltBuckets, Place, RowCache, read_row, slots
from localai_shim.engine.kv import step as of_steps
from tests.engine.row_caches import CHANGES, KINDS, QUICK, load, prefilled
from tests.samples import only
from tests.tiny import VOCABULARY

MOST = 6
MISREAD = ("unknown", "mlx-vlm's: unknown", "mlx-vlm's: two caches per layer")
"""Kinds that take one token at a time, and a model whose code does not look at how many tokens count."""


Built = tuple[BuiltBuckets, list[npt.NDArray[np.int32]], list[mx.array]]
"""A step that was built: its layers, and by bucket the views of its tokens and the logits."""


class World:
    """A batch, and each of its rows a second time on a plain cache of its own, which takes one token at a time."""

    def __init__(self, kind: str, seed: int, *, builds_ahead: bool = False) -> None:
        name, self.make, _ = KINDS[kind]
        self.tolerance = 2e-2 if "quantised" in kind else 2e-3  # rounding may move a number to the next of 256
        self.model: Any = load(name, **CHANGES.get(kind, {}))
        self.random = random.Random(seed)
        self.cache = Buckets(0, most_tokens=MOST, builds_ahead=builds_ahead)
        self.builds_ahead = builds_ahead
        self.built: Built | None = None
        self.begun = self.passed = 0  # steps that had been built: those that were run, and those that were not
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
        names = list(dict.fromkeys(name for name, _ in blocks))
        steps, logits = self.begin({place: len(block) for place, block in blocks.items()}), []
        for i, (name, step) in enumerate(zip(names, steps, strict=True)):
            ids = [[5] * step.tokens for _ in range(step.width)]
            for slot in step.slots:
                block = blocks[name, slot]
                ids[slot][: len(block)] = block
            if self.built is None:
                logits.append(self.model(mx.array(ids), cache=step.layers))
            else:
                self.built[1][i][...] = ids
                logits.append(self.built[2][i])
        self.built = None
        if self.builds_ahead:
            self.build(dict(zip(names, steps, strict=True)))
        for name, step, its in zip(names, steps, logits, strict=True):
            for slot in step.slots:
                done = len(self.replay[name, slot])
                self.check((name, slot), blocks[name, slot][done : kept[name, slot]], its[slot, done:])
        for place, count in self.cache.settle(kept).items():
            self.replay[place] = blocks[place][count : kept[place]]
            self.replayed += bool(self.replay[place])
            self.full += count == len(blocks[place])

    def begin(self, counts: dict[Place, int]) -> list[BucketStep]:
        """By the graph that was built, if it is for these rows."""
        if self.built is not None:
            steps = self.cache.begin_built(self.built[0], counts)
            if steps is not None:
                self.begun += 1
                return steps
            self.built, self.passed = None, self.passed + 1
        return self.cache.advance_several(counts)

    def build(self, running: dict[int, BucketStep]) -> None:
        """The graph of the next step; how many tokens of this one stay is not said yet."""
        with self.cache.build(running) as made:
            if made is not None:
                inputs = [mx.array(np.zeros((step.width, step.tokens), np.int32)) for step in made.steps]
                views = [np.array(tokens, copy=False) for tokens in inputs]
                logits = [self.model(i, cache=step.layers) for i, step in zip(inputs, made.steps, strict=True)]
                self.built = made, views, logits

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
@pytest.mark.parametrize("kind", only(QUICK, [kind for kind in KINDS if kind not in MISREAD]))
def test_steps_are_built_before_it_is_known_what_their_rows_hold(kind: str) -> None:
    """Rows leave and join meanwhile, and ordinary steps come between: what was built for others is not run."""
    world = World(kind, seed=11, builds_ahead=True)
    world.join(3, 1, 14)
    for i in range(18):
        if i == 9:
            world.join(8)
        if i in (5, 12):
            world.leave(world.random.choice(sorted(world.alone)))
        if world.cache.wants_compaction:
            world.compact()
        if i in (3, 15) and not any(world.replay.values()):
            world.one_each()
        world.several()
    if kind.endswith(("recurrent and dense", "two caches per layer")):
        assert not world.begun, "they need the states from before the step"
    else:
        assert world.begun > 4 and world.passed > 2


@pytest.mark.usefixtures("small_steps")
def test_a_row_that_is_alone_has_slots_where_steps_are_built_ahead() -> None:
    world = World("dense", seed=4, builds_ahead=True)
    world.join(22)
    for _ in range(8):
        world.several()
    assert world.begun


@pytest.mark.parametrize(
    ("built", "tokens", "runs"), [(4, 4, True), (4, 2, True), (5, 2, False), (6, 1, False), (2, 3, False)]
)
def test_a_step_that_was_built_for_far_more_tokens_or_for_fewer_is_not_run(built: int, tokens: int, runs: bool) -> None:
    world = World("dense", seed=4, builds_ahead=True)
    world.join(20, 9)
    places = sorted(world.alone)
    steps = world.cache.advance_several(dict.fromkeys(places, built))
    mx.eval(world.model(mx.full((2, built), 5, mx.int32), cache=steps[0].layers))
    with world.cache.build({places[0][0]: steps[0]}) as made:
        assert made is not None
        world.model(mx.full((2, built), 5, mx.int32), cache=made.steps[0].layers)
    world.cache.settle(dict.fromkeys(places, 1))
    begun = world.cache.begin_built(made, {places[0]: tokens, places[1]: 1})
    assert (begun is not None) is runs


@pytest.mark.parametrize("how", ["dropped", "in use"])
def test_a_step_that_was_built_is_no_other_holder_of_buffers(how: str) -> None:
    """Who else holds a buffer has MLX copy the whole of it for each token."""
    world = World("dense", seed=4, builds_ahead=True)
    world.join(*[20] * 8)
    world.several()
    layer: Any = world.cache._buckets[0]._layers[0]  # type: ignore[attr-defined]
    before = np.array(layer.arrays()[0], copy=False).ctypes.data
    if how == "dropped":
        world.built = None
    begun = world.begun
    world.several()
    assert world.begun == begun + (how == "in use")
    assert np.array(layer.arrays()[0], copy=False).ctypes.data == before


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
