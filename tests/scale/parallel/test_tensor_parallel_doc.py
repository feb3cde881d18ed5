"""The page on several processes: its code runs, and its table says what the constructor refuses."""

from __future__ import annotations

import re
from pathlib import Path

from localai_shim.models.sharded import shardable
from localai_shim.options import ALONE
from tests.scale.parallel.groups import folder_of

PAGE = (Path(__file__).parents[3] / "docs/tensor-parallel.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs() -> None:
    found = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    for code in found:
        assert '"mlx-community/Qwen3-8B-4bit"' in code
        exec(code.replace('"mlx-community/Qwen3-8B-4bit"', repr(str(folder_of("qwen3")))), {})


def test_the_page_names_models_that_can_be_spread_and_options_that_cannot() -> None:
    [line] = [line for line in PAGE.splitlines() if "`Model.shard`" in line]
    named = line.partition("): ")[2].partition(" and more")[0].replace(",", "").split()
    assert len(named) > 8
    assert [name for name in named if not any(kind.startswith(name) for kind in shardable())] == []
    [row] = [line for line in PAGE.splitlines() if "`ValueError` from the constructor" in line]
    assert all(f"`{option}`" in row for option in ALONE)
