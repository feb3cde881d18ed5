"""docs/testing.md: every snippet is a test module that passes, and every name is there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from localai_shim import testing
from localai_shim.testing import factory  # noqa: F401 (what a suite imports first is dropped with it)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = [
    *re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL),
    *(snippet for snippet in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "local_openai" in snippet),
]


def test_every_snippet_is_run_and_passes(
    sees_already: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for number, snippet in enumerate(SNIPPETS):
        (pytester.path / f"test_snippet_{number}.py").write_text(snippet, encoding="utf-8")
    result = pytester.runpytest_inprocess(
        "-p", "localai_shim.testing.plugin", "-p", "anyio", "--strict-markers", "-W", "error"
    )
    result.assert_outcomes(
        passed=sum(len(re.findall(r"^ *(?:async )?def test_", snippet, re.M)) for snippet in SNIPPETS)
    )
    assert len(SNIPPETS) >= 12


@pytest.mark.parametrize("name", sorted(set(testing.__all__) & set(re.findall(r"\w+", TEXT))))
def test_a_name_in_the_text_is_exported(name: str) -> None:
    assert hasattr(testing, name)


@pytest.mark.parametrize(
    "name",
    ["tool_call", "reasoning", "refusal", "content_filter", "truncated", "timed", "cut", "hang", "timeout", "api_error",
     "rate_limit", "server_error", "context_length_exceeded", "scripted", "LocalOpenAITestCase", "UnexpectedRequest"],
)  # fmt: skip
def test_what_a_script_is_written_with_is_in_the_text(name: str) -> None:
    assert re.search(rf"\b{name}\b", TEXT)


def test_the_example_s_suite_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    example = ROOT / "examples/pytest_project"
    shutil.copytree(example, pytester.path, dirs_exist_ok=True)
    result = pytester.runpytest_inprocess("-p", "localai_shim.testing.plugin", "-p", "anyio", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes(passed=13)
