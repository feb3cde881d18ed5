"""The table of families in docs/tool-formats.md."""

from __future__ import annotations

import re
from pathlib import Path

from localai_shim.formats.table import FORMATS

DOCUMENT = Path(__file__).parents[2] / "docs" / "tool-formats.md"


def family_names() -> list[str]:
    """Names of all families that the package knows."""
    return list(FORMATS)


def documented() -> list[str]:
    """The families that the table has a row for."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## How models write calls")[2]
    return re.findall(r"^\| [^`|]+ \| `(\w+)` \| .+ \| .*\| .*\|$", section, re.MULTILINE)


def test_each_family_has_one_row() -> None:
    assert sorted(documented()) == sorted(family_names())
