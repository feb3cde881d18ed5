"""What openai-agents 0.24.0 sends with its default model and settings: the bodies as they were recorded.

Its quickstart: an agent that answers, one with a tool, one with an output type, and one that may hand over to another.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine

ARGUMENTS = {
    "properties": {
        "city": {"description": "Where.", "title": "City", "type": "string"},
        "unit": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Unit"},
    },
    "required": ["city", "unit"],
    "title": "get_weather_args",
    "type": "object",
    "additionalProperties": False,
}
OUTPUT = {
    "properties": {
        "city": {"title": "City", "type": "string"},
        "days": {"items": {"type": "integer"}, "title": "Days", "type": "array"},
    },
    "required": ["city", "days"],
    "title": "Out",
    "type": "object",
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
HANDOFF = "Handoff to the Math Tutor agent to handle the request. Specialist agent for math questions"
CALL = {"arguments": '{"city": "Paris", "unit": null}', "name": "get_weather"}


def flat(name: str, parameters: dict[str, Any], description: str) -> dict[str, Any]:
    head: dict[str, Any] = {"name": name, "parameters": parameters, "strict": True}
    return head | {"type": "function", "description": description}


def nested(name: str, parameters: dict[str, Any], description: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters, "strict": True},
    }


def response_body(instructions: str, *items: dict[str, Any], text: Any = None, tools: Any = ()) -> dict[str, Any]:
    return {
        "model": "gpt-5.6-luna",
        "include": [],
        "input": list(items),
        "instructions": instructions,
        "reasoning": {"effort": "none"},
        "text": {**(text or {}), "verbosity": "low"},
        "tools": list(tools),
    }


def chat_body(instructions: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    system = {"content": instructions, "role": "system"}
    wishes = {"reasoning_effort": "none", "verbosity": "low"}
    return {"model": "gpt-5.6-luna", "messages": [system, *messages], **wishes, **more}


def user(text: str) -> dict[str, Any]:
    return {"content": text, "role": "user"}


WEATHER = ("get_weather", ARGUMENTS, "The weather of a city.")
TO_MATH = ("transfer_to_math_tutor", NOTHING, HANDOFF)
MADE = {**CALL, "call_id": "call_1", "type": "function_call", "id": "fc_1", "status": "completed"}
RESULT = {"call_id": "call_1", "output": "sunny in Paris", "type": "function_call_output"}
CHAT_CALL = {"id": "call_1", "type": "function", "function": CALL}
CHAT_MADE = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
CHAT_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "sunny in Paris"}

SAYS_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": null}}\n</tool_call>'
SAYS_HANDOFF = '<tool_call>\n{"name": "transfer_to_math_tutor", "arguments": {}}\n</tool_call>'
SAYS_OUTPUT = '{"city": "Paris", "days": [1, 2]}'

# name -> body of responses, body of chat.completions, what the model says, and what the caller gets of it
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, Any]] = {
    "an answer": (
        response_body("You are a helpful assistant", user("Write a haiku about recursion in programming.")),
        chat_body("You are a helpful assistant", user("Write a haiku about recursion in programming.")),
        "Code calls itself.",
        "Code calls itself.",
    ),
    "a call": (
        response_body("Use tools.", user("Weather in Paris?"), tools=[flat(*WEATHER)]),
        chat_body("Use tools.", user("Weather in Paris?"), tools=[nested(*WEATHER)]),
        SAYS_CALL,
        ("get_weather", {"city": "Paris", "unit": None}),
    ),
    "its result": (
        response_body("Use tools.", user("Weather in Paris?"), MADE, RESULT, tools=[flat(*WEATHER)]),
        chat_body("Use tools.", user("Weather in Paris?"), CHAT_MADE, CHAT_RESULT, tools=[nested(*WEATHER)]),
        "It is sunny.",
        "It is sunny.",
    ),
    "an output type": (
        response_body(
            "Answer.",
            user("?"),
            text={"format": {"type": "json_schema", "name": "final_output", "schema": OUTPUT, "strict": True}},
        ),
        chat_body(
            "Answer.",
            user("?"),
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "final_output", "strict": True, "schema": OUTPUT},
            },
        ),
        SAYS_OUTPUT,
        SAYS_OUTPUT,
    ),
    "a hand-over": (
        response_body("You route.", user("1+1?"), tools=[flat(*TO_MATH)]),
        chat_body("You route.", user("1+1?"), tools=[nested(*TO_MATH)]),
        SAYS_HANDOFF,
        ("transfer_to_math_tutor", {}),
    ),
}


def said(response: Any) -> Any:
    """The text, or the name and arguments of the only call."""
    calls = [item for item in response.output if item.type == "function_call"]
    return (calls[0].name, json.loads(calls[0].arguments)) if calls else response.output_text


def said_in_chat(completion: Any) -> Any:
    """As `said`."""
    message = completion.choices[0].message
    if not message.tool_calls:
        return message.content
    function = message.tool_calls[0].function
    return function.name, json.loads(function.arguments)


@pytest.mark.parametrize("name", REQUESTS)
def test_responses_answer_what_an_agent_sends(name: str) -> None:
    body, _, says, expected = REQUESTS[name]
    with ScriptedEngine([says] * 2, obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        assert said(client.responses.create(**body)) == expected
        with client.responses.with_streaming_response.create(**body, stream=True) as raw:  # as it streams
            *_, last = raw.parse()
    assert last.type == "response.completed"
    assert said(last.response) == expected


@pytest.mark.parametrize("name", REQUESTS)
def test_chat_answers_what_an_agent_sends(name: str) -> None:
    _, body, says, expected = REQUESTS[name]
    with ScriptedEngine([says] * 2, obey_constraints=True) as engine:
        client = LocalOpenAI(engine=engine)
        assert said_in_chat(client.chat.completions.create(**body)) == expected
        with client.chat.completions.stream(**body) as stream:
            assert said_in_chat(stream.get_final_completion()) == expected
