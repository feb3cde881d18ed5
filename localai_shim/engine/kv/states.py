"""One recurrent layer's slots: states that each step replaces, and that cannot be taken back but as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from ..cache_contents import Contents, States
from ..ports import host
from .layers import LayerSlots
from .row import copy_of


class StateSlots(LayerSlots):
    """A recurrent layer, in its library's own `ArraysCache`: the model replaces all rows' states at each step."""

    def __init__(self, like: States) -> None:
        self._layer: Any = host().caches.write(replace(like, arrays=(None,) * len(like.arrays)))
        self._upstream = like.upstream
        self._before: list[mx.array | None] = []
        """The states before a step of several tokens."""

    def given(self) -> Any:
        return self._layer

    def begin(self, width: int, counts: Sequence[int] | None = None) -> None:
        """Slots that were never written have the state of an empty row: zeros."""
        self._layer.cache = [_with_rows(state, width) for state in self._layer.cache]
        if counts is not None:
            self._before = [None if state is None else state[...] for state in self._layer.cache]
            self._layer.lengths = mx.array(list(counts))

    def settle(self, whole: Sequence[bool]) -> None:
        before, self._before = self._before, []
        self._layer.lengths = None
        if not all(whole):
            kept = mx.array(list(whole))
            self._layer.cache = [_where(kept, *states) for states in zip(self._layer.cache, before, strict=True)]

    def write(
        self, slots: Sequence[int], contents: Sequence[Contents], spoiled: Collection[int] = ()
    ) -> Iterator[list[mx.array]]:
        rows = [(slot, row) for slot, row in zip(slots, contents, strict=True) if isinstance(row, States)]
        states, self._layer.cache = list(self._layer.cache), [None] * len(self._layer.cache)
        for i, state in enumerate(states):
            new = next((row.arrays[i] for _, row in rows if row.arrays[i] is not None), None)
            if state is None and new is not None:
                states[i] = mx.zeros((max(slots) + 1, *new.shape[1:]), dtype=new.dtype)
            states[i] = _with_rows(states[i], max(max(slots) + 1, 0 if state is None else state.shape[0]))
        yield [state for state in states if state is not None]
        for slot, row in rows:
            for state, new in zip(states, row.arrays, strict=True):
                if state is not None:
                    state[slot : slot + 1] = 0 if new is None else new
        self._layer.cache = states
        yield [state for state in states if state is not None]

    def read(self, slot: int, length: int, start: int = 0) -> States:
        arrays = (None if s is None else copy_of(s[slot : slot + 1]) for s in self._layer.cache)
        return States(tuple(arrays), self._upstream)

    def arrays(self) -> list[mx.array]:
        return [state for state in self._layer.cache if state is not None]


def _where(kept: mx.array, after: mx.array | None, before: mx.array | None) -> mx.array | None:
    """The new states of the slots `[width]` that are kept, and the old ones of the others; None are zeros."""
    if after is None:
        return before
    return mx.where(kept.reshape(-1, *[1] * (after.ndim - 1)), after, 0 if before is None else before)


def _with_rows(state: mx.array | None, rows: int) -> mx.array | None:
    if state is None or state.shape[0] == rows:
        return state
    if state.shape[0] > rows:
        return state[:rows]
    return mx.pad(state, [(0, rows - state.shape[0])] + [(0, 0)] * (state.ndim - 1))
