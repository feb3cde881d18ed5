"""The decode batch's caches as slots: a row joins by one copy of itself, leaves by none, and the others stay put."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from ...adapters.contents import Contents, KeyValues
from .layers import Current, LayerSlots, abreast, layer_slots
from .row import RowCache, leaves, read_row
from .step import Step

_TOKENS = 256  # capacity is a multiple of this
_PATIENCE = 4  # steps for which a freed slot waits for a row that takes it, before a row behind is moved there


class SlotCache:
    """Rows in slots of preallocated buffers; a row starts at position 0 of its slot and has a length of its own.

    Slots are numbered from 0. Dead ones among the live are part of the batch until a row takes them or `compact`
    closes them; those behind the last live one are not.
    """

    def __init__(self) -> None:
        self._current = Current()
        self._layers: list[LayerSlots] = []
        self._lengths: dict[int, int] = {}  # of the live slots
        self._waited = 0

    @property
    def width(self) -> int:
        """Slots that a step runs: up to the last live one."""
        return max(self._lengths, default=-1) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, free slots and places included."""
        return sum(array.nbytes for layer in self._layers for array in layer.arrays())

    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return list(self._lengths.values())

    def join(self, rows: Sequence[RowCache]) -> list[int]:
        """Copy prefilled rows into free slots, the lowest first. Returns their slots, ascending.

        Raises:
            ValueError: a row's cache is of another kind; the cache is of no use any more.
        """
        contents = [read_row(row) for row in rows]
        lengths = [length_of(row) for row in contents]
        if not self._layers:
            self._layers = [layer_slots(layer, self._current) for layer in contents[0]]
        free = (slot for slot in range(len(self._lengths) + len(rows)) if slot not in self._lengths)
        joined = [next(free) for _ in rows]
        self._lengths.update(zip(joined, lengths, strict=True))
        self._make_room()
        self._resize()
        self._write(joined, contents)
        return joined

    def leave(self, slots: Sequence[int]) -> None:
        """Free slots, at no cost."""
        for slot in slots:
            del self._lengths[slot]

    def advance(self) -> RowCache:
        """Begin a step in which every live row gets one token. Returns what the model is to be called with."""
        width = self.width
        dead = width - len(self._lengths)
        self._waited = self._waited + 1 if dead else 0
        if self._make_room():
            self._resize()
        self._current.step = Step(
            np.array([self._lengths.get(slot, 0) for slot in range(width)], dtype=np.int64), bool(dead)
        )
        for slot in self._lengths:
            self._lengths[slot] += 1
        for layer in self._layers:
            layer.begin(width)
        return [layer.layer for layer in self._layers]

    @property
    def wants_compaction(self) -> bool:
        """A freed slot was taken by nobody, or buffers are far too large."""
        return (self._waited >= _PATIENCE and self.width > len(self._lengths)) or self._is_roomy()

    def compact(self) -> dict[int, int]:
        """Close freed slots with the last rows, by one copy of each, and give back buffers that are far too large.

        Returns:
            Old slot -> new slot of the rows that moved.
        """
        live = sorted(self._lengths)
        holes = [slot for slot in range(len(live)) if slot not in self._lengths]
        moves = dict(zip(live[len(live) - len(holes) :], holes, strict=True))
        for source, target in moves.items():  # one after another, so that no more than one row is there twice
            self._write([target], [self.read(source)])
        for source, target in moves.items():
            self._lengths[target] = self._lengths.pop(source)
        self._waited = 0
        if self._is_roomy():
            now = self._current
            now.slots, now.capacity = bucket(len(live)), rounded(self._needed())
            self._resize()
        return moves

    def read(self, slot: int, start: int = 0) -> list[Contents]:
        """A copy of a row, the step in flight included: what is in flight is waited for."""
        length = self._lengths[slot]
        row = [layer.read(slot, length, start) for layer in self._layers]
        mx.eval([array for layer in leaves(row) for array in layer.arrays if array is not None])
        return row

    def rollback(self, slot: int, tokens: int) -> None:
        """Forget a row's last tokens, at no cost.

        Raises:
            ValueError: it has not so many, or some layer cannot take tokens back.
        """
        length = self._lengths[slot]
        if not 0 <= tokens <= length:
            raise ValueError(f"a row of {length} tokens cannot be rolled back by {tokens}")
        if tokens and not all(layer.can_roll_back(length) for layer in self._layers):
            raise ValueError("this model's caches cannot be rolled back")
        self._lengths[slot] = length - tokens

    # -----------------------------------------------------------------------------------------------------------

    def _needed(self) -> int:
        """Places that the next step takes."""
        return max(self._lengths.values(), default=0) + 1

    def _make_room(self) -> bool:
        """Say how large buffers have to be; whether they have to grow."""
        now, grows = self._current, False
        if self.width > now.slots:
            now.slots, grows = bucket(self.width), True
        if self._needed() > now.capacity:
            now.capacity, grows = rounded(max(self._needed(), now.capacity + now.capacity // 4)), True
        return grows

    def _is_roomy(self) -> bool:
        now = self._current
        few = bucket(len(self._lengths)) * 4 <= now.slots
        return few or (now.capacity > 16 * _TOKENS and self._needed() * 4 <= now.capacity)

    def _resize(self) -> None:
        for layer in self._layers:  # one after another, so that no more than one is there twice
            layer.resize()

    def _write(self, slots: Sequence[int], rows: Sequence[Sequence[Contents]]) -> None:
        columns = zip(*rows, strict=True)
        for arrays in abreast(layer.write(slots, its) for layer, its in zip(self._layers, columns, strict=True)):
            mx.eval(arrays)


def bucket(rows: int) -> int:
    """Slots to have for so many rows: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, ..."""
    size = 1
    while size < rows:
        size *= 2
    return size * 3 // 4 if size >= 4 and rows <= size * 3 // 4 else size


def length_of(row: Sequence[Contents]) -> int:
    """Tokens that a row has seen; layers without attention do not say.

    Raises:
        ValueError: its layers have seen different numbers of tokens.
    """
    lengths = {layer.length for layer in leaves(row) if isinstance(layer, KeyValues) and layer.arrays}
    if len(lengths) > 1:
        raise ValueError("the layers of this row's cache have seen different numbers of tokens")
    return lengths.pop() if lengths else 0


def rounded(tokens: int) -> int:
    return -(-tokens // _TOKENS) * _TOKENS
