"""One decode step of slots, computed once for all layers: positions, masks, and where its tokens are written."""

from __future__ import annotations

from functools import cached_property

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...adapters.contents import Ring

MASKED_COLUMNS = 64  # masked attention reads multiples of so many places: shapes do not change with every token


class Step:
    """One token for each of `width` slots.

    Args:
        lengths: `[width]` tokens that each slot holds; 0 for a free one, which writes and reads its first place only.
        has_free: whether there are free slots among them.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], has_free: bool) -> None:
        self.width = len(lengths)
        self._lengths = lengths
        self._longest, self._shortest = int(lengths.max()) + 1, int(lengths.min()) + 1
        self._even = not has_free and self._longest == self._shortest
        self._masks: dict[tuple[int, Ring | None, int | None], mx.array] = {}
        self._indices: dict[tuple[int, int, Ring | None], mx.array] = {}

    @cached_property
    def offset(self) -> int | mx.array:
        """Each slot's position: an int where all have the same, as in a plain cache, else `[width]` int32."""
        return self._longest - 1 if self._even else mx.array(self._lengths.astype(np.int32))

    @cached_property
    def next_offset(self) -> int | mx.array:
        """The positions after this step."""
        return self.offset + 1

    def columns(self, capacity: int, ring: Ring | None) -> int:
        """How many places of each slot attention reads."""
        if ring is not None and self._longest >= ring.size:
            return ring.size
        if self._even:
            return self._longest
        return min(-(-self._longest // MASKED_COLUMNS) * MASKED_COLUMNS, capacity)

    def mask(self, capacity: int, ring: Ring | None, window: int | None) -> mx.array | None:
        """`[width, 1, 1, columns]` bool, or None where attention may use all that it reads.

        Args:
            capacity: places per slot.
            ring: the layer's, if it has one.
            window: most positions that attention looks back, this one included.
        """
        if window is not None and (window >= self._longest or (ring is not None and ring.size <= window)):
            window = None
        columns = self.columns(capacity, ring)
        if window is None and columns <= self._shortest:
            return None
        key = (columns, ring, window)
        if key not in self._masks:
            self._masks[key] = self._make_mask(columns, ring, window)
        return self._masks[key]

    def index(self, heads: int, capacity: int, ring: Ring | None) -> mx.array:
        """`[width * heads, 1]` uint32: where this step's tokens are written in `[slots * heads * capacity, dim]`."""
        key = (heads, capacity, ring)
        if key not in self._indices:
            runs = np.arange(self.width * heads, dtype=np.int64).reshape(self.width, heads) * capacity
            flat = runs + place(self._lengths, ring)[:, None]
            self._indices[key] = mx.array(flat.reshape(-1, 1).astype(np.uint32))
        return self._indices[key]

    def _make_mask(self, columns: int, ring: Ring | None, window: int | None) -> mx.array:
        last = mx.array(self._lengths.astype(np.int32))[:, None, None, None]
        position = mx.arange(columns, dtype=mx.int32)
        mask = position <= last
        if window is None:
            return mask
        if ring is not None:  # a place holds the last position that was written to it
            turning = last - (last - position) % (ring.size - ring.keep)
            position = mx.where((position < ring.keep) | (last < ring.size), position, turning)
        return mask & (position > last - window)


def place(positions: npt.NDArray[np.int64], ring: Ring | None) -> npt.NDArray[np.int64]:
    """The places of tokens at these positions in their slots."""
    if ring is None:
        return positions
    turning = ring.keep + (positions - ring.keep) % (ring.size - ring.keep)
    return np.where(positions < ring.size, positions, turning)
