"""One decode step of slots, computed once for all layers: positions, masks, and where its tokens are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..cache_contents import Ring, Shared
from .shared import Groups

MASKED_COLUMNS = 64  # masked attention reads multiples of so many places: shapes do not change with every token
MASKED_COLUMNS_CPU = 8  # where a new shape costs nothing, and each place that is read does
LAYERS_AT_ONCE = 8  # of a step of several tokens, that a GPU is given while the rest of the graph is built

Lengths: TypeAlias = npt.NDArray[np.int64]
"""`[width]` tokens that each slot holds."""

_async_eval: Callable[..., None] = mx.async_eval


@dataclass(frozen=True, slots=True)
class _Extent:
    """Tokens of the slots with those of the step."""

    longest: int
    shortest: int
    even: bool
    """All have as many, and none is free."""

    @classmethod
    def of(cls, lengths: Lengths, tokens: int, *, may_be_even: bool) -> _Extent:
        longest, shortest = int(lengths.max()) + tokens, int(lengths.min()) + tokens
        return cls(longest, shortest, may_be_even and longest == shortest)


class Step:
    """One token, or several, for each of `width` slots.

    Args:
        lengths: `[width]` tokens of each slot's row; 0 for a free one, which writes and reads its first places only.
        has_free: whether there are free slots among them.
        tokens: for each slot; those that do not count are at its end, where no other looks.
        spare: places that rings have beyond their size.
        known: False: these are the most tokens that rows may have; `fill` says how many, before the step runs.
        groups: rows that share their first tokens: slots do not hold these, except in rings. None: there are none.
    """

    def __init__(
        self,
        lengths: Lengths,
        has_free: bool,
        tokens: int = 1,
        spare: int = 0,
        *,
        known: bool = True,
        groups: Groups | None = None,
    ) -> None:
        self.width, self.tokens, self._spare, self._known = len(lengths), tokens, spare, known
        self._lengths, self._groups = lengths, groups
        self._before = None if groups is None else groups.lengths
        may_be_even = known and not has_free
        self._all = _Extent.of(lengths, tokens, may_be_even=may_be_even)
        self._own = self._all
        if self._before is not None:
            self._own = _Extent.of(lengths - self._before, tokens, may_be_even=may_be_even)
        self._inputs: list[tuple[npt.NDArray[np.generic], Callable[[Lengths], npt.NDArray[np.generic]]]] = []
        self._masks: dict[tuple[int, Ring | None, int | None, int | None], mx.array] = {}
        self._indices: dict[tuple[int, int, Ring | None], mx.array] = {}
        self._layers_written = 0

    @cached_property
    def offset(self) -> int | mx.array:
        """Each slot's first position: an int where all have the same, as in a plain cache, else `[width]` int32."""
        if self._all.even:
            return self._all.longest - self.tokens
        return self._input(lambda lengths: lengths.astype(np.int32))

    @cached_property
    def next_offset(self) -> int | mx.array:
        """The positions after this step."""
        return self.offset + self.tokens

    def shared(self, layer: int) -> Shared | None:
        """Shared keys and values of a layer, the `layer`th of those that can be shared; None: there are none."""
        return None if self._groups is None else self._groups.shared(layer)

    def columns(self, capacity: int, ring: Ring | None) -> int:
        """Number of places of each slot that attention reads."""
        extent = self._extent(ring)
        if ring is not None and extent.longest >= ring.size + self._spare:
            return ring.size + self._spare
        if extent.even:
            return extent.longest
        unit = _masked_columns()
        return min(-(-extent.longest // unit) * unit, capacity)

    def mask(self, capacity: int, ring: Ring | None, window: int | None, chunk: int | None = None) -> mx.array | None:
        """`[width, 1, tokens, columns]` bool, or None where attention may use all that it reads.

        Args:
            capacity: places per slot.
            ring: the layer's, if it has one.
            window: most positions that attention looks back, this one included.
            chunk: attention looks back to the last position that is a multiple of this.
        """
        extent = self._extent(ring)
        if window is not None and (window >= self._all.longest or (ring is not None and ring.size <= window)):
            window = None
        if chunk is not None and chunk >= self._all.longest:
            chunk = None
        columns = self.columns(capacity, ring)
        all_held = self.tokens == 1 and (ring is None or not self._spare or extent.longest <= ring.size)
        if window is chunk is None and all_held and columns <= extent.shortest:
            return None
        key = (columns, ring, window, chunk)
        if key not in self._masks:
            self._masks[key] = self._make_mask(columns, ring, window, chunk)
        return self._masks[key]

    def index(self, heads: int, capacity: int, ring: Ring | None) -> mx.array:
        """`[width * heads * tokens, 1]` uint32: where the step writes in `[slots * heads * capacity, dim]`."""
        key = (heads, capacity, ring)
        if key not in self._indices:
            runs = np.arange(self.width * heads, dtype=np.int64).reshape(self.width, heads) * capacity

            def flat(lengths: Lengths) -> npt.NDArray[np.uint32]:
                positions = self._held(lengths, ring)[:, None] + np.arange(self.tokens)
                indices = runs[:, :, None] + place(positions, ring, self._spare)[:, None]
                return indices.reshape(-1, 1).astype(np.uint32)

            self._indices[key] = self._input(flat)
        return self._indices[key]

    def fill(self, lengths: Lengths) -> None:
        """Say how many tokens each slot holds, where that was not known: what was built runs for these."""
        for view, make in self._inputs:
            view[...] = make(lengths)

    def wrote(self, arrays: Sequence[mx.array]) -> None:
        """Take note that a layer has written its tokens into these.

        Steps of several tokens begin with nothing in flight: a GPU would wait while all of their graph is built.
        """
        if self.tokens > 1 and self._known and _on_gpu():
            self._layers_written += 1
            if self._layers_written % LAYERS_AT_ONCE == 0:
                _async_eval(*arrays)

    def _extent(self, ring: Ring | None) -> _Extent:
        return self._own if ring is None else self._all

    def _held(self, lengths: Lengths, ring: Ring | None) -> Lengths:
        """`[width]` tokens that slots hold of rows with these lengths: of shared ones, only rings hold any."""
        if ring is not None or self._before is None:
            return lengths
        held: Lengths = np.maximum(lengths - self._before, 0)  # rows may have left since the step was built
        return held

    def _input(self, make: Callable[[Lengths], npt.NDArray[np.generic]]) -> mx.array:
        """Array that is made of the lengths; where they are not known yet, one that `fill` writes to."""
        array = mx.array(make(self._lengths))
        if not self._known:
            # MLX's arrays and views of them share their memory: what is written before the graph runs is its input.
            self._inputs.append((np.array(array, copy=False), make))
        return array

    def _make_mask(self, columns: int, ring: Ring | None, window: int | None, chunk: int | None) -> mx.array:
        first = self._input(lambda lengths: self._held(lengths, ring).astype(np.int32))[:, None, None, None]
        last = first if self.tokens == 1 else first + mx.arange(self.tokens, dtype=mx.int32)[:, None]
        position = mx.arange(columns, dtype=mx.int32)
        looks_back = window is not None or chunk is not None
        if ring is not None and (looks_back or self.tokens > 1 or self._spare):
            position = self._positions_in(ring, position, first + (self.tokens - 1))
        mask = position <= last
        if window is not None:
            mask = mask & (position > last - window)
        if chunk is not None:
            mask = mask & (position >= last - last % chunk)
        if ring is not None and not looks_back and (self.tokens > 1 or self._spare):
            mask = mask & ((position < ring.keep) | (position > last - (ring.size - ring.keep)))
        return mask

    def _positions_in(self, ring: Ring, place: mx.array, end: mx.array) -> mx.array:
        """Positions of the tokens in a ring's places, which hold more than the ring would without spare ones.

        Args:
            ring: without the spare places.
            place: `[columns]`.
            end: `[width, 1, 1, 1]` each slot's last position in this step.
        """
        places = ring.size + self._spare
        turning = end - (end - place) % (places - ring.keep)
        return mx.where((place < ring.keep) | (end < places), place, turning)


@cache
def _on_gpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.gpu))


def _masked_columns() -> int:
    return MASKED_COLUMNS if _on_gpu() else MASKED_COLUMNS_CPU


def place(positions: npt.NDArray[np.int64], ring: Ring | None, spare: int = 0) -> npt.NDArray[np.int64]:
    """The places of tokens at these positions in their slots; a ring may have some to spare."""
    if ring is None:
        return positions
    size = ring.size + spare
    turning = ring.keep + (positions - ring.keep) % (size - ring.keep)
    return np.where(positions < size, positions, turning)
