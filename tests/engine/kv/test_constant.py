"""Arrays that no step changes, in slots: each row reads its own, whatever joins and leaves, and steps copy none."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache

from localai_shim.engine.cache_contents import ContentsList, RowCache, States, read_described
from localai_shim.engine.kv.slots import SlotCache
from localai_shim.models import caches
from localai_shim.models.attention.constant_arrays import ConstantArrays


def row(number: int, tokens: int = 3) -> RowCache:
    """A row whose constant arrays say its number."""
    keys, constant = KVCache(), ConstantArrays(2)
    numbers = mx.full((1, 2, tokens, 4), float(number))
    keys.update_and_fetch(numbers, numbers)
    constant[0], constant[1] = mx.full((1, 2, 5, 4), float(number)), mx.full((1, 2, 5, 4), -float(number))
    return [CacheList(keys, constant)]


def step(cache: SlotCache) -> list[list[float]]:
    """Run a step; what it reads of each slot's constant arrays."""
    [layer] = cache.advance()
    new = mx.zeros((cache.width, 2, 1, 4))
    layer[0].update_and_fetch(new, new)
    assert all(array.shape == (cache.width, 2, 5, 4) for array in (layer[1][0], layer[1][1]))
    return [[float(array[slot].mean()) for array in (layer[1][0], layer[1][1])] for slot in range(cache.width)]


def test_rows_read_their_own_arrays_whatever_joins_and_leaves() -> None:
    cache = SlotCache()
    assert cache.join([row(1)]) == [0]
    assert step(cache) == [[1, -1]]
    assert cache.join([row(2), row(3)]) == [1, 2]
    assert step(cache) == [[1, -1], [2, -2], [3, -3]]
    cache.leave([1])
    assert step(cache)[::2] == [[1, -1], [3, -3]]
    assert cache.join([row(4)]) == [1]
    assert step(cache) == [[1, -1], [4, -4], [3, -3]]
    cache.leave([2])
    assert step(cache) == [[1, -1], [4, -4]]
    assert cache.join([row(5)]) == [2]
    assert step(cache) == [[1, -1], [4, -4], [5, -5]]


def test_free_slots_are_closed_and_buffers_shrink() -> None:
    cache = SlotCache()
    cache.join([row(number) for number in range(16)])
    full = cache.nbytes
    cache.leave([*range(1, 14), 15])
    for _ in range(5):
        step(cache)
    assert cache.wants_compaction
    assert cache.compact() == {14: 1}
    assert step(cache) == [[0, 0], [14, -14]]
    assert cache.nbytes < full / 4


def test_row_is_read_back_with_its_arrays() -> None:
    cache = SlotCache()
    cache.join([row(7), row(8)])
    step(cache)
    [layer] = cache.read(1)
    assert isinstance(layer, ContentsList)
    keys, constant = layer.parts
    assert keys.length == 4
    assert isinstance(constant, States)
    assert constant.constant
    assert [float(array.mean()) for array in constant.arrays if array is not None] == [8, -8]
    assert isinstance(caches.write(constant), ConstantArrays)
    assert read_described(constant.described(), constant.arrays) == constant


def test_steps_read_the_buffer_itself() -> None:
    """A step that copied the arrays would take as many bytes again, for each of its tokens."""
    cache = SlotCache()
    cache.join([row(number) for number in range(4)])
    first = cache.advance()[0][1][0]
    second = cache.advance()[0][1][0]
    addresses = [np.array(array, copy=False).__array_interface__["data"][0] for array in (first, second)]
    assert addresses[0] == addresses[1]


def test_joining_row_copies_no_other_while_there_is_room() -> None:
    cache = SlotCache()
    cache.join([row(number) for number in range(5)])  # in six slots
    before = np.array(cache.advance()[0][1][0], copy=False).__array_interface__["data"][0]
    cache.join([row(5)])
    after = np.array(cache.advance()[0][1][0], copy=False).__array_interface__["data"][0]
    assert before == after
