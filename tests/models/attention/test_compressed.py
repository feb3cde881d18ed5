"""DeepSeek V4.1's layers give each row of a batch the logits that mlx-lm's code gives it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localai_shim.engine import kv
from tests.architectures import WINDOW, Alone, engine_of
from tests.engine.harness import Running, request
from tests.engine.turns import tokens
from tests.models.attention.by_row import Family, alone, hold_pieces, hold_slots

LENGTHS, STEPS = [3, WINDOW - 3, 2 * WINDOW + 9, 130, WINDOW + 2], 24
SOURCES: list[dict[str, Any]] = [
    {"compress_ratios": (0, 4, 4, 4)},
    {
        "compress_ratios": (4, 4, 1, 1),
        "kv_source_layer_ids": (0, 2),
        "index_source_layer_ids": (0, 1, 2),
        "candidate_source_layer_id": -1,
    },
    {
        "compress_ratios": (128, 0, 8, 8),
        "kv_source_layer_ids": (0, 2),
        "index_source_layer_ids": (0, 2, 3),
        "candidate_source_layer_id": 2,
    },
]
"""Layers that pool tokens, that choose groups, and that reduce what later ones choose from."""

families = pytest.mark.parametrize(
    "family",
    [Family("deepseek_v41", "mlx-lm", tuple(changes.items())) for changes in SOURCES],
    ids=[str(changes["compress_ratios"]) for changes in SOURCES],
)


def test_mlx_lms_own_cache_holds_one_row() -> None:
    family = Family("deepseek_v41", "mlx-lm")
    assert not kv.can_batch(family.cache(family.make(corrected=False)))


def test_what_is_compressed_changes_the_logits() -> None:
    plain = Family("deepseek_v41", "mlx-lm", (("compress_ratios", (0, 0, 0, 0)), ("kv_source_layer_ids", ())))
    with_groups = Family("deepseek_v41", "mlx-lm")
    assert not np.allclose(alone(plain, 130, 3, 4), alone(with_groups, 130, 3, 4), atol=0.1)


@families
@pytest.mark.parametrize("piece", [1, 7, WINDOW, 200])
def test_a_row_alone_gets_mlx_lms_logits_however_its_prompt_is_cut(family: Family, piece: int) -> None:
    hold_pieces(family, LENGTHS[3], STEPS, piece)


@families
def test_rows_that_join_and_leave_get_mlx_lms_logits(family: Family) -> None:
    hold_slots(family, LENGTHS, STEPS)


def test_answers_of_requests_that_come_and_go_are_those_of_mlx_lm_alone() -> None:
    engine, oracle = engine_of("deepseek_v41"), Alone("deepseek_v41")
    try:
        prompts = [tuple(tokens(length, 40 + i)) for i, length in enumerate([1, 2, 150, 33, 77, 9])]
        running = []
        for i, prompt in enumerate(prompts):
            running.append(Running(engine, request(prompt, max_tokens=10 + 9 * i)))
            running[i // 2].read(3)
        running[3].cancel()
        for i in (0, 1, 2, 4, 5):
            assert running[i].finish() == [oracle.tokens(prompts[i], 10 + 9 * i)]
        assert engine.stats().max_rows > 1
    finally:
        engine.close()
