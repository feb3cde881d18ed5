"""Decoders that took one position for all rows give each row the logits that upstream's code gives it alone."""

from __future__ import annotations

from tests.models.attention.by_row import Family, families, hold_several, hold_slots

LENGTHS, STEPS = [3, 37, 40, 90, 75], 20

both = families("mlx-lm afm7", "mlx-lm gpt_bigcode")


@both
def test_rows_in_slots_get_upstreams_logits(family: Family) -> None:
    hold_slots(family, LENGTHS, STEPS)


@both
def test_rows_in_slots_take_several_tokens_and_give_some_back(family: Family) -> None:
    hold_several(family, LENGTHS, STEPS)
