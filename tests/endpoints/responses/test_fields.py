"""Fields of responses.create that are wrong: which exception they get, and which field it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.endpoints.hosted.table import BY_TYPE
from tests.conftest import refused
from tests.endpoints.responses.legal import check_stream

CREATE: dict[str, Any] = {"model": "m", "input": "Hello there", "max_output_tokens": 4, "temperature": 0}

USER = {"role": "user", "content": "Hello"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_1", "name": "shell", "input": "ls"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}

Row = tuple[dict[str, Any], str | None, str | None, str]

# kwargs of create() -> param, code and a piece of the message of the error
SCALARS: list[Row] = [
    ({"model": 5}, "model", "invalid_type", "expected a string, but got an integer"),
    ({"instructions": ["x"]}, "instructions", "invalid_type", "expected a string, but got an array"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value", "Expected a value >= 1"),
    ({"max_output_tokens": "5"}, "max_output_tokens", "invalid_type", "expected an integer, but got a string"),
    ({"max_output_tokens": 2.0}, "max_output_tokens", "invalid_type", "expected an integer, but got a decimal"),
    ({"max_output_tokens": 10**6}, "max_output_tokens", "invalid_value", "max_output_tokens is too large: 1000000"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value", "<= 2"),
    ({"temperature": "hot"}, "temperature", "invalid_type", "expected a decimal, but got a string"),
    ({"top_p": -0.1}, "top_p", "decimal_below_min_value", ">= 0"),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value", "<= 20"),
    ({"top_logprobs": True}, "top_logprobs", "invalid_type", "expected an integer, but got a boolean"),
    ({"max_tool_calls": "3"}, "max_tool_calls", "invalid_type", "expected an integer"),
    ({"max_tool_calls": -1}, "max_tool_calls", "integer_below_min_value", ">= 0"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls", "invalid_type", "expected a boolean"),
    ({"store": "yes"}, "store", "invalid_type", "expected a boolean"),
    ({"background": 1}, "background", "invalid_type", "expected a boolean"),
    ({"background": True, "store": False}, "store", "invalid_value", "in the background has to be stored"),
    ({"extra_body": {"stream": "yes"}}, "stream", "invalid_type", "expected a boolean"),
    ({"stream_options": {}}, "stream_options", None, "only allowed when 'stream' is enabled"),
    ({"stream": True, "stream_options": 5}, "stream_options", "invalid_type", "expected an object"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": 1}},
        "stream_options.include_obfuscation",
        "invalid_type",
        "expected a boolean",
    ),
    (
        {"stream": True, "stream_options": {"include_usage": True}},
        "stream_options.include_usage",
        "unknown_parameter",
        "'stream_options.include_usage'",
    ),
    ({"truncation": "middle"}, "truncation", "invalid_value", "'auto' and 'disabled'"),
    ({"service_tier": "gold"}, "service_tier", "invalid_value", "'gold'"),
    ({"metadata": {"k": 1}}, "metadata.k", "invalid_type", "expected a string"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", "object_above_max_properties", "at most 16"),
    ({"user": 5}, "user", "invalid_type", "expected a string"),
    ({"safety_identifier": 5}, "safety_identifier", "invalid_type", "expected a string"),
    ({"prompt_cache_key": 5}, "prompt_cache_key", "invalid_type", "expected a string"),
    ({"prompt_cache_retention": "forever"}, "prompt_cache_retention", "invalid_value", "'forever'"),
    ({"include": "reasoning.encrypted_content"}, "include", "invalid_type", "expected an array of strings"),
    ({"include": [5]}, "include[0]", "invalid_type", "expected a string, but got an integer"),
    ({"include": ["reasoning.encrypted_content", "all"]}, "include[1]", "invalid_value", "'all'"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter", "Prompt templates are kept by OpenAI"),
    (
        {"extra_body": {"background_options": {"completion_window": "2h"}}},
        "background_options.completion_window",
        "invalid_value",
        "requires 'background'",
    ),
    (
        {"extra_body": {"background_options": {"completion_window": "1h"}}},
        "background_options.completion_window",
        "invalid_value",
        "'1h'",
    ),
    (
        {"extra_body": {"background_options": {"x": 1}}},
        "background_options.x",
        "unknown_parameter",
        "background_options.x",
    ),
    ({"extra_body": {"n": 2}}, "n", "unknown_parameter", "Unknown parameter: 'n'"),
    ({"extra_body": {"messages": [USER]}}, "messages", "unknown_parameter", "Unknown parameter: 'messages'"),
    ({"extra_body": {"response_format": {}}}, "response_format", "unknown_parameter", "'response_format'"),
    ({"extra_body": {"stop": ["a", 5]}}, "stop[1]", "invalid_type", "expected a string"),
    ({"extra_body": {"seed": 1.5}}, "seed", "invalid_type", "expected an integer"),
    ({"extra_body": {"top_k": -2}}, "top_k", "integer_below_min_value", ">= -1"),
    ({"extra_body": {"min_tokens": 5}}, "min_tokens", "invalid_value", "above the limit of 4"),
    ({"extra_body": {"cache_salt": ""}}, "cache_salt", "string_below_min_length", "minimum length 1"),
    ({"extra_body": {"chat_template_kwargs": {"mood": 1}}}, "chat_template_kwargs.mood", "unknown_parameter", "'mood'"),
]

REASONING: list[Row] = [
    ({"reasoning": "low"}, "reasoning", "invalid_type", "expected an object"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value", "'huge'. Supported values are: 'none'"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort", "invalid_type", "'reasoning.effort': expected a string"),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary", "invalid_value", "'auto', 'concise', and 'detailed'"),
    ({"reasoning": {"generate_summary": "x"}}, "reasoning.generate_summary", "invalid_value", "'x'"),
    ({"reasoning": {"mode": 1}}, "reasoning.mode", "invalid_type", "expected a string, but got an integer"),
    ({"reasoning": {"context": "x"}}, "reasoning.context", "invalid_value", "'auto', 'current_turn', and 'all_turns'"),
    ({"reasoning": {"depth": 1}}, "reasoning.depth", "unknown_parameter", "'reasoning.depth'"),
    (
        {"reasoning": {"effort": "low"}, "extra_body": {"reasoning_effort": "low"}},
        "reasoning.effort",
        None,
        "'reasoning.effort' or 'reasoning_effort', not both",
    ),
]


def _format(**fields: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, **fields}}}


TEXT: list[Row] = [
    ({"text": "json"}, "text", "invalid_type", "expected an object"),
    ({"text": {"style": 1}}, "text.style", "unknown_parameter", "'text.style'"),
    ({"text": {"verbosity": "x"}}, "text.verbosity", "invalid_value", "'low', 'medium', and 'high'"),
    (
        {"text": {"verbosity": "medium"}, "extra_body": {"verbosity": "medium"}},
        "text.verbosity",
        None,
        "'text.verbosity' or 'verbosity', not both",
    ),
    ({"text": {"format": "json_object"}}, "text.format", "invalid_type", "'text.format': expected an object"),
    ({"text": {"format": {}}}, "text.format.type", "missing_required_parameter", "'text.format.type'"),
    (_format(type="xml"), "text.format.type", "invalid_value", "'json_object', and 'json_schema'"),
    (_format(type="json_object", name=None), "text.format.schema", "unknown_parameter", "'text.format.schema'"),
    (_format(name=None), "text.format.name", "missing_required_parameter", "'text.format.name'"),
    (_format(name="an answer"), "text.format.name", "invalid_value", "'text.format.name': string does not match"),
    (_format(strict=1), "text.format.strict", "invalid_type", "expected a boolean"),
    (_format(shema={}), "text.format.shema", "unknown_parameter", "'text.format.shema'"),
    (_format(schema=None), "text.format.schema", "missing_required_parameter", "'text.format.schema'"),
    (_format(schema="object"), "text.format.schema", "invalid_type", "'text.format.schema': expected an object"),
    (
        _format(schema={"type": "thing"}),
        "text.format.schema",
        "invalid_json_schema",
        "'answer': at /type: expected",
    ),
    (_format() | {"extra_body": {"guided_regex": "a"}}, "guided_regex", None, "'text.format' and 'guided_regex'"),
]


def _function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": "add", **fields}


def _custom(**fields: Any) -> dict[str, Any]:
    return {"type": "custom", "name": "shell", **fields}


def _tool(tool: Any) -> dict[str, Any]:
    return {"tools": [tool]}


def _choice(choice: Any) -> dict[str, Any]:
    return {"tools": [_function(), _custom()], "tool_choice": choice}


def _allowed(**fields: Any) -> dict[str, Any]:
    return _choice({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}], **fields})


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: ("}
BAD_SCHEMA = {"type": "object", "properties": {"a": {"type": "thing"}}}

TOOLS: list[Row] = [
    ({"tools": 5}, "tools", "invalid_type", "expected an array of objects, but got an integer"),
    ({"tools": _function()}, "tools", "invalid_type", "expected an array of objects, but got an object"),
    ({"tools": [_function(name=str(i)) for i in range(129)]}, "tools", "array_above_max_length", "maximum length 128"),
    (_tool("add"), "tools[0]", "invalid_type", "expected an object, but got a string"),
    (_tool({"name": "add"}), "tools[0].type", "missing_required_parameter", "'tools[0].type'"),
    (_tool({"type": "gadget"}), "tools[0].type", "invalid_value", "'function' and 'custom'"),
    (_tool(_function(name=None)), "tools[0].name", "missing_required_parameter", "'tools[0].name'"),
    (_tool(_function(name=5)), "tools[0].name", "invalid_type", "'tools[0].name': expected a string"),
    (_tool(_function(name="a b")), "tools[0].name", "invalid_value", "'tools[0].name': string does not match"),
    (_tool(_function(name="a" * 129)), "tools[0].name", "string_above_max_length", "maximum length 128"),
    (_tool(_function(**{"async": "yes"})), "tools[0].async", "invalid_type", "expected a boolean"),
    (_tool(_function(defer_loading=1)), "tools[0].defer_loading", "invalid_type", "expected a boolean"),
    (_tool(_function(output_schema=[])), "tools[0].output_schema", "invalid_type", "expected an object"),
    (_tool({"type": "function", "function": {"name": "add"}}), "tools[0].name", "missing_required_parameter", "name"),
    ({"tools": [_function(), _custom(name="add")]}, "tools[1].name", "invalid_value", "more than one tool named 'add'"),
    (_tool(_function(colour="red")), "tools[0].colour", "unknown_parameter", "'tools[0].colour'"),
    (_tool(_function(description=5)), "tools[0].description", "invalid_type", "expected a string"),
    (_tool(_function(strict="yes")), "tools[0].strict", "invalid_type", "expected a boolean"),
    (_tool(_function(parameters=[])), "tools[0].parameters", "invalid_type", "expected an object"),
    (
        _tool(_function(parameters={"type": "array"})),
        "tools[0].parameters",
        "invalid_function_parameters",
        "got 'type: \"array\"'",
    ),
    (
        _tool(_function(parameters=BAD_SCHEMA, strict=True)),
        "tools[0].parameters",
        "invalid_function_parameters",
        "Invalid type: thing",
    ),
    (
        {"tools": [_custom(), _function(parameters=BAD_SCHEMA)], "tool_choice": "required"},
        "tools[1].parameters",
        "invalid_function_parameters",
        "at /properties/a/type: expected one or several of",
    ),
    (_tool(_custom(name=None)), "tools[0].name", "missing_required_parameter", "'tools[0].name'"),
    (_tool(_custom(strict=True)), "tools[0].strict", "unknown_parameter", "'tools[0].strict'"),
    (_tool(_custom(format="text")), "tools[0].format", "invalid_type", "'tools[0].format': expected an object"),
    (_tool(_custom(format={"type": "peg"})), "tools[0].format.type", "invalid_value", "'text' and 'grammar'"),
    (
        _tool(_custom(format={"type": "grammar"})),
        "tools[0].format.syntax",
        "missing_required_parameter",
        "'tools[0].format.syntax'",
    ),
    (
        _tool(_custom(format=GRAMMAR | {"syntax": "peg"})),
        "tools[0].format.syntax",
        "invalid_value",
        "'lark' and 'regex'",
    ),
    (_tool(_custom(format=GRAMMAR)), "tools[0].format.definition", "invalid_value", "for custom tool 'shell'"),
    ({"tool_choice": "required"}, "tool_choice", None, "only allowed when 'tools' are specified"),
    ({"tool_choice": {"type": "function", "name": "add"}}, "tool_choice", None, "only allowed when 'tools'"),
    (_choice("any"), "tool_choice", "invalid_value", "'none', 'auto', and 'required'"),
    (_choice(5), "tool_choice", "invalid_type", "one of a string or an object"),
    (_choice({}), "tool_choice.type", "missing_required_parameter", "'tool_choice.type'"),
    (_choice({"type": "function"}), "tool_choice.name", "missing_required_parameter", "'tool_choice.name'"),
    (_choice({"type": "function", "name": 5}), "tool_choice.name", "invalid_type", "expected a string"),
    (_choice({"type": "function", "name": "sub"}), "tool_choice", None, "no function named 'sub'"),
    (_choice({"type": "custom", "name": "add"}), "tool_choice", None, "no custom tool named 'add'"),
    (
        _choice({"type": "function", "function": {"name": "add"}}),
        "tool_choice.function",
        "unknown_parameter",
        "'tool_choice.function'",
    ),
    (_allowed(mode=None), "tool_choice.mode", "missing_required_parameter", "'tool_choice.mode'"),
    (_allowed(mode="none"), "tool_choice.mode", "invalid_value", "'auto' and 'required'"),
    (_allowed(tools=None), "tool_choice.tools", "missing_required_parameter", "'tool_choice.tools'"),
    (_allowed(tools=[]), "tool_choice.tools", "empty_array", "minimum length 1"),
    (_allowed(tools=[{"type": "custom"}]), "tool_choice.tools[0].name", "missing_required_parameter", "tools[0].name'"),
    (_allowed(tools=[{"type": "custom", "name": "x"}]), "tool_choice.tools[0]", None, "no custom tool named 'x'"),
]
HOSTED_TOOLS = [
    *("web_search", "web_search_preview", "code_interpreter", "image_generation"),
    *("computer", "computer_use_preview", "tool_search"),
]


def _items(*items: Any) -> dict[str, Any]:
    return {"input": list(items)}


def _part(part: Any) -> dict[str, Any]:
    return _items(USER, {"role": "user", "content": [part]})


INPUT: list[Row] = [
    ({"input": None}, "input", "missing_required_parameter", "'input'"),
    ({"input": 5}, "input", "invalid_type", "one of a string or an array of items, but got an integer"),
    ({"input": USER}, "input", "invalid_type", "but got an object"),
    ({"input": "\ud800"}, "input", "invalid_value", "lone surrogate"),
    (_items(), "input", "empty_array", "minimum length 1"),
    (_items("Hello"), "input[0]", "invalid_type", "expected an object, but got a string"),
    (_items(USER, {}), "input[1].type", "missing_required_parameter", "'input[1].type'"),
    (_items({"type": 5}), "input[0].type", "invalid_type", "expected a string"),
    (_items({"type": "letter"}), "input[0].type", "invalid_value", "'letter'. Supported values are: 'message'"),
    (_items(USER, {"role": "tool", "content": "x"}), "input[1].role", "invalid_value", "'tool'"),
    (_items({"type": "message", "content": "x"}), "input[0].role", "missing_required_parameter", "'input[0].role'"),
    (_items({"role": "user"}), "input[0].content", "missing_required_parameter", "'input[0].content'"),
    (_items({"role": "user", "content": 5}), "input[0].content", "invalid_type", "one of a string or array"),
    (_items({**USER, "colour": "red"}), "input[0].colour", "unknown_parameter", "'input[0].colour'"),
    (_items({**USER, "status": "done"}), "input[0].status", "invalid_value", "'done'"),
    (_part("Hello"), "input[1].content[0]", "invalid_type", "expected an object"),
    (_part({"type": "text", "text": "x"}), "input[1].content[0].type", "invalid_value", "'input_text'"),
    (_part({"type": "output_text", "text": "x"}), "input[1].content[0].type", "invalid_value", "'input_text'"),
    (_part({"type": "input_text"}), "input[1].content[0].text", "missing_required_parameter", "content[0].text'"),
    (_part({"type": "input_text", "text": 5}), "input[1].content[0].text", "invalid_type", "expected a string"),
    (_part(IMAGE), "input[1].content[0].type", "unsupported_value", "This model reads text only"),
    (_part({"type": "input_image"}), "input[1].content[0].image_url", "missing_required_parameter", "image_url'"),
    (_part({"type": "input_file", "file_data": "!"}), "input[1].content[0].file_data", "invalid_value", "base64"),
    (_items({**CALL, "arguments": None}, OUTPUT), "input[0].arguments", "missing_required_parameter", "arguments'"),
    (_items({**CALL, "arguments": {}}, OUTPUT), "input[0].arguments", "invalid_type", "expected a string"),
    (_items({**CALL, "call_id": None}, OUTPUT), "input[0].call_id", "missing_required_parameter", "call_id'"),
    (_items({**CALL, "call_id": "c" * 65}, OUTPUT), "input[0].call_id", "string_above_max_length", "length 64"),
    (_items(CALL, {**OUTPUT, "output": 5}), "input[1].output", "invalid_type", "one of a string or array"),
    (_items(CALL, {**OUTPUT, "output": [IMAGE]}), "input[1].output[0].type", "unsupported_value", "text only"),
    (_items(USER, OUTPUT), "input", "missing_tool_call", "No tool call found for function call output with call_id"),
    (_items(OUTPUT, CALL), "input", "missing_tool_call", "call_1"),
    (_items(CUSTOM, OUTPUT), "input", "missing_tool_call", "No tool call found for function call output"),
    (_items(USER, CALL), "input", "missing_tool_output", "No tool output found for function call call_1"),
    (_items(CUSTOM, USER), "input", "missing_tool_output", "No tool output found for custom tool call call_1"),
    (_items(CALL, CALL, OUTPUT), "input", "duplicate_item", "Duplicate tool call found with call_id call_1"),
    (_items(CALL, OUTPUT, OUTPUT), "input", "duplicate_item", "Duplicate function call output"),
    (_items({**USER, "id": "msg_1"}, {**USER, "id": "msg_1"}), "input[1].id", "duplicate_item", "with id msg_1"),
    (_items({**USER, "id": "an id"}), "input[0].id", "invalid_value", "letters, numbers, underscores, or dashes"),
    (_items({"type": "item_reference"}), "input[0].id", "missing_required_parameter", "'input[0].id'"),
    (_items({"type": "reasoning", "id": "rs_1"}), "input[0].summary", "missing_required_parameter", "summary'"),
    (
        _items({"type": "compaction", "encrypted_content": "gAAAAB"}),
        "input[0].encrypted_content",
        "invalid_encrypted_content",
        "not made by this client",
    ),
    (_items({"type": "compaction_trigger"}), "input[0].type", "unsupported_value", "Use responses.compact"),
    ({"input": "word " * 5000}, "input", "context_length_exceeded", "Please reduce the length of the input"),
    ({"input": "word " * 5000, "truncation": "auto"}, "input", "context_length_exceeded", "the length of the input"),
    ({"conversation": 5}, "conversation", "invalid_type", "one of a string or an object"),
    ({"conversation": {}}, "conversation.id", "missing_required_parameter", "'conversation.id'"),
    ({"conversation": {"id": 5}}, "conversation.id", "invalid_type", "expected a string"),
    ({"conversation": {"id": "conv_1", "x": 1}}, "conversation.x", "unknown_parameter", "'conversation.x'"),
    ({"previous_response_id": 5}, "previous_response_id", "invalid_type", "expected a string"),
    (
        {"conversation": "conv_1", "previous_response_id": "resp_1"},
        "previous_response_id",
        "mutually_exclusive_parameters",
        "not both",
    ),
]
HOSTED_ITEMS = ["computer_call", "shell_call"]


def _label(row: object) -> str | None:
    return str(row)[:60] if isinstance(row, dict) else None


@pytest.fixture(scope="module")
def narrow() -> Iterator[LocalOpenAI]:
    """A model that reads calls, with room for a few lines."""
    with LocalOpenAI(context_length=512) as client:
        yield client


@pytest.mark.parametrize(
    ("kwargs", "param", "code", "fragment"), [*SCALARS, *REASONING, *TEXT, *TOOLS, *INPUT], ids=_label
)
def test_a_wrong_field_is_refused(
    narrow: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        narrow.responses.create(**{**CREATE, **kwargs})


COUNTED = [row for row in (*REASONING, *INPUT) if "extra_body" not in row[0] and row[2] != "context_length_exceeded"]


@pytest.mark.parametrize(("kwargs", "param", "code", "fragment"), COUNTED, ids=_label)
def test_counting_refuses_alike(
    narrow: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        narrow.responses.input_tokens.count(**{"model": "m", "input": "Hello", **kwargs})


def test_what_is_too_long_can_be_counted(narrow: LocalOpenAI) -> None:
    assert narrow.responses.input_tokens.count(model="m", input="word " * 5000).input_tokens > 5000


@pytest.mark.parametrize("kind", HOSTED_TOOLS)
def test_hosted_tools_are_refused(narrow: LocalOpenAI, kind: str) -> None:
    hosted: Any = {"type": kind}
    with refused("tools[0].type", "unsupported_value", f"Tools of type '{kind}' are hosted by OpenAI"):
        narrow.responses.create(**CREATE, tools=[hosted])
    if kind in BY_TYPE:
        with refused("tool_choice", None, f"no tool of type '{kind}'"):
            narrow.responses.create(**CREATE, **_choice(hosted))
        return
    with refused("tool_choice.type", "unsupported_value", f"Tools of type '{kind}' are hosted by OpenAI"):
        narrow.responses.create(**CREATE, **_choice(hosted))


@pytest.mark.parametrize("kind", HOSTED_ITEMS)
def test_items_of_hosted_tools_are_refused(narrow: LocalOpenAI, kind: str) -> None:
    with refused("input[1].type", "unsupported_value", f"'{kind}': it belongs to a tool that is hosted by OpenAI"):
        narrow.responses.create(**{**CREATE, **_items(USER, {"type": kind, "id": "x_1"})})


MISSING: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
    ({"conversation": "conv_1"}, "conversation", "conversation_not_found"),
    ({"conversation": {"id": "conv_1"}}, "conversation", "conversation_not_found"),
    (_items(USER, {"type": "item_reference", "id": "msg_1"}), "input[1].id", "item_not_found"),
    (_items({"id": "msg_1"}), "input[0].id", "item_not_found"),
]


@pytest.mark.parametrize(("kwargs", "param", "code"), MISSING, ids=_label)
def test_what_is_not_there_is_not_found(client: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.create(**{**CREATE, **kwargs}, stream=stream)
        assert (caught.value.param, caught.value.code, caught.value.status_code) == (param, code, 404)


def test_a_deleted_conversation_cannot_be_gone_on_from(client: LocalOpenAI) -> None:
    conversation = client.conversations.create()
    client.responses.create(**CREATE, conversation=conversation.id)
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(**CREATE, conversation=conversation.id)
    assert (caught.value.param, caught.value.code) == ("conversation", "conversation_not_found")


def test_another_item_under_an_id_that_the_context_has_is_a_duplicate(client: LocalOpenAI) -> None:
    mine = {**USER, "type": "message", "id": "msg_mine"}
    first = client.responses.create(**{**CREATE, "input": [mine]})
    for item in (mine, {"type": "item_reference", "id": "msg_mine"}):
        client.responses.create(**{**CREATE, **_items(item)}, previous_response_id=first.id)
    with refused("input", "duplicate_item", "Duplicate item found with id msg_mine"):
        client.responses.create(
            **{**CREATE, **_items({**mine, "content": "Something else"})}, previous_response_id=first.id
        )


def test_only_a_response_in_the_background_is_cancelled(client: LocalOpenAI) -> None:
    made = client.responses.create(**CREATE)
    with refused("response_id", "response_not_background", "Cannot cancel a synchronous response"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.cancel("resp_1")
    assert (caught.value.param, caught.value.code) == ("response_id", "response_not_found")


def test_only_a_response_in_the_background_is_streamed_again(client: LocalOpenAI) -> None:
    made = client.responses.create(**CREATE)
    with refused("stream", None, "its events were not stored"):
        client.responses.retrieve(made.id, stream=True)
    with refused("starting_after", None, "only allowed when 'stream' is enabled"):
        client.responses.retrieve(made.id, extra_query={"starting_after": 3})
    with refused("include[0]", "invalid_value", "'all'"):
        client.responses.retrieve(made.id, include=["all"])  # type: ignore[list-item]


def test_tools_may_be_offered_to_a_model_that_has_not_learnt_to_call(client: LocalOpenAI) -> None:
    without = client.responses.create(**CREATE)
    made = client.responses.create(**CREATE, tools=[_function()])  # type: ignore[list-item]
    assert made.usage is not None and without.usage is not None
    assert made.usage.input_tokens > without.usage.input_tokens  # they stand in the prompt


def test_an_explicit_null_means_absent(client: LocalOpenAI) -> None:
    names = [
        *("background", "conversation", "include", "instructions", "max_tool_calls", "metadata", "parallel_tool_calls"),
        *("previous_response_id", "prompt", "reasoning", "service_tier", "store", "stream", "stream_options", "text"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
    ]
    made = client.responses.create(**CREATE, extra_body=dict.fromkeys(names))
    assert made.output_text == client.responses.create(**CREATE).output_text
    assert made.store and made.tools == [] and made.tool_choice == "auto" and made.truncation == "disabled"


def test_a_wrong_request_leaves_nothing(client: LocalOpenAI) -> None:
    conversation = client.conversations.create(items=[{"role": "user", "content": "Hello"}])
    with refused("input", "missing_tool_output", "call_1"):
        client.responses.create(**{**CREATE, **_items(CALL)}, conversation=conversation.id)
    assert len(client.conversations.items.list(conversation.id).data) == 1
    check_stream(list(client.responses.create(**CREATE, conversation=conversation.id, stream=True)))
    assert len(client.conversations.items.list(conversation.id).data) == 3
