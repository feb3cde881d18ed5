"""What holds for every endpoint that answers with text."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import counted, refused, revalidate
from tests.endpoints.text import ENDPOINTS, PATHS, ask, piece_of, streamed, text_of

endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
with_choices = pytest.mark.parametrize("endpoint", ENDPOINTS[:2])


@pytest.mark.parametrize(("endpoint", "path"), [*zip(ENDPOINTS, PATHS, strict=True)])
def test_an_error_is_filled_as_the_sdk_fills_it(client: LocalOpenAI, endpoint: str, path: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, endpoint, temperature=-1)
    error = caught.value
    body = {
        "message": "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead.",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "decimal_below_min_value",
    }
    assert (error.status_code, error.body, error.type) == (400, body, "invalid_request_error")
    assert error.response.json() == {"error": body}
    assert error.request_id == error.response.headers["x-request-id"]
    assert str(error.request.url).endswith(path)


@pytest.mark.anyio
@endpoints
@pytest.mark.parametrize("stream", [False, True])
async def test_the_async_client_refuses_alike(async_client: AsyncLocalOpenAI, endpoint: str, stream: bool) -> None:
    with refused("temperature", "decimal_below_min_value", "Expected a value >= 0"):
        await ask(async_client, endpoint, temperature=-1, stream=stream)


@pytest.mark.anyio
@endpoints
async def test_the_async_client_answers_alike(
    async_client: AsyncLocalOpenAI, client: LocalOpenAI, endpoint: str
) -> None:
    expected = ask(client, endpoint)
    whole = await ask(async_client, endpoint)
    chunks = [chunk async for chunk in await ask(async_client, endpoint, stream=True)]
    assert "".join(map(piece_of, chunks)) == text_of(whole) == text_of(expected) != ""
    assert whole.usage.total_tokens == expected.usage.total_tokens
    if endpoint == "chat":
        for made in (whole, *chunks):
            revalidate(made)
    if endpoint != "responses":
        assert whole.choices == expected.choices and counted(whole.usage) == counted(expected.usage)


@endpoints
@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_client_says_so(model_path: Any, endpoint: str, stream: bool) -> None:
    client = LocalOpenAI(model_path)
    client.close()
    assert client.is_closed()
    with pytest.raises(openai.APIConnectionError, match="closed"):
        ask(client, endpoint, stream=stream)


@endpoints
@pytest.mark.parametrize("as_list", [False, True], ids=["a string", "a list of four"])
def test_a_stop_string_cuts_the_text_wherever_tokens_end(client: LocalOpenAI, endpoint: str, as_list: bool) -> None:
    text = text_of(ask(client, endpoint))
    assert len(text) > 8
    for at in range(len(text) - 2):
        wanted = text[at : at + 3]
        if wanted.endswith("\ufffd"):  # bytes that may yet become a character: no text ends there before the next token
            continue
        stop = [wanted, "never said", wanted + "!?", "\u2603\u2603"] if as_list else wanted
        made = ask(client, endpoint, stop=stop)
        assert text_of(made) == text[: text.find(wanted)] == streamed(client, endpoint, stop=stop), wanted
        assert endpoint == "responses" or made.choices[0].finish_reason == "stop"


@with_choices
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_says_what_the_whole_answer_says(client: LocalOpenAI, endpoint: str, usage: bool) -> None:
    whole = ask(client, endpoint, n=2)
    options = {"stream_options": {"include_usage": True, "include_obfuscation": False}} if usage else {}
    chunks = list(ask(client, endpoint, stream=True, n=2, **options))
    assert {(c.id, c.created, c.model, c.system_fingerprint) for c in chunks} == {
        (chunks[0].id, chunks[0].created, whole.model, whole.system_fingerprint)
    }
    assert {c.object for c in chunks} == {{"chat": "chat.completion.chunk", "completions": whole.object}[endpoint]}
    if usage:
        last = chunks.pop()
        revalidate(last)
        assert last.choices == [] and counted(last.usage) == counted(whole.usage)
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert all(("usage" in chunk.model_fields_set) is usage for chunk in chunks)
    for index in (0, 1):
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(piece_of(chunk, index) for chunk in chunks) == text_of(whole, index)
        assert reasons == [None] * (len(reasons) - 1) + [whole.choices[index].finish_reason]
