"""What code that looks at a client or at a raw response finds is what it finds at the SDK's own client."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.sdk import private as sdk
from localai_shim.testing import ScriptedEngine

MESSAGES: Any = [{"role": "user", "content": "Grüße"}]
CREATE: dict[str, Any] = {"model": "m", "messages": MESSAGES, "temperature": 0.5}
OPTIONS: dict[str, Any] = {
    "api_key": "sk-1",
    "organization": "org-1",
    "project": "proj-1",
    "timeout": 7.5,
    "default_headers": {"X-Mine": "1"},
    "default_query": {"page": "2"},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(lambda request, prompt, before: "Hello there") as made:
        yield made


@pytest.fixture
def client(engine: ScriptedEngine) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


# -- attributes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_every_attribute_can_be_read(make: Any, engine: ScriptedEngine) -> None:
    client = make(engine=engine)
    assert hasattr(client, "websocket_base_url") and client.websocket_base_url
    assert repr(client.websocket_base_url) == "URL('ws://localhost:0/v1/')"
    found = dict(inspect.getmembers(client))
    assert {name for name in dir(sdk.stock_class(make)) if not name.startswith("__")} <= set(found)


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_mocks_take_a_client_as_their_specification(make: Any, engine: ScriptedEngine) -> None:
    client = make(engine=engine)
    for double in (mock.Mock(spec=client), mock.MagicMock(spec=client), mock.create_autospec(client)):
        assert isinstance(double, openai.OpenAI | openai.AsyncOpenAI)
        assert double.chat is not None
        with pytest.raises(AttributeError):
            _ = double.no_such_attribute
    assert mock.create_autospec(make) is not None


def test_a_websocket_is_refused_when_it_is_to_be_opened(client: LocalOpenAI) -> None:
    for connection in (client.realtime.connect(model="m"), client.with_options(timeout=1).responses.connect()):
        with pytest.raises(openai.NotFoundError, match="never uses the network"):
            connection.enter()


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_the_url_of_websockets_is_a_url_as_any_other(make: Any, engine: ScriptedEngine) -> None:
    url, plain = make(engine=engine).websocket_base_url, sdk.httpx.URL("ws://localhost:0/v1/")
    assert isinstance(url, sdk.httpx.URL) and url == plain and hash(url) == hash(plain)
    assert (str(url), url.host, url.port, url.raw_path) == ("ws://localhost:0/v1/", "localhost", 0, b"/v1/")
    assert copy.deepcopy(url) == pickle.loads(pickle.dumps(str(url))) == str(sdk.httpx.URL(url))
    assert len(str(url)) == len(str(plain))
    with pytest.raises(TypeError, match="no len"):  # no url has one
        len(url)


def test_every_resource_with_websockets_refuses_to_open_one(client: LocalOpenAI) -> None:
    connections = [
        client.realtime.connect(model="m"),
        client.beta.realtime.connect(model="m"),
        client.responses.connect(),
    ]
    if hasattr(client.realtime, "translations"):
        connections.append(client.realtime.translations.connect(model="m"))
    for connection in connections:
        with pytest.raises(openai.NotFoundError, match="never uses the network") as caught:
            connection.enter()
        assert caught.value.status_code == 404 and caught.value.response.json()["error"]["message"]


def test_an_async_websocket_is_refused_too(engine: ScriptedEngine) -> None:
    async def main() -> None:
        with pytest.raises(openai.NotFoundError, match="never uses the network"):
            await AsyncLocalOpenAI(engine=engine).realtime.connect(model="m").enter()

    asyncio.run(main())


# -- requests -------------------------------------------------------------------------------------------------------


class Recorder(sdk.httpx.BaseTransport, sdk.httpx.AsyncBaseTransport):
    """Answers every request alike, and keeps it."""

    def handle_request(self, request: Any) -> Any:
        self.request = request
        return sdk.httpx.Response(200, json={"object": "list", "data": [], "choices": [], "id": "x"})

    async def handle_async_request(self, request: Any) -> Any:
        return self.handle_request(request)


def sent(request: Any) -> tuple[str, str, dict[str, str], bytes]:
    """What a request says."""
    return request.method, str(request.url), dict(request.headers), request.content


CALLS: dict[str, Any] = {
    "chat": lambda client, way: getattr(client.chat.completions, way).create(**CREATE),
    "extra": lambda client, way: getattr(client.chat.completions, way).create(
        **CREATE, extra_headers={"X-More": "2"}, extra_query={"q": "3"}, extra_body={"top_k": 4}, timeout=3
    ),
    "responses": lambda client, way: getattr(client.responses, way).create(model="m", input="Hi", store=False),
    "list": lambda client, way: getattr(client.models, way).list(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_request_of_a_raw_response_is_what_the_sdk_sends(call: Any, engine: ScriptedEngine) -> None:
    recorder = Recorder()
    stock = openai.OpenAI(**OPTIONS, base_url=sdk.BASE_URL, http_client=sdk.httpx.Client(transport=recorder))
    call(stock, "with_raw_response")
    expected = sent(recorder.request)
    client = LocalOpenAI(engine=engine, **{**OPTIONS, "default_query": None})
    if recorder.request.method == "GET":  # the other endpoints refuse a query that they do not know
        expected = (expected[0], expected[1].split("?")[0], *expected[2:])
        raw = call(client, "with_raw_response")
    else:
        raw = call(client.with_options(default_query={"page": "2"}), "with_raw_response")
    assert sent(raw.http_request) == expected
    assert raw.http_response.request is raw.http_request


def test_the_request_of_an_async_raw_response_is_what_the_sdk_sends(engine: ScriptedEngine) -> None:
    async def main() -> None:
        recorder = Recorder()
        http_client = sdk.httpx.AsyncClient(transport=recorder)
        stock = openai.AsyncOpenAI(**OPTIONS, base_url=sdk.BASE_URL, http_client=http_client)
        await CALLS["extra"](stock, "with_raw_response")
        raw = await CALLS["extra"](AsyncLocalOpenAI(engine=engine, **OPTIONS), "with_raw_response")
        assert sent(raw.http_request) == sent(recorder.request)

    asyncio.run(main())


def test_the_request_stays_as_it_was_when_the_caller_goes_on_with_his_messages(client: LocalOpenAI) -> None:
    messages = [dict(message) for message in MESSAGES]
    raw = client.chat.completions.with_raw_response.create(model="m", messages=messages)  # type: ignore[arg-type]
    messages.append({"role": "assistant", "content": "later"})
    assert b"later" not in raw.http_request.content


def test_an_error_of_a_raw_call_shows_the_request_with_its_body(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.with_raw_response.create(**{**CREATE, "n": 0})
    assert b'"n":0' in caught.value.request.content
    assert caught.value.request.headers["x-stainless-lang"] == "python"


def test_a_body_without_a_json_form_is_refused_for_what_is_wrong_with_it(client: LocalOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.with_raw_response.create(**{**CREATE, "temperature": object()})


# -- responses ------------------------------------------------------------------------------------------------------


def test_a_streaming_response_of_a_whole_answer_is_open_until_it_is_read(client: LocalOpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(**CREATE) as response:
        assert not response.is_closed and not response.http_response.is_closed
        assert len(b"".join(response.iter_bytes())) == int(response.headers["content-length"])
        assert response.is_closed
    with client.chat.completions.with_streaming_response.create(**CREATE) as response:
        assert response.parse().choices[0].message.content == "Hello there"
    with client.chat.completions.with_streaming_response.create(**CREATE) as unread:
        pass
    assert unread.is_closed


def test_an_async_streaming_response_of_a_whole_answer_is_open_until_it_is_read(engine: ScriptedEngine) -> None:
    async def main() -> None:
        client = AsyncLocalOpenAI(engine=engine)
        async with client.chat.completions.with_streaming_response.create(**CREATE) as response:
            assert not response.is_closed
            assert "Hello there" in "".join([text async for text in response.iter_text()])
            assert response.is_closed

    asyncio.run(main())


def test_raw_responses_of_whole_answers_have_been_read(client: LocalOpenAI) -> None:
    assert client.chat.completions.with_raw_response.create(**CREATE).http_response.is_closed
