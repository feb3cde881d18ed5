"""The decode batch in groups of rows about as long as each other: a short row does not pay for the longest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...adapters import caches
from ...adapters.contents import Contents, KeyValues
from .batch_cache import BatchCache, join
from .row import RowCache, leaves

_MOST = 4  # groups
_SPARE = 2**25  # bytes of weights below which a forward pass costs more than they tell

Place = tuple[int, int]
"""(group, slot)"""


@dataclass(frozen=True, slots=True)
class Part:
    """What one forward pass of a step runs."""

    layers: RowCache
    width: int
    """Slots, freed ones among them included."""
    slots: list[int]
    """Those of the rows, ascending."""


class Groups:
    """Caches of all rows. Attention reads every slot of a group up to its longest row, and a forward pass reads all
    weights: rows share a group as long as what they read in vain is less than the weights.

    Args:
        weight_bytes: the model's.
    """

    def __init__(self, weight_bytes: int) -> None:
        self._spare = max(_SPARE, weight_bytes)
        self._groups: dict[int, BatchCache] = {}
        self._made = 0

    @property
    def nbytes(self) -> int:
        return sum(group.nbytes for group in list(self._groups.values()))

    def join(self, rows: Sequence[RowCache]) -> list[Place]:
        """Let prefilled rows in; returns their places. What is in flight should be finished.

        Raises:
            ValueError: this kind of cache takes one row at a time.
        """
        chosen: dict[int, list[int]] = {}
        if len(rows) == 1 and not self._groups:  # there is nothing to choose from
            chosen[self._made], self._made = [0], self._made + 1
        else:
            lengths = {name: group.lengths() for name, group in self._groups.items()}
            for i, row in enumerate(rows):
                chosen.setdefault(self._choose(row, lengths), []).append(i)
        places: list[Place] = [(0, 0)] * len(rows)
        for name, which in chosen.items():
            self._groups[name], slots = join(self._groups.get(name), [rows[i] for i in which])
            for i, slot in zip(which, slots, strict=True):
                places[i] = (name, slot)
        return places

    def leave(self, places: Sequence[Place]) -> None:
        """Free slots; a group without rows is gone."""
        for name in {name for name, _ in places}:
            group = self._groups[name]
            slots = [slot for its, slot in places if its == name]
            if len(slots) == len(group.lengths()):
                del self._groups[name]
            else:
                group.leave(slots)

    def advance(self, places: Sequence[Place]) -> list[Part]:
        """Begin a step in which the rows at these places, which are all and in order, get one token each."""
        slots: dict[int, list[int]] = {}
        for name, slot in places:
            slots.setdefault(name, []).append(slot)
        return [Part(self._groups[name].advance(), self._groups[name].width, its) for name, its in slots.items()]

    @property
    def wants_compaction(self) -> bool:
        """Whether `compact` is worth its while now."""
        return any(group.wants_compaction for group in self._groups.values())

    def compact(self) -> dict[Place, Place]:
        """Close freed slots. What is in flight should be finished. Returns old place -> new one where rows moved."""
        moves: dict[Place, Place] = {}
        for name, group in self._groups.items():
            if group.wants_compaction:
                moves.update({(name, old): (name, new) for old, new in group.compact().items()})
        return moves

    def read(self, place: Place, start: int = 0) -> list[Contents]:
        """A copy of a row: see `BatchCache.read`."""
        name, slot = place
        return self._groups[name].read(slot, start)

    def _choose(self, row: RowCache, lengths: dict[int, list[int]]) -> int:
        """The group that a row joins, which may be a new one; notes it in `lengths`."""
        length, per_token = _size(row)
        wasted = {name: per_token * _padding([*its, length]) for name, its in lengths.items()}
        name = min(wasted, key=wasted.__getitem__, default=None)
        if name is None or (wasted[name] > self._spare and len(lengths) < _MOST):
            name, self._made = self._made, self._made + 1
        lengths.setdefault(name, []).append(length)
        return name


def most_wasted(weight_bytes: int) -> int:
    """Bytes that groups have beyond what their rows need, when those have joined."""
    return _MOST * max(_SPARE, weight_bytes)


def _padding(lengths: Sequence[int]) -> int:
    """Tokens that are read in vain where all rows are read up to the longest."""
    return max(lengths) * len(lengths) - sum(lengths)


def _size(row: RowCache) -> tuple[int, int]:
    """(tokens, bytes per token) of a row; zeros where that is not known."""
    contents = [caches.read(layer) for layer in row]
    length, size = 0, 0
    for layer in leaves([layer for layer in contents if layer is not None]):
        if isinstance(layer, KeyValues) and layer.ring is None and layer.length:
            length = layer.length
            size += sum(array.nbytes for array in layer.arrays)
    return length, size // length if length else 0
