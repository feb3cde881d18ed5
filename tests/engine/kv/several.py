"""A batch whose rows take several tokens in a step, and each of its rows alone, one token at a time."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from localai_shim.engine.kv import Buckets, BucketStep, BuiltBuckets, Place, RowCache
from tests.engine.row_caches import CHANGES, KINDS, MakeCache, load, prefilled
from tests.tiny import VOCABULARY

MOST = 6

Built = tuple[BuiltBuckets, list[npt.NDArray[np.int32]], list[mx.array]]
"""A step that was built: its layers, and by bucket the views of its tokens and the logits."""


class World:
    """A batch, and a plain cache for each of its rows, which takes one token at a time."""

    @classmethod
    def of(cls, kind: str, seed: int, *, builds_ahead: bool = False) -> World:
        """One with a kind of caches, and a model for them."""
        name, make, _ = KINDS[kind]
        model = load(name, **CHANGES.get(kind, {}))
        # Rounding may move a quantised number to the next of 256.
        return cls(model, make, seed, builds_ahead=builds_ahead, tolerance=2e-2 if "quantised" in kind else 2e-3)

    def __init__(
        self, model: Any, make: MakeCache, seed: int, *, builds_ahead: bool = False, tolerance: float = 2e-3
    ) -> None:
        self.model, self.make, self.tolerance = model, make, tolerance
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
