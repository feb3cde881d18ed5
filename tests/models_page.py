"""What docs/models.md says of each kind of model."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "models.md"
RUNS = ("batched", "one row at a time")
"""How those run that can."""


def text_models() -> dict[str, str]:
    """How each architecture of mlx-lm runs."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Models of mlx-vlm")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|`]+) \| ", section, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "each once"
    return {name: how.strip() for name, how in rows}


def families() -> dict[str, tuple[str, str, str]]:
    """How each family of mlx-vlm runs, its caches, and what it reads beside text."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Models of mlx-vlm")[2]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \| ([^|]+) \| ", section, re.MULTILINE)
    return {name: (how.strip(), kinds.strip(), media.strip()) for name, how, kinds, media in rows}
