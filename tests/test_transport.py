"""Clients of the SDK that other code builds, with our http client: answers, bytes and errors as from a server."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import math
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import openai
import pytest
from pydantic import BaseModel

from localai_shim import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client
from localai_shim.options import OWN
from localai_shim.sdk import private as sdk
from localai_shim.testing import Reply, ScriptedEngine, rate_limit, scripted
from localai_shim.types import QueueFullError, RowError
from tests import inside
from tests.bodies import check_body
from tests.conftest import MESSAGES, without_generated
from tests.engine.harness import eventually
from tests.scripts import run
from tests.tiny import tiny

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES}
USAGE: Any = {"include_usage": True}
URL = "http://anywhere.example/v1/chat/completions"
HANG, FAIL, FULL = (
    [{"role": "user", "content": text}] for text in ("Hang after the first word", "Fail after the first word", "Full")
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def decide(request: Any, prompt: str, before: int) -> Any:
    if "Full" in prompt:
        raise QueueFullError("the queue is full")
    if "Fail" in prompt:
        return Reply("one two three", error=RowError("the row failed"), fail_after=1)
    if "Hang" in prompt:
        return Reply("one two three", interval=math.inf)
    if "get_weather" in prompt:
        return CALL
    return '{"name": "Ada"}' if request.constraint is not None else "one two three"


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(decide) as made:
        yield made


@pytest.fixture
def http(engine: ScriptedEngine) -> Iterator[Any]:
    with http_client(engine=engine) as made:
        yield made


@pytest.fixture
def stock(http: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key="sk-test", max_retries=0, http_client=http)


@pytest.fixture
def local(engine: ScriptedEngine) -> LocalOpenAI:
    return LocalOpenAI(engine=engine)


@pytest.fixture
async def async_stock(engine: ScriptedEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    async with async_http_client(engine=engine) as http:
        yield openai.AsyncOpenAI(api_key="sk-test", max_retries=0, http_client=http)


def same(made: Any) -> Any:
    """An answer without what differs from one to the next."""
    return without_generated(made, "obfuscation")


def said(chunks: Any) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


# -- what comes back ------------------------------------------------------------------------------------------------


class Person(BaseModel):
    name: str


TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CALLS: dict[str, Any] = {
    "whole": lambda client: client.chat.completions.create(**ASK),
    "choices": lambda client: client.chat.completions.create(**ASK, n=2, max_tokens=2, logprobs=True),
    "stream": lambda client: [*client.chat.completions.create(**ASK, stream=True, stream_options=USAGE)],
    "call": lambda client: client.chat.completions.create(**ASK, tools=[TOOL]),
    "parse": lambda client: client.chat.completions.parse(**ASK, response_format=Person).choices[0].message.parsed.name,
    "completion": lambda client: client.completions.create(model="m", prompt="Hi"),
    "response": lambda client: client.responses.create(model="m", input="Hi"),
    "events": lambda client: list(client.responses.create(model="m", input="Hi", stream=True)),
    "models": lambda client: list(client.models.list()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_client_of_the_sdk_gets_what_ours_gets(call: Any, stock: openai.OpenAI, local: LocalOpenAI) -> None:
    assert same(call(stock)) == same(call(local))


@pytest.mark.anyio
async def test_async_clients_get_the_same(async_stock: openai.AsyncOpenAI, stock: openai.OpenAI) -> None:
    assert same(await async_stock.chat.completions.create(**ASK)) == same(CALLS["whole"](stock))
    stream = await async_stock.responses.create(model="m", input="Hi", stream=True)
    assert [same(event) async for event in stream] == same(CALLS["events"](stock))
    assert [model.id async for model in async_stock.models.list()] == ["scripted"]


def test_what_is_stored_is_found_again_and_queries_arrive(stock: openai.OpenAI) -> None:
    first = stock.responses.create(model="m", input="Hi")
    again = stock.responses.retrieve(first.id, include=["message.output_text.logprobs"])
    assert again.output_text == first.output_text
    kept = stock.chat.completions.create(**ASK, store=True, metadata={"run": "1"})
    stock.chat.completions.create(**ASK, store=True, metadata={"run": "2"})
    assert [each.id for each in stock.chat.completions.list(metadata={"run": "1"}, limit=1)] == [kept.id]
    conversation = stock.conversations.create()
    with pytest.raises(openai.BadRequestError, match="limit"):
        stock.conversations.items.list(conversation.id, limit=0)
    assert stock.conversations.delete(conversation.id).deleted


def test_a_client_of_ours_shares_what_is_stored_with_the_http_client_that_it_gets(
    http: Any, stock: openai.OpenAI
) -> None:
    made = stock.responses.create(model="m", input="Hi")
    assert LocalOpenAI(http_client=http).responses.retrieve(made.id).id == made.id


@pytest.mark.parametrize(
    "base_url",
    [
        "https://api.openai.com/v1",
        "http://localhost:8000",
        "https://openrouter.ai/api/v1/",
        "https://a.example/v1beta/openai",
    ],
)
def test_the_address_does_not_matter(base_url: str, http: Any) -> None:
    client = openai.OpenAI(api_key="x", base_url=base_url, http_client=http)
    assert client.chat.completions.create(**ASK).choices[0].message.content == "one two three"
    assert client.models.retrieve("scripted").id == "scripted"
    assert client.models.retrieve("openai/gpt-oss-20b").id == "scripted"


def test_no_proxy_stands_between(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with http_client(engine=engine) as http:
        assert openai.OpenAI(api_key="x", http_client=http).models.list().data


def test_a_client_of_ours_answers_its_own_address_only(local: LocalOpenAI) -> None:
    assert local._client.get(f"{sdk.BASE_URL}models").json()["data"][0]["id"] == "scripted"
    with pytest.raises(sdk.httpx.ConnectError, match="never uses the network"):
        local._client.get("http://localhost:1/v1/models")


def test_azure_s_client_is_served(http: Any) -> None:
    options: dict[str, Any] = {"api_key": "x", "azure_endpoint": "https://me.azure.example", "http_client": http}
    client = openai.AzureOpenAI(**options, api_version="2024-10-21")
    assert client.chat.completions.create(**ASK).choices[0].message.content == "one two three"
    assert [model.id for model in client.models.list()] == ["scripted"]


@pytest.mark.parametrize("base_url", ["https://a.example", "https://a.example/team/openai"])
def test_azure_s_client_is_served_behind_a_gateway(base_url: str, http: Any) -> None:
    client = openai.AzureOpenAI(api_key="x", base_url=base_url, api_version="2024-10-21", http_client=http)
    assert client.chat.completions.create(**ASK).choices[0].message.content == "one two three"


# -- bytes ----------------------------------------------------------------------------------------------------------


def test_a_whole_answer_is_a_response_with_a_json_body(http: Any) -> None:
    response = http.post(URL, json=ASK)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.headers["x-request-id"].startswith("req_")
    assert int(response.headers["content-length"]) == len(response.content)
    check_body(response.json())


def test_a_response_can_be_read_as_raw_bytes(http: Any) -> None:
    with http.stream("POST", URL, json=ASK) as response:
        assert not response.is_closed
        assert json.loads(b"".join(response.iter_raw()))["object"] == "chat.completion"


def test_events_are_lines_as_a_server_sends_them(http: Any) -> None:
    with http.stream("POST", URL, json={**ASK, "stream": True}) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, done, rest = response.read().split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    for event in events:
        check_body(json.loads(event.removeprefix(b"data: ")))
    made = http.post("http://x/v1/responses", json={"model": "m", "input": "Hi", "stream": True}).content
    first, *_, last, rest = made.split(b"\n\n")
    assert first.startswith(b'event: response.created\ndata: {"') and rest == b""
    assert last.startswith(b'event: response.completed\ndata: {"')


# -- streams that are left ------------------------------------------------------------------------------------------


def gone(engine: ScriptedEngine) -> bool:
    """Whether the engine gets rid of its rows."""
    return eventually(lambda: engine.stats().running == 0)


def test_events_come_while_the_answer_is_made_and_closing_cancels_it(
    stock: openai.OpenAI, engine: ScriptedEngine
) -> None:
    stream = stock.chat.completions.create(model="m", messages=HANG, stream=True)  # type: ignore[call-overload]
    assert said([next(stream), next(stream)]) == "one"  # and the next token never comes
    assert engine.stats().running == 1
    stream.close()
    assert gone(engine)


def test_a_stream_that_is_dropped_leaves_the_engine(stock: openai.OpenAI, engine: ScriptedEngine) -> None:
    stream = stock.chat.completions.create(model="m", messages=HANG, stream=True)  # type: ignore[call-overload]
    next(stream)
    del stream
    gc.collect()  # the SDK's streams and httpx's responses refer to themselves
    assert gone(engine)


def test_a_response_that_is_closed_before_it_was_read_leaves_the_engine(http: Any, engine: ScriptedEngine) -> None:
    with http.stream("POST", URL, json={"model": "m", "messages": HANG, "stream": True}):
        assert engine.stats().running <= 1
    assert gone(engine)


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_task_that_is_cancelled_leaves_the_engine(
    async_stock: openai.AsyncOpenAI, engine: ScriptedEngine, stream: bool
) -> None:
    with anyio.move_on_after(0.05) as scope:
        made: Any = await async_stock.chat.completions.create(model="m", messages=HANG, stream=stream)  # type: ignore[call-overload]
        async for _ in made:
            pass
    assert scope.cancelled_caught
    assert await anyio.to_thread.run_sync(gone, engine)


@pytest.mark.anyio
async def test_an_async_stream_that_is_closed_leaves_the_engine(
    async_stock: openai.AsyncOpenAI, engine: ScriptedEngine
) -> None:
    stream = await async_stock.chat.completions.create(model="m", messages=HANG, stream=True)  # type: ignore[call-overload]
    assert said([await anext(stream), await anext(stream)]) == "one"
    await stream.close()
    assert await anyio.to_thread.run_sync(gone, engine)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_timeout_is_the_sdk_s_or_httpx_s_and_the_row_leaves(
    stock: openai.OpenAI, engine: ScriptedEngine, stream: bool
) -> None:
    with pytest.raises((openai.APITimeoutError, sdk.httpx.ReadTimeout) if stream else openai.APITimeoutError):
        list(stock.chat.completions.create(model="m", messages=HANG, stream=stream, timeout=0.05))  # type: ignore[call-overload]
    assert gone(engine)


def test_a_stream_that_is_closed_on_another_thread_ends_for_who_reads_it(
    stock: openai.OpenAI, engine: ScriptedEngine
) -> None:
    stream = stock.chat.completions.create(model="m", messages=HANG, stream=True)  # type: ignore[call-overload]
    reading, failed = threading.Event(), []

    def read() -> None:
        try:
            for _ in stream:
                reading.set()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(10)
    stream.response.stream.close()
    thread.join(10)
    assert not thread.is_alive() and isinstance(failed[0], openai.APIConnectionError | sdk.httpx.TransportError)
    assert gone(engine)


def test_a_neighbour_goes_on_when_another_is_closed(stock: openai.OpenAI, engine: ScriptedEngine) -> None:
    hanging = stock.chat.completions.create(model="m", messages=HANG, stream=True)  # type: ignore[call-overload]
    other = stock.chat.completions.create(**ASK, stream=True)
    next(hanging), next(other)
    hanging.close()
    assert said(other) == "one two three"
    assert gone(engine)


def test_one_async_client_serves_several_event_loops(engine: ScriptedEngine) -> None:
    client = openai.AsyncOpenAI(api_key="x", max_retries=0, http_client=async_http_client(engine=engine))

    async def ask() -> str:
        stream = await client.chat.completions.create(**ASK, stream=True)
        return said([chunk async for chunk in stream])

    async def many() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(5)))

    with ThreadPoolExecutor(3) as pool:  # a loop on each thread, at once
        made = list(pool.map(lambda _: asyncio.run(many()), range(3)))
    assert made == [["one two three"] * 5] * 3


def test_a_process_ends_with_a_stream_open() -> None:
    made = run(
        """
        import math, openai
        from localai_shim import http_client
        from localai_shim.testing import Reply, ScriptedEngine
        engine = ScriptedEngine([Reply("one two", interval=math.inf)])
        client = openai.OpenAI(api_key="x", http_client=http_client(engine=engine))
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True)
        print(next(stream).choices[0].delta.role)
        """,
        warm="sdk",
    )
    assert (made.stdout, made.returncode) == ("assistant\n", 0)  # the SDK's own stream may say that it was left


# -- errors ---------------------------------------------------------------------------------------------------------


def test_errors_are_the_sdk_s_with_the_body_of_ours(stock: openai.OpenAI, local: LocalOpenAI) -> None:
    failures = []
    for client in (stock, local):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**ASK, temperature=9)
        failures.append((caught.value.body, caught.value.param, caught.value.status_code))
        assert caught.value.request_id
    assert failures[0] == failures[1]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/images/generations"), ("GET", "/v2"), ("PUT", "/v1/models")]
)
def test_a_path_that_nobody_serves_is_a_404_with_openai_s_body(http: Any, method: str, path: str) -> None:
    response = http.request(method, f"http://x{path}", files={"file": b"\0"} if method == "POST" else None)
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "unknown_url")
    assert f"{method} {path.removeprefix('/v1')}" in error["message"]


@pytest.mark.parametrize("body", [b"{no json", b"[]", b"\xff"])
def test_a_body_that_is_no_object_is_a_400(http: Any, body: bytes) -> None:
    response = http.post(URL, content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "body")


def test_a_stream_that_fails_says_so_in_its_last_event(stock: openai.OpenAI, http: Any) -> None:
    with pytest.raises(openai.APIError, match="the row failed"):
        list(stock.chat.completions.create(model="m", messages=FAIL, stream=True))  # type: ignore[call-overload]
    last = http.post(URL, json={"model": "m", "messages": FAIL, "stream": True}).content.split(b"\n\n")[-2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["type"] == "server_error"


@pytest.mark.anyio
async def test_an_async_stream_that_fails_says_so_too(async_stock: openai.AsyncOpenAI) -> None:
    response = await async_stock._client.post(URL, json={"model": "m", "messages": FAIL, "stream": True})
    assert json.loads(response.content.split(b"\n\n")[-2].removeprefix(b"data: "))["error"]["type"] == "server_error"


def test_the_sdk_s_own_retries_ask_again(
    stock: openai.OpenAI, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai.OpenAI, "_sleep_for_retry", lambda self, **how: None)
    before = len(engine.requests)
    with pytest.raises(openai.RateLimitError):
        stock.with_options(max_retries=2).chat.completions.create(model="m", messages=FULL)  # type: ignore[call-overload]
    assert len(engine.requests) == before + 3


def test_a_closed_engine_is_a_connection_that_broke() -> None:
    with ScriptedEngine(["one"]) as engine:
        client = openai.OpenAI(api_key="x", max_retries=0, http_client=http_client(engine=engine))
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(**ASK)


# -- making one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [http_client, async_http_client])
def test_every_option_of_a_local_client_is_one(make: Any) -> None:
    assert "timeout" in inspect.signature(make).parameters
    assert all(f"\n    {name}: " in (inspect.getdoc(make) or "") for name in ("model", "timeout", *OWN))
    with pytest.raises(TypeError, match=r"'max_row'. Did you mean 'max_rows'\?"):
        make(max_row=1)
    with pytest.raises(TypeError, match="api_key"):
        make(api_key="x")
    with pytest.raises(ValueError, match="max_rows"):
        make(max_rows=0)


def test_a_model_is_loaded_and_shared_with_clients_of_ours(client: LocalOpenAI) -> None:
    with http_client(tiny("qwen3")) as http:
        made = openai.OpenAI(api_key="x", http_client=http).chat.completions.create(**ASK, temperature=0, max_tokens=5)
        assert http.runtime.engine_of("") is inside.engine(client)
    assert (
        made.choices[0].message == client.chat.completions.create(**ASK, temperature=0, max_tokens=5).choices[0].message
    )


def test_unknown_models_of_several_are_not_found() -> None:
    with http_client(models={"mine": tiny("qwen3")}) as http, pytest.raises(openai.NotFoundError, match="'mine'"):
        openai.OpenAI(api_key="x", http_client=http).chat.completions.create(**ASK)


def test_the_sdk_waits_as_long_as_it_does_by_default(http: Any) -> None:
    assert openai.OpenAI(api_key="x", http_client=http).timeout == openai.OpenAI(api_key="x").timeout
    with http_client(engine=ScriptedEngine(), timeout=3) as quick:
        assert openai.OpenAI(api_key="x", http_client=quick).timeout == sdk.httpx.Timeout(3)


# -- tools that replace the SDK's own method ------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What went through `request` of the SDK's classes, as a tool that wraps it there sees it."""
    found: list[Any] = []
    sync, asynchronous = openai.OpenAI.request, openai.AsyncOpenAI.request

    def request(self: Any, *args: Any, **more: Any) -> Any:
        found.append(args[1].json_data["model"])
        return sync(self, *args, **more)

    async def async_request(self: Any, *args: Any, **more: Any) -> Any:
        found.append(args[1].json_data["model"])
        return await asynchronous(self, *args, **more)

    monkeypatch.setattr(openai.OpenAI, "request", request)
    monkeypatch.setattr(openai.AsyncOpenAI, "request", async_request)
    return found


def test_a_wrapper_of_the_sdk_s_request_sees_requests_of_ours(local: LocalOpenAI, seen: list[Any]) -> None:
    assert local.chat.completions.create(**ASK).choices[0].message.content == "one two three"
    stream = local.chat.completions.create(**ASK, stream=True)
    assert isinstance(stream, sdk.LocalStream) and said(stream) == "one two three"
    raw = local.chat.completions.with_raw_response.create(**ASK)
    assert raw.parse().choices[0].message.content == "one two three"
    assert seen == ["gpt-4o"] * 3


@pytest.mark.anyio
async def test_a_wrapper_sees_those_of_the_async_client(engine: ScriptedEngine, seen: list[Any]) -> None:
    client = AsyncLocalOpenAI(engine=engine)
    assert (await client.chat.completions.create(**ASK)).choices[0].message.content == "one two three"
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert isinstance(stream, sdk.LocalAsyncStream) and said([chunk async for chunk in stream]) == "one two three"
    assert seen == ["gpt-4o"] * 2


def test_failures_under_a_wrapper_are_the_same(local: LocalOpenAI, engine: ScriptedEngine, seen: list[Any]) -> None:
    before = len(engine.requests)
    with pytest.raises(openai.RateLimitError, match="full"):
        local.chat.completions.create(model="m", messages=FULL)  # type: ignore[call-overload]
    assert len(engine.requests) == before + 1  # no retries
    with pytest.raises(openai.APITimeoutError):
        local.chat.completions.create(model="m", messages=HANG, timeout=0.05)  # type: ignore[call-overload]
    with pytest.raises(openai.InternalServerError, match="the row failed"):
        list(local.chat.completions.create(model="m", messages=FAIL, stream=True))  # type: ignore[call-overload]
    assert gone(engine)


def test_under_a_wrapper_scripted_failures_are_retried(seen: list[Any]) -> None:
    with scripted(rate_limit(retry_after=20), "Fine") as client:
        assert client.chat.completions.create(**ASK).choices[0].message.content == "Fine"
        assert client.clock.sleeps == [20]
    assert seen == ["gpt-4o"] * 2


def test_without_a_wrapper_no_request_is_made_for_http(local: LocalOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local._client, "send", None)
    assert said(local.chat.completions.create(**ASK, stream=True)) == "one two three"
    monkeypatch.setattr(openai.OpenAI, "request", openai.OpenAI.request, raising=False)  # as tools put it back
    assert local.chat.completions.create(**ASK).choices[0].message.content == "one two three"
