"""Sparse attention by blocks gives each row the logits that it has alone, however its prompt is cut."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.phi3small import Attention

from localai_shim.models.attention.blocks import near_and_strided
from localai_shim.models.misreading_layers import batch_attention
from tests.architectures import make
from tests.models.attention.by_row import Family, families, hold_pieces

LENGTH, STEPS = 75, 20  # blocks have 8 keys, and 4 of them are chosen

both = families("mlx-lm minimax_m3_vl", "mlx-vlm minimax_m3_vl")


@both
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_a_row_alone_gets_upstreams_logits_however_its_prompt_is_cut(family: Family, piece: int) -> None:
    hold_pieces(family, LENGTH, STEPS, piece)


@pytest.mark.parametrize("piece", [1, 50, 64, 200])
def test_phi3small_gets_the_logits_of_one_pass_however_its_prompt_is_cut(piece: int) -> None:
    hold_pieces(Family("phi3small", "mlx-lm"), 201, 8, piece)


class Sparse:
    """What attention reads of its layer."""

    blocksparse_block_size, blocksparse_num_local_blocks, blocksparse_vert_stride = 4, 2, 3

    def __init__(self, head_step: int) -> None:
        self.head_step = head_step


@pytest.mark.parametrize("mask", ["none", "of a row", "of rows"])
@pytest.mark.parametrize("head_step", [0, 1])
def test_phi3small_attends_to_the_blocks_that_its_authors_describe(head_step: int, mask: str) -> None:
    """A token of block q sees block k <= q in head h if q - k < local, or if k + h + 1 is a multiple of the stride."""
    generator, rows, heads, tokens, keys = np.random.default_rng(3), 2, 4, 7, 30
    q, k, v = (generator.normal(size=(rows, heads, n, 8)).astype(np.float32) for n in (tokens, keys, keys))
    last = np.array([keys - 1, keys - 1 if mask != "of rows" else 21])
    positions = last[:, None] - tokens + 1 + np.arange(tokens)
    seen = np.arange(keys) <= positions[..., None]
    given = {"none": None, "of a row": mx.array(seen[0]), "of rows": mx.array(seen[:, None])}[mask]
    attend = near_and_strided(Attention._block_sparse_attention)
    made = np.array(attend(Sparse(head_step), *map(mx.array, (q, k, v)), 0.5, given))
    for row, head, token in np.ndindex(rows, heads, tokens):
        own = positions[row, token]
        visible = [
            key for key in range(own + 1) if own // 4 - key // 4 < 2 or (key // 4 + head * head_step + 1) % 3 == 0
        ]
        scores = np.exp([0.5 * q[row, head, token] @ k[row, head, key] for key in visible])
        assert np.allclose(made[row, head, token], scores / scores.sum() @ v[row, head, visible], atol=1e-5)


def test_mlx_lms_phi3small_attends_to_later_tokens() -> None:
    def first_logits(model: Any, last: int) -> Any:
        return np.array(model(mx.array([[5, 7, last]]))[:, 0, :1000])

    model = make("phi3small")
    assert not np.allclose(first_logits(model, 9), first_logits(model, 400), atol=1e-3)
    assert batch_attention(model)
    assert np.allclose(first_logits(model, 9), first_logits(model, 400), atol=1e-5)
