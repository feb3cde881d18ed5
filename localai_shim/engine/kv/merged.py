"""The decode batch's caches for kinds that slots cannot hold: the classes' own `merge`, `extend` and `filter`.

They copy the whole batch at each join and leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..cache_contents import Contents, RowCache
from ..mirror.journal import Mirrored, mirrored
from .row import copied, nbytes_of


class MergedCache(Mirrored):
    """Rows in the order in which they joined."""

    capacity = 0

    def __init__(self) -> None:
        self._layers: RowCache = []
        self._live: list[bool] = []

    @property
    def width(self) -> int:
        return len(self._live)

    @property
    def nbytes(self) -> int:
        return nbytes_of(self._layers)

    def lengths(self) -> list[int]:
        return [0] * sum(self._live)

    def join(self, rows: Sequence[RowCache]) -> list[int]:
        """Append rows. The batch is copied once, however many join."""
        joined = [type(layers[0]).merge(list(layers)) for layers in zip(*rows, strict=True)]
        if not self._layers:
            self._layers = joined
        else:
            for layer, other in zip(self._layers, joined, strict=True):
                layer.extend(other)
        slots = list(range(self.width, self.width + len(rows)))
        self._live += [True] * len(rows)
        return slots

    def leave(self, slots: Sequence[int], spoiled: Sequence[int] = ()) -> None:
        for slot in slots:
            self._live[slot] = False

    @mirrored
    def advance(self, counts: Mapping[int, int] | None = None) -> RowCache:
        if counts is not None:
            raise ValueError("this model's caches take one token per row and step")
        return self._layers

    def settle(self, kept: Mapping[int, int]) -> dict[int, int]:
        return dict(kept)

    @property
    def wants_compaction(self) -> bool:
        return not all(self._live)

    def compact(self) -> dict[int, int]:
        kept = [slot for slot, live in enumerate(self._live) if live]
        for layer in self._layers:
            layer.filter(kept)
        self._live = [True] * len(kept)
        return {old: new for new, old in enumerate(kept) if old != new}

    def read(self, slot: int, start: int = 0) -> list[Contents]:
        return copied([layer.extract(slot) for layer in self._layers], start)

    def rollback(self, slot: int, tokens: int) -> None:
        if tokens:
            raise ValueError("this model's caches cannot be rolled back row by row")
