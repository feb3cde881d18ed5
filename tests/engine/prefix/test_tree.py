"""The radix tree finds the longest beginning that it has, hands back what was put in, and counts every byte."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import mlx.core as mx
import pytest

from localai_shim.engine.cache_contents import KeyValues, Ring, States
from localai_shim.engine.kv.segments import Snapshot
from localai_shim.engine.prefix.tree import Node, PrefixTree, _age
from tests.engine.segments import RATIOS, arrays_of, common_length, random_tokens

TOKEN = 2 * 3 * 4 * 4  # bytes of a token below: two arrays of three heads, four float32 each


def tree_of(*, needs_snapshot: bool = False) -> PrefixTree:
    return PrefixTree(RATIOS, needs_snapshot=needs_snapshot)


def put(tree: PrefixTree, tokens: Sequence[int], salt: str | None = None, snapshot: Snapshot | None = None) -> None:
    """As the prefix cache does it."""
    if not tree.covers(salt, tokens):
        _, start = tree.walk(salt, tokens)
        segment = arrays_of(tokens, start, tree._ratios) if start < len(tokens) else []
        tree.insert(salt, tokens, start, segment, snapshot)


def at(length: int, *, floats: int = 5) -> Snapshot:
    """Of a layer with a state."""
    return Snapshot(length, [States((mx.zeros(floats), None))])


def window(length: int, size: int) -> Snapshot:
    """Of a layer with a sliding window."""
    arrays = (mx.zeros((1, 1, min(length, size), 2)),) * 2
    return Snapshot(length, [KeyValues(length, arrays, Ring(size, 0))])


def found(tree: PrefixTree, tokens: Sequence[int], salt: str | None = None) -> int:
    match = tree.match_prefix(salt, tokens)
    return 0 if match is None else match.length


@pytest.mark.parametrize("ratios", [RATIOS, (1, 1, 2, 5)], ids=["of tokens", "of groups, too"])
@pytest.mark.parametrize("seed", range(20))
def test_the_longest_common_beginning_is_found_and_holds_what_was_put_in(seed: int, ratios: Sequence[int]) -> None:
    generator = random.Random(seed)
    tree, known = PrefixTree(ratios, needs_snapshot=False), []
    for _ in range(25):
        tokens = random_tokens(generator)
        put(tree, tokens)
        known.append(tokens)
        asked = random_tokens(generator)
        longest = max(common_length(asked, k) for k in known)
        match = tree.match_prefix(None, asked)
        assert (match.length if match else 0) == longest
        if match is not None:
            expected = arrays_of(asked[:longest], 0, ratios)
            for pieces, whole in zip(zip(*match.segments, strict=True), expected, strict=True):
                assert mx.array_equal(mx.concatenate(pieces, axis=-2), whole)
    distinct = {tuple(tokens[: i + 1]) for tokens in known for i in range(len(tokens))}
    places = sum(len(tokens) % ratio == 0 for tokens in distinct for ratio in ratios)
    assert tree.bytes == places * TOKEN // 2 == sum(node.bytes for node in tree), "each place is held once"


def test_the_least_recently_used_goes_first_and_what_others_need_stays() -> None:
    tree = tree_of()
    for tokens in ([1, 2, 3], [1, 2, 4, 4], [5, 6]):
        put(tree, tokens)
    found(tree, [1, 2, 3])
    tree.evict(6 * TOKEN)
    assert [found(tree, t) for t in ([1, 2, 3], [1, 2, 4, 4], [5, 6])] == [3, 2, 2]
    tree.evict(4 * TOKEN)
    assert tree.bytes <= 4 * TOKEN
    tree.evict(0)
    assert (len(list(tree)), tree.bytes, found(tree, [5])) == (0, 0, 0)


class Searching(PrefixTree):
    """Looks at every node each time."""

    def _oldest(self) -> Node:
        return min(self, key=_age)


@pytest.mark.parametrize("whole", [False, True], ids=["segments", "snapshots"])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_dropped_is_always_what_was_used_least_recently(seed: int, whole: bool) -> None:
    generator = random.Random(seed)
    tree, searching = PrefixTree(RATIOS, needs_snapshot=whole), Searching(RATIOS, needs_snapshot=whole)
    for _ in range(200):
        tokens, budget = random_tokens(generator), generator.randrange(10, 40) * TOKEN
        action = generator.choice(("put", "put", "match", "evict"))
        for each in (tree, searching):
            if action == "put":
                put(each, tokens, snapshot=at(len(tokens)) if whole else None)
            elif action == "match":
                found(each, tokens)
            else:
                each.evict(budget)
        assert [node.path() for node in tree] == [node.path() for node in searching]
        assert tree.bytes == searching.bytes
    assert len(tree._queue) < 200, "a node is not asked for over and over"


def test_salts_share_nothing() -> None:
    tree = tree_of()
    put(tree, [1, 2, 3], "mine")
    assert [found(tree, [1, 2, 3], salt) for salt in ("mine", "yours", None)] == [3, 0, 0]


def test_where_rows_cannot_be_cut_only_the_ends_of_rows_are_found() -> None:
    tree = tree_of(needs_snapshot=True)
    put(tree, [1, 2, 3, 4], snapshot=at(4))
    assert [found(tree, t) for t in ([1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 9])] == [4, 4, 0, 0]
    put(tree, [1, 2], snapshot=at(2))
    put(tree, [1, 2, 3, 7], snapshot=at(4))
    assert [found(tree, t) for t in ([1, 2, 3, 4, 5], [1, 2, 3, 8], [1, 2, 3, 7], [1])] == [4, 2, 4, 0]
    assert tree.bytes == 5 * TOKEN + 3 * 20


def test_a_window_serves_every_beginning_until_it_is_full() -> None:
    tree = tree_of(needs_snapshot=True)
    put(tree, [1, 2, 3, 4], snapshot=window(4, size=4))
    assert [found(tree, t) for t in ([1, 2, 3, 9], [1, 2, 9], [2])] == [3, 2, 0]
    put(tree, [5, 6, 7], snapshot=window(3, size=2))
    assert [found(tree, t) for t in ([5, 6, 7, 9], [5, 6, 9])] == [3, 0]


def test_snapshots_that_nobody_wants_go_without_the_tokens_that_others_need() -> None:
    tree = tree_of(needs_snapshot=True)
    put(tree, [1, 2], snapshot=at(2, floats=100))
    put(tree, [1, 2, 3], snapshot=at(3))
    tree.evict(3 * TOKEN + 20)
    assert [found(tree, t) for t in ([1, 2, 3], [1, 2])] == [3, 0]
    tree.evict(3 * TOKEN)
    assert (len(list(tree)), tree.bytes) == (0, 0), "tokens that no snapshot makes use of are dropped, too"


def longest_usable(tree: PrefixTree, tokens: Sequence[int]) -> int:
    """All that is held of a prompt if some snapshot can be trimmed to it, else up to the end of a row that is a prefix
    of it; by a look at each node.
    """
    common = {node: common_length(node.path(), tokens) for node in tree}
    longest = max(common.values(), default=0)
    with_snapshots = [(node, node.snapshot) for node in tree if node.snapshot is not None]
    if any(common[node] == longest >= snapshot.min_length for node, snapshot in with_snapshots):
        return longest
    return max([0, *(node.end for node, _ in with_snapshots if common[node] == node.end)])


@pytest.mark.parametrize("seed", range(10))
def test_the_longest_prefix_with_a_snapshot_is_found_whatever_was_evicted_before(seed: int) -> None:
    generator = random.Random(seed)
    tree, lengths = tree_of(needs_snapshot=True), list[int]()
    for _ in range(150):
        tokens = random_tokens(generator)
        snapshot = generator.choice([at, lambda length: window(length, size=4), lambda length: window(length, size=9)])
        put(tree, tokens, snapshot=snapshot(len(tokens)))
        if generator.random() < 0.3:
            tree.evict(generator.randrange(10, 60) * TOKEN)
        asked = random_tokens(generator)
        lengths.append(found(tree, asked))
        assert lengths[-1] == longest_usable(tree, asked)
    assert len(set(lengths)) > 3


@pytest.mark.timed
def test_a_match_costs_the_same_however_many_rows_branch_off_behind_it() -> None:
    def seconds(rows: int) -> float:
        tree = tree_of(needs_snapshot=True)
        for i in range(rows):
            put(tree, [*range(30), 100 + i, 7], snapshot=at(32))
        times = []
        for length in range(20, 29):
            began = time.perf_counter()
            assert not found(tree, [*range(length), 99])
            times.append(time.perf_counter() - began)
        return min(times)

    assert seconds(4000) < 20 * seconds(20), "200 times as many rows"
