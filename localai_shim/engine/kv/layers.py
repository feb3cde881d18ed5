"""One layer's slots. To the model they look like its library's own caches, at one token per row and step, or a few.

Buffers are stored flat, `[slots * heads * capacity, dim]`, so that one scatter writes tokens of any number of slots.
MLX does it in place as long as nothing else holds the buffer: what is read of a slot is always copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from ..cache_contents import Contents, KeyValues, Shared, States
from ..mirror.journal import Mirrored
from ..ports import host
from .row import copy_of
from .step import Step


@dataclass(slots=True)
class Current:
    """Step and spare places that all layers of a cache share."""

    slots: int = 0
    """Slots of each buffer."""
    capacity: int = 0
    """Places of each slot; rings have others."""
    reach: int = 0
    """Places that a ring without a size would have: it holds tokens that other layers' slots share."""
    spare: int = 0
    """Places that rings have beyond their size: the tokens of a step that can be taken back from a full one."""
    step: Step | None = None
    """The step that runs, or ran last."""
    looks_back: bool = False
    """Some layer that is no ring has asked for a mask that leaves out tokens at the beginning."""


class LayerSlots(Mirrored):
    """One layer of `SlotCache`."""

    def given(self) -> Any:
        """Layer cache that the model is given."""
        return self

    def resize(self) -> None:
        """Reallocate the buffers for the current slots and capacity, with the contents that fit."""

    def begin_step(self, width: int, counts: Sequence[int] | None = None) -> None:
        """Prepare for a step of `width` slots, in which `counts` tokens of each count; None: the one that each has."""

    @property
    def can_cut(self) -> bool:
        """Slots can keep some tokens of the step that runs; else they keep all of them or none."""
        return True

    def end_step(self, kept: Sequence[int]) -> None:
        """After a step of several tokens: take back those that slots do not keep.

        Does nothing if only the row's length counts.

        Args:
            kept: tokens that each slot keeps.
        """

    def write(self, slots: Sequence[int], contents: Sequence[Contents], spoiled: Collection[int] = ()) -> Writing:
        """Copy rows into slots; `spoiled` ones are emptied before."""
        raise NotImplementedError

    def read(self, slot: int, length: int, start: int = 0) -> KeyValues | States:
        """A lazy copy of a slot's row of this length; of layers with one position per token, from `start` on.

        It has to be evaluated before slots are written to or run again.
        """
        raise NotImplementedError

    def arrays(self) -> list[mx.array]:
        """Its buffers."""
        raise NotImplementedError

    def set_arrays(self, arrays: Sequence[mx.array]) -> None:
        """Replace `arrays` by these. Steps are not built ahead with layers that replace theirs."""
        raise NotImplementedError


Writing = Iterator[list[mx.array]]
"""A write in stages: yields the arrays to be evaluated before it continues."""
Fetched = tuple[mx.array, mx.array] | tuple[tuple[mx.array, ...], tuple[mx.array, ...]]
"""Keys and values for attention, `[width, heads, columns, dim]`; quantised, each is (packed, scales, biases)."""


def abreast(writings: Iterable[Writing]) -> Writing:
    """Several writes stage by stage: to wait for a device once per layer takes longer than the copies."""
    unfinished = list(writings)
    while unfinished:
        arrays = []
        for writing in list(unfinished):
            stage = next(writing, None)
            if stage is None:
                unfinished.remove(writing)
            else:
                arrays += stage
        if arrays:
            yield arrays


def _buffer(which: int) -> property:
    """A buffer itself, None where there is none yet. A few models set it, to add a dependency or to empty it."""

    def get(self: KeyValueSlots) -> mx.array | None:
        return self._flat[which] if self._flat else None

    def put(self: KeyValueSlots, buffer: mx.array) -> None:
        self._flat[which] = buffer

    return property(get, put)


class KeyValueSlots(LayerSlots):
    """An attention layer. The model is given this itself."""

    # mlx-vlm's models tell by these how many positions attention reads; without them they ask the device, per layer.
    left_padding: None
    _idx: int

    def __init__(self, like: KeyValues, current: Current, number: int | None = None) -> None:
        """`number`: its place among the layers whose first tokens rows can share; None: it is none of these."""
        self._ring, self._how, self._upstream, self._current = like.ring, like.quantised, like.upstream, current
        self._number = number
        if self._upstream == "mlx_vlm":
            self.left_padding = None
        self._written: Step | None = None
        self._flat: list[mx.array] = []
        self._slots = self._allocated = 0  # slots, and places of each, of the buffers
        self._shapes: list[tuple[int, int]] = []  # (heads, dim) of each

    # -- what models use ----------------------------------------------------------------------------------------

    @property
    def offset(self) -> int | mx.array:
        """Each row's position; as in a plain cache, the next one once this step's token is written."""
        step = self._step
        return step.next_offset if self._written is step else step.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Fetched:
        """Write the step's tokens, `[width, heads, tokens, dim]`; returns what attention reads."""
        step, ring = self._step, self._ring
        parts = self._stored(keys, values)
        if not self._flat:
            self._allocate(parts)
        capacity = self._capacity
        for i, part in enumerate(parts):
            width, heads, tokens, dim = part.shape
            if tokens != step.tokens:
                raise ValueError(f"rows of this step take {step.tokens} tokens each, not {tokens}")
            if dim:
                index, new = step.index(heads, capacity, ring), part.reshape(width * heads * tokens, dim)
                self._flat[i] = mx.put_along_axis(self._flat[i], index, new, axis=0)
        self._written = step
        step.wrote(self._flat)
        return self.keys_and_values()

    def keys_and_values(self) -> Fetched:
        """Keys and values that attention reads in this step."""
        step = self._step
        columns = step.columns(self._capacity, self._ring)
        keys, values = (self._grid(i)[: step.width, :, :columns] for i in range(2))
        return keys, values

    @property
    def state(self) -> Fetched:
        """For layers that share another's keys and values: what it has stored, this step's token included."""
        return self.keys_and_values()

    @property
    def shared(self) -> Shared | None:
        """Keys and values of the tokens before the own ones, which attention reads as well."""
        return None if self._number is None else self._step.shared(self._number)

    def make_mask(
        self, n: int, return_array: bool = False, window_size: int | None = None, chunk_size: int | None = None
    ) -> mx.array | None:
        """The mask of this step: see `Step.mask`."""
        if self._ring is None and (window_size is not None or chunk_size is not None):
            self._current.looks_back = True
        return self._step.mask(self._capacity, self._ring, window_size, chunk_size)

    keys, values = _buffer(0), _buffer(1)

    # -- what the cache uses ------------------------------------------------------------------------------------

    def resize(self) -> None:
        if not self._flat:
            return
        old_slots, old_capacity = self._slots, self._allocated
        slots, capacity = self._current.slots, self._capacity
        if (slots, capacity) == (old_slots, old_capacity):
            return
        kept = (slice(0, min(slots, old_slots)), slice(None), slice(0, min(capacity, old_capacity)))
        for i, (heads, dim) in enumerate(self._shapes):
            old = self._grid(i)
            grid = self._flat[i] = mx.zeros((slots, heads, capacity, dim), dtype=old.dtype)
            grid[kept] = old[kept]
            mx.eval(grid)
            self._flat[i] = _flattened(grid)
            del old, grid
            mx.eval(self._flat[i])
        self._slots, self._allocated = slots, capacity

    def begin_step(self, width: int, counts: Sequence[int] | None = None) -> None:
        if self._upstream == "mlx_vlm":
            self._idx = self._step.columns(self._capacity, self._ring) - self._step.tokens

    def write(self, slots: Sequence[int], contents: Sequence[Contents], spoiled: Collection[int] = ()) -> Writing:
        rows: list[tuple[int, KeyValues]] = []
        for slot, row in zip(slots, contents, strict=True):
            if not isinstance(row, KeyValues) or (row.ring, row.quantised) != (self._ring, self._how):
                raise ValueError("this row's cache is of another kind than the batch's")
            if row.arrays:
                rows.append((slot, row))
        if not rows:
            return
        if not self._flat:
            self._allocate(rows[0][1].arrays)
        grids = [self._grid(i) for i in range(len(self._flat))]
        self._flat = []
        yield list(grids)  # each the only holder of its buffer then, so that assigning to it copies nothing else
        for slot, row in rows:
            for grid, array in zip(grids, row.arrays, strict=True):
                array = self._turned(array, row.length)
                if slot in spoiled:
                    grid[slot] = 0
                if array.shape[2]:
                    grid[slot : slot + 1, :, : array.shape[2]] = array
        yield list(grids)
        self._flat = [_flattened(grid) for grid in grids]
        yield list(self._flat)

    def read(self, slot: int, length: int, start: int = 0) -> KeyValues:
        if not self._flat or not length:
            return KeyValues(length, (), self._ring, self._how, self._upstream)
        stored = length if self._ring is None else min(length, self._ring.size)
        first = start if self._ring is None else 0
        arrays = [copy_of(self._grid(i)[slot : slot + 1, :, first:stored]) for i in range(len(self._flat))]
        if self._ring is not None and length > self._ring.size:
            arrays = [self._in_order(self._grid(i)[slot : slot + 1], length) for i in range(len(self._flat))]
        return KeyValues(length, tuple(arrays), self._ring, self._how, self._upstream)

    def arrays(self) -> list[mx.array]:
        return list(self._flat)

    def set_arrays(self, arrays: Sequence[mx.array]) -> None:
        self._flat = list(arrays)

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _step(self) -> Step:
        step = self._current.step
        assert step is not None
        return step

    @property
    def _capacity(self) -> int:
        now, ring = self._current, self._ring
        return now.capacity if ring is None else min(now.reach, ring.size + now.spare)

    def _stored(self, keys: mx.array, values: mx.array) -> Sequence[mx.array]:
        """The arrays that are written, of one step's tokens."""
        return keys, values

    def _allocate(self, parts: Sequence[mx.array]) -> None:
        self._slots, self._allocated = self._current.slots, self._capacity
        self._shapes = [(part.shape[1], part.shape[3]) for part in parts]
        self._flat = [
            mx.zeros((self._slots * heads * self._allocated, dim), dtype=part.dtype)
            for part, (heads, dim) in zip(parts, self._shapes, strict=True)
        ]

    def _grid(self, i: int) -> mx.array:
        """A buffer as `[slots, heads, capacity, dim]`."""
        heads, dim = self._shapes[i]
        return self._flat[i].reshape(self._slots, heads, self._allocated, dim)

    def _turned(self, array: mx.array, length: int) -> mx.array:
        """A row's tokens, oldest first, in the order of their places."""
        ring = self._ring
        if ring is None or length <= ring.size:
            return array
        spare = self._current.spare
        if spare:
            array = mx.pad(array, [(0, 0), (0, 0), (0, spare), (0, 0)])
        return _rolled(array, ring.keep, (length - ring.size) % (ring.size + spare - ring.keep))

    def _in_order(self, places: mx.array, length: int) -> mx.array:
        """Put the places of a row that is longer than its ring, which `_turned` made, in order: its tokens, oldest
        first.
        """
        ring = self._ring
        assert ring is not None
        by = (length - ring.size) % (ring.size + self._current.spare - ring.keep)
        return copy_of(_rolled(places, ring.keep, -by)[:, :, : ring.size])


class QuantisedSlots(KeyValueSlots):
    """An attention layer with quantised keys and values.

    Models that find `bits` multiply with packed keys and values. If MLX or the model's own code cannot do that, they
    are unpacked at each step, one layer at a time: this costs time and still saves memory.
    """

    def __init__(self, like: KeyValues, current: Current) -> None:
        super().__init__(like, current)
        assert like.quantised is not None
        how = self._quantised = like.quantised
        self._unpacks = how.unpacks or not host().machine.multiplies_packed()
        if not self._unpacks:
            self.bits, self.group_size = how.bits, how.group_size

    def keys_and_values(self) -> Fetched:
        step, how = self._step, self._quantised
        columns = step.columns(self._capacity, self._ring)
        parts = [self._grid(i)[: step.width, :, :columns] for i in range(6)]
        if not self._unpacks:
            return tuple(parts[:3]), tuple(parts[3:])
        keys, values = (
            mx.dequantize(weights, scales, biases, group_size=how.group_size, bits=how.bits)
            for weights, scales, biases in (parts[:3], parts[3:])
        )
        return keys, values

    def _stored(self, keys: mx.array, values: mx.array) -> Sequence[mx.array]:
        how = self._quantised
        quantised = (mx.quantize(a, group_size=how.group_size, bits=how.bits) for a in (keys, values))
        return [part for parts in quantised for part in parts]


def _flattened(grid: mx.array) -> mx.array:
    slots, heads, capacity, dim = grid.shape
    return grid.reshape(slots * heads * capacity, dim)


def _rolled(array: mx.array, keep: int, by: int) -> mx.array:
    """Roll the tokens behind the first `keep`, `[1, heads, tokens, dim]`."""
    rolled = mx.roll(array[:, :, keep:], by, 2)
    return rolled if not keep else mx.concatenate([array[:, :, :keep], rolled], axis=2)


class StateSlots(LayerSlots):
    """A recurrent layer, in its library's own `ArraysCache`: the model replaces all rows' states at each step.

    The cache gets two more attributes. `keeps_inputs`: the step has several tokens, of which some may be taken back.
    `again`: the model's layer puts a function here then, if it can compute its states again for fewer tokens: from the
    states before the step, and the tokens of each slot that stay.
    """

    def __init__(self, like: States) -> None:
        self._layer = host().caches.write(replace(like, arrays=(None,) * len(like.arrays)))
        self._upstream = like.upstream
        self._before: list[mx.array | None] = []
        """The states before a step of several tokens."""
        self._counts: Sequence[int] | None = None
        """Tokens of each slot in that step."""

    def given(self) -> object:
        return self._layer

    def begin_step(self, width: int, counts: Sequence[int] | None = None) -> None:
        """Slots that were never written have the state of an empty row: zeros."""
        self._layer.cache = [_with_rows(state, width) for state in self._layer.cache]
        self._counts, self._layer.keeps_inputs, self._layer.again = counts, counts is not None, None
        if counts is not None:
            self._before = [None if state is None else state[...] for state in self._layer.cache]
            self._layer.lengths = mx.array(list(counts))

    @property
    def can_cut(self) -> bool:
        return self._layer.again is not None

    def end_step(self, kept: Sequence[int]) -> None:
        before, self._before = self._before, []
        again, self._layer.again, self._layer.lengths = self._layer.again, None, None
        whole = [count == most for count, most in zip(kept, self._counts or kept, strict=True)]
        if all(whole):
            return
        if again is not None and any(kept):
            self._layer.cache = again(before, kept)
        else:
            stays = mx.array(whole)
            self._layer.cache = [_where(stays, *states) for states in zip(self._layer.cache, before, strict=True)]

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
