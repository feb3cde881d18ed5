"""The caches of rows that share a forward pass.

There are three forms: a row that is alone stays in its own cache, several rows are held in slots, and caches of
unknown kinds are merged by the methods of their classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..cache_contents import Contents, RowCache
from .merged import MergedCache
from .row import OneRow, can_batch, fits_slots, is_packed
from .slots import SlotCache


class BatchCache(Protocol):
    """The caches of some rows. A row is known by its slot, a place in the model's batch."""

    @property
    def width(self) -> int:
        """Slots that a step runs, freed ones among them included."""
        ...

    @property
    def nbytes(self) -> int: ...

    def lengths(self) -> list[int]:
        """Tokens of each row; 0 where that is not known."""
        ...

    def join(self, rows: Sequence[RowCache]) -> list[int]:
        """Add prefilled rows; returns their slots, ascending. No step should be in flight."""
        ...

    def leave(self, slots: Sequence[int]) -> None:
        """Free slots."""
        ...

    def advance(self, counts: Mapping[int, int] | None = None) -> RowCache:
        """Begin a step, of one token per row or, by slot, of so many: see `SlotCache.advance`."""
        ...

    def settle(self, kept: Mapping[int, int]) -> dict[int, int]:
        """After a step of several tokens: keep the first of each row's only. See `SlotCache.settle`."""
        ...

    @property
    def wants_compaction(self) -> bool:
        """True if `compact` would save more than it costs."""
        ...

    def compact(self) -> dict[int, int]:
        """Move rows into free slots. No step should be in flight. Returns old slot -> new slot where rows moved."""
        ...

    def read(self, slot: int, start: int = 0) -> list[Contents]:
        """A copy of one row, the step in flight included; of layers with one position per token, only the tokens from
        `start` on. Raises ValueError for kinds of caches that slots cannot hold.
        """
        ...

    def rollback(self, slot: int, tokens: int) -> None:
        """Remove a row's last tokens. Raises ValueError where the model's caches cannot."""
        ...


def join(cache: BatchCache | None, rows: Sequence[RowCache], spare: int = 0) -> tuple[BatchCache, list[int]]:
    """Add prefilled rows to a batch; None is an empty one.

    Args:
        cache: the batch's; must not be used any more. Its rows keep their slots.
        rows: one cache per row; the same one may come several times. One that joins an empty batch alone is used
            from now on, not copied, unless its keys and values are quantised: only slots read these as they are.
        spare: see `SlotCache`.

    Returns:
        The batch's cache, and the slots of the rows that joined.

    Raises:
        ValueError: this kind of cache takes one row at a time.
    """
    if cache is None and len(rows) == 1 and not is_packed(rows[0]):
        return OneRow(rows[0]), [0]
    if cache is not None and not isinstance(cache, OneRow):
        return cache, cache.join(rows)
    rows = [*([cache.row] if cache is not None else []), *rows]
    if not can_batch(rows[0]):
        raise ValueError(f"a {type(rows[0][0]).__name__} holds one row at a time")
    joined: BatchCache = SlotCache(spare) if fits_slots(rows[0]) else MergedCache()
    slots = joined.join(rows)
    return joined, slots if cache is None else slots[1:]


def for_several(cache: BatchCache, spare: int, *, built_ahead: bool = False) -> BatchCache:
    """Make a cache that takes several tokens of each row in a step: slots, where a row that is alone cannot on its own
    cache, or where such steps are built ahead.
    """
    if not isinstance(cache, OneRow) or (cache.takes_several and not built_ahead):
        return cache
    slots = SlotCache(spare)
    slots.join([cache.row])
    return slots
