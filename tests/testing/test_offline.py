"""The plugin's `patch_openai` and cassettes, as a test suite uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import localai_shim

pytest_plugins = ["pytester"]
ARGUMENTS = ("-p", "localai_shim.testing.plugin", "-p", "no:cacheprovider")
APP = """
import openai

def ask(text):
    messages = [{"role": "user", "content": text}]
    return openai.OpenAI().chat.completions.create(model="m", messages=messages).choices[0].message.content

async def ask_async(text):
    return (await openai.AsyncOpenAI().responses.create(model="m", input=text)).output_text
"""
CONFTEST = """
import pytest
from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine

@pytest.fixture(scope="session")
def cassette_source():
    with ScriptedEngine(lambda *_: "Hello") as engine, LocalOpenAI(engine=engine) as client:
        yield client
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose code makes its own clients."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(localai_shim.__file__).parents[1]))
    monkeypatch.syspath_prepend(pytester.path)
    pytester.makepyfile(app=APP)
    pytester.makeconftest(CONFTEST)
    return pytester


def run(suite: pytest.Pytester, test: str, *arguments: str, **expected: int) -> str:
    """Run a file of tests; what is shown."""
    suite.makepyfile(test_it=test)
    result = suite.runpytest_inprocess(*ARGUMENTS, *arguments)
    assert result.parseoutcomes() == expected
    return str(result.stdout)


MARKED = """
import app, asyncio, pytest

@pytest.mark.cassette
@pytest.mark.parametrize("text", ["Hi", "a/b c"])
def test_ask(text):
    assert app.ask(text) == "Hello"

@pytest.mark.cassette("shared.jsonl")
class TestAsync:
    def test_ask(self):
        assert asyncio.run(app.ask_async("Hi")) == "Hello"
"""


def test_a_marked_test_records_and_plays(suite: pytest.Pytester) -> None:
    assert "There is no such file" in run(suite, MARKED, failed=3)
    run(suite, MARKED, "--record-mode=once", passed=3)
    names = {str(path.relative_to(suite.path / "cassettes")) for path in (suite.path / "cassettes").rglob("*.jsonl")}
    assert names == {"test_it/test_ask-Hi-.jsonl", "test_it/test_ask-a-b-c-.jsonl", "shared.jsonl"}
    run(suite, MARKED, passed=3)
    run(suite, MARKED, "--record-mode=once", "--block-openai", passed=3)


def test_a_miss_fails_the_test_also_when_it_is_swallowed(suite: pytest.Pytester) -> None:
    test = """
import app, contextlib, pytest

@pytest.mark.cassette("c.jsonl")
def test_swallows():
    with contextlib.suppress(Exception):
        app.ask("{}")
"""
    run(suite, test.format("Hi"), "--record-mode=once", passed=1)
    shown = run(suite, test.format("Ho"), failed=1)
    assert "messages[0].content: recorded 'Hi', now 'Ho'" in shown and "--record-mode=new_episodes" in shown
    run(suite, test.format("Ho"), "--record-mode=new_episodes", passed=1)
    run(suite, test.format("Hi"), passed=1)


def test_the_clients_of_a_cassette_are_fixtures(suite: pytest.Pytester) -> None:
    test = """
import asyncio

def test_both(cassette_openai, async_cassette_openai):
    assert cassette_openai.responses.create(model="m", input="Hi").output_text == "Hello"
    assert asyncio.run(async_cassette_openai.responses.create(model="m", input="Ho")).output_text == "Hello"
"""
    run(suite, test, "--record-mode=rewrite", passed=1)
    run(suite, test, passed=1)


def test_a_source_that_the_project_made_is_asked_itself_although_clients_are_patched(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
import openai, pytest
from localai_shim import http_client, sdk
from localai_shim.testing import ScriptedEngine

@pytest.fixture(scope="session")
def cassette_source():
    with ScriptedEngine(lambda *_: "Hello") as engine, http_client(engine=engine) as http:
        yield openai.OpenAI(api_key="x", http_client=sdk.httpx.Client(transport=http._transport))
"""
    )
    run(suite, MARKED, "--record-mode=all", passed=3)


def test_patch_openai_answers_as_local_openai(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
import pytest
from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine

@pytest.fixture
def local_openai():
    with ScriptedEngine(["One", "Two"]) as engine, LocalOpenAI(engine=engine) as client:
        yield client
"""
    )
    test = """
import app, openai, pytest

def test_patched(patch_openai, local_openai):
    assert patch_openai is local_openai
    assert app.ask("?") == "One"
    assert openai.completions.create(model="m", prompt="?").choices[0].text == "Two"

def test_not_patched():
    with pytest.raises(openai.OpenAIError, match="OPENAI_API_KEY"):
        app.ask("?")
"""
    run(suite, test, passed=2)


def test_no_placeholder_is_left_when_a_variable_is_put_back_after_the_patch(suite: pytest.Pytester) -> None:
    test = """
import os

def test_monkeypatch_is_undone_last(monkeypatch, patch_openai):
    assert os.environ["OPENAI_API_KEY"] == "local"
    monkeypatch.setenv("OPENAI_API_KEY", "mine")

def test_not_patched():
    assert "OPENAI_API_KEY" not in os.environ
"""
    run(suite, test, passed=2)


@pytest.mark.exhaustive
def test_under_xdist(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.makepyfile(test_it=MARKED)
    run(suite, MARKED, "--record-mode=once", passed=3)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    suite.runpytest_subprocess(*ARGUMENTS, "-p", "xdist", "-n1", "-k", "Async").assert_outcomes(passed=1)


def test_beside_a_plugin_that_has_the_option_for_modes(suite: pytest.Pytester) -> None:
    suite.makepyfile(pytest_recording="def pytest_addoption(parser):\n    parser.addoption('--record-mode')\n")
    run(suite, MARKED, "-p", "pytest_recording", "--record-mode=once", passed=3)
    run(suite, MARKED, "-p", "pytest_recording", passed=3)


def test_nothing_is_imported_that_no_test_asks_for(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    suite.makeconftest("")
    heavy = ("mlx", "mlx_lm", "transformers", "numpy")
    test = f"""
import sys

def test_it():
    assert not [name for name in {heavy} if name in sys.modules]

def test_patched(patch_openai):
    test_it()
"""
    engine = """
import pytest
@pytest.fixture
def local_openai():
    from localai_shim import LocalOpenAI
    from localai_shim.testing import ScriptedEngine
    with ScriptedEngine(["One"]) as engine, LocalOpenAI(engine=engine) as client:
        yield client
"""
    suite.makepyfile(test_it=engine + test)
    result: Any = suite.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(passed=2)
