"""The decode batch's caches. Rows are prefilled on separate caches and then join the batch, by one copy of each.

A row owns a slot of a buffer `[slots, heads, capacity, dim]` per layer, starts at position 0 there and has its
own length: a token per row is one scatter, leaving copies nothing, and taking tokens back is arithmetic. Slots and
capacity grow by a quarter to a half at a time and shrink when few rows are left. Rings have places to spare for
tokens that are taken back; recurrent layers keep the states from before a step, and a row whose drafts were wrong
runs what stayed once more at the beginning of its next step.
"""

from ..cache_contents import RowCache as RowCache
from .buckets import BatchCache as BatchCache
from .buckets import Buckets as Buckets
from .buckets import BucketStep as BucketStep
from .buckets import BuiltBuckets as BuiltBuckets
from .buckets import Place as Place
from .buckets import join as join
from .buckets import max_padding_bytes as max_padding_bytes
from .buckets import starts_of as starts_of
from .row import can_batch as can_batch
from .row import copied as copied
from .row import fits_slots as fits_slots
from .row import is_known as is_known
from .row import read_row as read_row
