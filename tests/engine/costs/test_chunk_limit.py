"""Limits of a pass: halved after a GPU stopped one."""

from __future__ import annotations

import pytest

from localai_shim.engine.costs.chunk_limit import MIN_LIMIT_TOKENS, ChunkLimit, Scores


def test_halving_lasts_and_ends_at_the_smallest_pass() -> None:
    chunks, sizes = ChunkLimit(2048), []
    while chunks.halve():
        sizes.append(chunks.tokens())
    assert sizes == [1024, 512, 256, 128, 64, MIN_LIMIT_TOKENS]
    assert not chunks.halve() and chunks.tokens() == MIN_LIMIT_TOKENS


def test_a_smaller_limit_of_the_caller_stays() -> None:
    chunks = ChunkLimit(16)
    assert not chunks.halve() and chunks.tokens() == 16


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("heads", [8, 32])
def test_long_contexts_bound_queries_times_keys_times_heads(heads: int, share: float) -> None:
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**30, heads)])
    if share < 1:
        chunks.halve()
    sizes = [chunks.tokens(start) for start in range(0, 120_000, 1000)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 2048 * share and sizes[-1] < 2048 * share
    for start, size in zip(range(0, 120_000, 1000), sizes, strict=True):
        assert size % 32 == 0
        assert size * (start + size) * heads <= share * 2**30
        if size < 2048 * share:
            assert (size + 32) * (start + size + 32) * heads > share * 2**30, "no smaller than it has to be"


def test_a_window_bounds_the_keys() -> None:
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**26, 32, window=512)])
    assert chunks.tokens(512) == chunks.tokens(100_000) == 1184
    assert 1184 * (512 + 1184) * 32 <= 2**26 < 1216 * (512 + 1216) * 32


def test_the_smallest_pass_runs_however_long_the_context_is_and_a_small_limit_stays_odd() -> None:
    assert ChunkLimit(2048, scores=[Scores(lambda: 1000, 32)]).tokens(10**6) == MIN_LIMIT_TOKENS
    assert ChunkLimit(50).tokens() == 50 == ChunkLimit(50, scores=[Scores(lambda: 2**20, 1)]).tokens(1000)


def test_the_narrowest_of_several_bounds_holds_and_follows_what_changes() -> None:
    left = [2**24]
    chunks = ChunkLimit(2048, scores=[Scores(lambda: 2**30, 32), Scores(lambda: left[0], 64)])
    assert chunks.tokens(1000) == 192
    left[0] = 2**40
    assert chunks.tokens(1000) == 2048
