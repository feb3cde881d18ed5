"""The ten ordinary uses on which pytest-mockllm 0.4.0 was tried under openai 3.54: it failed six of them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import openai
import pydantic
import pytest

from localai_shim.testing import AsyncScriptedOpenAI, ScriptedOpenAI, rate_limit, tool_call

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


class City(pydantic.BaseModel):
    name: str


@pytest.fixture
def client() -> ScriptedOpenAI:
    return ScriptedOpenAI()


def test_1_a_whole_answer_and_what_was_asked(client: ScriptedOpenAI) -> None:
    client.script("Hello!")
    made = client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    assert made.choices[0].message.content == "Hello!" and client.last_call.messages == MESSAGES


def test_2_usage_in_a_stream(client: ScriptedOpenAI) -> None:
    client.script("one two")
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, **options))
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage.completion_tokens == 3


def test_3_parse(client: ScriptedOpenAI) -> None:
    client.script(City(name="Paris"))
    made = client.chat.completions.parse(model="m", messages=MESSAGES, response_format=City)
    assert made.choices[0].message.parsed == City(name="Paris")


def test_4_a_raw_response(client: ScriptedOpenAI) -> None:
    client.script("Hello!")
    raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
    assert raw.headers["x-request-id"] and json.loads(raw.text)["choices"][0]["message"]["content"] == "Hello!"
    assert raw.parse().choices[0].message.content == "Hello!"


def test_5_several_choices(client: ScriptedOpenAI) -> None:
    client.script("one", "two")
    made = client.chat.completions.create(model="m", messages=MESSAGES, n=2)
    assert [choice.message.content for choice in made.choices] == ["one", "two"]


def test_6_a_limit_of_tokens(client: ScriptedOpenAI) -> None:
    client.script("one two three")
    made = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=1)
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("one", "length")


def test_7_completions(client: ScriptedOpenAI) -> None:
    client.script("Hello!")
    assert client.completions.create(model="m", prompt="Hi").choices[0].text == "Hello!"


def test_8_tool_calls(client: ScriptedOpenAI) -> None:
    client.script(tool_call("f", a=1))
    choice = client.chat.completions.create(model="m", messages=MESSAGES, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("f", {"a": 1})


def test_9_an_error_of_the_service(client: ScriptedOpenAI) -> None:
    client.script(rate_limit(retry_after=1))
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(max_retries=0).responses.create(model="m", input="Hi")
    assert caught.value.response.headers["retry-after"] == "1"


def test_10_async_streams() -> None:
    async def main() -> str:
        client = AsyncScriptedOpenAI().script("Hello there!")
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert anyio.run(main) == "Hello there!"
