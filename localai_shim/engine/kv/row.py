"""One row's cache, as the model's adapter makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...adapters import caches
from ...adapters.caches import Contents

RowCache = list[Any]
"""One row's cache: an object per layer."""


def fits_slots(row: RowCache) -> bool:
    """Whether rows of this kind of cache can be kept in slots."""
    return all(caches.read(layer) is not None for layer in row)


def can_batch(row: RowCache) -> bool:
    """Whether rows of this kind of cache can share a batch."""
    return all(hasattr(type(layer), "merge") or caches.read(layer) is not None for layer in row)


def read_row(row: RowCache) -> list[Contents]:
    """What a row's cache holds.

    Raises:
        ValueError: it is of a kind that slots cannot hold.
    """
    contents = []
    for layer in row:
        known = caches.read(layer)
        if known is None:
            raise ValueError(f"a {type(layer).__name__} cannot be kept in slots")
        contents.append(known)
    return contents


def copy_row(row: RowCache) -> RowCache:
    """A cache of its own with the same contents.

    Raises:
        ValueError: as `read_row`.
    """
    return [caches.write(contents) for contents in read_row(row)]


class OneRow:
    """A row that is alone in the batch decodes on its own plain cache: nothing is copied, nothing is faster."""

    def __init__(self, row: RowCache) -> None:
        self.row = row

    width = 1
    wants_compaction = False

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.row)

    def join(self, rows: Sequence[RowCache]) -> list[int]:
        raise ValueError("there is one row at a time here")

    def leave(self, slots: Sequence[int]) -> None:
        pass

    def advance(self) -> RowCache:
        return self.row

    def compact(self) -> dict[int, int]:
        return {}

    def extract(self, slot: int) -> RowCache:
        return copy_row(self.row)

    def rollback(self, slot: int, tokens: int) -> None:
        if tokens and not all(layer.is_trimmable() for layer in self.row):
            raise ValueError("this model's caches cannot be rolled back")
        for layer in self.row:
            layer.trim(tokens)
