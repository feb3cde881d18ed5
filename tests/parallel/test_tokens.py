"""A model in several processes gives the tokens that it gives in one, whatever its rows do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallel.groups import asked, folder_of, mixed, one_by_one, running

SIX_HEADS = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 96}


@pytest.mark.parametrize(
    ("kind", "processes", "changes"),
    [
        pytest.param("qwen3", 2, {}, id="dense"),
        pytest.param("llama", 3, SIX_HEADS, id="dense, three processes"),
        pytest.param("ministral3", 2, {}, id="sliding windows"),
        pytest.param("qwen3_5", 2, {}, id="recurrent layers"),
        pytest.param("qwen3_moe", 2, {}, id="experts"),
    ],
)
def test_rows_that_come_and_go_get_the_tokens_of_one_process(
    kind: str, processes: int, changes: dict[str, Any]
) -> None:
    folder = folder_of(kind, **changes)
    with running(folder) as engine:
        alone = one_by_one(engine, asked())
    with running(folder, processes) as engine:
        assert mixed(engine) == alone
        assert mixed(engine) == alone, "from what the prefix cache has now"
        assert engine.stats().cache_hits
