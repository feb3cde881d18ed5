"""Code under test makes clients of the SDK, and they are local as long as a context lasts."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI, http_client
from localai_shim.sdk import private as sdk
from localai_shim.testing import (
    IncompleteScript,
    ScriptedEngine,
    ScriptedOpenAI,
    patch_openai,
    rate_limit,
    scripted,
    server_error,
    tool_call,
)
from tests.conftest import MESSAGES
from tests.threads import in_threads

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
MODULE = """
import openai
from openai import AsyncOpenAI, AzureOpenAI, Client, OpenAI

early = OpenAI(api_key="sk-early")

class Mine(OpenAI):
    def __init__(self, **options):
        super().__init__(**{"organization": "mine", **options})

def text(client):
    messages = [{"role": "user", "content": "Hi"}]
    return client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.content
"""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module under test, which imported the SDK's names, and made a client, before anything was patched."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made: Any = types.ModuleType("app")
    exec(MODULE, vars(made))
    return made


@pytest.fixture
def local() -> Iterator[LocalOpenAI]:
    with ScriptedEngine(lambda request, prompt, before: "Hello") as engine, LocalOpenAI(engine=engine) as client:
        yield client


def state() -> Any:
    """All that a patch may change of the SDK."""
    classes = [dict(vars(cls)) for cls in (openai.OpenAI, openai.AsyncOpenAI, openai.AzureOpenAI)]
    for names in classes:
        names.pop("__slotnames__", None)  # where Python notes what to copy of an object, when one is copied first
    return classes, {name: vars(openai)[name] for name in openai.__annotations__}


def test_clients_that_the_code_under_test_makes_are_local(app: Any, local: LocalOpenAI) -> None:
    before = state()
    with patch_openai(local) as given:
        assert given is local
        for make in (app.OpenAI, app.Client, openai.OpenAI, openai.Client):
            client = make()
            assert type(client) is openai.OpenAI and app.text(client) == "Hello"
            assert client.models.list().data[0].owned_by == "localai_shim"
    assert state() == before
    with pytest.raises(openai.OpenAIError, match="OPENAI_API_KEY"):
        app.OpenAI()


def test_their_options_count_but_for_those_that_reach_out(app: Any, local: LocalOpenAI) -> None:
    with patch_openai(local):
        http = sdk.httpx.Client(timeout=3)
        client = app.OpenAI(api_key="sk-1", base_url="https://api.openai.com/v1", max_retries=7, http_client=http)
        assert (client.api_key, client.max_retries, client.timeout) == ("sk-1", 7, sdk.httpx.Timeout(3))
        assert app.text(client.with_options(timeout=9)) == "Hello"
        with pytest.raises(TypeError, match="max_retry"):
            app.OpenAI(max_retry=1)


def test_subclasses_stay_what_they_are_and_are_served(app: Any, local: LocalOpenAI) -> None:
    with patch_openai(local):
        mine = app.Mine()
        assert type(mine) is app.Mine and mine.organization == "mine" and app.text(mine) == "Hello"
        azure = {"api_key": "x", "api_version": "2024-10-21", "azure_endpoint": "https://me.azure.example"}
        assert app.text(app.AzureOpenAI(**azure)) == "Hello"
        assert app.text(app.AzureOpenAI(**azure, azure_deployment="d")) == "Hello"
        assert app.text(mine.with_options(max_retries=1)) == "Hello"


def test_the_client_of_the_module_is_local_and_forgotten(app: Any, local: LocalOpenAI) -> None:
    before = openai.api_key = "sk-mine"
    try:
        with patch_openai(local):
            assert app.text(openai) == "Hello"
            assert openai.responses.create(model="m", input="Hi").output_text == "Hello"
        assert (openai.api_key, openai.http_client, openai._client) == (before, None, None)
    finally:
        openai.api_key = None


def test_clients_that_were_made_before_are_served_meanwhile(app: Any, local: LocalOpenAI) -> None:
    http = app.early._client
    with patch_openai(local):
        assert app.text(app.early) == app.text(app.early.with_options(timeout=1)) == "Hello"
        with app.early.chat.completions.create(**ASK, stream=True) as stream:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello"
    assert app.early._client is http


@pytest.mark.anyio
async def test_async_clients_are_served_too(app: Any, local: LocalOpenAI) -> None:
    early = openai.AsyncOpenAI(api_key="x")
    with patch_openai(local):
        for client in (app.AsyncOpenAI(), early):
            assert (await client.chat.completions.create(**ASK)).choices[0].message.content == "Hello"
            stream = await client.responses.create(model="m", input="Hi", stream=True)
            assert [event.type async for event in stream][-1] == "response.completed"
        async with app.AsyncOpenAI() as client:  # closing it closes nothing of the others
            pass
        assert app.text(app.OpenAI()) == "Hello"


def test_all_share_what_is_stored_whichever_was_closed(app: Any, local: LocalOpenAI) -> None:
    with patch_openai(local):
        with app.OpenAI() as first:
            made = first.responses.create(model="m", input="Hi")
        assert first.is_closed()
        assert app.OpenAI().responses.retrieve(made.id).output_text == "Hello"
        assert app.Mine().responses.retrieve(made.id).id == local.responses.retrieve(made.id).id


def test_local_clients_stay_as_they_are(app: Any, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEngine(["Mine"] * 3) as engine, patch_openai(local):
        mine = LocalOpenAI(engine=engine)
        monkeypatch.setattr(mine._client, "send", None)  # no way over http
        assert app.text(mine) == "Mine"
        assert app.text(app.OpenAI(api_key="x", http_client=http_client(engine=engine))) == "Mine"
        assert app.text(app.Mine()) == "Hello"


def test_contexts_may_be_nested_and_may_overlap(app: Any, local: LocalOpenAI) -> None:
    before = state()
    with ScriptedEngine(lambda *_: "Inner") as engine:
        outer, inner = patch_openai(local), patch_openai(LocalOpenAI(engine=engine))
        outer.__enter__()
        assert app.text(openai) == "Hello"
        inner.__enter__()
        assert app.text(app.OpenAI()) == app.text(openai) == app.text(app.early) == "Inner"
        outer.__exit__()
        assert app.text(app.OpenAI()) == app.text(openai) == "Inner"
        inner.__exit__()
    assert state() == before


def test_a_patch_counts_on_every_thread_and_ends_with_an_exception(app: Any, local: LocalOpenAI) -> None:
    before, said = state(), []
    thread = threading.Thread(target=lambda: said.append(app.text(app.OpenAI())))
    with contextlib.suppress(KeyError), patch_openai(local):
        thread.start()
        thread.join()
        raise KeyError
    assert said == ["Hello"] and state() == before


def test_what_wraps_request_meanwhile_sees_requests_and_is_left_alone(
    app: Any, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    with patch_openai(local):
        below = openai.OpenAI.request

        @functools.wraps(below)
        def wrapper(self: Any, *args: Any, **more: Any) -> Any:
            seen.append(type(self))
            return below(self, *args, **more)

        monkeypatch.setattr(openai.OpenAI, "request", wrapper)
        assert app.text(app.OpenAI()) == app.text(app.early) == "Hello"
    assert seen == [openai.OpenAI] * 2 and openai.OpenAI.request is wrapper
    assert app.text(local) == "Hello" and seen[2:] == [LocalOpenAI]
    monkeypatch.undo()


def test_a_client_that_is_kept_fails_when_its_engine_is_gone(app: Any) -> None:
    with ScriptedEngine(["Hello"]) as engine, patch_openai(LocalOpenAI(engine=engine)):
        kept = app.OpenAI(max_retries=0)
    with pytest.raises(openai.APIConnectionError, match="Connection error"):
        app.text(kept)
    assert "app" not in sys.modules


# -- the environment ------------------------------------------------------------------------------------------------

NAMES = ("OPENAI_API_KEY", "OPENAI_AGENTS_DISABLE_TRACING")


def environment() -> list[str | None]:
    """A framework's view of it, which asks for a key before it makes a client."""
    return [os.environ.get(name) for name in NAMES]


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("before", [None, ""])
def test_the_environment_has_a_placeholder_for_a_key_as_long_as_the_patch_lasts(
    no_key: None, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv("OPENAI_API_KEY", before)
    with contextlib.suppress(KeyError), patch_openai(local):
        assert environment() == ["local", "1"]
        with patch_openai(local):
            assert environment() == ["local", "1"]
        assert environment() == ["local", "1"]
        raise KeyError
    assert environment() == [before, None]


@pytest.mark.parametrize(
    ("set_before", "meanwhile"), [("OPENAI_API_KEY", ["mine", None]), (NAMES[1], ["local", "mine"])]
)
def test_a_variable_that_is_set_stays_as_it_is(
    no_key: None, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch, set_before: str, meanwhile: list[str | None]
) -> None:
    monkeypatch.setenv(set_before, "mine")
    before = environment()
    with patch_openai(local):
        assert environment() == meanwhile
    assert environment() == before


def test_addresses_of_the_environment_stay(no_key: None, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """LangChain counts the tokens of streams only if there is none."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with patch_openai(local):
        assert "OPENAI_BASE_URL" not in os.environ
        monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
        with patch_openai(local):
            assert os.environ["OPENAI_BASE_URL"] == "https://gateway.example/v1"


def test_placeholders_stay_until_the_last_of_overlapping_patches_ends(no_key: None, local: LocalOpenAI) -> None:
    first, second = patch_openai(local), patch_openai(local)
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert environment() == ["local", "1"]
    second.__exit__()
    assert environment() == [None, None]


def test_threads_that_patch_at_once_leave_the_environment_as_it_was(no_key: None, local: LocalOpenAI) -> None:
    together, seen = threading.Barrier(8), []

    def patch(_: int) -> None:
        for _ in range(20):
            together.wait()
            with patch_openai(local):
                seen.append(environment())

    in_threads(patch, range(8))
    assert seen == [["local", "1"]] * 160 and environment() == [None, None]


def test_a_key_that_is_set_meanwhile_is_the_caller_s(
    no_key: None, app: Any, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with patch_openai(local):
        monkeypatch.setenv("OPENAI_API_KEY", "mine")
        assert app.OpenAI().api_key == "mine"
        monkeypatch.delenv("OPENAI_API_KEY")
        assert app.text(app.OpenAI()) == "Hello"  # without any
        monkeypatch.setenv("OPENAI_API_KEY", "mine")
    assert environment() == ["mine", None]


def test_a_patch_within_a_context_that_removed_the_key_leaves_none_behind(
    no_key: None, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    with patch_openai(local):
        with monkeypatch.context() as inner:
            inner.delenv("OPENAI_API_KEY")
            with patch_openai(local):
                assert environment() == ["local", "1"]
        assert environment()[0] == "mine"
    assert environment() == ["mine", None]


def test_a_placeholder_that_is_put_back_after_the_patch_goes_with_the_next_one(
    no_key: None, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        with patch_openai(local):
            later.setenv("OPENAI_API_KEY", "mine")
        assert environment() == ["mine", None]
    assert environment() == ["local", None]
    with patch_openai(local):
        assert environment() == ["local", "1"]
    assert environment() == [None, None]


# -- with a script --------------------------------------------------------------------------------------------------


def test_scripted_failures_are_retried_by_the_code_under_test_on_the_script_s_clock(app: Any) -> None:
    with scripted(rate_limit(retry_after=20), server_error(), "Fine") as client, patch_openai(client):
        assert app.text(app.OpenAI()) == "Fine"
        assert [call.attempt for call in client.calls] == [0, 1, 2]
        assert client.clock.sleeps[0] == 20


@pytest.mark.anyio
async def test_async_clients_retry_on_it_too(app: Any) -> None:
    with scripted(rate_limit(retry_after=20), "Fine") as client, patch_openai(client):
        assert (await app.AsyncOpenAI().responses.create(model="m", input="Hi")).output_text == "Fine"
        assert client.clock.sleeps == [20]


def raises(request: Any) -> str:
    """A function of a script that fails."""
    raise KeyError("no such city")


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ([], "not_scripted", "no reply is scripted for chat.completions"),
        ([tool_call("look")], "not_scripted", "the reply calls 'look'"),
        ([raises], "script_failed", "no such city"),
    ],
)
def test_what_the_script_does_wrong_is_an_error_that_no_application_retries(
    app: Any, script: list[Any], code: str, said: str
) -> None:
    client = ScriptedOpenAI().script("Hello")
    assert app.text(client) == "Hello"
    client.script(*script)
    with patch_openai(client), pytest.raises(openai.BadRequestError, match=said) as caught:
        app.text(app.OpenAI())
    assert (caught.value.code, caught.value.status_code, len(client.calls)) == (code, 400, 2)
    with pytest.raises(IncompleteScript, match=said):  # also if the application swallows the error
        client.assert_complete()


@pytest.mark.anyio
async def test_async_clients_and_streams_get_it_too(app: Any) -> None:
    client = ScriptedOpenAI()
    client.when(user="Paris").reply("It rains.")
    with patch_openai(client):
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match=r"no reply is scripted for responses") as caught:
                await app.AsyncOpenAI().responses.create(model="m", input="Hi", stream=stream)
            assert caught.value.code == "not_scripted"


def test_an_error_of_the_sdk_that_a_function_raises_is_the_caller_s(app: Any) -> None:
    response = sdk.httpx.Response(409, request=sdk.httpx.Request("POST", "https://a.example"))

    def conflicts(request: Any) -> str:
        raise openai.ConflictError("busy", response=response, body=None)

    client = ScriptedOpenAI().script(conflicts)
    with patch_openai(client), pytest.raises(openai.ConflictError):
        app.OpenAI(max_retries=0).chat.completions.create(**ASK)
