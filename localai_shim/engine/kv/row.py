"""One row's cache, as the model's adapter makes it, and batches of rows in caches of the model's own classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeGuard

import mlx.core as mx
from mlx.utils import tree_flatten

from ..cache_contents import Contents, ContentsList, KeyValues, Leaf, RowCache, is_trimmable
from ..mirror.journal import Mirrored, mirrored
from ..ports import host
from .shared import Prefix


def is_known(row: RowCache) -> bool:
    """True if the contents of this kind of cache can be read, so that the prefix cache can hold them."""
    return all(host().caches.read(layer) is not None for layer in row)


def fits_slots(row: RowCache) -> bool:
    """True if slots can hold rows of this kind of cache."""
    return is_known(row) and all(layer.fits_slots for layer in leaves(read_row(row)))


def is_packed(row: RowCache) -> bool:
    """True if some keys and values of a row are quantised."""
    return any(host().caches.is_packed(layer) for layer in row)


def can_batch(row: RowCache) -> bool:
    """True if rows of this kind of cache can share a batch."""
    return all(host().caches.can_merge(layer) or host().caches.read(layer) is not None for layer in row)


def read_row(row: RowCache) -> list[Contents]:
    """Read the contents of a row's cache.

    Raises:
        ValueError: this kind of cache is not known.
    """
    contents = []
    for layer in row:
        known = host().caches.read(layer)
        if known is None:
            raise ValueError(f"a {type(layer).__name__} cannot be read")
        contents.append(known)
    return contents


def write_row(contents: Sequence[Contents]) -> RowCache:
    """A plain cache with these contents."""
    return [host().caches.write(layer) for layer in contents]


def leaves(row: Sequence[Contents]) -> list[Leaf]:
    """The layers of a row, lists of caches taken apart."""
    out: list[Leaf] = []
    for layer in row:
        out += leaves(layer.parts) if isinstance(layer, ContentsList) else [layer]
    return out


def mapped(make: Callable[..., Leaf], *rows: Sequence[Contents]) -> list[Contents]:
    """A row whose layers are made of those of other rows of one kind, which `make` is called with; lists of caches are
    taken apart and put together again.
    """
    return [
        ContentsList(tuple(mapped(make, *(layer.parts for layer in layers))))
        if isinstance(layers[0], ContentsList)
        else make(*layers)
        for layers in zip(*rows, strict=True)
    ]


def copied(row: RowCache, start: int = 0) -> list[Contents]:
    """A copy of what a row holds; of what grows with its tokens, only the part from the token `start` on.

    Raises:
        ValueError: as `read_row`.
    """
    contents = mapped(lambda layer: _copied(layer, start), read_row(row))
    # Evaluated here: MLX would copy a whole buffer that is still to be read when the row goes on.
    mx.eval([array for layer in leaves(contents) for array in layer.arrays if array is not None])
    return contents


def copy_of(array: mx.array) -> mx.array:
    """A lazy copy that shares nothing: `mx.contiguous` would share a view that is contiguous already."""
    return array * 1


def _copied(layer: Leaf, start: int) -> Leaf:
    if is_shareable(layer):
        return tokens_from(layer, start).each(copy_of)
    parts = (array[:, :, start // ratio :] for array, ratio in zip(layer.growing, layer.ratios, strict=True))
    return (layer.with_growing(parts, layer.length or 0) if layer.growing else layer).each(copy_of)


def tokens_from(layer: KeyValues, start: int) -> KeyValues:
    """A layer without its tokens before `start`, which is at most its length; it shares none any more."""
    first = layer.start
    arrays = layer.arrays or tuple(array[:, :, first:] for array in layer.before)
    if start >= first:
        arrays = tuple(array[:, :, start - first :] for array in arrays)
    else:
        held = (array[:, :, start:] for array in layer.before)
        arrays = tuple(mx.concatenate([*pair], axis=2) for pair in zip(held, arrays, strict=True))
    return replace(layer, arrays=arrays, before=())


def whole(row: RowCache) -> RowCache:
    """The row itself, or a copy with the tokens that it shares."""
    contents = [host().caches.read(layer) for layer in row]
    known = [layer for layer in contents if layer is not None]
    if len(known) < len(row) or not any(isinstance(layer, KeyValues) and layer.before for layer in leaves(known)):
        return row
    return write_row(mapped(lambda layer: tokens_from(layer, 0) if is_shareable(layer) else layer, known))


def is_shareable(layer: Contents) -> TypeGuard[KeyValues]:
    """True if rows can share a layer's first tokens."""
    return isinstance(layer, KeyValues) and layer.can_share


def nbytes_of(layers: RowCache) -> int:
    """The bytes that caches of any kind hold; some classes do not say."""
    return sum(
        layer.nbytes if hasattr(layer, "nbytes") else sum(array.nbytes for _, array in tree_flatten(layer.state))
        for layer in layers
    )


class OneRow(Mirrored):
    """A row that is alone in the batch: it decodes on its own plain cache, without a copy."""

    def __init__(self, row: RowCache) -> None:
        self.row = row
        self.prefix: Prefix | None = None
        """Its first tokens, which it shares once it gets a slot."""
        self._count = 1  # tokens of the last step

    width, capacity = 1, 0
    wants_compaction = False

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.row)

    def lengths(self) -> list[int]:
        known = leaves([layer for layer in map(host().caches.read, self.row) if layer is not None])
        length = max((layer.length for layer in known if isinstance(layer, KeyValues)), default=0)
        return [length - (0 if self.prefix is None else self.prefix.length)]

    def leave(self, slots: Sequence[int], spoiled: Sequence[int] = ()) -> None:
        """Free nothing: the row is all that there is."""

    def share(self, slot: int, prefix: Prefix) -> None:
        self.prefix = prefix

    @cached_property
    def takes_several(self) -> bool:
        """True if tokens can be taken back from it, however long it is."""
        return all(layer is not None and is_trimmable(layer) for layer in map(host().caches.read, self.row))

    @mirrored
    def advance(self, counts: Mapping[int, int] | None = None) -> RowCache:
        self._count = counts[0] if counts else 1
        return self.row

    def settle(self, kept: Mapping[int, int]) -> dict[int, int]:
        if kept[0] < self._count:
            self.rollback(0, self._count - kept[0])
        return dict(kept)

    def compact(self) -> dict[int, int]:
        return {}

    def read(self, slot: int, start: int = 0) -> list[Contents]:
        return copied(self.row, start)

    def rollback(self, slot: int, tokens: int) -> None:
        for layer in self.row:
            layer.trim(tokens)


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
