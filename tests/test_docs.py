"""The snippets of the documentation run as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry import no_telemetry

pytest_plugins = ["pytester"]
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "python": ("transport.md", "offline.md", "tracing.md"),
    "python pytest": ("transport.md", "offline.md", "testing.md"),
}
"""By kind. The other snippets of testing.md have a test beside that of the plugin."""


def snippets(kind: str) -> list[str]:
    """The code of a kind in the pages."""
    text = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in PAGES[kind])
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _own_providers() -> Iterator[None]:
    """What a snippet sets up of OpenTelemetry ends with it."""
    with no_telemetry():
        yield


@pytest.mark.parametrize("snippet", snippets("python"))
def test_a_snippet_runs(snippet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    exec(compile(snippet, "snippet.py", "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize("snippet", snippets("python pytest"))
def test_a_snippet_is_a_test_that_passes(
    pytester: pytest.Pytester, snippet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    pytester.makepyfile(test_snippet=snippet)
    arguments = ("-p", "localai_shim.testing.plugin", "-p", "no:cacheprovider", "--block-openai")
    for mode in ("once", "none"):
        result = pytester.runpytest_inprocess(*arguments, f"--record-mode={mode}")
        assert result.parseoutcomes() == {"passed": 1}
