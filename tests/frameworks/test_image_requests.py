"""What frameworks send with a picture in the user's message, and as a tool's result: bodies as they were recorded.

langchain-openai 1.7.3 (image blocks), openai-agents 0.24.0 (`input_image`, `ToolOutputImage`), pydantic-ai 2.38.0
(`BinaryContent`) and instructor 1.17.0 (`Image`), each with its default settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from localai_shim import LocalOpenAI
from tests.conftest import refused
from tests.endpoints.pictures import RED, data_url
from tests.endpoints.seeing import seeing

URL = data_url(RED)
TEXT: Any = {"type": "text", "text": "What is this?"}
INPUT_TEXT: Any = {"type": "input_text", "text": "What is this?"}
NO_ARGUMENTS: Any = {"additionalProperties": False, "properties": {}, "type": "object"}
LOOK: Any = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {**NO_ARGUMENTS, "title": "look_args"}},
}
FLAT_LOOK: Any = {
    "name": "look",
    "parameters": NO_ARGUMENTS,
    "type": "function",
    "description": "Look.",
    "strict": False,
}
CALL: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "id": "call_1", "function": {"name": "look", "arguments": "{}"}}],
}
FLAT_CALL: Any = {"name": "look", "arguments": "{}", "call_id": "call_1", "type": "function_call"}
SCHEMA: Any = {
    "description": "What is seen.",
    "properties": {"colour": {"title": "Colour", "type": "string"}},
    "required": ["colour"],
    "title": "D",
    "type": "object",
}
SEEN: Any = {
    "type": "function",
    "function": {
        "name": "D",
        "description": "What is seen.",
        "parameters": {key: SCHEMA[key] for key in ("properties", "required", "type")},
    },
}
FLAT_SEEN: Any = {
    "type": "function",
    "name": "D",
    "description": "What is seen.",
    "parameters": {**SCHEMA, "additionalProperties": False},
}
JSON, CALLS_D = '{"colour": "red"}', '<tool_call>\n{"name": "D", "arguments": {"colour": "red"}}\n</tool_call>'


def shown(*parts: Any) -> dict[str, Any]:
    return {"content": list(parts), "role": "user"}


def part(**more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": URL, **more}}


def item(**more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": URL, **more}


def result(content: Any) -> dict[str, Any]:
    return {"content": content, "role": "tool", "tool_call_id": "call_1"}


def output(content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "call_1", "output": content}


# name -> what the request has beside the model, and what the model says
CHAT: dict[str, tuple[dict[str, Any], str]] = {
    "langchain: a block": ({"messages": [shown(TEXT, part())], "stream": False}, "Red."),
    "langchain: a URL beside its type": (
        {"messages": [shown(TEXT, {"type": "image_url", "image_url": URL})], "stream": False},
        "Red.",
    ),
    "langchain: a tool's result": (
        {"messages": [{"content": "Look", "role": "user"}, CALL, result([part()])], "stream": False},
        "Red.",
    ),
    "openai-agents: a message": (
        {
            "messages": [
                {"content": "Look.", "role": "system"},
                shown(part(detail="auto"), TEXT),
                {"role": "user", "content": "What do you see?"},
            ],
            "reasoning_effort": "none",
            "verbosity": "low",
        },
        "Red.",
    ),
    "pydantic-ai: a message": (
        {"messages": [shown(TEXT, part(detail="low"), {"text": "Say.", "type": "text"})], "stream": False},
        "Red.",
    ),
    "pydantic-ai: a tool's result": (
        {
            "messages": [
                {"role": "user", "content": "Look"},
                CALL,
                result('["Here:","See file 2b7cb6."]'),
                shown({"text": "This is file 2b7cb6:", "type": "text"}, part()),
            ],
            "stream": False,
            "tool_choice": "auto",
            "tools": [LOOK],
        },
        "Red.",
    ),
    "instructor: tools": (
        {
            "messages": [shown(TEXT, part())],
            "tool_choice": {"type": "function", "function": {"name": "D"}},
            "tools": [SEEN],
        },
        CALLS_D,
    ),
    "instructor: JSON": (
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Make sure to return JSON"}]},
                shown(TEXT, part()),
            ],
            "response_format": {"type": "json_object"},
        },
        JSON,
    ),
    "instructor: a schema": (
        {
            "messages": [shown(TEXT, part())],
            "response_format": {"type": "json_schema", "json_schema": {"name": "D", "schema": SCHEMA}},
        },
        JSON,
    ),
}
RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "langchain: a block": ({"input": [{**shown(INPUT_TEXT, item()), "type": "message"}], "stream": False}, "Red."),
    "langchain: a tool's result": (
        {"input": [{"content": "Look", "role": "user", "type": "message"}, FLAT_CALL, output([item()])]},
        "Red.",
    ),
    "openai-agents: a message": (
        {
            "include": [],
            "input": [shown(item(detail="auto"), INPUT_TEXT)],
            "instructions": "Look.",
            "reasoning": {"effort": "none"},
            "text": {"verbosity": "low"},
            "tools": [],
        },
        "Red.",
    ),
    "openai-agents: a tool's result": (
        {
            "include": [],
            "input": [
                {"content": "Look", "role": "user"},
                {**FLAT_CALL, "id": "fc_1", "status": "completed"},
                output([{"type": "input_text", "text": "Here"}, item(detail="high")]),
            ],
            "instructions": "Look.",
            "reasoning": {"effort": "none"},
            "text": {"verbosity": "low"},
            "tools": [{**FLAT_LOOK, "strict": True, "parameters": {**NO_ARGUMENTS, "required": []}}],
        },
        "Red.",
    ),
    "pydantic-ai: a message": ({"input": [shown(INPUT_TEXT, item(detail="auto"))], "stream": False}, "Red."),
    "pydantic-ai: a tool's result": (
        {
            "input": [
                {"role": "user", "content": "Look"},
                FLAT_CALL,
                output([{"type": "input_text", "text": "Here:"}, item(detail="auto")]),
            ],
            "stream": False,
            "tool_choice": "auto",
            "tools": [FLAT_LOOK],
        },
        "Red.",
    ),
    "instructor: a tool and a format": (
        {
            "input": [shown(INPUT_TEXT, item())],
            "text": {"format": {"type": "json_schema", "name": "D", "strict": True, "schema": FLAT_SEEN["parameters"]}},
            "tool_choice": {"type": "function", "name": "D"},
            "tools": [FLAT_SEEN],
        },
        CALLS_D,
    ),
}


@contextmanager
def looking(monkeypatch: pytest.MonkeyPatch, says: str) -> Iterator[LocalOpenAI]:
    """A client of a model that gives two answers; each prompt has one picture, which is read once."""
    engine, model = seeing(monkeypatch, says, says, obey_constraints=True)
    with engine:
        yield LocalOpenAI(engine=engine)
    assert [prompt.count("<image>") for prompt in engine.prompts] == [8, 8] and model.seen == [RED]


@pytest.mark.parametrize("name", CHAT)
def test_chat_answers_what_is_sent_with_a_picture(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body, says = CHAT[name]
    with looking(monkeypatch, says) as client:
        message = client.chat.completions.create(model="gpt-4o", **body).choices[0].message
        said: Any = message.tool_calls[0] if message.tool_calls else None
        assert said.function.arguments == '{"colour": "red"}' if says == CALLS_D else message.content == says
        chunks = client.chat.completions.create(model="gpt-4o", **{**body, "stream": True})
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "tool_calls")


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_answer_what_is_sent_with_a_picture(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body, says = RESPONSES[name]
    with looking(monkeypatch, says) as client:
        response = client.responses.create(model="gpt-4o", **body)
        calls = [each for each in response.output if each.type == "function_call"]
        assert calls[0].arguments == '{"colour": "red"}' if says == CALLS_D else response.output_text == says
        *_, last = client.responses.create(model="gpt-4o", **{**body, "stream": True})
        assert last.type == "response.completed"


def test_what_pydantic_ai_s_image_url_sends_is_not_fetched_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = seeing(monkeypatch)
    url = "https://example.com/a.png"
    with engine, LocalOpenAI(engine=engine) as client:
        with refused("messages[0].content[1].image_url.url", "invalid_image_url", "allow_remote_images=True"):
            sent: Any = shown(TEXT, {"image_url": {"url": url}, "type": "image_url"})
            client.chat.completions.create(model="gpt-4o", messages=[sent])
        with refused("input[0].content[1].image_url", "invalid_image_url", "allow_remote_images=True"):
            sent = shown(INPUT_TEXT, {"image_url": url, "type": "input_image", "detail": "auto"})
            client.responses.create(model="gpt-4o", input=[sent])
