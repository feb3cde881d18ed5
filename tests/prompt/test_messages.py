"""Messages: what is accepted, what the chat template gets to see, and where an error points."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any, get_args, get_type_hints

import pytest
from openai.types.chat import ChatCompletionMessageParam

from localai_shim.errors import BadRequest
from localai_shim.prompt.messages import ROLES, template_messages
from tests.prompt.refusals import refusal

TEXT = {"type": "text", "text": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "3"}


def called(arguments: Any, name: str = "add", call_id: str = "call_1") -> dict[str, Any]:
    """A call as the template sees it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str) -> dict[str, Any]:
    """An assistant's message with calls of these ids."""
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": call_id} for call_id in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {**RESULT, "tool_call_id": call_id}


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
    "a call and its result": (
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({"a": 1})]},
            {"role": "tool", "tool_call_id": "call_1", "content": "3", "name": "add"},
        ],
    ),
    "a result with a name": (
        [{"role": "assistant", "tool_calls": [CALL]}, {**RESULT, "name": "plus"}],
        [{"role": "assistant", "content": "", "tool_calls": [called({"a": 1})]}, {**RESULT, "name": "plus"}],
    ),
    "a result in parts": (
        [{"role": "assistant", "tool_calls": [CALL]}, {**RESULT, "content": [TEXT, TEXT]}],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({"a": 1})]},
            {"role": "tool", "tool_call_id": "call_1", "content": "hihi", "name": "add"},
        ],
    ),
    "a call of a custom tool": (
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}],
            },
            RESULT,
        ],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({"input": "SELECT 1"}, "sql")]},
            {**RESULT, "name": "sql"},
        ],
    ),
    "no calls": (
        [{"role": "assistant", "content": "x", "tool_calls": []}],
        [{"role": "assistant", "content": "x"}],
    ),
    "a legacy call and its result": (
        [
            {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": ""}},
            {"role": "function", "name": "f", "content": "3"},
        ],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({}, "f", "messages[0].function_call")]},
            {"role": "tool", "name": "f", "content": "3", "tool_call_id": "messages[0].function_call"},
        ],
    ),
    "a legacy call that nothing answers": (
        [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, {"role": "user", "content": "x"}],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({}, "f", "messages[0].function_call")]},
            {"role": "user", "content": "x"},
        ],
    ),
    "a legacy result": (
        [{"role": "function", "name": "f", "content": "3"}],
        [{"role": "tool", "name": "f", "content": "3"}],
    ),
    "a legacy result of nothing": (
        [{"role": "function", "name": "f", "content": None}],
        [{"role": "tool", "name": "f", "content": ""}],
    ),
    "an answer that is only reasoning": (
        [{"role": "assistant", "content": None, "reasoning_content": "Hm."}],
        [{"role": "assistant", "content": "", "reasoning_content": "Hm."}],
    ),
    "an answer that is only reasoning, dumped without nulls": (
        [{"role": "assistant", "reasoning": "Hm."}],
        [{"role": "assistant", "content": "", "reasoning_content": "Hm."}],
    ),
    "an answer of nothing": (
        [{"role": "assistant", "content": None, "tool_calls": None}],
        [{"role": "assistant", "content": ""}],
    ),
    "more than OpenAI has": (
        [{"role": "assistant", "content": "x", "mood": "good", "nothing": None}],
        [{"role": "assistant", "content": "x", "mood": "good"}],
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
                "parsed": {"a": 1},
                "invalid_tool_calls": [],
            }
        ],
        [{"role": "assistant", "content": "x"}],
    ),
    "a parsed answer of the SDK": (
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "index": 0,
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 1}', "parsed_arguments": {"a": 1}},
                    }
                ],
            },
            RESULT,
        ],
        [
            {"role": "assistant", "content": "", "tool_calls": [called({"a": 1})]},
            {**RESULT, "name": "add"},
        ],
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
    ([{"role": None, "content": "x"}], "messages[0].role", "invalid_type", "but got null instead"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role", "invalid_type", "expected one of 'system', 'developer'"),
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
    ([{"role": "user", "content": [{"type": {}}]}], "messages[0].content[0].type", "invalid_type", "got an object"),
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
    (
        [{"role": "assistant", "tool_calls": [{**CALL, "type": "spell"}]}],
        "messages[0].tool_calls[0].type",
        "invalid_value",
        "'spell'. Supported values are: 'function' and 'custom'",
    ),
    (
        [{"role": "assistant", "tool_calls": [{**CALL, "id": None}]}],
        "messages[0].tool_calls[0].id",
        "missing_required_parameter",
        "'messages[0].tool_calls[0].id'",
    ),
    (
        [{"role": "assistant", "tool_calls": [{**CALL, "id": 1}]}],
        "messages[0].tool_calls[0].id",
        "invalid_type",
        "expected a string, but got an integer",
    ),
    (
        [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": [1]}}]}],
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
        "expected a string, but got an array",
    ),
    (
        [{"role": "assistant", "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "f"}}]}],
        "messages[0].tool_calls[0].custom.input",
        "missing_required_parameter",
        "input",
    ),
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


def test_a_role_that_is_nested_too_deeply_to_be_shown_is_refused() -> None:
    role: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        role = [role]
    error = refusal(template_messages, [{"role": role, "content": "x"}])
    assert (error.param, error.code) == ("messages[0].role", "invalid_type") and "got an array" in error.message


@pytest.mark.parametrize("name", SEEN)
def test_the_template_sees(name: str) -> None:
    sent, seen = SEEN[name]
    assert template_messages(sent) == seen


@pytest.mark.parametrize(("messages", "param", "code", "fragment"), WRONG, ids=lambda value: str(value)[:48])
def test_an_error_names_the_place(messages: Any, param: str, code: str, fragment: str) -> None:
    error = refusal(template_messages, messages)
    assert (error.param, error.code, error.status) == (param, code, 400) and fragment in error.message


TOO_EARLY = "must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not"
NO_CALL = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
USER = {"role": "user", "content": "x"}

# calls and results that do not go together -> param and a piece of the message of the error
UNMATCHED: list[tuple[list[Any], str, str]] = [
    ([RESULT], "messages[0].role", NO_CALL),
    ([USER, RESULT], "messages[1].role", NO_CALL),
    ([calling("a"), result("a"), USER, result("a")], "messages[3].role", NO_CALL),
    ([USER, calling("a"), result("b")], "messages[2].tool_call_id", "'tool_call_id' of 'b' not found in 'tool_calls'"),
    ([calling("a"), result("a"), result("a")], "messages[2].tool_call_id", "'a', in messages[1] and messages[2]"),
    ([USER, calling("a")], "messages[1].role", TOO_EARLY),
    ([USER, calling("a"), USER, result("a")], "messages[1].role", TOO_EARLY),
    ([calling("a", "b", "c"), result("b"), USER], "messages[0].role", "did not have response messages: a, c"),
    ([calling("a"), calling("b"), result("b")], "messages[0].role", "did not have response messages: a"),
    ([calling("a"), {"role": "function", "name": "f", "content": "x"}], "messages[0].role", TOO_EARLY),
    ([calling("a", "a")], "messages[0].tool_calls[1].id", "Duplicate value for 'id' of 'a'"),
]


@pytest.mark.parametrize(("messages", "param", "fragment"), UNMATCHED, ids=lambda value: str(value)[:60])
def test_every_call_has_a_result_and_every_result_a_call(messages: Any, param: str, fragment: str) -> None:
    error = refusal(template_messages, messages)
    assert (error.param, error.code) == (param, None)
    assert fragment in error.message


def test_parallel_calls_may_be_answered_in_any_order_and_ids_may_come_again() -> None:
    sent = [calling("a", "b"), result("b"), result("a"), calling("a"), result("a"), USER]
    assert [m.get("tool_call_id") for m in template_messages(sent)] == [None, "b", "a", None, "a", None]


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ('{"a": {"b": [1, null, true]}}', {"a": {"b": [1, None, True]}}),
        ("", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ("{oops", "{oops"),
        ("[1]", "[1]"),
        ('"text"', '"text"'),
        ("null", "null"),
        (r'{"a": "\ud800"}', r'{"a": "\ud800"}'),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: str(value)[:30],
)
def test_arguments_are_objects_and_malformed_ones_stay_as_they_were(arguments: Any, seen: Any) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    [message, _] = template_messages([{"role": "assistant", "tool_calls": [call]}, RESULT])
    assert message["tool_calls"] == [called(seen)]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_has_one_name_whoever_sent_it(name: str) -> None:
    [seen] = template_messages([{"role": "assistant", "content": "x", name: "because"}])
    assert seen == {"role": "assistant", "content": "x", "reasoning_content": "because"}


def test_of_several_names_of_reasoning_the_first_that_says_something_is_taken() -> None:
    sent = {"role": "assistant", "content": "x", "reasoning_content": "", "reasoning": "because", "thinking": "other"}
    assert template_messages([sent]) == [{"role": "assistant", "content": "x", "reasoning_content": "because"}]


def test_empty_reasoning_is_none() -> None:
    sent = {"role": "assistant", "content": "x", "reasoning_content": "", "reasoning": None}
    assert template_messages([sent]) == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "assistant", "content": "x", "reasoning": "\ud800"}, "messages[0].reasoning"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "\ud800"}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "\ud800"}}]},
            "messages[0].tool_calls[0].function.name",
        ),
    ],
    ids=["reasoning", "arguments", "name"],
)
def test_what_is_no_text_is_refused_where_it_stands(message: Any, param: str) -> None:
    with pytest.raises(BadRequest, match="lone surrogate") as caught:
        template_messages([message])
    assert caught.value.param == param


def test_an_error_counts_the_messages_before_it() -> None:
    good = {"role": "user", "content": "x"}
    error = refusal(template_messages, [good, good, {"role": "user", "content": [TEXT, TEXT, {"type": "smell"}]}])
    assert error.param == "messages[2].content[2].type"


def test_a_template_with_a_developer_role_gets_it() -> None:
    message = {"role": "developer", "content": "x"}
    assert template_messages([message], knows_developer=True) == [message]


def test_what_was_sent_is_not_changed() -> None:
    call = {"role": "assistant", "tool_calls": [CALL], "thinking": "because"}
    sent = [{"role": "developer", "content": [dict(TEXT)]}, call, RESULT]
    copy = deepcopy(sent)
    template_messages(sent)
    assert sent == copy


def test_the_roles_are_openais() -> None:
    roles = {
        role for message in get_args(ChatCompletionMessageParam) for role in get_args(get_type_hints(message)["role"])
    }
    assert roles == set(ROLES)
