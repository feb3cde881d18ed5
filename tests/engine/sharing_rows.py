"""Rows in slots that share first tokens, and each of them a second time on a plain cache of its own."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import numpy as np

from localai_shim.engine import kv
from localai_shim.engine.kv import RowCache
from localai_shim.engine.kv.row import leaves
from localai_shim.engine.kv.segments import build_row, take_snapshot
from localai_shim.engine.kv.shared import Prefix
from localai_shim.engine.kv.slots import SlotCache
from localai_shim.engine.ports import host
from tests.architectures import text_model
from tests.tiny import VOCABULARY

MOST = 5
"""Tokens of a step of several."""


class World:
    """A batch in slots, and a plain cache of each of its rows, which takes one token at a time.

    Args:
        name: of the architecture.
        seed: of all that is drawn.
        changes: of the model's config.
    """

    def __init__(self, name: str, seed: int = 1, **changes: Any) -> None:
        self.text = text_model(name, **changes)
        self.model: Any = self.text._model
        host().forms().prepare(self.model)
        self.random = random.Random(seed)
        self.cache = SlotCache(spare=MOST)
        self.alone: dict[int, RowCache] = {}
        self.tokens: dict[int, list[int]] = {}
        """Of each row so far."""
        self.replay: dict[int, list[int]] = {}
        """Tokens that a row keeps, and that its slot has to run again."""
        self.prefixes: dict[int, Prefix] = {}

    def drawn(self, count: int) -> list[int]:
        return [self.random.randrange(3, VOCABULARY) for _ in range(count)]

    def plain(self, tokens: list[int]) -> RowCache:
        """A row that shares nothing."""
        row = self.text.new_cache()
        self.model(mx.array([tokens]), cache=row)
        return row

    def prefix(self, length: int) -> Prefix:
        """First tokens of rows to come."""
        tokens = self.drawn(length)
        arrays = [array for layer in leaves(kv.copied(self.plain(tokens))) for array in layer.growing]
        return Prefix(None, np.array(tokens, np.int64), arrays)

    def behind(self, prefix: Prefix, rest: list[int]) -> RowCache:
        """A row whose prompt continues behind shared tokens."""
        first = prefix.keys.tolist()
        like = kv.copied(self.plain(first))
        snapshot = take_snapshot(like, len(first))
        row = build_row(like, [prefix.arrays], snapshot, len(first), len(first), prefix.arrays)
        self.model(mx.array([rest]), cache=row)
        return row

    def join(self, *rows: tuple[Prefix | None, int], copies: bool = False) -> list[int]:
        """Add rows, each of what it shares and a number of further tokens.

        Args:
            rows: the rows.
            copies: the rows' own caches hold all of their tokens; what they share of these is not copied.
        """
        caches, tokens = [], []
        for prefix, count in rows:
            rest, first = self.drawn(count), [] if prefix is None else prefix.keys.tolist()
            alone = prefix is None or copies
            caches.append(self.plain(first + rest) if alone or prefix is None else self.behind(prefix, rest))
            tokens.append(first + rest)
        slots = self.cache.join(caches, [prefix for prefix, _ in rows])
        assert not set(slots) & set(self.alone)
        for slot, its, (prefix, _) in zip(slots, tokens, rows, strict=True):
            self.alone[slot], self.tokens[slot], self.replay[slot] = self.plain(its), its, []
            if prefix is not None:
                self.prefixes[slot] = prefix
        return slots

    def join_copy(self, prefix: Prefix, count: int) -> int:
        """Add a row that begins with these tokens and does not share them yet."""
        tokens = prefix.keys.tolist() + self.drawn(count)
        [slot] = self.cache.join([self.plain(tokens)])
        self.alone[slot], self.tokens[slot], self.replay[slot] = self.plain(tokens), tokens, []
        return slot

    def share(self, slot: int, prefix: Prefix) -> None:
        self.cache.share(slot, prefix)
        self.prefixes[slot] = prefix

    def leave(self, *slots: int) -> None:
        self.cache.leave(slots)
        for slot in slots:
            del self.alone[slot], self.tokens[slot], self.replay[slot]
            self.prefixes.pop(slot, None)

    def compact(self) -> dict[int, int]:
        moves = self.cache.compact()
        ours: list[dict[int, Any]] = [self.alone, self.tokens, self.replay, self.prefixes]
        for mine in ours:
            mine.update({new: mine.pop(old) for old, new in moves.items() if old in mine})
        return moves

    def step(self) -> None:
        """An ordinary step."""
        tokens = {slot: self.drawn(1) for slot in self.alone}
        layers = self.cache.advance()
        ids = [tokens.get(slot, [5]) for slot in range(self.cache.width)]
        logits = self.model(mx.array(ids), cache=layers)
        for slot, its in tokens.items():
            self.check(slot, its, logits[slot])

    def blocks(self) -> dict[int, list[int]]:
        """Tokens of each row's next step of several: first those that it has to run again."""
        return {
            slot: [*again, *self.drawn(self.random.randint(1, MOST - len(again)))]
            for slot, again in sorted(self.replay.items())
        }

    def padded(self, blocks: dict[int, list[int]], tokens: int) -> list[list[int]]:
        padding = {slot: block + [5] * (tokens - len(block)) for slot, block in blocks.items()}
        return [padding.get(slot, [5] * tokens) for slot in range(self.cache.width)]

    def several(self) -> None:
        """A step in which each row takes some tokens and keeps some of them."""
        blocks = self.blocks()
        layers = self.cache.advance({slot: len(block) for slot, block in blocks.items()})
        tokens = max(map(len, blocks.values()))
        self.settle(blocks, self.model(mx.array(self.padded(blocks, tokens)), cache=layers))

    def settle(self, blocks: dict[int, list[int]], logits: mx.array) -> None:
        """Keep some tokens of each row's block, whose logits are checked."""
        kept = {slot: self.random.randint(len(self.replay[slot]) + 1, len(block)) for slot, block in blocks.items()}
        for slot, block in blocks.items():
            done = len(self.replay[slot])
            self.check(slot, block[done : kept[slot]], logits[slot, done:])
        for slot, count in self.cache.settle(kept).items():
            self.replay[slot] = blocks[slot][count : kept[slot]]

    def check(self, slot: int, tokens: list[int], logits: mx.array) -> None:
        """Check that a row's logits behind these tokens are those that it gets alone."""
        cache = self.alone[slot]
        expected = mx.concatenate([self.model(mx.array([[token]]), cache=cache)[:, -1] for token in tokens])
        assert mx.allclose(logits[: len(tokens)], expected, rtol=1e-3, atol=2e-3), f"slot {slot}"
        self.tokens[slot] += tokens

    def check_read(self, slot: int, start: int = 0) -> None:
        """Check that a slot is read as the row's own cache holds it."""
        read, expected = leaves(self.cache.read(slot, start)), leaves(kv.copied(self.alone[slot], start))
        for layer, alone in zip(read, expected, strict=True):
            assert layer.length == alone.length and type(layer) is type(alone)
            for array, like in zip(layer.arrays, alone.arrays, strict=True):
                assert array is not None and like is not None and array.shape == like.shape
                assert mx.allclose(array, like, rtol=1e-3, atol=2e-3)
