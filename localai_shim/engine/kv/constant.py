"""Slots of arrays that no step changes: a joining row copies only itself, and steps read views of one buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import mlx.core as mx

from ..cache_contents import Contents, States
from ..ports import host
from .layers import Current, LayerSlots
from .row import copy_of


class ConstantSlots(LayerSlots):
    """A layer of constant arrays. The model gets views of the slots that a step runs, in the layer's own class."""

    def __init__(self, like: States, current: Current) -> None:
        self._like, self._current = replace(like, arrays=(None,) * len(like.arrays)), current
        self._layer = host().caches.write(self._like)
        self._buffers: list[mx.array | None] = list(self._like.arrays)
        """`[slots, ...]` each; None before the first row."""

    def given(self) -> object:
        return self._layer

    def resize(self) -> None:
        slots = self._current.slots
        self._layer.cache = list(self._like.arrays)  # which held the buffers
        for i, buffer in enumerate(self._buffers):
            if buffer is None or buffer.shape[0] == slots:
                continue
            if buffer.shape[0] > slots:
                made = copy_of(buffer[:slots])
            else:
                made = mx.pad(buffer, [(0, slots - buffer.shape[0])] + [(0, 0)] * (buffer.ndim - 1))
            self._buffers[i] = made
            del buffer
            mx.eval(made)

    def begin_step(self, width: int, counts: Sequence[int] | None = None) -> None:
        self._layer.cache = [
            buffer if buffer is None or buffer.shape[0] == width else buffer[:width] for buffer in self._buffers
        ]

    def write(
        self, slots: Sequence[int], contents: Sequence[Contents], spoiled: Collection[int] = ()
    ) -> Iterator[list[mx.array]]:
        rows = [(slot, row) for slot, row in zip(slots, contents, strict=True) if isinstance(row, States)]
        self._layer.cache = list(self._like.arrays)
        buffers, self._buffers = self._buffers, list(self._like.arrays)
        for i, buffer in enumerate(buffers):
            like = next((row.arrays[i] for _, row in rows if row.arrays[i] is not None), None)
            if buffer is None and like is not None:
                buffers[i] = mx.zeros((self._current.slots, *like.shape[1:]), dtype=like.dtype)
            del buffer
        yield [buffer for buffer in buffers if buffer is not None]  # each is the only holder of its memory then
        for slot, row in rows:
            for buffer, new in zip(buffers, row.arrays, strict=True):
                if buffer is not None:
                    buffer[slot : slot + 1] = 0 if new is None else new
        yield [buffer for buffer in buffers if buffer is not None]
        self._buffers = buffers

    def read(self, slot: int, length: int, start: int = 0) -> States:
        return replace(
            self._like,
            arrays=tuple(None if buffer is None else copy_of(buffer[slot : slot + 1]) for buffer in self._buffers),
        )

    def arrays(self) -> list[mx.array]:
        return [buffer for buffer in self._buffers if buffer is not None]

    def set_arrays(self, arrays: Sequence[mx.array]) -> None:
        """Nothing: a step that is built ahead reads the same arrays."""
