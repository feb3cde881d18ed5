"""The decode batch's caches. Rows are prefilled on caches of their own and then join the batch, by one copy of each.

A row owns a slot of a buffer `[slots, heads, capacity, dim]` per layer, starts at position 0 there and has a length
of its own: a token per row is one scatter, leaving copies nothing, and taking tokens back is arithmetic. Slots and
capacity grow by a quarter to a half at a time and shrink when few rows are left. Rings have places to spare for
tokens that are taken back; recurrent layers keep the states from before a step, and a row whose drafts were wrong
runs what stayed once more at the beginning of its next step.
"""

from __future__ import annotations

from ..cache_contents import RowCache
from .batch_cache import BatchCache, join
from .buckets import Buckets, BucketStep, BuiltBuckets, Place, max_padding_bytes
from .merged import MergedCache
from .row import OneRow, can_batch, copied, fits_slots, read_row, write_row
from .slots import SlotCache

__all__ = [
    "BatchCache",
    "BucketStep",
    "Buckets",
    "BuiltBuckets",
    "MergedCache",
    "OneRow",
    "Place",
    "RowCache",
    "SlotCache",
    "can_batch",
    "copied",
    "fits_slots",
    "join",
    "max_padding_bytes",
    "read_row",
    "write_row",
]
