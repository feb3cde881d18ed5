"""The decode batch's KV cache, behind an interface small enough to be replaced in one place.

Rows are prefilled on plain caches of their own and then join the batch; here the batch is kept by the cache classes'
own `merge`, `extend` and `filter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

RowCache = list[Any]
"""One row's cache: an object per layer, as the model's adapter makes it."""


def can_batch(row: RowCache) -> bool:
    """Whether rows of this kind of cache can share a batch."""
    return all(hasattr(type(layer), "merge") for layer in row)


class BatchCache:
    """The caches of all rows of the decode batch, in batch order.

    A row that is alone keeps its own cache, which costs nothing to join and is the fastest to decode with.
    """

    def __init__(self) -> None:
        self.layers: RowCache | None = None
        """What the model is called with; None when there is no row."""
        self._alone = False

    def join(self, rows: Sequence[RowCache]) -> None:
        """Append prefilled rows, all at once: the batch is copied once however many join.

        A kind of cache that cannot be merged takes one row in all.
        """
        if self.layers is None and len(rows) == 1:
            self.layers, self._alone = rows[0], True
            return
        if self._alone and self.layers is not None:
            rows, self.layers, self._alone = [self.layers, *rows], None, False
        if not can_batch(rows[0]):
            raise ValueError(f"{type(rows[0][0]).__name__} holds one row at a time")
        joined = [type(layers[0]).merge(list(layers)) for layers in zip(*rows, strict=True)]
        if self.layers is None:
            self.layers = joined
            return
        for layer, other in zip(self.layers, joined, strict=True):
            layer.extend(other)

    def keep(self, indices: Sequence[int]) -> None:
        """Drop all rows but those at these places."""
        if not indices:
            self.layers, self._alone = None, False
        elif not self._alone and self.layers is not None:
            for layer in self.layers:
                layer.filter(list(indices))
