"""What is relied on of mlx-lm's caches: reading a row and writing it again gives a cache that goes on as the first."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from localai_shim.adapters.caches import is_packed, read, write
from localai_shim.adapters.contents import KeyValues, Parts, Quantised, States
from localai_shim.adapters.packed import PackedKVCache, pack


def feed(layer: Any, first: int, count: int) -> Any:
    """Positions as keys, in all of 32 dimensions; returns the keys that attention would read."""
    positions = mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, count, 1)
    keys, _ = layer.update_and_fetch(*(mx.broadcast_to(positions, (1, 2, count, 32)),) * 2)
    return keys


def positions(array: Any) -> list[int]:
    return [round(x) for x in array[0, 0, :, 0].tolist()]


@pytest.mark.parametrize("chunks", [(3,), (30,), (8, 1, 1), (6, 1), (20, 7), (20, 1, 1, 1), (1,) * 13])
@pytest.mark.parametrize("make", [KVCache, lambda: RotatingKVCache(8), lambda: RotatingKVCache(8, keep=2)])
def test_a_row_that_was_read_and_written_goes_on_as_before(chunks: tuple[int, ...], make: Any) -> None:
    layer, fed = make(), 0
    for chunk in chunks:
        feed(layer, fed, chunk)
        fed += chunk
    contents = read(layer)
    assert isinstance(contents, KeyValues) and contents.length == fed
    if contents.ring is not None:
        size, keep = contents.ring.size, contents.ring.keep
        seen = list(range(fed))
        wanted = seen if fed <= size else seen[:keep] + seen[fed - (size - keep) :]
        assert positions(contents.arrays[0]) == wanted
    again = write(contents)
    assert type(again) is type(layer)
    for _ in range(12):
        assert sorted(positions(feed(again, fed, 1))) == sorted(positions(feed(layer, fed, 1)))
        fed += 1
        assert again.offset == layer.offset == fed


def kept(contents: Any) -> list[Any]:
    """The arrays of a layer's contents, and what is in them."""
    parts = contents.parts if isinstance(contents, Parts) else (contents,)
    arrays = [array for part in parts for array in part.arrays]
    return [(array, array.tolist()) for array in arrays]


def filled_states() -> ArraysCache:
    states = ArraysCache(2)
    states[0], states[1] = mx.ones((1, 3)), mx.ones((1, 2, 4))
    return states


def use(layer: Any, first: int) -> None:
    """What models and caches do to a layer, in place where they do so."""
    if isinstance(layer, CacheList):
        for part in layer.caches:
            use(part, first)
    elif isinstance(layer, ArraysCache):
        layer.cache[0] += 1
        layer.cache[1][:, 1:] = 7
    else:
        feed(layer, first, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KVCache(),
        lambda: QuantizedKVCache(group_size=32, bits=4),
        lambda: PackedKVCache(Quantised(32, 4)),
        lambda: RotatingKVCache(8),
        lambda: RotatingKVCache(8, keep=2),
        filled_states,
        lambda: CacheList(KVCache(), RotatingKVCache(8), filled_states()),
    ],
    ids=["plain", "quantised", "packed", "ring", "ring that keeps", "states", "list"],
)
@pytest.mark.parametrize("length", [3, 8, 20], ids=["short", "as long as the ring", "longer"])
def test_what_was_read_or_written_never_changes(make: Any, length: int) -> None:
    """`RotatingKVCache._update_in_place` assigns to a part of its array, which changes the Python object itself."""
    layer = make()
    for part in layer.caches if isinstance(layer, CacheList) else [layer]:
        if not isinstance(part, ArraysCache):
            feed(part, 0, length)
    contents = read(layer)
    assert contents is not None
    before, rows = kept(contents), [write(contents), write(contents), layer]
    for row in rows:
        for i in range(3):
            use(row, length + i)
    mx.eval([row.state for row in rows if type(row) in (KVCache, RotatingKVCache)])
    assert all(array.tolist() == values for array, values in before)


def test_quantised_caches_are_read_as_packed_ones_are_written() -> None:
    layer = QuantizedKVCache(group_size=32, bits=4)
    feed(layer, 0, 5)
    contents = read(layer)
    assert isinstance(contents, KeyValues) and contents.quantised == Quantised(32, 4) and len(contents.arrays) == 6
    assert {array.shape[2] for array in contents.arrays} == {5}
    again = write(contents)
    assert type(again) is PackedKVCache
    for array, same in zip(again.packed, contents.arrays, strict=True):
        assert mx.array_equal(array, same)
    for first in range(5, 8):
        new, packed = feed(again, first, 1), feed(layer, first, 1)
        assert mx.array_equal(new, mx.dequantize(*packed, group_size=32, bits=4)), "the tokens of upstream's, unpacked"


@pytest.mark.parametrize("chunks", [(9,), (4, 5), (1,) * 9])
def test_a_packed_cache_does_not_depend_on_how_tokens_came(chunks: tuple[int, ...]) -> None:
    whole, layer, fed = PackedKVCache(Quantised(32, 8)), PackedKVCache(Quantised(32, 8)), 0
    keys = feed(whole, 0, 9)
    for chunk in chunks:
        last = feed(layer, fed, chunk)
        fed += chunk
    assert mx.array_equal(last, keys) and layer.offset == 9 and layer.nbytes == whole.nbytes
    assert layer.trim(3) == 3 and positions(feed(layer, 6, 3)) == positions(keys)


def test_only_plain_layers_are_packed() -> None:
    row = pack([KVCache(), RotatingKVCache(8), ArraysCache(2), CacheList(KVCache(), ArraysCache(1))], Quantised(32, 4))
    assert [type(layer) for layer in row] == [PackedKVCache, RotatingKVCache, ArraysCache, CacheList]
    assert [type(part) for part in row[3].caches] == [PackedKVCache, ArraysCache]
    assert [is_packed(layer) for layer in row] == [True, False, False, True]


def test_what_is_empty_is_written_empty() -> None:
    for layer in (KVCache(), RotatingKVCache(8, keep=2), PackedKVCache(Quantised(32, 4))):
        contents = read(layer)
        assert isinstance(contents, KeyValues) and (contents.length, contents.arrays) == (0, ())
        assert write(contents).empty()
    assert write(States((None, None))).cache == [None, None]


def test_states_and_lists_are_read_and_written_as_what_they_are() -> None:
    states = ArraysCache(2)
    states[0] = mx.ones((1, 3))
    contents = read(CacheList(states, KVCache()))
    assert isinstance(contents, Parts)
    assert contents.parts[1] == KeyValues(0) and isinstance(contents.parts[0], States)
    again = write(contents)
    assert type(again) is CacheList and type(again[0]) is ArraysCache and type(again[1]) is KVCache
    assert mx.array_equal(again[0][0], states[0]) and again[0][1] is None


def test_other_kinds_and_subclasses_are_left_alone() -> None:
    class Own(KVCache):
        pass

    padded = ArraysCache(1, left_padding=[2])
    for layer in (Own(), ChunkedKVCache(8), BatchKVCache([0]), padded, object(), CacheList(KVCache(), Own())):
        assert read(layer) is None
