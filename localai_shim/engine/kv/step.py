"""What one decode step is, worked out once for all layers: who is where, what is attended to, where tokens go."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...adapters.contents import Ring

_COLUMNS = 64  # masked attention reads whole multiples of this, so that shapes do not change with every token


class Step:
    """One token for each of `width` slots.

    Args:
        lengths: `[width]` tokens that each slot holds; 0 for a dead one, which writes and reads its first place only.
        dead: whether there are dead slots among them.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], dead: bool) -> None:
        self.width = len(lengths)
        self._lengths = lengths
        self._longest, self._shortest = int(lengths.max()) + 1, int(lengths.min()) + 1
        self._even = not dead and self._longest == self._shortest
        self._masks: dict[Any, Any] = {}
        self._indices: dict[Any, Any] = {}

    @cached_property
    def offset(self) -> Any:
        """Each slot's position: an int where all have the same, as in a plain cache, else `[width]` int32."""
        return self._longest - 1 if self._even else mx.array(self._lengths.astype(np.int32))

    @cached_property
    def next_offset(self) -> Any:
        """The positions after this step."""
        return self.offset + 1

    def columns(self, capacity: int, ring: Ring | None) -> int:
        """How many places per slot attention reads."""
        if ring is not None and self._longest >= ring.size:
            return ring.size
        if self._even:
            return self._longest
        return min(-(-self._longest // _COLUMNS) * _COLUMNS, capacity)

    def mask(self, capacity: int, ring: Ring | None, window: int | None) -> Any:
        """`[width, 1, 1, columns]` bool, or None where all that is read counts.

        Args:
            capacity: places per slot.
            ring: how the layer forgets.
            window: most positions to look back, this one included.
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

    def index(self, heads: int, capacity: int, ring: Ring | None) -> Any:
        """`[width * heads, 1]`: where this step's tokens go in `[slots * heads * capacity, dim]`."""
        key = (heads, capacity, ring)
        if key not in self._indices:
            runs = np.arange(self.width * heads, dtype=np.int64).reshape(self.width, heads) * capacity
            flat = runs + place(self._lengths, ring)[:, None]
            self._indices[key] = mx.array(flat.reshape(-1, 1).astype(np.uint32))
        return self._indices[key]

    def _make_mask(self, columns: int, ring: Ring | None, window: int | None) -> Any:
        last = mx.array(self._lengths.astype(np.int32))[:, None, None, None]
        position = mx.arange(columns, dtype=mx.int32)
        mask = position <= last
        if window is None:
            return mask
        if ring is not None:  # what a place holds is the last position that fell to it
            turning = last - (last - position) % (ring.size - ring.keep)
            position = mx.where((position < ring.keep) | (last < ring.size), position, turning)
        return mask & (position > last - window)


def place(position: Any, ring: Ring | None) -> Any:
    """Where tokens at these positions (an int or an array) stand in their slot."""
    if ring is None:
        return position
    turning = ring.keep + (position - ring.keep) % (ring.size - ring.keep)
    return np.where(position < ring.size, position, turning)
