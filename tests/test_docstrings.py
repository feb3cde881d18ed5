"""Docstrings begin with their noun or verb; those of what a user meets have examples, which run as they stand."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import localai_shim
from localai_shim import testing
from localai_shim.client.batch_lines import answer_lines
from localai_shim.client.local import LocalOpenAI
from localai_shim.stats import EngineStats
from localai_shim.testing import offline, plugin
from localai_shim.testing.clients import Scripted

pytest_plugins = ["pytester"]
MET_IN_TRACEBACKS = {"BackendMissingError"}  # its message says what to do
INNER = {"local_openai_stage", "cassette_engine"}
"""Fixtures that others are made of."""
PACKAGE = Path(localai_shim.__file__).parent
ROUNDABOUT = re.compile(r"(What|Whether|As|Where|Who|Whom|Whose|That|How|If)\b")
"""First words behind which a docstring says only in part what it is about."""


def docstrings(path: Path) -> Iterator[ast.Constant]:
    """The strings that stand alone: at the beginning of modules, classes and functions, and below fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def test_a_docstring_begins_with_its_noun_or_verb() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{text.lineno}: {str(text.value).splitlines()[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in docstrings(path)
        if ROUNDABOUT.match(str(text.value).lstrip())
    ]
    assert not found, "\n".join(found)


def is_documented(found: object) -> bool:
    return isinstance(found, type) or inspect.isroutine(found)


PUBLIC: dict[str, Any] = {
    **{name: getattr(localai_shim, name) for name in localai_shim.__all__ if name not in MET_IN_TRACEBACKS},
    **{f"testing.{name}": getattr(testing, name) for name in testing.__all__},
    **{f"client.{name}": found for name, found in vars(Scripted).items() if inspect.isfunction(found)},
    "client.stats": LocalOpenAI.stats,
    "EngineStats": EngineStats,
    "answer_lines": answer_lines,
}
EXAMPLES = {name: found for name, found in PUBLIC.items() if is_documented(found)}
FIXTURES = {
    name: found
    for module in (plugin, offline)
    for name, found in vars(module).items()
    if isinstance(found, pytest.FixtureDef | type(plugin.local_openai)) and name not in INNER
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where examples write their files
    [example] = doctest.DocTestFinder(recurse=False).find(EXAMPLES[name], name, globs={})
    assert example.examples, "its docstring has no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)


def test_what_is_no_function_and_no_class_is_a_type_of_what_these_take() -> None:
    assert {name for name in PUBLIC if name not in EXAMPLES} == {"testing.Decide", "testing.Piece", "testing.ReplyLike"}


def test_the_examples_of_fixtures_are_tests_that_pass(
    sees_already: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = 0
    for name, fixture in FIXTURES.items():
        _, _, example = (inspect.getdoc(fixture) or "").partition("\nExample:\n")
        tests += len(re.findall(r"^(?: +)?(?:async )?def test_", example, re.MULTILINE))
        code = f"import openai, pytest\nfrom localai_shim import LocalOpenAI\n{textwrap.dedent(example)}"
        assert re.search(rf"[( ]{name}[,()]", code), f"{name} has no example"
        (pytester.path / f"test_{name}.py").write_text(code)
    options = ("-p", "localai_shim.testing.plugin", "-p", "anyio", "--strict-markers", "-k", "not trio", "-W", "error")
    result = pytester.runpytest_inprocess(*options, "--record-mode=once")
    result.assert_outcomes(passed=tests)
    assert tests == len(FIXTURES) - 1  # `cassette_source` is overridden, and no test
