"""with_raw_response, with_streaming_response and client.post: the response behind an answer."""

from __future__ import annotations

import importlib
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.sdk.private import httpx as sdk_httpx
from tests.conftest import MESSAGES

CREATE: dict[str, Any] = {"model": "gpt-4o", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
PATH = "/chat/completions"


def said(chunks: list[Any]) -> str:
    """What chunks say, as objects or as parsed JSON."""
    objects = [chunk if isinstance(chunk, dict) else chunk.model_dump() for chunk in chunks]
    return "".join(choice["delta"].get("content") or "" for chunk in objects for choice in chunk["choices"])


def parse_sse(text: str) -> list[dict[str, Any]]:
    """The events of a server-sent stream, which has to end with [DONE]."""
    events = [part.removeprefix("data: ") for part in text.strip().split("\n\n")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


@pytest.fixture(scope="module")
def expected(client: LocalOpenAI) -> str:
    """The text of the answer that every test here asks for."""
    return str(client.chat.completions.create(**CREATE).choices[0].message.content)


def test_the_response_class_is_that_of_the_sdks_http_library() -> None:
    name = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"
    assert sdk_httpx is importlib.import_module(name)


def test_a_raw_response_has_headers_json_and_the_parsed_answer(client: LocalOpenAI, expected: str) -> None:
    raw = client.chat.completions.with_raw_response.create(**CREATE)
    made = raw.parse()
    assert isinstance(made, ChatCompletion) and made.choices[0].message.content == expected
    assert (raw.status_code, raw.method, raw.http_response.is_success) == (200, "POST", True)
    assert raw.headers["content-type"] == "application/json"
    assert raw.request_id == raw.headers["x-request-id"] and str(raw.request_id).startswith("req_")
    assert isinstance(raw.http_response, sdk_httpx.Response) and raw.elapsed.total_seconds() > 0
    assert json.loads(raw.text) == json.loads(raw.content) == raw.http_response.json() == made.to_dict(mode="json")
    assert ChatCompletion.model_validate(raw.http_response.json()) == made
    assert str(raw.url).endswith(PATH) and "openai.com" not in str(raw.url)


def test_the_answer_knows_its_request_id(client: LocalOpenAI) -> None:
    made = [client.chat.completions.create(**CREATE) for _ in range(2)]
    assert all(str(completion._request_id).startswith("req_") for completion in made)
    assert made[0]._request_id != made[1]._request_id


def test_a_raw_response_of_a_stream_parses_to_a_stream(client: LocalOpenAI, expected: str) -> None:
    raw = client.chat.completions.with_raw_response.create(**CREATE, stream=True)
    assert raw.headers["content-type"].startswith("text/event-stream") and raw.request_id is not None
    stream = raw.parse()
    assert isinstance(stream, openai.Stream)
    assert said(list(stream)) == expected


def test_a_raw_response_of_a_stream_can_be_read_as_server_sent_events(client: LocalOpenAI, expected: str) -> None:
    raw = client.chat.completions.with_raw_response.create(**CREATE, stream=True)
    events = parse_sse(raw.http_response.read().decode())
    assert said(events) == expected
    assert all(ChatCompletionChunk.model_validate(event).id == events[0]["id"] for event in events)


def test_a_streaming_response_of_a_whole_answer(client: LocalOpenAI, expected: str) -> None:
    with client.chat.completions.with_streaming_response.create(**CREATE) as response:
        assert response.headers["content-type"] == "application/json" and response.request_id is not None
        body = json.loads(response.read())
        assert response.json() == body
        made = response.parse()
    assert body["choices"][0]["message"]["content"] == expected == made.choices[0].message.content


def test_a_streaming_response_of_a_stream(client: LocalOpenAI, expected: str) -> None:
    with client.chat.completions.with_streaming_response.create(**CREATE, stream=True) as response:
        assert said(list(response.parse())) == expected
    with client.chat.completions.with_streaming_response.create(**CREATE, stream=True) as response:
        assert said(parse_sse("\n".join(response.iter_lines()))) == expected


def test_a_stream_knows_its_response_and_can_be_closed_early(client: LocalOpenAI, expected: str) -> None:
    with client.chat.completions.create(**CREATE, stream=True) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        first = next(stream)
    assert first.choices[0].delta.role == "assistant"
    assert list(stream) == []
    assert client.chat.completions.create(**CREATE).choices[0].message.content == expected


@pytest.mark.anyio
async def test_the_async_client_gives_raw_responses_alike(async_client: AsyncLocalOpenAI, expected: str) -> None:
    raw = await async_client.chat.completions.with_raw_response.create(**CREATE)
    made = raw.parse()
    assert made.choices[0].message.content == expected
    assert raw.http_response.json() == made.to_dict(mode="json") and raw.request_id == raw.headers["x-request-id"]
    raw_stream = await async_client.chat.completions.with_raw_response.create(**CREATE, stream=True)
    stream = raw_stream.parse()
    assert isinstance(stream, openai.AsyncStream)
    assert said([chunk async for chunk in stream]) == expected
    again = await async_client.chat.completions.with_raw_response.create(**CREATE, stream=True)
    assert said(parse_sse((await again.http_response.aread()).decode())) == expected


@pytest.mark.anyio
async def test_the_async_client_gives_streaming_responses_alike(async_client: AsyncLocalOpenAI, expected: str) -> None:
    create = async_client.chat.completions.with_streaming_response.create
    async with create(**CREATE) as response:
        assert (await response.parse()).choices[0].message.content == expected
        assert (await response.json())["choices"][0]["message"]["content"] == expected
    async with create(**CREATE, stream=True) as response:
        assert said([chunk async for chunk in await response.parse()]) == expected
    async with create(**CREATE, stream=True) as response:
        lines = [line async for line in response.iter_lines()]
    assert said(parse_sse("\n".join(lines))) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_has_openais_json(client: LocalOpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.with_raw_response.create(**CREATE, n=0, stream=stream)
    response = caught.value.response
    assert response.headers["content-type"] == "application/json" and response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error == caught.value.body
    assert caught.value.request_id == response.headers["x-request-id"]


def test_post_casts_to_what_is_asked_for(client: LocalOpenAI, expected: str) -> None:
    body = {**CREATE}
    response = client.post(PATH, cast_to=sdk_httpx.Response, body=body)
    assert response.json()["choices"][0]["message"]["content"] == expected
    mapping: Any = client.post(PATH, cast_to=dict[str, Any], body=body)
    assert mapping["choices"][0]["message"]["content"] == expected
    made = client.post(PATH, cast_to=ChatCompletion, body=body)
    assert isinstance(made, ChatCompletion) and made.choices[0].message.content == expected
    raw = client.post(PATH, cast_to=sdk_httpx.Response, body={**body, "stream": True})
    assert said(parse_sse(raw.read().decode())) == expected
    stream = client.post(
        PATH,
        cast_to=ChatCompletionChunk,
        body={**body, "stream": True},
        stream=True,
        stream_cls=openai.Stream[ChatCompletionChunk],
    )
    assert said(list(stream)) == expected


@pytest.mark.anyio
async def test_the_async_client_posts_alike(async_client: AsyncLocalOpenAI, expected: str) -> None:
    response = await async_client.post(PATH, cast_to=sdk_httpx.Response, body=dict(CREATE))
    assert response.json()["choices"][0]["message"]["content"] == expected
    mapping: Any = await async_client.post(PATH, cast_to=dict[str, Any], body=dict(CREATE))
    assert mapping["choices"][0]["message"]["content"] == expected
    raw = await async_client.post(PATH, cast_to=sdk_httpx.Response, body={**CREATE, "stream": True})
    assert said(parse_sse((await raw.aread()).decode())) == expected


def test_get_lists_models_as_json(client: LocalOpenAI) -> None:
    listed: Any = client.get("/models", cast_to=dict[str, Any])
    assert listed["object"] == "list" and [model["id"] for model in listed["data"]] == ["tiny-qwen3"]
    raw = client.models.with_raw_response.retrieve("tiny-qwen3")
    assert raw.http_response.json() == listed["data"][0] == raw.parse().to_dict()


@pytest.mark.parametrize("body", [None, {}, {"model": "m"}, {"model": "m", "messages": []}], ids=str)
def test_post_without_what_is_needed_is_a_bad_request(client: LocalOpenAI, body: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(PATH, cast_to=dict[str, Any], body=body)
    assert caught.value.param in ("model", "messages")


def test_extra_headers_query_and_timeout_are_taken(client: LocalOpenAI, expected: str) -> None:
    raw = client.chat.completions.with_raw_response.create(
        **CREATE, extra_headers={"x-mine": "1"}, extra_query={"page": "2"}, timeout=60
    )
    assert raw.parse().choices[0].message.content == expected
    assert raw.http_request.headers["x-mine"] == "1"


def test_a_timeout_is_the_sdks(client: LocalOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**{**CREATE, "max_tokens": 900}, timeout=0.001)


def test_strict_response_validation_accepts_every_answer(model_path: Any, expected: str) -> None:
    with LocalOpenAI(model_path, _strict_response_validation=True) as strict:
        assert strict.chat.completions.create(**CREATE).choices[0].message.content == expected
        assert said(list(strict.chat.completions.create(**CREATE, stream=True))) == expected
        assert strict.completions.create(model="m", prompt="Hello").choices[0].text
        assert [model.id for model in strict.models.list()] == ["tiny-qwen3"]
