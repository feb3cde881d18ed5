"""Rows in slots of a corrected model get the logits that upstream's code gives each row alone."""

from __future__ import annotations

from tests.architectures import WINDOW as CHUNK
from tests.models.attention.by_row import Family, families, hold_several, hold_slots

CHUNKED = [3, CHUNK - 2, CHUNK, CHUNK + 5, 2 * CHUNK + 9], CHUNK + 4
"""Lengths of rows, and steps in which each begins a chunk."""
SPARSE = [3, 63, 64, 150, 250], 20
"""Phi-3-small's blocks have 64 keys, and the last two are read."""
OTHERS = [3, 37, 40, 90, 75], 20
"""MiniMax M3's blocks have 8 keys, and 4 of them are chosen."""

ROWS = {"llama4": CHUNKED, "phi3small": SPARSE}

corrected = families(
    "mlx-lm minimax_m3_vl",
    "mlx-vlm minimax_m3_vl",
    "mlx-lm llama4",
    "mlx-vlm llama4",
    "mlx-lm afm7",
    "mlx-vlm limite",
    "mlx-lm gpt_bigcode",
    "mlx-lm phi3small",
)


@corrected
def test_rows_that_join_and_leave_get_upstreams_logits(family: Family) -> None:
    hold_slots(family, *ROWS.get(family.name, OTHERS))


@families("mlx-vlm z1t", "mlx-vlm inkling", "mlx-vlm qwen4_exp")
def test_rows_with_states_or_merged_caches_that_join_and_leave_get_upstreams_logits(family: Family) -> None:
    hold_slots(family, *OTHERS)


@corrected
def test_rows_take_several_tokens_and_give_some_back(family: Family) -> None:
    hold_several(family, *ROWS.get(family.name, OTHERS))
