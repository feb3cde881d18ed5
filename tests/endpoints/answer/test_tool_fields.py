"""Tools and the choice among them: what is accepted, and where an error points."""

from __future__ import annotations

import functools
import math
from typing import Any, get_args, get_type_hints

import pytest
from openai import pydantic_function_tool
from openai.types.chat import ChatCompletionToolChoiceOptionParam, ChatCompletionToolUnionParam
from pydantic import BaseModel, Field

from localai_shim.endpoints.answer.tool_fields import ToolChoice, read_tool_choice, read_tools
from localai_shim.errors import BadRequest
from localai_shim.grammar.tool import CustomFormat, Tool
from tests.prompt.refusals import refusal

read_functions = functools.partial(read_tools, form="legacy")
read_function_call = functools.partial(read_tool_choice, form="legacy")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"+'}}
TOOLS = [
    {"type": "function", "function": WEATHER},
    {"type": "function", "function": {"name": "now"}},
    {"type": "custom", "custom": {"name": "sql", "description": "A query.", "format": GRAMMAR}},
]


def function(**changes: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f"} | changes}]


def custom(**changes: Any) -> list[dict[str, Any]]:
    return [{"type": "custom", "custom": {"name": "f"} | changes}]


def test_functions_and_custom_tools_are_read() -> None:
    assert read_tools(TOOLS) == [
        Tool("get_weather", SCHEMA, description="The weather."),
        Tool("now"),
        Tool("sql", description="A query.", custom=CustomFormat("lark", 'start: "a"+')),
    ]
    assert [tool.kind for tool in read_tools(TOOLS)] == ["function", "function", "custom"]


@pytest.mark.parametrize("read", [read_tools, read_functions])
def test_null_means_no_tools(read: Any) -> None:
    assert read(None) == []


def test_null_means_that_a_field_of_a_tool_is_absent() -> None:
    nothing = {"description": None, "parameters": None, "strict": None}
    assert read_tools(function(**nothing)) == [Tool("f")]
    assert read_tools(custom(description=None, format=None)) == [Tool("f", custom=CustomFormat())]


def test_strict_is_read() -> None:
    assert [read_tools(function(strict=value))[0].strict for value in (True, False)] == [True, False]


def test_what_the_sdk_makes_of_a_pydantic_model_is_a_tool() -> None:
    class Weather(BaseModel):
        """The weather."""

        city: str = Field(description="Where")

    [tool] = read_tools([pydantic_function_tool(Weather)])
    assert (tool.name, tool.description, tool.strict) == ("Weather", "The weather.", True)
    assert tool.parameters is not None and tool.parameters["properties"]["city"]["type"] == "string"


def test_the_legacy_form_gives_the_same_tools() -> None:
    assert read_functions([WEATHER, {"name": "now"}]) == read_tools(TOOLS[:2])


FLAT: list[dict[str, Any]] = [
    {"type": "function", **WEATHER, "strict": False},
    {"type": "function", "name": "now", "strict": False, "defer_loading": True},
    {"type": "custom", "name": "sql", "description": "A query.", "format": {"type": "grammar", **GRAMMAR["grammar"]}},
]


def test_the_flat_form_gives_the_same_tools_with_paths_of_its_own() -> None:
    nested, flat = read_tools(TOOLS), read_tools(FLAT, "flat")
    assert flat == nested
    assert [tool.path for tool in nested] == ["tools[0].function", "tools[1].function", "tools[2].custom"]
    assert [tool.path for tool in flat] == ["tools[0]", "tools[1]", "tools[2]"]
    definitions = [tool.custom.path for tool in (nested[2], flat[2]) if tool.custom is not None]
    assert definitions == ["tools[2].custom.format.grammar.definition", "tools[2].format.definition"]


def test_only_the_flat_form_leaves_open_whether_a_function_is_strict() -> None:
    assert [tool.strict for tool in read_tools([{"type": "function", "name": "f"}], "flat")] == [None]
    assert [tool.strict for tool in (*read_tools(function()), *read_functions([{"name": "f"}]))] == [False, False]


def test_tools_of_a_namespace_know_their_own_names_and_places() -> None:
    crm = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": FLAT[:2]}
    tools = read_tools([FLAT[2], crm], "flat")
    assert [(tool.name, tool.namespace, tool.path) for tool in tools] == [
        ("sql", None, "tools[0]"),
        ("crm__get_weather", ("crm", "get_weather"), "tools[1].tools[0]"),
        ("crm__now", ("crm", "now"), "tools[1].tools[1]"),
    ]
    assert [tool.description for tool in tools[1:]] == ["The weather.\ncrm: Customers.", "crm: Customers."]


def test_names_are_as_long_as_each_api_allows_and_a_namespace_counts_apart() -> None:
    long = {"type": "function", "name": "f" * 128}
    [tool] = read_tools([{"type": "namespace", "name": "n" * 64, "description": "", "tools": [long]}], "flat")
    assert tool.name == f"{'n' * 64}__{'f' * 128}"
    assert [tool.name for tool in read_tools([long, {"type": "custom", "name": "c" * 128}], "flat")] == [
        "f" * 128,
        "c" * 128,
    ]
    assert [tool.name for tool in read_tools(function(name="f" * 64))] == ["f" * 64]


@pytest.mark.parametrize("flag", ["async", "async_"])
def test_a_tool_of_responses_may_say_that_its_output_comes_later(flag: str) -> None:
    plain: list[dict[str, Any]] = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f"}]},
    ]
    marked = [{**tool, flag: True} for tool in plain[:2]]
    marked.append({**plain[2], "tools": [{**plain[2]["tools"][0], flag: False}]})
    assert read_tools(marked, "flat") == read_tools(plain, "flat")


def test_as_many_tools_as_openai_allows_are_read() -> None:
    many = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]
    assert len(read_tools(many[:128])) == 128
    with pytest.raises(BadRequest, match="maximum length 128, but got an array with length 129") as caught:
        read_tools(many)
    assert (caught.value.param, caught.value.code) == ("tools", "array_above_max_length")


NAME = "tools[0].function.name"
SCHEMA_PATH = "tools[0].function.parameters"
GRAMMAR_PATH = "tools[0].custom.format.grammar"
LOOP: dict[str, Any] = {}
LOOP["properties"] = LOOP

# tools -> param, code and a piece of the message of the error
WRONG: list[tuple[Any, str, str, str]] = [
    ({}, "tools", "invalid_type", "expected an array of objects, but got an object"),
    ([], "tools", "empty_array", "minimum length 1"),
    (["f"], "tools[0]", "invalid_type", "expected an object"),
    ([{}], "tools[0].type", "missing_required_parameter", "'tools[0].type'"),
    ([{"type": 1}], "tools[0].type", "invalid_type", "a string"),
    ([{"type": "spell"}], "tools[0].type", "invalid_value", "'spell'. Supported values are: 'function' and 'custom'"),
    ([{"type": "web_search"}], "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ([{"type": "web_search_preview"}], "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ([{"type": "file_search"}], "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ([{"type": "code_interpreter"}], "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ([{"type": "mcp", "server_label": "x"}], "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ([{"type": "function"}], "tools[0].function", "missing_required_parameter", "'tools[0].function'"),
    ([{"type": "function", "name": "f"}], "tools[0].function", "missing_required_parameter", "function"),
    ([{"type": "function", "function": "f"}], "tools[0].function", "invalid_type", "an object"),
    ([*TOOLS, {"type": "custom"}], "tools[3].custom", "missing_required_parameter", "'tools[3].custom'"),
    ([{**TOOLS[0], "strict": True}], "tools[0].strict", "unknown_parameter", "Unknown parameter: 'tools[0].strict'"),
    ([{"type": "function", "function": {}}], NAME, "missing_required_parameter", NAME),
    (function(name=5), NAME, "invalid_type", "a string"),
    (function(name=""), NAME, "empty_string", "minimum length 1"),
    (function(name="a" * 65), NAME, "string_above_max_length", "maximum length 64, but got a string with length 65"),
    (function(name="get.weather"), NAME, "invalid_value", "string does not match pattern"),
    (function(name="f\n"), NAME, "invalid_value", "string does not match pattern"),
    (function(name="größe"), NAME, "invalid_value", "'^[a-zA-Z0-9_-]+$'"),
    ([*function(), *function()], "tools[1].function.name", "invalid_value", "more than one tool named 'f'"),
    ([*function(), *custom()], "tools[1].custom.name", "invalid_value", "more than one tool named 'f'"),
    (function(description=5), "tools[0].function.description", "invalid_type", "a string"),
    (function(description="\ud800"), "tools[0].function.description", "invalid_value", "surrogate"),
    (function(strict="yes"), "tools[0].function.strict", "invalid_type", "a boolean"),
    (function(returns={}), "tools[0].function.returns", "unknown_parameter", "tools[0].function.returns"),
    (function(parameters=[]), SCHEMA_PATH, "invalid_type", "an object"),
    (function(parameters={"type": "string"}), SCHEMA_PATH, "invalid_function_parameters", "got 'type: \"string\"'"),
    (function(parameters={"default": {1, 2}}), SCHEMA_PATH, "invalid_function_parameters", "cannot be written as JSON"),
    (function(parameters={"default": math.nan}), SCHEMA_PATH, "invalid_function_parameters", "cannot be written"),
    (function(parameters={"title": "\udc00"}), SCHEMA_PATH, "invalid_function_parameters", "cannot be written"),
    (function(parameters=LOOP), SCHEMA_PATH, "invalid_function_parameters", "nested too deeply"),
    (function(parameters={"type": LOOP}), SCHEMA_PATH, "invalid_function_parameters", "nested too deeply"),
    (custom(name="a b"), "tools[0].custom.name", "invalid_value", "pattern"),
    (custom(parameters={}), "tools[0].custom.parameters", "unknown_parameter", "parameters"),
    (custom(format="text"), "tools[0].custom.format", "invalid_type", "an object"),
    (custom(format={}), "tools[0].custom.format.type", "missing_required_parameter", "type"),
    (custom(format={"type": "yaml"}), "tools[0].custom.format.type", "invalid_value", "'text' and 'grammar'"),
    (custom(format={"type": "text", "grammar": {}}), GRAMMAR_PATH, "unknown_parameter", "grammar"),
    (custom(format={"type": "grammar"}), GRAMMAR_PATH, "missing_required_parameter", "grammar"),
    (
        custom(format={"type": "grammar", "grammar": {"syntax": "gbnf", "definition": "x"}}),
        f"{GRAMMAR_PATH}.syntax",
        "invalid_value",
        "'lark' and 'regex'",
    ),
    (
        custom(format={"type": "grammar", "grammar": {"syntax": "lark"}}),
        f"{GRAMMAR_PATH}.definition",
        "missing_required_parameter",
        "definition",
    ),
]


@pytest.mark.parametrize(("tools", "param", "code", "fragment"), WRONG, ids=lambda value: str(value)[:60])
def test_an_error_names_the_place(tools: Any, param: str, code: str, fragment: str) -> None:
    error = refusal(read_tools, tools)
    assert (error.param, error.code, error.status) == (param, code, 400) and fragment in error.message


@pytest.mark.parametrize(
    ("functions", "param", "code"),
    [
        ([], "functions", "empty_array"),
        ([{}], "functions[0].name", "missing_required_parameter"),
        ([{"name": "f"}, {"name": "f"}], "functions[1].name", "invalid_value"),
        ([{"name": "f", "strict": True}], "functions[0].strict", "unknown_parameter"),
        ([{"name": "f", "parameters": {"type": "array"}}], "functions[0].parameters", "invalid_function_parameters"),
    ],
    ids=str,
)
def test_an_error_of_the_legacy_form_names_the_place(functions: Any, param: str, code: str) -> None:
    error = refusal(read_functions, functions)
    assert (error.param, error.code) == (param, code)


# -- the choice -------------------------------------------------------------------------------------------------

ALLOWED = [{"type": "function", "function": {"name": "now"}}, {"type": "custom", "custom": {"name": "sql"}}]


def allowed(**changes: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ALLOWED} | changes}


CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice("auto")),
    ("none", ToolChoice("none")),
    ("auto", ToolChoice("auto")),
    ("required", ToolChoice("required")),
    ({"type": "function", "function": {"name": "now"}}, ToolChoice("required", frozenset({"now"}))),
    ({"type": "custom", "custom": {"name": "sql"}}, ToolChoice("required", frozenset({"sql"}))),
    (allowed(), ToolChoice("auto", frozenset({"now", "sql"}))),
    (allowed(mode="required"), ToolChoice("required", frozenset({"now", "sql"}))),
]


@pytest.mark.parametrize(("value", "choice"), CHOICES, ids=[str(value) for value, _ in CHOICES])
def test_a_choice_is_read(value: Any, choice: ToolChoice) -> None:
    assert read_tool_choice(value, read_tools(TOOLS)) == choice


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        ({"type": "function", "name": "now"}, ToolChoice("required", frozenset({"now"}))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "sql"}]},
            ToolChoice("auto", frozenset({"sql"})),
        ),
    ],
    ids=str,
)
def test_a_flat_choice_is_read(value: Any, choice: ToolChoice) -> None:
    assert read_tool_choice(value, read_tools(FLAT, "flat"), "flat") == choice


def test_every_form_of_the_sdk_is_among_the_choices_read() -> None:
    modes, *objects = get_args(ChatCompletionToolChoiceOptionParam)
    forms = set(get_args(modes)) | {get_args(get_type_hints(form)["type"])[0] for form in objects}
    read = {value if isinstance(value, str) else value["type"] for value, _ in CHOICES if value is not None}
    assert read == forms


def test_the_kinds_of_tools_are_the_sdks() -> None:
    kinds = {get_args(get_type_hints(tool)["type"])[0] for tool in get_args(ChatCompletionToolUnionParam)}
    assert kinds == {tool.kind for tool in read_tools(TOOLS)}


def test_without_tools_and_without_a_choice_nothing_may_be_called() -> None:
    assert read_tool_choice(None, []) == read_function_call(None, []) == ToolChoice("none")


# tool_choice -> param, code and a piece of the message of the error
BAD_CHOICES: list[tuple[Any, str, str | None, str]] = [
    ("any", "tool_choice", "invalid_value", "'any'. Supported values are: 'none', 'auto', and 'required'"),
    (True, "tool_choice", "invalid_type", "one of a string or an object, but got a boolean"),
    ({}, "tool_choice.type", "missing_required_parameter", "type"),
    ({"type": "tool"}, "tool_choice.type", "invalid_value", "'function', 'custom', and 'allowed_tools'"),
    ({"type": "web_search"}, "tool_choice.type", "unsupported_value", "hosted by OpenAI"),
    ({"type": "function", "name": "now"}, "tool_choice.function", "missing_required_parameter", "function"),
    ({"type": "function", "function": {}}, "tool_choice.function.name", "missing_required_parameter", "name"),
    ({"type": "function", "function": {"name": "fly"}}, "tool_choice", None, "no function named 'fly'"),
    ({"type": "function", "function": {"name": "sql"}}, "tool_choice", None, "no function named 'sql'"),
    ({"type": "custom", "custom": {"name": "now"}}, "tool_choice", None, "no custom tool named 'now'"),
    (
        {"type": "function", "function": {"name": "now", "x": 1}},
        "tool_choice.function.x",
        "unknown_parameter",
        "Unknown parameter",
    ),
    ({"type": "allowed_tools"}, "tool_choice.allowed_tools", "missing_required_parameter", "allowed_tools"),
    (allowed(mode=None), "tool_choice.allowed_tools.mode", "missing_required_parameter", "mode"),
    (allowed(mode="none"), "tool_choice.allowed_tools.mode", "invalid_value", "'auto' and 'required'"),
    (allowed(tools=None), "tool_choice.allowed_tools.tools", "missing_required_parameter", "tools"),
    (allowed(tools="now"), "tool_choice.allowed_tools.tools", "invalid_type", "an array of objects"),
    (allowed(tools=[]), "tool_choice.allowed_tools.tools", "empty_array", "minimum length 1"),
    (allowed(tools=["now"]), "tool_choice.allowed_tools.tools[0]", "invalid_type", "an object"),
    (
        allowed(tools=[ALLOWED[0], {"type": "function", "function": {"name": "fly"}}]),
        "tool_choice.allowed_tools.tools[1]",
        None,
        "no function named 'fly' was specified in the 'tools' parameter",
    ),
]


@pytest.mark.parametrize(("value", "param", "code", "fragment"), BAD_CHOICES, ids=lambda value: str(value)[:60])
def test_an_error_in_a_choice_names_the_place(value: Any, param: str, code: str | None, fragment: str) -> None:
    error = refusal(read_tool_choice, value, read_tools(TOOLS))
    assert (error.param, error.code) == (param, code)
    assert fragment in error.message


@pytest.mark.parametrize("value", ["none", "auto", "required", TOOLS[1]], ids=str)
def test_a_choice_needs_tools(value: Any) -> None:
    with pytest.raises(BadRequest, match="'tool_choice' is only allowed when 'tools' are specified") as caught:
        read_tool_choice(value, [])
    assert (caught.value.param, caught.value.code) == ("tool_choice", None)


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        (None, ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("auto", ToolChoice("auto")),
        ({"name": "now"}, ToolChoice("required", frozenset({"now"}))),
    ],
    ids=str,
)
def test_a_legacy_choice_is_read(value: Any, choice: ToolChoice) -> None:
    assert read_function_call(value, read_functions([{"name": "now"}])) == choice


@pytest.mark.parametrize(
    ("value", "param", "code", "fragment"),
    [
        ("required", "function_call", "invalid_value", "'none' and 'auto'"),
        (5, "function_call", "invalid_type", "one of a string or an object"),
        ({}, "function_call.name", "missing_required_parameter", "name"),
        ({"name": "fly"}, "function_call", None, "no function named 'fly' was specified in the 'functions'"),
        ({"name": "now", "x": 1}, "function_call.x", "unknown_parameter", "x"),
    ],
    ids=str,
)
def test_an_error_in_a_legacy_choice_names_the_place(value: Any, param: str, code: str | None, fragment: str) -> None:
    error = refusal(read_function_call, value, read_functions([{"name": "now"}]))
    assert (error.param, error.code) == (param, code)
    assert fragment in error.message


def test_a_legacy_choice_needs_functions() -> None:
    with pytest.raises(BadRequest, match="'function_call' is only allowed when 'functions' are specified"):
        read_function_call("auto", [])
