"""Tools in chat.completions: what a choice allows, custom tools, other formats, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine, ScriptedTokenizer
from tests.conftest import refused
from tests.endpoints.functions import CALL, PARIS, PING, SHELL, TEXT, TOOLS, WEATHER, call, function
from tests.endpoints.scripting import answer, arguments, ask, calls, forbidden, message

FUNCTIONS = [PING["function"], WEATHER["function"]]
NAMED: Any = {"type": "function", "function": {"name": "ping"}}


def grammar_tool(syntax: str, definition: str) -> Any:
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": "query", "format": format}}


def allowing(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


# -- choices that a grammar holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [CALL, call("ping", {}), f"<think>Hm.</think>{CALL}"])
def test_required_lets_the_model_call_and_nothing_else(text: str) -> None:
    [choice] = answer(text, tools=TOOLS, tool_choice="required", obey=True).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)


def test_several_forced_calls_are_made_where_they_are_asked_for() -> None:
    both = f"{CALL}\n{call('ping', {})}"
    [choice] = answer(both, tools=TOOLS, tool_choice="required", parallel_tool_calls=True, obey=True).choices
    assert [name for name, _ in calls(choice.message)] == ["get_weather", "ping"]
    forbidden(both, "", tools=TOOLS, tool_choice="required")


@pytest.mark.parametrize("text", ["No.", f"Well. {CALL}", f"{CALL} Done.", call("launch", {}), call("ping", {"x": 1})])
def test_required_lets_nothing_come_that_is_no_call(text: str) -> None:
    forbidden(text, "", tools=TOOLS, tool_choice="required")


def test_a_call_that_has_to_be_made_is_made_behind_the_thought() -> None:
    amid = f"<think>Hm.\n{CALL}\n</think>\n\n{call('ping', {})}"
    assert [name for name, _ in calls(message(amid, tools=TOOLS, obey=True))] == ["ping"]
    strict = [function("get_weather", strict=True, city=TEXT, days={"type": "integer"}), PING]
    held: list[dict[str, Any]] = [{"tool_choice": "required"}, {"parallel_tool_calls": False}, {"tools": strict}]
    for more in held:
        forbidden(amid, "'<tool_call>' after '<think>Hm", **{"tools": TOOLS, **more})
        forbidden("<think>Hm.", r"'<\|im_end\|>' after '<think>Hm", **{"tools": TOOLS, **more})


def test_a_named_function_is_called() -> None:
    [choice] = answer(call("ping", {}), tools=TOOLS, tool_choice=NAMED, obey=True).choices
    assert (choice.finish_reason, calls(choice.message)) == ("tool_calls", [("ping", "{}")])
    forbidden(CALL, "get_weather", tools=TOOLS, tool_choice=NAMED)
    forbidden("No.", "No.", tools=TOOLS, tool_choice=NAMED)


def test_all_tools_are_shown_and_only_the_allowed_are_called() -> None:
    for mode in ("auto", "required"):
        more: dict[str, Any] = {"tools": TOOLS, "tool_choice": allowing(mode, "ping", "write_file")}
        assert calls(message(call("ping", {}), obey=True, **more)) == [("ping", "{}")]
        forbidden(CALL, "get_weather", **more)
    assert message("No.", tools=TOOLS, tool_choice=allowing("auto", "ping"), obey=True).content == "No."
    forbidden("No.", "No.", tools=TOOLS, tool_choice=allowing("required", "ping"))
    with ScriptedEngine(["x"]) as engine:
        ask(LocalOpenAI(engine=engine), tools=TOOLS, tool_choice=allowing("auto", "ping"))
    assert "get_weather" in engine.prompts[0]


def test_without_parallel_calls_nothing_follows_the_first() -> None:
    more: dict[str, Any] = {"tools": TOOLS, "parallel_tool_calls": False}
    for text in ("Just text.", CALL, f"Well.\n{CALL}"):
        message(text, obey=True, **more)
    forbidden(f"{CALL}\n{CALL}", "", **more)
    forbidden(CALL + call("ping", {}), "<tool_call>", tool_choice="required", **more)
    assert len(calls(message(f"{CALL}\n{CALL}", tools=TOOLS, parallel_tool_calls=True, obey=True))) == 2


def test_strict_functions_are_called_as_their_schema_says() -> None:
    tools = [function("get_weather", strict=True, city=TEXT, days={"type": "integer"}), PING]
    for text in ("Just text.", CALL, f"Well.\n{CALL}\n{CALL}", f"<think>Hm.</think>\n\nWell. {CALL}"):
        message(text, tools=tools, obey=True)
    for wrong in ({"city": "Paris"}, {"city": "Paris", "days": "2"}, {**PARIS, "hours": 1}):
        forbidden(call("get_weather", wrong), "", tools=tools)


def test_tools_that_are_not_strict_are_free_in_auto_mode() -> None:
    wrong = call("get_weather", {"town": 1})
    assert arguments(message(wrong, tools=TOOLS, obey=True)) == [("get_weather", {"town": 1})]


def test_an_answer_is_a_call_or_has_the_format() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    more: dict[str, Any] = {"tools": TOOLS, "response_format": format}
    assert arguments(message(CALL, obey=True, **more)) == [("get_weather", PARIS)]
    assert message('{"ok": true}', obey=True, **more).content == '{"ok": true}'
    assert message('<think>Hm</think>{"ok": true}', obey=True, **more).content == '{"ok": true}'
    forbidden("Well.", "Well", **more)
    forbidden('{"ok": 1}', "1", **more)
    forbidden('{"ok": true}', "ok", tool_choice="required", **more)


# -- custom tools -----------------------------------------------------------------------------------------------------


def test_a_custom_tool_is_called_with_its_input_as_text() -> None:
    text = 'ls -l | grep "ż"\n\\'
    [choice] = answer(f"Well.\n{call('shell', {'input': text})}", tools=[SHELL]).choices
    [made] = choice.message.tool_calls
    assert (made.type, made.custom.name, made.custom.input) == ("custom", "shell", text)
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Well.")
    assert made.id.startswith("call_")


def test_custom_tools_and_functions_are_called_side_by_side() -> None:
    made = message(call("shell", {"input": "ls"}) + CALL + call("shell", {"input": "pwd"}), tools=[SHELL, *TOOLS])
    assert calls(made) == [("shell", "ls"), ("get_weather", json.dumps(PARIS)), ("shell", "pwd")]
    assert [part.type for part in made.tool_calls] == ["custom", "function", "custom"]


def test_a_custom_tool_may_be_required_by_name() -> None:
    named: Any = {"type": "custom", "custom": {"name": "shell"}}
    made = message(call("shell", {"input": "ls"}), tools=[SHELL, PING], tool_choice=named, obey=True)
    assert calls(made) == [("shell", "ls")]
    forbidden(call("ping", {}), "ping", tools=[SHELL, PING], tool_choice=named)


def test_the_input_of_a_regex_tool_matches_it() -> None:
    tools = [grammar_tool("regex", "[0-9]{3}-[0-9]{4}")]
    assert calls(message(call("query", {"input": "555-0199"}), tools=tools, obey=True)) == [("query", "555-0199")]
    forbidden(call("query", {"input": "call me"}), "", tools=tools)


def test_the_input_of_a_lark_tool_follows_its_grammar() -> None:
    tools = [grammar_tool("lark", 'start: "SELECT " name ("," name)*\nname: /[a-z]+/')]

    def written(text: str) -> str:
        return f'<tool_call>\n{{"name": "query"}}\n{text}\n</tool_call>'

    assert calls(message(written("SELECT a,b"), tools=tools, obey=True)) == [("query", "SELECT a,b")]
    assert message("No need.", tools=tools, obey=True).content == "No need."
    forbidden(written("DROP a"), "DROP", tools=tools)


# -- other formats ----------------------------------------------------------------------------------------------------

FORMATS: list[tuple[dict[str, Any], str]] = [
    (
        {"tool_format": "qwen3_coder"},
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>",
    ),
    (
        {"tool_format": "mistral", "tool_markers": ("[TOOL_CALLS]", ""), "markers": ["[ARGS]"], "think": None}
        | {"chat_template": "{# tool_calls [TOOL_CALLS][ARGS] #}{{ messages }}{{ tools }}"},
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 2}',
    ),
    (
        {"tool_format": "gemma4", "tool_markers": ("<|tool_call>", "<tool_call|>"), "markers": ['<|"|>']},
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>',
    ),
    (
        {
            "tool_format": "harmony",
            "tool_markers": ("<|channel|>", ""),
            "markers": ["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"],
            "think": None,
        },
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris", "days": 2}',
    ),
    (
        {
            "tool_format": "glm47",
            "markers": ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
        },
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>",
    ),
    (
        {"tool_format": "llama3_json", "tool_markers": ("", ""), "think": None},
        '{"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}',
    ),
    (
        {"tool_format": "pythonic", "tool_markers": ("", ""), "think": None},
        '[get_weather(city="Paris", days=2)]',
    ),
    (
        {
            "tool_format": "muse",
            "tool_markers": ("<|start|>", ""),
            "markers": ["<|message|>", "<|eom|>", "<|eot|>"],
            "think": None,
        },
        ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
        '<atem:parameter name="city">Paris</atem:parameter>\n<atem:parameter name="days">2</atem:parameter>\n'
        "</atem:invoke>\n</atem:function_calls>",
    ),
]
OTHERS = pytest.mark.parametrize(("model", "text"), FORMATS, ids=[model["tool_format"] for model, _ in FORMATS])


@OTHERS
@pytest.mark.parametrize("size", [0, 1, 4])
def test_calls_in_all_formats_are_read_alike(model: dict[str, Any], text: str, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)] if size else text
    [choice] = answer(pieces, tools=TOOLS, tokenizer=ScriptedTokenizer(**model)).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert arguments(choice.message) == [("get_weather", PARIS)]


@OTHERS
def test_calls_in_all_formats_may_be_required(model: dict[str, Any], text: str) -> None:
    tokenizer = ScriptedTokenizer(**model)
    more: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "tokenizer": tokenizer}
    assert arguments(message(text, obey=True, **more)) == [("get_weather", PARIS)]
    forbidden("No.", "No", **more)


# -- refused ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"tool_choice": "auto"}, "tool_choice", None, "only allowed when 'tools'"),
    ({"parallel_tool_calls": False}, "parallel_tool_calls", None, "only allowed when 'tools'"),
    ({"function_call": "auto"}, "function_call", None, "only allowed when 'functions'"),
    ({"tools": TOOLS, "functions": FUNCTIONS}, "functions", None, "not both"),
    ({"tools": []}, "tools", "empty_array", "minimum length 1"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice", "invalid_value", "'none', 'auto'"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_value", "hosted by OpenAI"),
    ({"tools": [PING, PING]}, "tools[1].function.name", "invalid_value", "more than one"),
    ({"tools": [PING], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", None, "'x'"),
]


@pytest.mark.parametrize(("more", "param", "code", "fragment"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_refused(more: dict[str, Any], param: str, code: str | None, fragment: str) -> None:
    with ScriptedEngine() as engine, pytest.raises(openai.BadRequestError) as caught:
        ask(LocalOpenAI(engine=engine), **more)
    assert caught.value.param == param and fragment in caught.value.message
    assert code is None or caught.value.code == code


def test_a_model_that_was_not_taught_to_call_is_asked_to_in_a_plain_form() -> None:
    tokenizer = ScriptedTokenizer(tool_format=None)
    for more in ({}, {"tool_choice": "required"}, {"tool_choice": NAMED}, {"parallel_tool_calls": False}):
        made = message(call("ping", {}), tools=TOOLS, tokenizer=tokenizer, obey=True, **more)
        assert calls(made) == [("ping", "{}")]
    assert message("Hi.", tools=TOOLS, tool_choice="none", tokenizer=tokenizer, obey=True).content == "Hi."
    forbidden(CALL, "", tools=TOOLS, tool_choice="none", tokenizer=tokenizer)


def test_a_model_for_which_the_caller_wants_no_tool_format_is_offered_no_tools() -> None:
    with ScriptedEngine(["Hi."], tokenizer=ScriptedTokenizer(tool_format="none")) as engine:
        client = LocalOpenAI(engine=engine)
        for field, offered in (("tools", TOOLS), ("functions", FUNCTIONS)):
            with refused(field, "unsupported_value", "tool_format='none'"):
                ask(client, **{field: offered})
        assert ask(client, tools=TOOLS, tool_choice="none").choices[0].message.content == "Hi."
