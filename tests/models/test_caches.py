"""What is relied on of mlx-lm's and mlx-vlm's caches: a row that is read and written again goes on as the first."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models import cache as mlx_lm
from mlx_vlm.models import cache as mlx_vlm

from localai_shim.engine.cache_contents import ContentsList, KeyValues, Quantised, States
from localai_shim.models.caches import is_packed, read, write
from localai_shim.models.row_caches import PackedKVCache, pack


@pytest.fixture(params=[mlx_lm, mlx_vlm], ids=["mlx-lm", "mlx-vlm"])
def upstream(request: pytest.FixtureRequest) -> Any:
    """A library's cache classes."""
    return request.param


def name_of(upstream: Any) -> Any:
    return upstream.__name__.partition(".")[0]


def feed(layer: Any, first: int, count: int) -> Any:
    """Positions as keys, in all of 32 dimensions; returns the keys that attention would read."""
    positions = mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, count, 1)
    keys, _ = layer.update_and_fetch(*(mx.broadcast_to(positions, (1, 2, count, 32)),) * 2)
    return keys


def positions(array: Any) -> list[int]:
    return [round(x) for x in array[0, 0, :, 0].tolist()]


@pytest.mark.parametrize("chunks", [(3,), (30,), (8, 1, 1), (6, 1), (20, 7), (20, 1, 1, 1), (1,) * 13])
@pytest.mark.parametrize(
    "make", [lambda u: u.KVCache(), lambda u: u.RotatingKVCache(8), lambda u: u.RotatingKVCache(8, keep=2)]
)
def test_a_row_that_was_read_and_written_goes_on_as_before(chunks: tuple[int, ...], make: Any, upstream: Any) -> None:
    layer, fed = make(upstream), 0
    for chunk in chunks:
        feed(layer, fed, chunk)
        fed += chunk
    contents = read(layer)
    assert isinstance(contents, KeyValues) and (contents.length, contents.upstream) == (fed, name_of(upstream))
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
    parts = contents.parts if isinstance(contents, ContentsList) else (contents,)
    arrays = [array for part in parts for array in part.arrays]
    return [(array, array.tolist()) for array in arrays]


def filled_states(upstream: Any) -> Any:
    states = upstream.ArraysCache(2)
    states[0], states[1] = mx.ones((1, 3)), mx.ones((1, 2, 4))
    return states


LISTS = (mlx_lm.CacheList, mlx_vlm.CacheList)
STATES = (mlx_lm.ArraysCache, mlx_vlm.ArraysCache)


def use(layer: Any, first: int) -> None:
    """What models and caches do to a layer, in place where they do so."""
    if isinstance(layer, LISTS):
        for part in layer.caches:
            use(part, first)
    elif isinstance(layer, STATES):
        layer.cache[0] += 1
        layer.cache[1][:, 1:] = 7
    else:
        feed(layer, first, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda u: u.KVCache(),
        lambda u: PackedKVCache(Quantised(32, 4), upstream=name_of(u)),
        lambda u: u.RotatingKVCache(8),
        lambda u: u.RotatingKVCache(8, keep=2),
        filled_states,
        lambda u: u.CacheList(u.KVCache(), u.RotatingKVCache(8), filled_states(u)),
    ],
    ids=["plain", "packed", "ring", "ring that keeps", "states", "list"],
)
@pytest.mark.parametrize("length", [3, 8, 20], ids=["short", "as long as the ring", "longer"])
def test_what_was_read_or_written_never_changes(make: Any, length: int, upstream: Any) -> None:
    """`RotatingKVCache._update_in_place` assigns to a part of its array, which changes the Python object itself."""
    layer = make(upstream)
    for part in layer.caches if isinstance(layer, LISTS) else [layer]:
        if not isinstance(part, STATES):
            feed(part, 0, length)
    contents = read(layer)
    assert contents is not None and contents.upstream == name_of(upstream)
    before, rows = kept(contents), [write(contents), write(contents), layer]
    for row in rows:
        for i in range(3):
            use(row, length + i)
    mx.eval([row.state for row in rows if type(row) in (upstream.KVCache, upstream.RotatingKVCache)])
    assert all(array.tolist() == values for array, values in before)


@pytest.mark.parametrize("chunks", [(9,), (4, 5), (1,) * 9])
def test_a_packed_cache_does_not_depend_on_how_tokens_came(chunks: tuple[int, ...]) -> None:
    whole, layer, fed = PackedKVCache(Quantised(32, 8)), PackedKVCache(Quantised(32, 8)), 0
    keys = feed(whole, 0, 9)
    for chunk in chunks:
        last = feed(layer, fed, chunk)
        fed += chunk
    assert mx.array_equal(last, keys) and layer.offset == 9 and layer.nbytes == whole.nbytes
    assert layer.trim(3) == 3 and positions(feed(layer, 6, 3)) == positions(keys)


def test_only_plain_layers_are_packed(upstream: Any) -> None:
    u = upstream
    layers = [u.KVCache(), u.RotatingKVCache(8), u.ArraysCache(2), u.CacheList(u.KVCache(), u.ArraysCache(1))]
    row = pack(layers, Quantised(32, 4))
    assert [type(layer) for layer in row] == [PackedKVCache, u.RotatingKVCache, u.ArraysCache, u.CacheList]
    assert [type(part) for part in row[3].caches] == [PackedKVCache, u.ArraysCache]
    assert [is_packed(layer) for layer in row] == [True, False, False, True]
    assert all(contents is not None and contents.upstream == name_of(u) for contents in map(read, row))


def test_what_is_packed_is_told_by_its_class(upstream: Any) -> None:
    """A row that joins the batch has many layers: none is read for it."""
    full, packed = upstream.KVCache(), PackedKVCache(Quantised(32, 4), upstream=name_of(upstream))
    mixed = upstream.CacheList(upstream.RotatingKVCache(8), packed)
    assert [is_packed(layer) for layer in (full, packed, mixed, object())] == [False, True, True, False]


def test_what_is_empty_is_written_empty(upstream: Any) -> None:
    packed = PackedKVCache(Quantised(32, 4), upstream=name_of(upstream))
    for layer in (upstream.KVCache(), upstream.RotatingKVCache(8, keep=2), packed):
        contents = read(layer)
        assert isinstance(contents, KeyValues) and (contents.length, contents.arrays) == (0, ())
        again = write(contents)
        assert again.empty() and type(again) is type(layer) and read(again) == contents
    states = write(States((None, None), name_of(upstream)))
    assert type(states) is upstream.ArraysCache and states.cache == [None, None]


def test_states_and_lists_are_read_and_written_as_what_they_are(upstream: Any) -> None:
    states = upstream.ArraysCache(2)
    states[0] = mx.ones((1, 3))
    contents = read(upstream.CacheList(states, upstream.KVCache()))
    assert isinstance(contents, ContentsList)
    assert contents.parts[1] == KeyValues(0, upstream=name_of(upstream)) and isinstance(contents.parts[0], States)
    again = write(contents)
    assert type(again) is upstream.CacheList
    assert type(again[0]) is upstream.ArraysCache and type(again[1]) is upstream.KVCache
    assert mx.array_equal(again[0][0], states[0]) and again[0][1] is None


def test_unknown_kinds_and_subclasses_of_caches_are_left_alone(upstream: Any) -> None:
    class Own(upstream.KVCache):  # type: ignore[misc]
        pass

    class KVCache:
        """Not the library's, whatever its name."""

    KVCache.__module__ = upstream.__name__
    padded, known = upstream.ArraysCache(1, left_padding=[2]), upstream.KVCache()
    listed = upstream.CacheList(known, Own())
    for layer in (Own(), KVCache(), upstream.ChunkedKVCache(8), upstream.BatchKVCache([0]), padded, object(), listed):
        assert read(layer) is None
