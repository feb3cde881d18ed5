"""The decode batch's caches. Rows are prefilled on caches of their own and then join the batch, by one copy of each."""

from __future__ import annotations

from .batch_cache import BatchCache, join
from .buckets import Groups, Part, Place, most_wasted
from .merged import MergedCache
from .row import OneRow, RowCache, can_batch, copied, fits_slots, read_row, write_row
from .slots import SlotCache

__all__ = [
    "BatchCache",
    "Groups",
    "MergedCache",
    "OneRow",
    "Part",
    "Place",
    "RowCache",
    "SlotCache",
    "can_batch",
    "copied",
    "fits_slots",
    "join",
    "most_wasted",
    "read_row",
    "write_row",
]
