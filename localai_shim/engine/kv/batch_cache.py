"""The caches of rows that share a forward pass.

There are three forms: a row that is alone stays in its own cache, several rows are held in slots, and caches of
unknown kinds are merged by the methods of their classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..cache_contents import RowCache
from ..mirror.journal import mirrored
from .merged import MergedCache
from .row import OneRow, can_batch, fits_slots, is_packed
from .slots import SlotCache

BatchCache: TypeAlias = OneRow | SlotCache | MergedCache
"""The caches of some rows; see `SlotCache` for what its methods do. A row is known by its slot, a place in the model's
batch."""


@mirrored
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
    joined: SlotCache | MergedCache = SlotCache(spare) if fits_slots(rows[0]) else MergedCache()
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
