"""`replace_openai`: all requests of a program to OpenAI are answered here, and nothing else gets out."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
import types
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai._client import AsyncOpenAI, OpenAI

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, replace_openai
from localai_shim.replacing.clients import NOWHERE
from localai_shim.replacing.network import NetworkBlockedError, refusing
from localai_shim.testing import ScriptedEngine, patch_openai
from tests.conftest import MESSAGES
from tests.scripts import run
from tests.tiny import tiny
from tests.warm import python

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
NAMES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")


@pytest.fixture(autouse=True)
def _real_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with a key, and with another server."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_AGENTS_DISABLE_TRACING"):
        monkeypatch.delenv(name, raising=False)


def environment() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


BEFORE = ["sk-real", None, None, "https://me.openai.azure.com"]
MEANWHILE = ["local", NOWHERE, None, "https://localhost:1"]


def saying(text: str) -> LocalOpenAI:
    """A client that always answers the same."""
    return LocalOpenAI(engine=ScriptedEngine(lambda *_: text))


@pytest.fixture
def local() -> Iterator[LocalOpenAI]:
    with saying("Hello") as client:
        yield client


def text(client: Any) -> str:
    answer: str = client.chat.completions.create(**ASK).choices[0].message.content
    return answer


async def text_async(client: Any) -> str:
    answer: str = (await client.chat.completions.create(**ASK)).choices[0].message.content
    return answer


# -- what is replaced -----------------------------------------------------------------------------------------------


def test_every_way_into_the_sdk_is_local(local: LocalOpenAI) -> None:
    early, early_async = openai.OpenAI(), openai.AsyncOpenAI()
    with replace_openai(local) as given:
        assert given is local
        azure = openai.AzureOpenAI(api_version="2024-10-21", api_key="x")
        assert [model.id for model in azure.models.list()] == ["scripted"]
        for client in (openai.OpenAI(), openai.Client(), OpenAI(), azure, early, openai):
            assert text(client) == "Hello"
        for client in (openai.AsyncClient(), AsyncOpenAI(), early_async):
            assert asyncio.run(text_async(client)) == "Hello"
    assert environment() == BEFORE


def test_a_key_and_servers_make_way_for_placeholders_meanwhile(local: LocalOpenAI) -> None:
    with replace_openai(local):
        assert environment() == MEANWHILE
        assert openai.OpenAI().api_key == "local"
        with patch_openai(local):
            assert environment() == MEANWHILE
    assert environment() == BEFORE


def test_a_missing_key_becomes_a_placeholder(local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with replace_openai(local):
        assert os.environ["OPENAI_API_KEY"] == "local"
    assert "OPENAI_API_KEY" not in os.environ


def test_the_last_of_nested_and_overlapping_replacements_counts(local: LocalOpenAI) -> None:
    other = saying("Other")
    with replace_openai(local), replace_openai(other), replace_openai(local):
        assert text(openai) == "Hello"
        with patch_openai(other):
            assert text(openai) == "Other"
        assert text(openai) == "Hello"
    first, second, third = replace_openai(local), replace_openai(other), replace_openai(local)
    third.undo()
    assert text(openai) == "Other"
    first.undo()
    assert text(openai.OpenAI()) == "Other" and environment() == MEANWHILE
    second.undo()
    second.undo()  # does nothing
    assert environment() == BEFORE


def test_a_replacement_counts_on_every_thread_and_ends_with_an_exception(local: LocalOpenAI) -> None:
    said: list[str] = []
    with pytest.raises(KeyError), replace_openai(local):  # noqa: PT012
        thread = threading.Thread(target=lambda: said.append(text(openai.OpenAI())))
        thread.start()
        thread.join()
        raise KeyError
    assert said == ["Hello"] and environment() == BEFORE


def test_a_client_that_was_given_stays_open_and_one_that_was_made_is_closed(local: LocalOpenAI) -> None:
    with replace_openai(local):
        pass
    assert text(local) == "Hello"
    with replace_openai(tiny("qwen3"), keep_alive=0) as made:
        kept = openai.OpenAI(max_retries=0)
        assert kept.completions.create(model="gpt-4o", prompt="Hi", max_tokens=2).usage
    for client in (made, kept):
        with pytest.raises(openai.APIConnectionError):
            text(client)


def test_an_async_client_may_answer() -> None:
    with ScriptedEngine(["Hello"]) as engine, replace_openai(AsyncLocalOpenAI(engine=engine)):
        assert text(openai.OpenAI()) == "Hello"


def test_arguments_that_do_not_fit_are_refused_and_nothing_is_replaced(local: LocalOpenAI) -> None:
    with pytest.raises(TypeError, match=r"pass these arguments to the client instead: 'context_length'"):
        replace_openai(local, context_length=9)
    with pytest.raises(TypeError, match=r"needs a local client, and OpenAI would ask a server"):
        replace_openai(openai.OpenAI())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Did you mean 'seed'|unexpected keyword argument 'sead'"):
        replace_openai(sead=1)  # type: ignore[call-arg]
    with pytest.raises(FileNotFoundError):
        replace_openai("./absent")
    assert environment() == BEFORE and openai.OpenAI().api_key == "sk-real"


# -- what cannot be replaced ----------------------------------------------------------------------------------------


def test_websockets_are_refused(local: LocalOpenAI) -> None:
    early = openai.OpenAI()
    with replace_openai(local):
        for client in (openai.OpenAI(), early):
            with (
                pytest.raises(openai.NotFoundError, match="Realtime"),
                client.realtime.connect(model="gpt-realtime"),
            ):
                pass


REQUESTS = {
    "httpx": "httpx.post('https://api.openai.com/v1/responses')",
    "httpx2": "httpx2.post('https://api.openai.com/v1/responses')",
    "requests": "requests.post('https://api.openai.com/v1/responses')",
    "socket": "socket.create_connection(('me.openai.azure.com', 443))",
}


@pytest.mark.parametrize("library", REQUESTS)
def test_requests_of_other_libraries_to_openai_raise_with_the_line(local: LocalOpenAI, library: str) -> None:
    pytest.importorskip(library)
    app: Any = types.ModuleType("app")
    exec(compile(f"import {library}\ndef ask():\n    {REQUESTS[library]}\n", "app.py", "exec"), vars(app))
    with replace_openai(local), pytest.raises(NetworkBlockedError, match=r"openai\.\w.*\n  at app\.py:3 in ask"):
        app.ask()


def test_hosts_of_others_are_free_and_openai_is_afterwards(local: LocalOpenAI) -> None:
    reached: list[str] = []

    def refuse(host: str, _: str) -> Exception:
        reached.append(host)
        return OSError("not in tests")

    with refusing(refuse):
        with replace_openai(local), pytest.raises(OSError, match="not in tests"):
            socket.create_connection(("notopenai.com", 443))
        with pytest.raises(OSError, match="not in tests"):
            socket.create_connection(("api.openai.com", 443))
    assert reached == ["notopenai.com", "api.openai.com"]


class Proxy(threading.Thread):
    """A proxy that notes what it gets, and forwards nothing."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.got = b""
        self.start()

    def run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                self.got += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")


CHILD = """
import openai
try:
    openai.OpenAI(max_retries=0).responses.create(model="gpt-4o", input="a secret prompt")
except openai.APIConnectionError as error:
    print(type(error).__name__, error.request.url)
"""


def test_another_process_sends_no_prompt(local: LocalOpenAI) -> None:
    proxy = Proxy()
    with replace_openai(local):
        for through in ({}, {"HTTPS_PROXY": proxy.url, "HTTP_PROXY": proxy.url, "NO_PROXY": ""}):
            env = {**os.environ, **through}
            done = subprocess.run([*python(), "-c", CHILD], env=env, capture_output=True, text=True, check=False)
            assert done.stdout == "APIConnectionError https://localhost:1/v1/responses\n", done.stderr
    assert proxy.got.startswith(b"CONNECT localhost:1 ") and b"secret" not in proxy.got


# -- a plain call ---------------------------------------------------------------------------------------------------


def test_a_plain_call_lasts_until_the_process_has_ended() -> None:
    done = run(
        """
        from localai_shim import replace_openai
        replace_openai(MODEL, context_length=1000)
        import atexit, os, threading, openai

        def ask(when):
            client = openai.OpenAI(api_key=os.environ["OPENAI_API_KEY"])
            answer = client.responses.create(model="gpt-4o", input="Hi", max_output_tokens=2)
            print(when, answer.usage.output_tokens, flush=True)

        atexit.register(ask, "at exit")
        main = threading.current_thread()
        threading.Thread(target=lambda: (main.join(), ask("behind main"))).start()
        ask("first")
        """,
        warm="mlx",
    )
    assert done.stdout.splitlines() == ["first 2", "behind main 2", "at exit 2"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")
