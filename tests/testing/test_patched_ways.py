"""Every way into the SDK is local as long as a patch lasts: no credentials are needed, and nothing reaches out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai._client import AsyncOpenAI, OpenAI

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, patch_openai
from tests.conftest import MESSAGES

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
AZURE: dict[str, Any] = {"api_version": "2024-10-21", "azure_endpoint": "https://me.azure.example"}
REGION: dict[str, Any] = {"aws_region": "eu-west-1"}


def never(*_: object) -> str:
    """A function that would fetch a token."""
    raise AssertionError("a function was asked for credentials")


WORKLOAD: Any = {
    "identity_provider_id": "i",
    "service_account_id": "s",
    "provider": {"token_type": "jwt", "get_token": never},
}
WITH_CREDENTIALS: dict[str, tuple[str, dict[str, Any]]] = {
    "a key": ("OpenAI", {"api_key": "x"}),
    "a function for a key": ("OpenAI", {"api_key": never}),
    "a workload's identity": ("OpenAI", {"workload_identity": WORKLOAD}),
    "azure: a key": ("AzureOpenAI", {**AZURE, "api_key": "x"}),
    "azure: a function for a key": ("AzureOpenAI", {**AZURE, "api_key": never}),
    "azure: a token": ("AzureOpenAI", {**AZURE, "azure_ad_token": "x"}),
    "azure: a function for tokens": ("AzureOpenAI", {**AZURE, "azure_ad_token_provider": never}),
    "azure: a deployment": ("AzureOpenAI", {**AZURE, "api_key": "x", "azure_deployment": "d"}),
    "azure: a gateway": ("AzureOpenAI", {"api_key": "x", "api_version": "1", "base_url": "https://a.example"}),
    "bedrock: a key": ("BedrockOpenAI", {**REGION, "api_key": "x"}),
    "bedrock: a function for tokens": ("BedrockOpenAI", {**REGION, "bedrock_token_provider": never}),
    "bedrock: keys of AWS": ("BedrockOpenAI", {**REGION, "aws_access_key_id": "x", "aws_secret_access_key": "x"}),
}
"""Clients that an application makes where it is deployed."""
WITHOUT: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("OpenAI", {}),
    "an empty key": ("OpenAI", {"api_key": ""}),
    "a region": ("OpenAI", {"data_residency": "eu"}),
    "the alias": ("Client", {}),
    "azure: nothing": ("AzureOpenAI", {}),
    "azure: a deployment alone": ("AzureOpenAI", {"azure_deployment": "d"}),
    "azure: an endpoint": ("AzureOpenAI", AZURE),
    "bedrock: nothing": ("BedrockOpenAI", {}),
}
"""Clients that have nothing to sign in with, as where tests run."""
CLIENTS = WITH_CREDENTIALS | WITHOUT


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment without credentials, and no way out."""
    for name in ("OPENAI_API_KEY", "OPENAI_API_VERSION", "AZURE_OPENAI_API_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    reached: list[object] = []

    def refuse(*address: object, **_: object) -> None:
        reached.append(address)
        raise OSError("a test reached out")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not reached


@pytest.fixture
def local() -> Iterator[LocalOpenAI]:
    with ScriptedEngine(lambda request, prompt, before: "Hello") as engine, LocalOpenAI(engine=engine) as client:
        yield client


def make(name: str, arguments: dict[str, Any]) -> Any:
    """A client, if the installed SDK takes these arguments."""
    try:
        return getattr(openai, name)(**arguments)
    except TypeError as error:
        pytest.skip(str(error))


def check(client: Any) -> None:
    """The client, its copies and its streams are answered here."""
    for each in (client, client.with_options(timeout=9)):
        assert each.chat.completions.create(**ASK).choices[0].message.content == "Hello"
        assert [model.id for model in each.models.list()] == ["scripted"]
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    assert client.chat.completions.with_raw_response.create(**ASK).status_code == 200


async def check_async(client: Any) -> None:
    """As `check`."""
    for each in (client, client.with_options(timeout=9)):
        assert (await each.chat.completions.create(**ASK)).choices[0].message.content == "Hello"
        assert [model.id async for model in each.models.list()] == ["scripted"]
    chunks = [chunk async for chunk in await client.chat.completions.create(**ASK, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"


@pytest.mark.parametrize(("name", "arguments"), CLIENTS.values(), ids=CLIENTS)
def test_a_client_is_local(name: str, arguments: dict[str, Any], local: LocalOpenAI) -> None:
    with patch_openai(local):
        client = make(name, arguments)
        check(client)
        assert type(client) is getattr(openai, name)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the SDK leaves generators of streams to trio's warnings
@pytest.mark.parametrize(("name", "arguments"), CLIENTS.values(), ids=CLIENTS)
async def test_an_async_client_is_local(name: str, arguments: dict[str, Any], local: LocalOpenAI) -> None:
    with patch_openai(local):
        await check_async(make(f"Async{name}", arguments))


@pytest.mark.parametrize(("name", "arguments"), WITH_CREDENTIALS.values(), ids=WITH_CREDENTIALS)
def test_a_client_that_was_made_before_is_local(name: str, arguments: dict[str, Any], local: LocalOpenAI) -> None:
    early = make(name, arguments)
    before = dict(vars(early))
    with patch_openai(local):
        check(early)
    assert {key: vars(early)[key] for key in before} == before


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the SDK leaves generators of streams to trio's warnings
@pytest.mark.parametrize(("name", "arguments"), WITH_CREDENTIALS.values(), ids=WITH_CREDENTIALS)
async def test_an_async_client_that_was_made_before_is_local(
    name: str, arguments: dict[str, Any], local: LocalOpenAI
) -> None:
    early = make(f"Async{name}", arguments)
    with patch_openai(local):
        await check_async(early)


@pytest.mark.parametrize("api_type", ["openai", "azure", "amazon-bedrock", None])
def test_the_client_of_the_module_is_local_whatever_its_type(
    api_type: Any, local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with patch_openai(local):
        monkeypatch.setattr(openai, "api_type", api_type)
        assert openai.chat.completions.create(**ASK).choices[0].message.content == "Hello"
        assert openai.responses.create(model="m", input="Hi").output_text == "Hello"


def test_names_that_were_imported_before_are_those_that_are_patched(local: LocalOpenAI) -> None:
    with patch_openai(local):
        assert OpenAI().chat.completions.create(**ASK).choices[0].message.content == "Hello"
        assert type(AsyncOpenAI()) is openai.AsyncOpenAI


SOCKETS: dict[str, Callable[[Any], Any]] = {
    "realtime": lambda client: client.realtime.connect(model="m"),
    "beta": lambda client: client.beta.realtime.connect(model="m"),
    "responses": lambda client: client.responses.connect(),
}


@pytest.mark.parametrize("connect", SOCKETS.values(), ids=SOCKETS)
def test_no_websocket_is_opened(connect: Callable[[Any], Any], local: LocalOpenAI) -> None:
    early = [openai.OpenAI(api_key="x"), openai.AzureOpenAI(**AZURE, api_key="x")]
    with patch_openai(local):
        for client in (*early, openai.OpenAI(), openai.AzureOpenAI()):
            with pytest.raises(openai.NotFoundError, match="websocket APIs do not exist"):
                connect(client).enter()
    assert early[0].websocket_base_url is None


@pytest.mark.anyio
@pytest.mark.parametrize("connect", SOCKETS.values(), ids=SOCKETS)
async def test_no_websocket_is_opened_by_tasks(connect: Callable[[Any], Any], local: LocalOpenAI) -> None:
    early = openai.AsyncOpenAI(api_key="x")
    with patch_openai(local):
        for client in (early, openai.AsyncOpenAI(), openai.AsyncAzureOpenAI()):
            with pytest.raises(openai.NotFoundError, match="websocket APIs do not exist"):
                await connect(client).enter()


def test_a_client_that_is_kept_reaches_no_server_later() -> None:
    with ScriptedEngine(["Hello"]) as engine, patch_openai(LocalOpenAI(engine=engine)):
        kept = openai.OpenAI()
    with pytest.raises(openai.APIConnectionError):
        kept.with_options(max_retries=0).chat.completions.create(**ASK)
    assert str(kept.websocket_base_url).startswith("ws://localhost:0/")


def test_a_hook_of_a_program_s_own_class_is_called(local: LocalOpenAI) -> None:
    class Hooked(openai.OpenAI):
        def _prepare_options(self, options: Any) -> Any:
            options.json_data["user"] = "hooked"
            return super()._prepare_options(options)

    with patch_openai(local):
        assert Hooked().chat.completions.create(**ASK).choices[0].message.content == "Hello"
