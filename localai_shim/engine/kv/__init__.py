"""The decode batch's caches. Rows are prefilled on caches of their own and then join the batch, by one copy of each."""

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
