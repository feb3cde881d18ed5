"""The snippets of the documentation run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def snippets(name: str) -> list[str]:
    """The Python in a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", snippets("transport.md"))
def test_a_snippet_about_the_transport_runs(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "docs/transport.md", "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out
