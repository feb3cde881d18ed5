"""Unlimited-OCR's attention to the whole prompt and the last tokens behind it, in a batch.

mlx-vlm's cache holds one row, and takes the first pass of one token for the end of the prompt.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from ...engine.cache_contents import LayerCache, RowCache

SPARE_PLACES = 64  # that are allocated behind the last row's: buffers are copied when they are full


class PromptRing:
    """Keys and values of one layer, of one row or several: a prompt's, and behind these a ring of later ones.

    The first pass of one token is the end of a prompt, unless a pass of several follows, or `prompts` is set back.

    Args:
        window: tokens of the ring.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.tokens = [0]
        """Of each row."""
        self.prompts: list[int | None] = [None]
        """Tokens of each row's prompt, once they are known."""
        self.arrays: list[mx.array] = []
        """Keys and values, `[rows, heads, places, dim]`."""

    @property
    def offset(self) -> int | mx.array:
        return self.tokens[0] if len(self.tokens) == 1 else mx.array(self.tokens)

    @property
    def counts(self) -> list[int]:
        """Places that each row has filled."""
        rows = zip(self.tokens, self.prompts, strict=True)
        return [tokens if prompt is None else min(tokens, prompt + self.window) for tokens, prompt in rows]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        new, k = (keys, values), keys.shape[2]
        if k > 1:
            if self.counts != self.tokens or len(self.tokens) > 1:
                raise ValueError("a prompt runs before its answer, and by itself")
            self.prompts, known = [None], [array[:, :, : self.tokens[0]] for array in self.arrays]
            self.arrays = (
                [mx.concatenate([*pair], axis=2) for pair in zip(known, new, strict=True)] if known else [*new]
            )
            self.tokens = [self.tokens[0] + k]
            return self.arrays[0], self.arrays[1]
        prompts = self._ended_prompts()
        places = [
            n if n < prompt else prompt + (n - prompt) % self.window
            for n, prompt in zip(self.tokens, prompts, strict=True)
        ]
        if not self.arrays:
            self.arrays = [array[:, :, :0] for array in new]
        if max(places) >= self.arrays[0].shape[2]:
            self.arrays = [_widened(array, max(places) + SPARE_PLACES) for array in self.arrays]
        index = mx.array(places)[:, None, None, None]
        self.arrays = [mx.put_along_axis(old, index, its, axis=2) for old, its in zip(self.arrays, new, strict=True)]
        self.tokens, self.prompts = [n + 1 for n in self.tokens], [*prompts]
        most = max(self.counts)
        return self.arrays[0][:, :, :most], self.arrays[1][:, :, :most]

    def _ended_prompts(self) -> list[int]:
        """Tokens of the prompts in a pass of one token, which is the last one of those that are not known.

        A prompt of one token is in the ring, as mlx-vlm has it.
        """
        rows = zip(self.tokens, self.prompts, strict=True)
        return [(n + 1 if n else 0) if prompt is None else prompt for n, prompt in rows]

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> mx.array | str | None:
        """The mask of the next pass."""
        if n > 1:
            return "causal"
        rows = zip(self.tokens, self._ended_prompts(), strict=True)
        counts = [min(tokens + 1, prompt + self.window) for tokens, prompt in rows]
        if min(counts) == max(counts):
            return None
        return mx.arange(max(counts)) < mx.array(counts)[:, None, None, None]

    # -- what rows that join and leave need ---------------------------------------------------------------------

    @classmethod
    def merge(cls, rings: Sequence[PromptRing]) -> PromptRing:
        made = cls(rings[0].window)
        made._join(rings)
        return made

    def extend(self, other: PromptRing) -> None:
        self._join([copy.copy(self), other])

    def _join(self, rings: Sequence[PromptRing]) -> None:
        self.tokens = [tokens for ring in rings for tokens in ring.tokens]
        self.prompts = [prompt for ring in rings for prompt in ring.prompts]
        like = next((ring.arrays for ring in rings if ring.arrays), [])
        places = max(self.counts) + SPARE_PLACES
        empty = [[mx.zeros((len(ring.tokens), a.shape[1], 0, a.shape[3]), a.dtype) for a in like] for ring in rings]
        held = [ring.arrays or none for ring, none in zip(rings, empty, strict=True)]
        columns = zip(*held, strict=True)
        self.arrays = [mx.concatenate([_widened(array, places) for array in column]) for column in columns]

    def filter(self, rows: Sequence[int]) -> None:
        kept = mx.array(list(rows))
        self.tokens, self.prompts = [self.tokens[row] for row in rows], [self.prompts[row] for row in rows]
        self.arrays = [array[kept] for array in self.arrays]

    def extract(self, row: int) -> PromptRing:
        made = copy.copy(self)
        made.filter([row])
        made.arrays = [array[:, :, : made.counts[0]] for array in made.arrays]
        return made

    # -- what the engine asks of any cache --------------------------------------------------------------------------

    @property
    def state(self) -> list[mx.array]:
        return self.arrays

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def empty(self) -> bool:
        return not self.arrays


def _widened(array: mx.array, places: int) -> mx.array:
    """Cut or pad each row to this number of places."""
    return mx.pad(array[:, :, :places], [(0, 0), (0, 0), (0, max(0, places - array.shape[2])), (0, 0)])


def with_prompt_rings(upstream: Callable[[nn.Module], RowCache]) -> Callable[[nn.Module], RowCache]:
    """Give layers with mlx-vlm's ring this one."""

    def make_cache(self: nn.Module) -> RowCache:
        return [_ring_for(layer) if hasattr(layer, "window_size") else layer for layer in upstream(self)]

    return make_cache


def _ring_for(layer: LayerCache) -> Any:
    return PromptRing(layer.window_size)
