"""Features are kept under a budget of bytes, the least recently used go first, and none that are in use."""

from __future__ import annotations

import mlx.core as mx

from localai_shim.engine.ports import Features
from localai_shim.engine.prompts.features import FeatureCache

SIZE = 40


def features() -> Features:
    return Features(mx.zeros((5, 2)))


def added(cache: FeatureCache, *digests: int) -> None:
    for digest in digests:
        cache.add((None, digest), features())
        cache.release((None, digest))


def kept(cache: FeatureCache, *digests: int) -> list[int]:
    return [digest for digest in digests if (None, digest) in cache]


def test_the_size_of_features_is_that_of_all_their_rows() -> None:
    assert features().nbytes == SIZE
    assert Features(mx.zeros((5, 2)), (mx.zeros((5, 2)), mx.zeros((5, 2)))).nbytes == 3 * SIZE


def test_the_least_recently_used_go_first() -> None:
    cache = FeatureCache(3 * SIZE)
    added(cache, 1, 2, 3)
    assert cache.pin((None, 1)) is not None
    cache.release((None, 1))
    added(cache, 4)
    assert kept(cache, 1, 2, 3, 4) == [1, 3, 4]
    assert (cache.bytes, cache.pinned_bytes, cache.runs, cache.hits) == (3 * SIZE, 0, 4, 1)


def test_features_in_use_stay_whatever_they_take() -> None:
    cache = FeatureCache(SIZE)
    for digest in (1, 2, 3):
        cache.add((None, digest), features())
    assert kept(cache, 1, 2, 3) == [1, 2, 3] and cache.pinned_bytes == 3 * SIZE
    assert cache.pin((None, 1)) is not None
    cache.release((None, 1))
    assert kept(cache, 1) == [1], "pinned twice"
    cache.release((None, 2))
    assert kept(cache, 1, 2, 3) == [1, 3], "there is no budget for it beside the others"
    cache.release((None, 1))
    assert kept(cache, 1, 3) == [3]
    cache.release((None, 3))
    assert kept(cache, 3) == [3] and cache.bytes == SIZE and cache.pinned_bytes == 0


def test_without_a_budget_they_stay_while_they_are_in_use() -> None:
    cache = FeatureCache(0)
    cache.add((None, 1), features())
    assert cache.pin((None, 1)) is not None
    for _ in range(2):
        assert kept(cache, 1) == [1]
        cache.release((None, 1))
    assert not kept(cache, 1) and cache.pin((None, 1)) is None and cache.bytes == 0


def test_where_rows_need_the_memory_those_that_are_not_in_use_go() -> None:
    cache = FeatureCache(10 * SIZE)
    added(cache, 1, 2, 3)
    cache.add((None, 4), features())
    cache.limit(SIZE)
    assert kept(cache, 1, 2, 3, 4) == [3, 4]
    cache.limit(-SIZE)
    assert kept(cache, 3, 4) == [4]
    cache.limit(10 * SIZE)
    added(cache, 5)
    assert kept(cache, 4, 5) == [4, 5]


def test_salts_share_nothing() -> None:
    cache = FeatureCache(10 * SIZE)
    cache.add(("a", 1), features())
    assert cache.pin(("b", 1)) is None and cache.pin((None, 1)) is None and cache.hits == 0


def test_nothing_is_left_of_what_was_cleared() -> None:
    cache = FeatureCache(10 * SIZE)
    cache.add((None, 1), features())
    cache.clear()
    assert not kept(cache, 1) and (cache.bytes, cache.pinned_bytes) == (0, 0)
