"""The plugin's `patch_openai` and cassettes, as a test suite uses them."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import localai_shim
from localai_shim.replacing.clients import unpatched
from localai_shim.replacing.network import NetworkBlockedError, refusing
from tests.tiny import tiny

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
    assert names == {"test_it/test_ask-Hi-.jsonl", "test_it/test_ask-a-b-c--e3f9b1cb.jsonl", "shared.jsonl"}
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


def test_tests_whose_ids_differ_in_characters_that_no_file_name_has_do_not_share_a_file(suite: pytest.Pytester) -> None:
    test = """
import app, pytest

@pytest.mark.cassette
@pytest.mark.parametrize("text", ["a/b", "a b", "a-b", "a", "x" * 300])
def test_ask(text):
    assert app.ask(text) == "Hello"
"""
    run(suite, test, "--record-mode=once", passed=5)
    names = sorted(path.name for path in (suite.path / "cassettes" / "test_it").iterdir())
    assert len(names) == 5 and {"test_ask-a-.jsonl", "test_ask-a-b-.jsonl"} < set(names)
    run(suite, test, passed=5)


def test_a_miss_that_is_swallowed_is_shown_where_the_test_fails_by_itself(suite: pytest.Pytester) -> None:
    test = """
import app, contextlib, pytest

def swallow():
    with contextlib.suppress(Exception):
        app.ask("Hi")

@pytest.fixture
def before(patch_openai):
    swallow()
    raise ValueError("the fixture fails")

@pytest.mark.cassette("c.jsonl")
def test_call():
    swallow()
    assert 1 == 2

@pytest.mark.cassette("c.jsonl")
def test_setup(before):
    pass

@pytest.mark.cassette("c.jsonl")
def test_teardown(after):
    pass

@pytest.fixture
def after(patch_openai):
    yield
    swallow()
"""
    shown = run(suite, test, failed=1, passed=1, errors=2)
    assert "assert 1 == 2" in shown and "the fixture fails" in shown
    told = shown.partition("short test summary info")[0]  # which repeats them where CI is set
    assert told.count("c.jsonl has no answer to this request") == 3


def test_the_hint_for_a_file_that_is_not_there_is_the_mode_that_makes_it(suite: pytest.Pytester) -> None:
    shown = run(suite, MARKED, failed=3)
    assert shown.count("--record-mode=once records it.") >= 3 and "new_episodes" not in shown


def test_what_a_test_recorded_is_kept_only_if_it_passes(suite: pytest.Pytester) -> None:
    test = """
import app, pytest

@pytest.mark.cassette("c.jsonl")
def test_ask(patch_openai):
    assert app.ask("Hi") == "Hello"
    assert {passes}

@pytest.mark.cassette("d.jsonl")
def test_late(patch_openai, late):
    pass

@pytest.fixture
def late(patch_openai):
    yield
    app.ask("Ho")
    assert {passes}
"""
    run(suite, test.format(passes=False), "--record-mode=once", failed=1, passed=1, errors=1)
    assert not list(suite.path.rglob("*.jsonl"))
    run(suite, test.format(passes=True), "--record-mode=once", passed=2)
    recorded = {path.name: path.read_text() for path in suite.path.rglob("*.jsonl")}
    assert recorded.keys() == {"c.jsonl", "d.jsonl"}
    run(suite, test.format(passes=False), "--record-mode=rewrite", failed=1, passed=1, errors=1)
    assert {path.name: path.read_text() for path in suite.path.rglob("*.jsonl")} == recorded


NORMALIZED = """
import app, pytest, re, uuid

@pytest.fixture(scope="session")
def cassette_normalize():
    return {{r"\\d{{4}}-\\d\\d-\\d\\d": "<date>"}}

@pytest.mark.cassette
def test_date():
    assert app.ask("Today is {date}.") == "Hello"

@pytest.mark.cassette(normalize=lambda text: re.sub("/tmp/[^ ]+", "<path>", text))
def test_both(tmp_path):
    assert app.ask(f"{date}: look into /tmp/{{uuid.uuid4()}}") == "Hello"
"""


def test_what_differs_from_run_to_run_is_normalized_by_a_fixture_and_by_the_marker(suite: pytest.Pytester) -> None:
    run(suite, NORMALIZED.format(date="2026-11-23"), "--record-mode=once", passed=2)
    files = {path.name: path.read_text() for path in suite.path.rglob("*.jsonl")}
    assert "Today is <date>." in files["test_date.jsonl"] and "<date>: look into <path>" in files["test_both.jsonl"]
    run(suite, NORMALIZED.format(date="2027-01-01"), passed=2)
    shown = run(suite, NORMALIZED.format(date="tomorrow"), failed=2)
    assert "recorded 'Today is <date>.', now 'Today is tomorrow.'" in shown


def test_a_marker_with_something_that_it_does_not_know_is_an_error(suite: pytest.Pytester) -> None:
    test = "import pytest\n@pytest.mark.cassette(file='c.jsonl')\ndef test_it():\n    pass\n"
    assert "takes a name and `normalize`" in run(suite, test, errors=1)


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
from localai_shim import http_client
from localai_shim.sdk import private as sdk
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


# -- recorded from the real service ---------------------------------------------------------------------------------

CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-4o-2024-08-06",
    "system_fingerprint": "fp_1",
}


class Service(BaseHTTPRequestHandler):
    """Answers as OpenAI does, with a stream of two chunks."""

    asked: ClassVar[list[tuple[str, str | None, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body["messages"][0]["content"]))
        deltas = [{"delta": {"content": "Bonjour"}}, {"delta": {}, "finish_reason": "stop"}]
        chunks = [{**CHUNK, "choices": [{"index": 0, **delta}]} for delta in deltas]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


FROM_SERVICE = """
import app, pytest

@pytest.mark.cassette
def test_ask():
    assert app.ask("Hello!") == "Bonjour"
"""


def test_an_option_records_the_real_service_with_the_real_key(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makeconftest("")
    Service.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever).start()
        with contextlib.ExitStack() as at_end, monkeypatch.context() as key:
            at_end.callback(server.shutdown)
            key.setenv("OPENAI_API_KEY", "sk-real")
            key.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
            run(suite, FROM_SERVICE, "--record-mode=once", "--record-from=openai", "--block-openai", passed=1)
    assert Service.asked == [("/v1/chat/completions", "Bearer sk-real", "Hello!")]
    run(suite, FROM_SERVICE, "--block-openai", passed=1)
    [written] = [path.read_text() for path in suite.path.rglob("*.jsonl")]
    assert "Bonjour" in written and "gpt-4o-2024-08-06" in written and "sk-real" not in written


def test_recording_the_real_service_needs_a_key(suite: pytest.Pytester) -> None:
    suite.makeconftest("")
    shown = run(suite, FROM_SERVICE, "--record-mode=once", "--record-from=openai", errors=1)
    assert "OPENAI_API_KEY" in shown


def test_an_option_records_another_model(suite: pytest.Pytester) -> None:
    suite.makeconftest("")
    test = FROM_SERVICE.replace('== "Bonjour"', "is not None")
    run(suite, test, "--record-mode=once", f"--record-from={tiny('qwen3', max_position_embeddings=64)}", passed=1)
    [written] = [path.read_text() for path in suite.path.rglob("*.jsonl")]
    assert tiny("qwen3", max_position_embeddings=64).name in written


def test_a_source_that_is_recorded_reaches_out_past_the_guard() -> None:
    """`--block-openai` is for the code under test."""
    with refusing(lambda host, target: NetworkBlockedError(target)):
        with pytest.raises(NetworkBlockedError):
            sys.audit("socket.getaddrinfo", "api.openai.com", 443)
        with unpatched():
            sys.audit("socket.getaddrinfo", "api.openai.com", 443)
