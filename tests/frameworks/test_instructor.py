"""instructor, sync and async, with its modes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import tool_call
from tests.frameworks.kit import PARIS, Answer, Behaviours, Weather, check_filled, fill, framework, get_weather

instructor = framework("instructor")
MODES = ["TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON", "RESPONSES_TOOLS"]


def asks(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], "response_model": None, **more}


def answer(completion: Any) -> Answer:
    usage = completion.usage
    return Answer(completion.choices[0].message.content, usage.prompt_tokens, usage.completion_tokens)


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def after_call(text: str, message: Any) -> dict[str, Any]:
    """The request that brings the result of a call."""
    [call] = message.tool_calls
    result = get_weather(**json.loads(call.function.arguments))
    made = asks(text, tools=[TOOL])
    said = {"content": None, **message.model_dump(exclude_none=True)}  # instructor looks it up
    messages = [said, {"role": "tool", "tool_call_id": call.id, "content": result}]
    return {**made, "messages": made["messages"] + messages}


class TestSync(Behaviours):
    snippet = "instructor"

    def ask(self, text: str) -> Any:
        return answer(self.docs.client.chat.completions.create(**asks(text)))

    def stream(self, text: str) -> Any:
        chunks = self.docs.client.chat.completions.create(**asks(text), stream=True)
        return [chunk.choices[0].delta.content for chunk in chunks]

    def use_tool(self, text: str) -> Any:
        create = self.docs.client.chat.completions.create
        message = create(**asks(text, tools=[TOOL])).choices[0].message
        return create(**after_call(text, message)).choices[0].message.content

    def fill_in(self, text: str) -> Any:
        return self.docs.client.chat.completions.create(**asks(text, response_model=Weather))


class TestAsync(TestSync):
    async def ask(self, text: str) -> Answer:
        return answer(await self.docs.async_client.chat.completions.create(**asks(text)))

    async def stream(self, text: str) -> list[str]:
        chunks = await self.docs.async_client.chat.completions.create(**asks(text), stream=True)
        return [chunk.choices[0].delta.content async for chunk in chunks]

    async def fill_in(self, text: str) -> Weather:
        return await self.docs.async_client.chat.completions.create(**asks(text, response_model=Weather))


@pytest.mark.parametrize("mode", MODES)
def test_each_mode(local_openai: Any, mode: str) -> None:
    local_openai.script(fill)
    client = instructor.from_openai(LocalOpenAI(engine=local_openai.stage), mode=instructor.Mode[mode])
    create = client.responses.create if mode.startswith("RESPONSES") else client.chat.completions.create
    say = {"input": "Weather?"} if mode.startswith("RESPONSES") else {"messages": asks("Weather?")["messages"]}
    check_filled(create(model="gpt-4o", response_model=Weather, **say))


def test_an_answer_that_does_not_validate_is_asked_for_again(local_openai: Any) -> None:
    local_openai.script(tool_call("Weather", city="Paris", celsius="warm", sky="clear"), fill)
    client = instructor.from_openai(LocalOpenAI(engine=local_openai.stage))
    check_filled(client.create(**asks("Weather?", response_model=Weather)))
    assert "validation error" in str(local_openai.last_call.messages)


def test_partial_objects_grow_as_they_stream(local_openai: Any) -> None:
    local_openai.script(fill)
    client = instructor.from_openai(LocalOpenAI(engine=local_openai.stage))
    made = list(client.create_partial(**asks("Weather?", response_model=Weather)))
    assert made[-1].model_dump() == PARIS and len(made) > 2


def test_a_list_streams_object_by_object(local_openai: Any) -> None:
    local_openai.script(lambda request: tool_call(request.tool_names[0], tasks=[PARIS, PARIS]))
    client = instructor.from_openai(LocalOpenAI(engine=local_openai.stage))
    assert list(client.create_iterable(**asks("Weather?", response_model=Weather))) == [Weather(**PARIS)] * 2
