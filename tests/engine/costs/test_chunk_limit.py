"""Limits of a pass: halved after a GPU stopped one."""

from __future__ import annotations

from localai_shim.engine.costs.chunk_limit import MIN_LIMIT_TOKENS, ChunkLimit


def test_halving_lasts_and_ends_at_the_smallest_pass() -> None:
    chunks, sizes = ChunkLimit(2048), []
    while chunks.halve():
        sizes.append(chunks.tokens())
    assert sizes == [1024, 512, 256, 128, 64, MIN_LIMIT_TOKENS]
    assert not chunks.halve() and chunks.tokens() == MIN_LIMIT_TOKENS


def test_a_smaller_limit_of_the_caller_stays() -> None:
    chunks = ChunkLimit(16)
    assert not chunks.halve() and chunks.tokens() == 16
