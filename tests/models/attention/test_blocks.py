"""MiniMax M3's choice of blocks gives each row of a batch the logits that upstream's code gives it alone."""

from __future__ import annotations

import pytest

from tests.models.attention.by_row import Family, families, hold_pieces

LENGTH, STEPS = 75, 20  # blocks have 8 keys, and 4 of them are chosen

both = families("mlx-lm minimax_m3_vl", "mlx-vlm minimax_m3_vl")


@both
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_a_row_alone_gets_upstreams_logits_however_its_prompt_is_cut(family: Family, piece: int) -> None:
    hold_pieces(family, LENGTH, STEPS, piece)
