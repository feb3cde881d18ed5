"""Converts mlx-lm's and mlx-vlm's caches of one row to plain contents, which need none of their classes, and back.

Classes are compared exactly: a subclass may mean anything by its contents, so it is not read.

Who owns an array: `keys[..., i, :] = new` and `state += new`, which caches and models use, change what one Python
object stands for, and all that hold the object see it. So a cache never shares an object: `read` and `write` give each
side its own objects. These share the memory, which MLX copies before it writes to it where another array may still
read it: nothing is copied here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx

from ..engine.cache_contents import (
    UPSTREAMS,
    Contents,
    ContentsList,
    KeyValues,
    LayerCache,
    Pooled,
    Ring,
    States,
    Upstream,
)
from .attention.pooled import Pool

_ROW_CACHES = f"{__package__}.row_caches"
"""The module of `PackedKVCache` and `OwnKVCache`, imported where it is needed."""
_CONSTANT = f"{__package__}.attention.constant_arrays"
"""The module of `ConstantArrays`, as well."""


def is_packed(layer: LayerCache) -> bool:
    """True if a layer's cache holds quantised keys and values. Its class says it: nothing is read."""
    kind = type(layer)
    if kind.__module__ not in UPSTREAMS:
        return _is_row_cache(kind, "PackedKVCache")
    return kind.__name__ == "CacheList" and any(map(is_packed, layer.caches))


def _is_row_cache(kind: type, name: str) -> bool:
    return (kind.__module__, kind.__name__) == (_ROW_CACHES, name)


def read(layer: LayerCache) -> Contents | None:
    """The contents of one layer of a row's cache, without copying; None for a class that is not known here.

    Later changes to the cache do not show in them.
    """
    kind = type(layer)
    if _is_row_cache(kind, "PackedKVCache"):
        return KeyValues(layer.offset, _own(layer.packed), quantised=layer.how, upstream=layer.upstream)
    if _is_row_cache(kind, "OwnKVCache"):
        own = layer.own
        arrays = [array[:, :, : own.offset] for array in (own.keys, own.values)] if own.offset else []
        return KeyValues(layer.offset, tuple(arrays), upstream=layer.upstream, before=layer.before)
    if kind.__module__ == _CONSTANT:
        return States(_own_states(layer.cache), constant=True)
    if isinstance(layer, Pool):
        return Pooled(
            layer.tokens[0],
            layer.ratio,
            layer.kinds,
            tuple(layer.last),
            tuple(array[:, None] for array in layer.pooled),
        )
    upstream = UPSTREAMS.get(kind.__module__)
    if upstream is None:
        return None
    classes = _classes(upstream)
    if kind is classes.KVCache:
        arrays = [array[:, :, : layer.offset] for array in (layer.keys, layer.values)] if layer.offset else []
        return KeyValues(layer.offset, tuple(arrays), upstream=upstream)
    if kind is classes.RotatingKVCache:
        return _read_ring(layer, upstream)
    if kind is classes.ArraysCache and layer.lengths is None and layer.left_padding is None:
        return States(_own_states(layer.cache), upstream)
    if kind is classes.CacheList:
        parts = [read(part) for part in layer.caches]
        known = tuple(part for part in parts if part is not None)
        return ContentsList(known) if len(known) == len(parts) else None
    return None


def write(contents: Contents) -> Any:
    """A cache of one row with these contents: of their library's own class, or of this package.

    Later changes to the cache do not show in the contents.
    """
    if isinstance(contents, Pooled):
        pool = Pool(contents.ratio, contents.kinds)
        pool.tokens, pool.last = [contents.length], list(contents.last)
        pool.pooled = [array[:, 0] for array in contents.growing]
        return pool
    classes = _classes(contents.upstream)
    if isinstance(contents, ContentsList):
        return as_list([write(part) for part in contents.parts], contents.upstream)
    if isinstance(contents, States):
        if contents.constant:
            from .attention.constant_arrays import ConstantArrays

            layer = ConstantArrays(len(contents.arrays))
        else:
            layer = classes.ArraysCache(len(contents.arrays))
        layer.cache = list(_own_states(contents.arrays))
        return layer
    how, ring = contents.quantised, contents.ring
    if how is not None:
        from .row_caches import PackedKVCache

        return PackedKVCache(how, _own(contents.arrays), contents.upstream)
    if contents.before:
        from .row_caches import OwnKVCache

        return OwnKVCache(contents.before, _own(contents.arrays), contents.upstream)
    layer = classes.KVCache() if ring is None else classes.RotatingKVCache(ring.size, ring.keep)
    if contents.arrays:
        layer.keys, layer.values = _own(contents.arrays)
        layer.offset = contents.length
        if ring is not None:
            layer._idx = layer.keys.shape[2]
    return layer


def can_merge(layer: LayerCache) -> bool:
    """True if rows of this kind of cache can be merged by their class.

    It has to define `merge` itself: what a subclass inherits merges nothing of what the subclass adds.
    """
    return "merge" in vars(type(layer)) and all(can_merge(part) for part in getattr(layer, "caches", ()))


def as_list(layers: Sequence[LayerCache], upstream: Upstream) -> object:
    """A library's `CacheList` of these."""
    return _classes(upstream).CacheList(*layers)


@functools.cache
def _classes(upstream: Upstream) -> ModuleType:
    """The module of a library's cache classes."""
    return importlib.import_module(f"{upstream}.models.cache")


def _own(arrays: Iterable[mx.array]) -> tuple[mx.array, ...]:
    """New objects for the same arrays."""
    return tuple(array[...] for array in arrays)


def _own_states(arrays: Iterable[mx.array | None]) -> tuple[mx.array | None, ...]:
    return tuple(None if array is None else array[...] for array in arrays)


def _read_ring(layer: LayerCache, upstream: Upstream) -> KeyValues:
    ring = Ring(layer.max_size, layer.keep)
    if layer.keys is None or not layer.offset:
        return KeyValues(0, (), ring, upstream=upstream)
    arrays = [layer._temporal_order(array) for array in (layer.keys, layer.values)]
    if arrays[0].shape[2] > ring.size:  # a long prompt's are trimmed with the next token only
        first, last = slice(0, ring.keep), slice(arrays[0].shape[2] - (ring.size - ring.keep), None)
        arrays = [mx.concatenate([a[:, :, first], a[:, :, last]], axis=2) for a in arrays]
    return KeyValues(layer.offset, _own(arrays), ring, upstream=upstream)
