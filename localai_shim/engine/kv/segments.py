"""A row's cache as segments and snapshots, which the prefix cache holds, and a row made of these again.

Layers with keys and values per token can be trimmed to any length, and are held as segments. All others (sliding
windows, SSM states) are true at one length only, and are held as snapshots. Tokens that are pooled in groups are held
as segments, and those of the last groups as snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx

from ..cache_contents import Contents, KeyValues, Leaf, RowCache, States
from ..mirror.journal import mirrored
from .row import fits_slots, is_shareable, leaves, mapped, read_row, write_row

Segment = list[mx.array]
"""Arrays that grow with the tokens, layer after layer; the tokens are on the axis before the last."""

CAPACITY_STEP_TOKENS = 256  # as KVCache grows


@dataclass(slots=True)
class Snapshot:
    """The layers of a row that cannot be trimmed, as they are after `length` tokens."""

    length: int
    layers: list[Leaf]

    @property
    def arrays(self) -> list[mx.array]:
        return [array for layer in self.layers for array in layer.arrays if array is not None]

    @property
    def min_length(self) -> int:
        """The shortest length that it can be trimmed to: sliding windows that are not full yet can be, like others."""
        can = all(isinstance(x, KeyValues) and x.ring is not None and x.length <= x.ring.size for x in self.layers)
        return 0 if can else self.length

    def at(self, length: int) -> list[Leaf]:
        """The layers trimmed to a length from `min_length` on."""
        if length >= self.length:
            return self.layers
        return [
            replace(layer, length=length, arrays=tuple(array[:, :, :length] for array in layer.arrays))
            for layer in self.layers
            if isinstance(layer, KeyValues)
        ]


def nbytes(segment: Segment, snapshot: Snapshot | None) -> int:
    """The size of a segment and of the snapshot at its end."""
    return sum(array.nbytes for array in [*segment, *(snapshot.arrays if snapshot is not None else [])])


def has_nan(segment: Segment, snapshot: Snapshot | None) -> mx.array:
    """True if a row is NaN somewhere, lazy. What becomes NaN in some layer makes the same token's keys and values, or
    the state, of all later layers NaN: only the last layer is looked at.
    """
    packed = any(not mx.issubdtype(array.dtype, mx.floating) for array in segment[-6:])
    last = segment[-6 if packed else -2 :]
    if snapshot is not None and snapshot.layers:
        last = [*last, *(array for array in snapshot.layers[-1].arrays if array is not None)]
    flags = [mx.isnan(array).any() for array in last if mx.issubdtype(array.dtype, mx.floating)]
    return mx.stack(flags).any() if flags else mx.array(False)


def ratios(like: Sequence[Contents]) -> list[int]:
    """For each array of a segment of such a row, how many tokens it has one place for."""
    return [ratio for layer in leaves(like) for ratio in layer.ratios]


def part_of(segment: Segment, ratios: Sequence[int], first: int, start: int, stop: int) -> Segment:
    """The part of a segment with the tokens from `start` to `stop`, as views.

    Args:
        segment: begins at the token `first`.
        ratios: see `ratios`.
        first: counted from the row's beginning, as the others.
        start: its first token.
        stop: the token behind it.
    """
    return [
        array[..., start // ratio - first // ratio : stop // ratio - first // ratio, :]
        for array, ratio in zip(segment, ratios, strict=True)
    ]


def take_segment(row: Sequence[Contents], start: int, length: int) -> Segment:
    """Take what grows with the tokens, from `start` on, of a row of `length` tokens that begins at `start`.

    Raises:
        ValueError: a layer does not hold one position per token.
    """
    segment: Segment = []
    for layer in leaves(row):
        places = [length // ratio - start // ratio for ratio in layer.ratios]
        if places and (layer.length != length or [array.shape[2] for array in layer.growing] not in ([], places)):
            raise ValueError(
                f"a layer has seen {layer.length} tokens of {length}, or does not hold all from {start} on"
            )
        segment += layer.growing
    return segment


def take_snapshot(row: Sequence[Contents], length: int) -> Snapshot:
    """The layers of a row of `length` tokens that cannot be trimmed."""
    return Snapshot(length, [layer.fixed for layer in leaves(row) if layer.fixed is not None])


def build_row(
    like: Sequence[Contents],
    segments: Sequence[Segment],
    snapshot: Snapshot | None,
    length: int,
    capacity: int,
    before: Segment | None = None,
) -> RowCache:
    """A row of `length` tokens.

    Args:
        like: a row, empty or not, of the kind that the segments were taken from.
        segments: together, in order, they hold the tokens, or more.
        snapshot: of the layers that cannot be trimmed.
        length: tokens of the row.
        capacity: tokens that the row can grow to without another copy.
        before: keys and values of its first tokens, which it shares with other rows: of all others it has copies.
    """
    columns, shared = iter(list(zip(*segments, strict=True))), iter(before or ())
    others = iter(snapshot.at(length) if snapshot is not None else [])
    allocated = -(-max(capacity, length + 1) // CAPACITY_STEP_TOKENS) * CAPACITY_STEP_TOKENS
    first = 0 if before is None else before[0].shape[2]

    def filled(layer: Leaf) -> Leaf:
        base = layer if layer.fixed is None else next(others)
        grown = [
            _concatenated(next(columns), length // ratio, allocated if layer.has_room else length // ratio)
            for ratio in layer.ratios
        ]
        return base.with_growing(grown, length) if grown else base

    def sharing(layer: Leaf) -> Leaf:
        if not is_shareable(layer):
            return next(others)
        own = [_between(next(columns), first, length) for _ in range(2)]
        return replace(layer, length=length, arrays=tuple(own), before=(next(shared), next(shared)))

    return write_row(mapped(filled if before is None else sharing, like))


def _between(pieces: Sequence[mx.array], start: int, stop: int) -> mx.array:
    """The tokens from `start` to `stop` of pieces that follow each other."""
    parts, first = [], 0
    for piece in pieces:
        end = first + piece.shape[2]
        if first <= start < end or start < first < stop:
            parts.append(piece[:, :, max(0, start - first) : stop - first])
        first = end
    return mx.concatenate(parts or [pieces[0][:, :, :0]], axis=2)


def _concatenated(pieces: Sequence[mx.array], length: int, capacity: int) -> mx.array:
    parts, missing = [], length
    for piece in pieces:
        parts.append(piece if piece.shape[2] <= missing else piece[:, :, :missing])
        missing -= parts[-1].shape[2]
    parts = [part for part in parts if part.shape[2]] or parts[:1]  # empty ones may be of another type
    if capacity > length:
        shape = list(parts[0].shape)
        shape[2] = capacity - length
        parts.append(mx.zeros(shape, parts[0].dtype))
    return mx.concatenate(parts, axis=2)


def takes_padding(row: RowCache) -> int:
    """Most tokens of a row of this kind that can be prefilled in one pass with others, padded at the right.

    0 where recurrent states would see the padding; otherwise what the smallest sliding window holds.
    """
    most = 2**31
    for layer in leaves(read_row(row)) if fits_slots(row) else [States(())]:
        if not isinstance(layer, KeyValues):
            return 0
        if layer.ring is not None:
            most = min(most, layer.ring.size)
    return most


@mirrored
def stack(rows: Sequence[RowCache]) -> RowCache:
    """Rows of equal length as one cache."""
    return write_row(mapped(_stacked, *map(read_row, rows)))


@mirrored
def unstack(cache: RowCache, lengths: Sequence[int]) -> list[RowCache]:
    """The rows of a cache that `stack` made, each trimmed to its length; lazy views."""
    contents = read_row(cache)
    return [write_row(mapped(partial(_picked, i, length), contents)) for i, length in enumerate(lengths)]


def _stacked(*layers: KeyValues) -> KeyValues:
    columns = zip(*(layer.arrays for layer in layers), strict=True)  # they share `before`, if they share tokens
    return replace(layers[0], arrays=tuple(mx.concatenate(list(arrays), axis=0) for arrays in columns))


def _picked(row: int, length: int, layer: KeyValues) -> KeyValues:
    own = length - layer.start
    return replace(layer, length=length, arrays=tuple(a[row : row + 1, :, :own] for a in layer.arrays))
