"""A model in several processes gives the tokens that it gives in one, whatever its rows do meanwhile."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.engine.guessing import Oracle, key, preempting, speculate
from tests.saved_configs import save_again
from tests.scale.parallel.groups import asked, folder_of, mixed, one_by_one, running

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "layer_types": ("sliding_attention", "full_attention"),
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "linear_num_key_heads": 6,
    "linear_num_value_heads": 12,
    "vocab_size": 402,
}
"""They divide by two and by three."""


@functools.cache
def tokens_of_one_process(kind: str) -> list[list[int]]:
    with running(folder_of(kind, **SIZES)) as engine:
        return one_by_one(engine, asked())


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("qwen3", id="dense"),
        pytest.param("ministral3", id="sliding windows"),
        pytest.param("qwen3_5", id="recurrent layers"),
        pytest.param("qwen3_moe", id="experts"),
    ],
)
def test_rows_that_come_and_go_get_the_tokens_of_one_process(
    kind: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, drafts = tokens_of_one_process(kind), Oracle(0.7, {})
    speculate(monkeypatch, drafts)
    with running(folder_of(kind, **SIZES), processes) as engine:
        assert mixed(engine) == alone
        drafts.known = {key(made): tokens for made, tokens in zip(asked(), alone, strict=True)}
        with preempting(engine):
            assert mixed(engine) == alone, "with drafts that are right and wrong, from what the prefix cache has"
        stats = engine.stats()
        assert stats.cache_hits and stats.preempted
        assert 0 < stats.drafts["oracle"].accepted < stats.drafts["oracle"].drafted


def test_a_checkpoint_that_transformers_5_saved_gives_the_tokens_of_one_of_before(tmp_path: Path) -> None:
    folder = folder_of("qwen3_moe", **SIZES, rope_theta=300.0, rope_parameters=None)
    again = save_again(folder, tmp_path / "new")
    with running(folder) as engine:
        alone = one_by_one(engine, asked())
    with running(again, 2) as engine:
        assert one_by_one(engine, asked()) == alone
