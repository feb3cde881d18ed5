"""Unlimited-OCR's rows attend to their prompts and their last tokens, whatever joins and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.unlimited_ocr.language import RingSlidingKVCache

from localai_shim.engine import kv
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.attention.prompt_rings import PromptRing
from tests.engine.harness import Running, request
from tests.engine.turns import tokens
from tests.vlm_architectures import Alone, engine_of, text_model

FAMILY, WINDOW = "unlimited_ocr", 12
LENGTHS = [1, 2, 40, 9, 25, 41]


@pytest.fixture(params=[1024, 8], ids=["whole prompts", "pieces"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine[Any]]:
    made = engine_of(FAMILY, EngineOptions(prefill_chunk=request.param))
    yield made
    made.close()


def test_mlx_vlms_cache_holds_one_row() -> None:
    assert not kv.can_batch([RingSlidingKVCache(WINDOW)])
    assert {type(layer) for layer in text_model(FAMILY).new_cache()} == {PromptRing}


def test_answers_longer_than_the_ring_are_those_of_mlx_vlm_alone(engine: Engine[Any]) -> None:
    oracle, prompts = Alone(FAMILY), [tuple(tokens(length, 40 + i)) for i, length in enumerate(LENGTHS)]
    running = []
    for i, prompt in enumerate(prompts):
        running.append(Running(engine, request(prompt, max_tokens=3 * WINDOW + 9 * i)))
        running[i // 2].read(3)
    running[3].cancel()
    for i in (0, 1, 2, 4, 5):
        assert running[i].finish() == [oracle.tokens(prompts[i], 3 * WINDOW + 9 * i)]
    assert engine.stats().max_rows > 1


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_hold_what_mlx_vlms_cache_holds(rows: int) -> None:
    """Compared as sets: the order of a ring does not matter to attention."""
    lengths, steps = [5, 17, 30][:rows], 30
    own = [PromptRing(WINDOW) for _ in lengths]
    theirs = [RingSlidingKVCache(WINDOW) for _ in lengths]

    def pairs(first: int, count: int) -> tuple[mx.array, mx.array]:
        keys = mx.broadcast_to(mx.arange(first, first + count, dtype=mx.float32)[None, None, :, None], (1, 2, count, 4))
        return keys, keys + 0.5

    for length, mine, other in zip(lengths, own, theirs, strict=True):
        mine.update_and_fetch(*pairs(0, length))
        other.update_and_fetch(*pairs(0, length))
        mine.prompts = [length]
    batch = PromptRing.merge(own) if rows > 1 else own[0]
    for step in range(steps):
        new = [pairs(length + step, 1) for length in lengths]
        mask = batch.make_mask(1)
        keys, values = batch.update_and_fetch(*(mx.concatenate(list(arrays)) for arrays in zip(*new, strict=True)))
        seen = np.ones((rows, keys.shape[2]), bool) if mask is None else np.array(mask)[:, 0, 0]
        for row, other in enumerate(theirs):
            expected = np.array(other.update_and_fetch(*new[row])[0])[0, 0, :, 0]
            assert sorted(np.array(keys)[row, 0, seen[row], 0]) == sorted(expected)
            assert np.allclose(np.array(values)[row, 0, seen[row], 0], np.array(keys)[row, 0, seen[row], 0] + 0.5)


def test_a_row_that_is_taken_out_has_what_it_had() -> None:
    rings = [PromptRing(WINDOW) for _ in range(2)]
    for ring, length in zip(rings, (3, 40), strict=True):
        ring.update_and_fetch(mx.ones((1, 2, length, 4)), mx.ones((1, 2, length, 4)))
    row = PromptRing.merge(rings).extract(0)
    assert (row.offset, row.counts, row.arrays[0].shape) == (3, [3], (1, 2, 3, 4))
