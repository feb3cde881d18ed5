"""Tables of docs/model-architectures.md: how each kind of model runs."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "model-architectures.md"
RUNS = ("batched", "one request at a time")
"""Families that run, and how."""


def text_models() -> dict[str, str]:
    """Architectures of mlx-lm, and how each runs."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Models of mlx-vlm")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|`]+) \| ", section, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "each once"
    return {name: how.strip() for name, how in rows}


def compared_with() -> dict[str, str]:
    """Architectures of mlx-lm, and with whose logits each is compared."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Models of mlx-vlm")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| [^|`]+ \| ([^|]+) \| ", section, re.MULTILINE))


def families() -> dict[str, tuple[str, str, str]]:
    """Families of mlx-vlm: how each runs, its caches, and what it reads beside text."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Models of mlx-vlm")[2]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \| ([^|]+) \| ", section, re.MULTILINE)
    return {name: (how.strip(), kinds.strip(), media.strip()) for name, how, kinds, media in rows}
