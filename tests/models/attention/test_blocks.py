"""MiniMax M3's choice of blocks gives each row of a batch the logits that upstream's code gives it alone."""

from __future__ import annotations

import pytest

from tests.models.attention.by_row import Family, families, hold_pieces, hold_several, hold_slots

LENGTHS = [3, 37, 40, 90, 75]  # blocks have 8 keys, and 4 of them are chosen
STEPS = 20

both = families("mlx-lm minimax_m3_vl", "mlx-vlm minimax_m3_vl")


@both
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_a_row_alone_gets_upstreams_logits_however_its_prompt_is_cut(family: Family, piece: int) -> None:
    hold_pieces(family, LENGTHS[-1], STEPS, piece)


@both
def test_rows_in_slots_get_upstreams_logits(family: Family) -> None:
    hold_slots(family, LENGTHS, STEPS)


@both
def test_rows_in_slots_take_several_tokens_and_give_some_back(family: Family) -> None:
    hold_several(family, LENGTHS, STEPS)
