"""Shared tokens stay in the tree. After the last row that shares them, the tree counts them again and can free them."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.cache_contents import Contents, KeyValues, States
from localai_shim.engine.kv.segments import Segment, Snapshot
from localai_shim.engine.kv.shared import Prefix
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.engine.prefix.tree import PrefixTree
from tests.engine.folders import LONG, Fake
from tests.engine.segments import RATIOS, arrays_of, random_tokens

TOKEN = 2 * 3 * 4 * 4  # bytes of a token below: two arrays of three heads, four float32 each


def tree_of(*rows: Sequence[int], needs_snapshot: bool = False) -> PrefixTree:
    tree = PrefixTree(RATIOS, needs_snapshot=needs_snapshot)
    for row in rows:
        put(tree, row)
    return tree


def put(tree: PrefixTree, tokens: Sequence[int], snapshot: Snapshot | None = None) -> None:
    if not tree.covers(None, tokens):
        _, start = tree.walk(None, tokens)
        segment = arrays_of(tokens, start) if start < len(tokens) else []
        tree.insert(None, tokens, start, segment, snapshot)


def at(length: int) -> Snapshot:
    return Snapshot(length, [States((mx.zeros(5), None))])


def shared(tree: PrefixTree, tokens: Sequence[int]) -> Prefix:
    prefix = tree.share(None, tokens)
    assert prefix is not None
    check(prefix, tokens)
    return prefix


def check(prefix: Prefix, tokens: Sequence[int]) -> None:
    """Check that a prefix is of the first of these tokens, and holds their arrays."""
    assert prefix.keys.tolist() == list(tokens[: prefix.length])
    assert same(prefix.arrays, arrays_of(tokens[: prefix.length]))


def same(arrays: Segment, others: Segment) -> bool:
    return all(bool(mx.array_equal(a, b)) for a, b in zip(arrays, others, strict=True))


def check_match(tree: PrefixTree, tokens: Sequence[int], length: int | None = None) -> None:
    """Check that a row that is made of these tokens, as far as the tree has them, gets their arrays."""
    match, length = tree.match_prefix(None, tokens), len(tokens) if length is None else length
    assert (0 if match is None else match.length) == length
    if match is not None:
        joined = [mx.concatenate([*pieces], axis=2) for pieces in zip(*match.segments, strict=True)]
        assert same(joined, arrays_of(tokens[:length]))


def nodes(tree: PrefixTree) -> list[list[int]]:
    return sorted(node.keys for node in tree)


def places(array: mx.array) -> tuple[int, int]:
    """First and last byte of an array's memory."""
    view = np.array(array, copy=False)
    first: int = view.__array_interface__["data"][0]
    return first, first + sum((n - 1) * step for n, step in zip(view.shape, view.strides, strict=True))


def is_part(array: mx.array, whole: mx.array) -> bool:
    """True if an array's memory is that of another one, or a part of it."""
    (first, last), (begin, end) = places(array), places(whole)
    return begin <= first <= last <= end


# -- what is held, and counted ---------------------------------------------------------------------------------------


def test_tokens_that_the_tree_does_not_have_cannot_be_shared() -> None:
    tree = tree_of([1, 2, 3])
    assert tree.share(None, [1, 2, 3, 4]) is tree.share(None, []) is tree.share("salt", [1, 2, 3]) is None
    assert tree.bytes == 3 * TOKEN


@pytest.mark.parametrize("budget", [0, 5 * TOKEN])
def test_shared_tokens_are_never_evicted(budget: int) -> None:
    tree = tree_of([1, 2, 3, 4], [5, 6], [1, 2, 3, 4, 7, 8])
    prefix = shared(tree, [1, 2, 3, 4])
    tree.evict(budget)
    check_match(tree, [1, 2, 3, 4])
    assert (prefix.nbytes, tree.bytes) == (4 * TOKEN, min(budget, 4 * TOKEN))
    tree.evict(0)
    assert nodes(tree) == [[1, 2, 3, 4]]
    del prefix
    tree.evict(0)
    assert (nodes(tree), tree.bytes) == ([], 0)


def test_shared_tokens_count_in_the_tree_again_when_no_row_shares_them() -> None:
    tree = tree_of([1, 2, 3, 4], [1, 2, 3, 4, 7, 8])
    prefix = shared(tree, [1, 2, 3, 4])
    first = prefix.first(2)
    assert (tree.bytes, prefix.nbytes, first.nbytes) == (2 * TOKEN, 4 * TOKEN, 0)
    del prefix
    tree.release()
    assert tree.bytes == 2 * TOKEN, "who shares the first of them holds all"
    del first
    tree.release()
    assert tree.bytes == 6 * TOKEN == sum(node.bytes for node in tree)
    check_match(tree, [1, 2, 3, 4, 7, 8])


def test_released_tokens_are_evicted_by_when_they_were_used_last() -> None:
    tree = tree_of([1, 2, 3], [5, 6])
    prefix = shared(tree, [1, 2, 3])
    tree.evict(2 * TOKEN)
    check_match(tree, [5, 6])
    del prefix
    tree.evict(4 * TOKEN)
    assert nodes(tree) == [[5, 6]]


def test_a_snapshot_counts_and_goes_while_the_tokens_before_it_are_shared() -> None:
    tree = tree_of(needs_snapshot=True)
    put(tree, [1, 2, 3], at(3))
    prefix = shared(tree, [1, 2, 3])
    assert tree.bytes == 5 * 4, "the state"
    check_match(tree, [1, 2, 3])
    tree.evict(0)
    assert (tree.bytes, nodes(tree)) == (0, [[1, 2, 3]])
    check_match(tree, [1, 2, 3], 0)
    put(tree, [1, 2, 3], at(3))
    check_match(tree, [1, 2, 3])
    del prefix
    tree.release()
    assert tree.bytes == 3 * TOKEN + 5 * 4


# -- parts of nodes, and several nodes -------------------------------------------------------------------------------


def test_one_node_is_shared_without_a_copy() -> None:
    tree = tree_of([1, 2, 3, 4])
    prefix = shared(tree, [1, 2, 3, 4])
    [node] = tree
    assert all(is_part(a, b) and is_part(b, a) for a, b in zip(node.segment, prefix.arrays, strict=True))


def test_sharing_a_part_of_a_node_leaves_the_rest_to_eviction() -> None:
    tree = tree_of([1, 2, 3, 4, 5])
    prefix = shared(tree, [1, 2])
    assert (nodes(tree), tree.bytes, prefix.nbytes) == ([[1, 2], [3, 4, 5]], 3 * TOKEN, 2 * TOKEN)
    check_match(tree, [1, 2, 3, 4, 5])
    tree.evict(0)
    assert nodes(tree) == [[1, 2]]


def test_several_nodes_become_one_block_which_they_have_their_parts_of() -> None:
    tree = tree_of([1, 2, 3, 4, 5, 6], [1, 2, 3, 9], [1, 2, 3, 4, 8])
    prefix = shared(tree, [1, 2, 3, 4, 5])
    assert nodes(tree) == [[1, 2, 3], [4], [5], [6], [8], [9]]
    assert (tree.bytes, prefix.nbytes) == (3 * TOKEN, 5 * TOKEN)
    path, _ = tree.walk(None, [1, 2, 3, 4, 5])
    assert all(is_part(a, b) for node in path for a, b in zip(node.segment, prefix.arrays, strict=True))
    for row in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 9], [1, 2, 3, 4, 8]):
        check_match(tree, row)
    tree.evict(0)
    check_match(tree, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("keys", [[1, 2, 3, 9], [1, 2, 3]], ids=["a row that parts", "a shorter row"])
def test_an_insertion_that_parts_within_shared_tokens_copies_none(keys: list[int]) -> None:
    tree = tree_of([1, 2, 3, 4, 5])
    prefix = shared(tree, [1, 2, 3, 4, 5])
    put(tree, [1, 2, 3, 9])
    assert (nodes(tree), tree.bytes) == ([[1, 2, 3], [4, 5], [9]], TOKEN)
    path, _ = tree.walk(None, [1, 2, 3, 4, 5])
    assert all(is_part(a, b) for node in path for a, b in zip(node.segment, prefix.arrays, strict=True))
    tree.evict(0)
    assert nodes(tree) == [[1, 2, 3], [4, 5]]
    check_match(tree, [1, 2, 3, 4, 5])
    del prefix
    tree.release()
    assert tree.bytes == 5 * TOKEN
    check_match(tree, keys, 3)


@pytest.mark.parametrize("heads", [1, 3])
def test_released_nodes_keep_no_memory_but_their_own(heads: int) -> None:
    """A view of a block would keep all of it, however little of it is left in the tree."""
    tokens = list(range(1, 2049))
    tree = PrefixTree(RATIOS, needs_snapshot=False)
    held = [mx.zeros((1, heads, len(tokens), 16)) for _ in RATIOS]
    mx.eval(held)
    gc.collect()
    size, before = sum(array.nbytes for array in held), mx.get_active_memory()
    tree.insert(None, tokens, 0, held, None)
    prefix = tree.share(None, tokens)
    del held
    assert prefix is not None and prefix.nbytes == size and tree.bytes == 0
    tree.insert(None, [*tokens[:4], 9], 4, [mx.zeros((1, heads, 1, 16)) for _ in RATIOS], None)
    assert mx.get_active_memory() < before + size / 8, "parting within them copies nothing"
    del prefix
    tree.release()
    found = tree.match_prefix(None, [*tokens[:4], 9])
    assert found is not None and found.length == 5
    del found
    tree.evict(size // 8)
    mx.eval([array for node in tree for array in node.segment])
    gc.collect()
    assert 0 < tree.bytes <= size // 8
    assert mx.get_active_memory() <= before - size + size // 4


# -- sharing what is shared already ----------------------------------------------------------------------------------


def test_sharing_the_same_tokens_again_gives_the_same_prefix() -> None:
    tree = tree_of([1, 2, 3, 4])
    prefix = shared(tree, [1, 2, 3, 4])
    assert shared(tree, [1, 2, 3, 4]) is prefix


def test_sharing_fewer_tokens_gives_the_first_of_those_that_are_held() -> None:
    tree = tree_of([1, 2, 3, 4])
    prefix = shared(tree, [1, 2, 3, 4])
    first = shared(tree, [1, 2])
    assert (first.length, first.whole, nodes(tree)) == (2, prefix, [[1, 2, 3, 4]])
    assert shared(tree, [1, 2]) is first, "as long as something shares it"
    assert prefix.first(4) is prefix.first(9) is prefix


def test_sharing_more_tokens_gives_those_that_are_held() -> None:
    """They are never held twice."""
    tree = tree_of([1, 2, 3, 4])
    prefix = shared(tree, [1, 2])
    assert shared(tree, [1, 2, 3, 4]) is prefix
    assert tree.bytes == 2 * TOKEN
    del prefix
    assert shared(tree, [1, 2, 3, 4]).length == 4


def test_tokens_that_part_from_shared_ones_share_the_tokens_before_that() -> None:
    tree = tree_of([1, 2, 3, 4, 5, 6])
    prefix = shared(tree, [1, 2, 3, 4, 5, 6])
    put(tree, [1, 2, 3, 9, 9])
    first = shared(tree, [1, 2, 3, 9, 9])
    assert (first.length, first.whole) == (3, prefix)
    assert shared(tree, [1, 2, 3, 9]) is first


def test_first_tokens_of_one_length_are_one_object() -> None:
    prefix = shared(tree_of([1, 2, 3, 4]), [1, 2, 3, 4])
    three, one = prefix.first(3), prefix.first(1)
    assert three.first(1) is one and prefix.first(1) is one


def test_the_first_of_first_tokens_need_the_whole_block() -> None:
    tree = tree_of([1, 2, 3, 4])
    first = shared(tree, [1, 2, 3, 4]).first(3).first(1)
    gc.collect()
    check(first, [1, 2, 3, 4])
    assert first.whole is not None and first.whole.length == 4
    tree.evict(0)
    assert tree.bytes == 0
    check_match(tree, [1, 2, 3, 4])


def test_only_a_prompt_that_has_more_tokens_begins_with_shared_ones() -> None:
    prefix = Prefix("salt", np.array([1, 2], np.int64), arrays_of([1, 2]))
    prompts = [[1, 2, 3], [1, 2], [1, 3, 3], [1]]
    assert [prefix.begins("salt", np.array(keys, np.int64)) for keys in prompts] == [True, False, False, False]
    assert not prefix.begins(None, np.array([1, 2, 3], np.int64))


# -- what the tree forgets -------------------------------------------------------------------------------------------


def test_rows_keep_what_they_share_when_it_is_dropped() -> None:
    tree = tree_of([1, 2, 3, 4], [1, 2, 3, 4, 5])
    prefix = shared(tree, [1, 2, 3, 4])
    tree.drop(None, [1, 2, 3, 4, 5], 0)
    assert (nodes(tree), tree.bytes) == ([], 0)
    put(tree, [1, 2, 3, 4, 6])
    assert tree.bytes == 5 * TOKEN, "others are held apart from these"
    check(prefix, [1, 2, 3, 4])
    del prefix
    tree.release()
    assert tree.bytes == 5 * TOKEN


def test_rows_keep_what_they_share_when_the_tree_is_cleared() -> None:
    tree = tree_of([1, 2, 3, 4])
    prefix = shared(tree, [1, 2, 3, 4])
    tree.clear()
    assert (nodes(tree), tree.bytes) == ([], 0)
    put(tree, [1, 2, 3, 4])
    check(prefix, [1, 2, 3, 4])
    assert shared(tree, [1, 2, 3, 4]) is not prefix
    del prefix
    tree.release()
    assert tree.bytes == 4 * TOKEN


@pytest.mark.parametrize("whole", [False, True], ids=["segments", "snapshots"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_each_token_is_right_and_counted_once(seed: int, whole: bool) -> None:
    generator = random.Random(seed)
    tree, held = tree_of(needs_snapshot=whole), list[tuple[Prefix, list[int]]]()
    shares = 0
    for _ in range(250):
        tokens = random_tokens(generator)
        match generator.choice(("put", "put", "put", "share", "share", "end", "evict", "drop")):
            case "put":
                put(tree, tokens, at(len(tokens)) if whole else None)
            case "share":
                _, length = tree.walk(None, tokens)
                prefix = tree.share(None, tokens[:length])
                assert (prefix is None) == (length == 0)
                if prefix is not None:
                    held.append((prefix, tokens))
                    shares += 1
            case "end" if held:
                held.pop(generator.randrange(len(held)))
                del prefix
                tree.release()
            case "evict":
                tree.evict(generator.randrange(20) * TOKEN)
            case "drop":
                _, length = tree.walk(None, tokens)
                if length:
                    tree.drop(None, tokens[:length], generator.randrange(length + 1))
        prefix = None
        for each, its in held:
            check(each, its)
        tree.release()
        assert tree.bytes == sum(node.bytes for node in tree)
        for node in tree:
            keys = node.path()
            assert same(node.segment, arrays_of(keys, node.start))
            assert (node.bytes >= len(node.keys) * TOKEN) != node.is_shared
    assert shares > 10


# -- the cache -------------------------------------------------------------------------------------------------------


class Spoiling(Fake):
    """Rows with a token 1 are NaN from there on."""

    def row(self, tokens: Sequence[int], start: int = 0) -> list[Contents]:
        if 1 not in tokens:
            return super().row(tokens, start)
        arrays = [array.at[:, :, max(0, tokens.index(1) - start) :].add(mx.nan) for array in arrays_of(tokens, start)]
        return [KeyValues(len(tokens), tuple(arrays))]


def share(cache: PrefixCache, model: Fake, tokens: Sequence[int], length: int) -> Prefix | None:
    """The first tokens of a row that runs."""
    return cache.share(None, tokens[:length], lambda start: model.row(tokens, start))


def test_a_running_row_s_tokens_are_inserted_to_be_shared(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    assert cache.share(None, LONG[:50]) is None, "without a row that has them"
    prefix = share(cache, model, LONG, 50)
    assert prefix is not None and (prefix.length, cache.bytes) == (50, 0)
    check(prefix, LONG)
    assert model.found(cache, LONG) == 50
    assert cache.share(None, LONG[:50]) is prefix
    longer = share(cache, model, LONG, 70)
    assert longer is prefix and model.found(cache, LONG) == 70, "what is new is there for later rows"


def test_shared_tokens_do_not_have_to_fit_the_budget(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path, budget=10 * TOKEN)
    prefix = share(cache, model, LONG, 50)
    assert prefix is not None and prefix.length == 50
    cache.limit(0)
    assert model.found(cache, LONG) == 50
    del prefix
    cache.limit(10 * TOKEN)
    assert model.found(cache, LONG) == cache.bytes == 0


def test_rows_that_are_nan_are_never_shared(tmp_path: Path) -> None:
    model = Spoiling()
    cache = model.cache(tmp_path)
    spoiled = [*LONG[:40], 1, *LONG[40:]]
    assert share(cache, model, spoiled, 60) is None
    assert model.found(cache, spoiled) == cache.bytes == 0
    model.insert(cache, spoiled)
    assert cache.share(None, spoiled[:60]) is None, "it was inserted, and looked at since"
    prefix = share(cache, model, spoiled[:40], 40)
    assert prefix is not None and prefix.length == 40
    assert share(cache, model, spoiled, 60) is None, "only what comes behind is NaN"


def test_rows_keep_what_they_share_when_the_weights_change(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    prefix = share(cache, model, LONG, 50)
    cache.renew("fp_other")
    assert prefix is not None and cache.share(None, LONG[:50]) is None
    check(prefix, LONG)
    del prefix
    assert cache.bytes == 0


def test_a_row_starts_behind_what_it_shares_and_copies_the_rest(tmp_path: Path) -> None:
    model = Fake()
    cache = model.cache(tmp_path)
    model.insert(cache, LONG)
    prefix = cache.share(None, LONG[:30])
    started = cache.start(None, [*LONG, 0], shared=prefix)
    assert prefix is not None and started is not None and started[1] == 100
    [layer] = started[0]
    assert (layer.offset, layer.own.offset, layer.before) == (100, 70, tuple(prefix.arrays))
    assert same([*layer.state], arrays_of(LONG, 30))
