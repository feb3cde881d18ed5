"""Messages: what is accepted, what the chat template gets to see, and where an error points."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from openai.types.chat import ChatCompletionMessageParam

from localai_shim.errors import BadRequest
from localai_shim.prompt.messages import ROLES, template_messages

TEXT = {"type": "text", "text": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

# messages as sent -> messages as the template sees them
SEEN: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "system": ([{"role": "system", "content": "x"}], [{"role": "system", "content": "x"}]),
    "developer": ([{"role": "developer", "content": "x"}], [{"role": "system", "content": "x"}]),
    "user": ([{"role": "user", "content": "x", "name": "Ann"}], [{"role": "user", "content": "x", "name": "Ann"}]),
    "empty text": ([{"role": "user", "content": ""}], [{"role": "user", "content": ""}]),
    "text parts": ([{"role": "user", "content": [TEXT, TEXT]}], [{"role": "user", "content": "hihi"}]),
    "no parts": ([{"role": "user", "content": []}], [{"role": "user", "content": ""}]),
    "parts of Responses": (
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]}],
        [{"role": "user", "content": "ab"}],
    ),
    "refusal part": (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [{"role": "assistant", "content": "no"}],
    ),
    "refusal": ([{"role": "assistant", "refusal": "no"}], [{"role": "assistant", "content": "no"}]),
    "a call": (
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
                ],
            }
        ],
    ),
    "a malformed call": (
        [{"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": "{oops"}}]}],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": None, "type": "function", "function": {"name": "add", "arguments": "{oops"}}],
            }
        ],
    ),
    "a legacy call": (
        [{"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": ""}}],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
            }
        ],
    ),
    "a result": (
        [{"role": "tool", "tool_call_id": "call_1", "content": "3"}],
        [{"role": "tool", "tool_call_id": "call_1", "content": "3"}],
    ),
    "a legacy result": (
        [{"role": "function", "name": "f", "content": "3"}],
        [{"role": "tool", "name": "f", "content": "3"}],
    ),
    "a legacy result of nothing": (
        [{"role": "function", "name": "f", "content": None}],
        [{"role": "tool", "name": "f", "content": ""}],
    ),
    "more than OpenAI has": (
        [{"role": "assistant", "content": "x", "reasoning_content": "because", "nothing": None}],
        [{"role": "assistant", "content": "x", "reasoning_content": "because"}],
    ),
    "an answer of the SDK": (
        [
            {
                "role": "assistant",
                "content": "x",
                "refusal": None,
                "annotations": [],
                "audio": None,
                "function_call": None,
                "tool_calls": None,
            }
        ],
        [{"role": "assistant", "content": "x"}],
    ),
}

# messages -> param, code and a piece of the message of the error
WRONG: list[tuple[Any, str, str, str]] = [
    (None, "messages", "invalid_type", "expected an array of objects, but got null"),
    ({}, "messages", "invalid_type", "but got an object"),
    ([], "messages", "empty_array", "minimum length 1"),
    ([None], "messages[0]", "invalid_type", "expected an object, but got null"),
    ([{}], "messages[0].role", "missing_required_parameter", "'messages[0].role'"),
    ([{"role": "bot", "content": "x"}], "messages[0].role", "invalid_value", "'bot'. Supported values are: 'system'"),
    ([{"role": None, "content": "x"}], "messages[0].role", "invalid_value", "Supported values are"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role", "invalid_value", "Supported values are"),
    ([{"role": "user", "content": None}], "messages[0].content", "missing_required_parameter", "content"),
    ([{"role": "assistant"}], "messages[0].content", "missing_required_parameter", "content"),
    ([{"role": "assistant", "tool_calls": []}], "messages[0].content", "missing_required_parameter", "content"),
    ([{"role": "user", "content": 1.5}], "messages[0].content", "invalid_type", "a decimal"),
    ([{"role": "user", "content": {"text": "x"}}], "messages[0].content", "invalid_type", "an object"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", "invalid_type", "expected an object"),
    (
        [{"role": "user", "content": [TEXT, {"text": "x"}]}],
        "messages[0].content[1].type",
        "missing_required_parameter",
        "Missing required parameter",
    ),
    (
        [{"role": "user", "content": [{"type": "text"}]}],
        "messages[0].content[0].text",
        "missing_required_parameter",
        "Missing required parameter",
    ),
    (
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        "messages[0].content[0].text",
        "invalid_type",
        "expected a string, but got an integer",
    ),
    ([{"role": "user", "content": [{"type": "smell"}]}], "messages[0].content[0].type", "invalid_value", "'smell'"),
    ([{"role": "user", "content": [{"type": {}}]}], "messages[0].content[0].type", "invalid_value", "{}"),
    (
        [{"role": "user", "content": [{"type": "image_url"}]}],
        "messages[0].content[0].type",
        "unsupported_value",
        "text only",
    ),
    (
        [{"role": "user", "content": [{"type": "input_audio"}]}],
        "messages[0].content[0].type",
        "unsupported_value",
        "text only",
    ),
    (
        [{"role": "user", "content": [{"type": "file"}]}],
        "messages[0].content[0].type",
        "unsupported_value",
        "text only",
    ),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0].name", "invalid_type", "expected a string"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id", "missing_required_parameter", "tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": 5}], "messages[0].tool_call_id", "invalid_type", "a string"),
    ([{"role": "function", "content": "x"}], "messages[0].name", "missing_required_parameter", "name"),
    ([{"role": "function", "name": "f"}], "messages[0].content", "missing_required_parameter", "content"),
    ([{"role": "assistant", "audio": {"id": "a"}}], "messages[0].audio", "unsupported_value", "Audio"),
    ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls", "invalid_type", "an array of objects"),
    ([{"role": "assistant", "tool_calls": ["x"]}], "messages[0].tool_calls[0]", "invalid_type", "an object"),
    (
        [{"role": "assistant", "tool_calls": [{}]}],
        "messages[0].tool_calls[0].function",
        "missing_required_parameter",
        "Missing required parameter",
    ),
    (
        [{"role": "assistant", "tool_calls": [CALL, {"function": {"arguments": "{}"}}]}],
        "messages[0].tool_calls[1].function.name",
        "missing_required_parameter",
        "name",
    ),
    ([{"role": "assistant", "function_call": "f"}], "messages[0].function_call", "invalid_type", "an object"),
]


@pytest.mark.parametrize("name", SEEN)
def test_the_template_sees(name: str) -> None:
    sent, seen = SEEN[name]
    assert template_messages(sent) == seen


@pytest.mark.parametrize(("messages", "param", "code", "fragment"), WRONG, ids=lambda value: str(value)[:48])
def test_an_error_names_the_place(messages: Any, param: str, code: str, fragment: str) -> None:
    with pytest.raises(BadRequest) as caught:
        template_messages(messages)
    error = caught.value
    assert (error.param, error.code, error.status) == (param, code, 400)
    assert fragment in error.message


def test_an_error_counts_the_messages_before_it() -> None:
    good = {"role": "user", "content": "x"}
    with pytest.raises(BadRequest) as caught:
        template_messages([good, good, {"role": "user", "content": [TEXT, TEXT, {"type": "smell"}]}])
    assert caught.value.param == "messages[2].content[2].type"


def test_a_template_with_a_developer_role_gets_it() -> None:
    message = {"role": "developer", "content": "x"}
    assert template_messages([message], knows_developer=True) == [message]


def test_what_was_sent_is_not_changed() -> None:
    sent = [{"role": "developer", "content": [dict(TEXT)]}, {"role": "assistant", "tool_calls": [CALL]}]
    copy = [dict(message) for message in sent]
    template_messages(sent)
    assert sent == copy


def test_the_roles_are_openais() -> None:
    roles = {
        role for message in get_args(ChatCompletionMessageParam) for role in get_args(get_type_hints(message)["role"])
    }
    assert roles == set(ROLES)
