"""Mends of mlx-vlm's families; `make test-reference` compares their logits with transformers'."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.models.minimax_m3_vl import language as minimax
from mlx_vlm.models.muse_glimmer.config import VisionConfig
from mlx_vlm.models.muse_glimmer.vision import PatchEmbedder

from localai_shim.models.faults.hy4 import limit_experts
from localai_shim.models.faults.vision import FAULTS
from tests import vlm_architectures
from tests.engine.turns import tokens


def logits(model: Any, prompt: list[int], *pieces: int) -> np.ndarray:
    """Logits of a prompt's last token, of passes of these numbers of tokens and one of the rest."""
    cache, start = make_prompt_cache(model), 0
    for count in (*pieces, len(prompt) - sum(pieces)):
        made = model(mx.array([prompt[start : start + count]]), cache=cache).logits
        start += count
    return np.array(made[0, -1])


def test_hy4_answers_alike_however_its_prompt_is_cut() -> None:
    model, prompt = vlm_architectures.make("hy_v4"), tokens(60, 3)
    whole = logits(model, prompt)
    for pieces in ((30,), (20, 20, 1), (45, 1, 1, 1)):
        np.testing.assert_allclose(logits(model, prompt, *pieces), whole, atol=1e-3)


def test_hy4s_experts_are_limited() -> None:
    model, prompt = vlm_architectures.make("hy_v4"), tokens(20, 3)
    free = logits(model, prompt)
    limit_experts(model, {"swiglu_limit": 1e6})
    np.testing.assert_allclose(logits(model, prompt), free, atol=1e-4)
    limit_experts(model, {"swiglu_limit": 1e-3})
    assert not np.allclose(logits(model, prompt), free, atol=1e-4)


def test_heads_of_minimax_choose_their_own_blocks() -> None:
    attention: Any = next(
        layer
        for layer in vlm_architectures.make("minimax_m3_vl").modules()
        if isinstance(layer, minimax.MiniMaxAttention) and layer.has_sparse_index
    )
    size, most, heads = attention.sparse_block_size, attention.sparse_topk_blocks, attention.index_heads
    queries = mx.random.normal((1, heads, 3, attention.index_dim), key=mx.random.key(1))
    keys = mx.random.normal((1, 1, 9 * size, attention.index_dim), key=mx.random.key(2))
    start = 9 * size - 3
    kept = np.array(attention.indexer.select_blocks(queries, keys, start))
    group = attention.num_attention_heads // heads
    assert heads > 1 and kept.shape == (1, attention.num_attention_heads, 3, 9 * size)
    scores = np.array(queries)[0] @ np.array(keys)[0, 0].T
    for head in range(attention.num_attention_heads):
        for query in range(3):
            seen = np.arange(9 * size) <= start + query
            best = np.where(seen, scores[head // group, query], -np.inf).reshape(9, size).max(-1)
            best[-1] = np.inf  # its own block
            chosen = np.isin(np.arange(9 * size) // size, np.argsort(-best)[:most])
            assert (kept[0, head, query] == (chosen & seen)).all()


def test_muse_glimmers_positions_have_rows_and_columns_exchanged() -> None:
    config = VisionConfig(hidden_size=8, pos_emb_height=4, pos_emb_width=4)
    layer = PatchEmbedder(config)
    expected = layer._position_embeddings([[1, 3, 2]])
    assert not mx.allclose(layer._position_embeddings([[1, 2, 3]]), expected)
    for fault in FAULTS["mlx_vlm.models.muse_glimmer.muse_glimmer"]:
        fault.mend(layer, {})
    assert mx.array_equal(layer._position_embeddings([[1, 2, 3]]), expected)
