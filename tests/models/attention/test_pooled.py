"""DeepSeek V4's pooled tokens are those of one pass over the whole text, in any pieces and in any batch."""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.cache import make_prompt_cache

from localai_shim.engine import kv
from localai_shim.models.attention import pooled
from localai_shim.models.misreading_layers import batch_attention
from tests.engine.turns import tokens
from tests.vlm_architectures import make

ATOL = 1e-3
RATIOS = [[0, 4, 4, 0], [0, 128, 4, 4]]
MORE = 9  # mlx-vlm runs passes of eight tokens and less one by one, and forgets the group before each

kinds = pytest.mark.parametrize("ratios", RATIOS, ids=str)


def run(model: Any, cache: list[Any], ids: list[list[int]]) -> Any:
    return np.array(model(mx.array(ids), cache=cache).logits)


def corrected(ratios: list[int], **changes: Any) -> Any:
    model = make("deepseek_v4", compress_ratios=ratios, index_topk=4, **changes)
    assert batch_attention(model)
    return model


@functools.cache
def whole(ratios: tuple[int, ...], length: int, seed: int) -> Any:
    """`[length, vocabulary]`: mlx-vlm's logits of one pass, without its search by blocks."""
    model = make("deepseek_v4", compress_ratios=list(ratios), index_topk=4, index_block=0)
    return run(model, make_prompt_cache(model), [tokens(length + MORE, seed)])[0, :length]


def test_mlx_vlm_forgets_the_group_before_a_pass() -> None:
    model, text = make("deepseek_v4", index_block=0), tokens(40, 3)
    cache = make_prompt_cache(model)
    pieces = [run(model, cache, [text[:20]]), run(model, cache, [text[20:]])]
    in_one = run(model, make_prompt_cache(model), [text])
    assert not np.allclose(np.concatenate(pieces, axis=1), in_one, atol=0.1)


@kinds
@pytest.mark.parametrize("piece", [1, 3, 20, 130])
def test_a_text_in_pieces_is_the_text_in_one_pass(ratios: list[int], piece: int) -> None:
    model, text = corrected(ratios), tokens(140, 3)
    cache = make_prompt_cache(model)
    made = [run(model, cache, [text[at : at + piece]])[0] for at in range(0, len(text), piece)]
    assert np.allclose(np.concatenate(made), whole(tuple(ratios), len(text), 3), atol=ATOL)


@kinds
def test_rows_that_join_and_leave_are_each_as_in_one_pass(ratios: list[int]) -> None:
    """In the end one row is left, in a pool that several have shared."""
    model, lengths, steps = corrected(ratios), [2, 23, 90, 118], 24
    texts = [tokens(length + steps, 3 + i) for i, length in enumerate(lengths)]
    rows = []
    for text, length in zip(texts, lengths, strict=True):
        rows.append(make_prompt_cache(model))
        run(model, rows[-1], [text[:length]])
    batch, slots = kv.join(None, rows[:3])
    placed, at = dict(zip(range(3), slots, strict=True)), dict.fromkeys(range(3), 0)
    for step in range(steps + 4):
        if step == 4:
            batch, [placed[3]] = kv.join(batch, [rows[3]])
            at[3] = 0
        if step in (7, 12, 18):
            gone = {7: 1, 12: 0, 18: 2}[step]
            batch.leave([placed.pop(gone)])
            moved = batch.compact()
            placed = {row: moved.get(slot, slot) for row, slot in placed.items()}
        fed = [[9] for _ in range(batch.width)]
        for row, slot in placed.items():
            fed[slot] = [texts[row][lengths[row] + at[row]]]
        made = run(model, batch.advance(), fed)[:, 0]
        for row, slot in placed.items():
            expected = whole(tuple(ratios), len(texts[row]), 3 + row)[lengths[row] + at[row]]
            assert np.allclose(made[slot], expected, atol=ATOL), (step, row)
            at[row] += 1


@kinds
def test_a_row_that_is_taken_out_goes_on(ratios: list[int]) -> None:
    model, text = corrected(ratios), tokens(60, 3)
    rows = [make_prompt_cache(model), make_prompt_cache(model)]
    run(model, rows[0], [text[:50]])
    run(model, rows[1], [tokens(3, 9)])
    merged = [type(layers[0]).merge(list(layers)) for layers in zip(*rows, strict=True)]
    cache = [layer.extract(0) for layer in merged]
    assert np.allclose(run(model, cache, [text[50:]])[0], whole(tuple(ratios), 60, 3)[50:], atol=ATOL)


def test_a_long_pass_is_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = corrected(RATIOS[0]), tokens(140, 3)
    monkeypatch.setattr(pooled, "MOST_SCORES", 1000)
    made = run(model, make_prompt_cache(model), [text])[0]
    assert np.allclose(made, whole(tuple(RATIOS[0]), len(text), 3), atol=ATOL)
