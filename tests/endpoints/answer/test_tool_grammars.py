"""Calls that are right by construction: models with random weights make them."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import openai
import pytest

from localai_shim import LocalOpenAI
from tests.endpoints.answer.tool_formats import (
    EVERY,
    FORMATS,
    GEMMA,
    GLM,
    HERMES,
    LLAMA,
    PLAIN,
    SAMPLE,
    Format,
    allowing,
    check_calls,
    closed,
    custom,
    named,
    run,
)
from tests.endpoints.functions import PING, function
from tests.endpoints.scripting import ask, calls, invalid, token_id
from tests.samples import only

TWO_QUICK = pytest.mark.parametrize("format", only([HERMES, GEMMA], FORMATS), ids=lambda format: format.name)
"""JSON, and a syntax of its own; the first test asks every format."""

# -- a hundred of a hundred -------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("fifths", only([1], [1, 5]), ids=["some", "a hundred"])
def test_a_model_without_sense_makes_only_calls_as_their_schemas_say(format: Format, fifths: int) -> None:
    loose, strict = format.tools(strict=False), format.tools(strict=True)
    names = list(format.schemas)
    each = [max(1, 4 * fifths // len(names))] * len(names)
    each[0] += max(0, 4 * fifths - sum(each))
    requests: list[dict[str, Any]] = [
        {"tools": loose, "tool_choice": named(name), "parallel_tool_calls": False, "n": n}
        for name, n in zip(names, each, strict=True)
    ]
    requests += [
        {"tools": loose, "tool_choice": "required", "logit_bias": format.ends, "n": 8 * fifths},
        {"tools": strict, "n": 8 * fifths, **format.begins},
    ]
    made = run(format.folder, requests)
    choices = [choice for completion in made for choice in completion.choices]
    assert len(choices) == sum(each) + 16 * fifths >= 20 * fifths
    for choice in choices:
        check_calls(choice, format.schemas)
    for name, completion in zip(names, made, strict=False):
        assert {called for choice in completion.choices for called, _ in calls(choice.message)} == {name}
    assert len({called for choice in choices for called, _ in calls(choice.message)}) == len(names)
    assert len({tuple(calls(choice.message)) for choice in choices}) > 3 * fifths


@TWO_QUICK
def test_at_most_one_call_follows_its_schema_although_it_is_not_strict(format: Format) -> None:
    more = {"tools": format.tools(strict=False), "parallel_tool_calls": False, "n": 10}
    [made] = run(format.folder, [{**more, **format.begins}])
    for choice in made.choices:
        check_calls(choice, format.schemas, single=True)


@TWO_QUICK
def test_only_allowed_tools_are_called(format: Format) -> None:
    some = ("note", "move")
    auto, required = run(
        format.folder,
        [
            {"tools": format.tools(strict=True), "tool_choice": allowing("auto", *some), "n": 12, **format.begins},
            {
                "tools": format.tools(strict=False),
                "tool_choice": allowing("required", *some),
                "n": 12,
                "logit_bias": format.ends,
            },
        ],
    )
    for choice in [*auto.choices, *required.choices]:
        check_calls(choice, {name: format.schemas[name] for name in some})


@EVERY
def test_where_the_model_may_call_it_may_as_well_not(format: Format) -> None:
    [made] = run(format.folder, [{"tools": format.tools(strict=True), "n": 16, "max_tokens": 25}])
    texts = [choice.message.content for choice in made.choices if choice.message.content]
    assert len(texts) > 8
    for choice in made.choices:
        assert not any(marker in (choice.message.content or "") for marker in format.markers)
        for name, written in calls(choice.message):
            assert name in format.schemas
            if choice.finish_reason == "tool_calls":
                jsonschema.validate(json.loads(written), format.schemas[name])


def test_an_answer_is_a_call_or_follows_the_format() -> None:
    schema = closed(ok={"type": "boolean"}, why={"type": "string", "maxLength": 10})
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    more = {"tools": HERMES.tools(strict=False), "response_format": wanted, "n": 10}
    never = {token_id(HERMES.folder, HERMES.markers[0]): -100}
    free, calling, saying = run(
        HERMES.folder,
        [{**more, "logit_bias": HERMES.ends}, {**more, **HERMES.begins}, {**more, "logit_bias": never}],
    )
    for choice in [*free.choices, *calling.choices, *saying.choices]:
        if choice.finish_reason == "tool_calls":
            check_calls(choice, HERMES.schemas)
        else:
            assert choice.finish_reason == "stop"
            jsonschema.validate(json.loads(choice.message.content), schema)
            assert not choice.message.tool_calls and not invalid(choice.message)
    assert {choice.finish_reason for choice in calling.choices} == {"tool_calls"}
    assert {choice.finish_reason for choice in saying.choices} == {"stop"}


SQL = 'start: "SELECT " name (", " name)* " FROM " name\nname: /[a-z]{1,6}/'


@TWO_QUICK
def test_the_input_of_custom_tools_follows_their_grammars(format: Format) -> None:
    tools = [custom("sql", "lark", SQL), custom("phone", "regex", "[0-9]{3}-[0-9]{4}")]
    required, auto = run(
        format.folder,
        [
            {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, "n": 12},
            {"tools": tools, "n": 12, **format.begins},
        ],
    )
    seen = set()
    for choice in [*required.choices, *auto.choices]:
        assert choice.finish_reason == "tool_calls" and not invalid(choice.message)
        for name, text in calls(choice.message):
            seen.add(name)
            pattern = r"[0-9]{3}-[0-9]{4}" if name == "phone" else r"SELECT [a-z]{1,6}(, [a-z]{1,6})* FROM [a-z]{1,6}"
            assert re.fullmatch(pattern, text), text
    assert seen == {"sql", "phone"}


def test_legacy_functions_are_called_once_and_as_their_schemas_say() -> None:
    functions = [{"name": name, "parameters": schema} for name, schema in HERMES.schemas.items()]
    by_name, auto = run(
        HERMES.folder,
        [
            {"functions": functions, "function_call": {"name": "book"}, "n": 8},
            {"functions": functions, "n": 8, **HERMES.begins},
        ],
    )
    for choice in [*by_name.choices, *auto.choices]:
        assert choice.finish_reason == "function_call" and choice.message.content is None
        made = choice.message.function_call
        jsonschema.validate(json.loads(made.arguments), HERMES.schemas[made.name])
    assert {choice.message.function_call.name for choice in by_name.choices} == {"book"}


# -- every family -----------------------------------------------------------------------------------------------------

GRAMMARS: list[dict[str, Any]] = [
    {"tools": [PING], "tool_choice": "required"},
    {"tools": [PING, function("pong")], "tool_choice": named("ping")},
    {"tools": [PING, function("pong")], "tool_choice": allowing("required", "ping")},
    {"tools": [PING], "tool_choice": "required", "parallel_tool_calls": True},
    {"functions": [PING["function"]], "function_call": {"name": "ping"}},
    {"tools": [PING], "tool_choice": "required", "response_format": {"type": "json_object"}},
]
FREE: list[dict[str, Any]] = [
    {"tools": [PING, function("pong")], "tool_choice": allowing("auto", "ping")},
    {"tools": [PING], "parallel_tool_calls": False},
    {"tools": [PING, function("pong", strict=True)]},
    {"tools": [PING, custom("phone", "regex", "[0-9]+")]},
    {"tools": [PING], "response_format": {"type": "json_object"}},
    {"tools": [PING]},
    {"tools": [PING], "tool_choice": "none"},
    {"functions": [PING["function"]]},
]


@pytest.mark.parametrize("format", [GLM, LLAMA, PLAIN], ids=lambda format: format.name)
def test_whatever_is_asked_of_tools_works_with_every_family(format: Format) -> None:
    """A family with tags, one without markers, and one whose template knows no tools."""
    made = run(format.folder, [{**more, "logit_bias": format.ends} for more in GRAMMARS + FREE])
    for completion in made[: len(GRAMMARS)]:
        [choice] = completion.choices
        found = calls(choice.message) or [(choice.message.function_call.name, choice.message.function_call.arguments)]
        assert set(found) == {("ping", "{}")}, choice
    for completion in made[len(GRAMMARS) :]:
        assert not invalid(completion.choices[0].message)


# -- refused ----------------------------------------------------------------------------------------------------------


def broken(schema: dict[str, Any]) -> Any:
    return {"type": "function", "function": {"name": "broken", "strict": True, "parameters": schema}}


BROKEN: list[tuple[dict[str, Any], str, str | None]] = [
    (
        {"tools": [PING, broken(closed(x={"type": "wizard"}))]},
        "tools[1].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [broken(closed(x={"$ref": "#/$defs/nowhere"})), PING]},
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [PING, broken(closed(x={"type": "integer", "minimum": 2, "maximum": 1}))]},
        "tools[1].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [PING, broken(closed(x={"type": "string", "pattern": "("}))]},
        "tools[1].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [PING, custom("q", "lark", "start: nowhere")]},
        "tools[1].custom.format.grammar.definition",
        "invalid_value",
    ),
    ({"tools": [custom("q", "regex", "(")]}, "tools[0].custom.format.grammar.definition", "invalid_value"),
    (
        {
            "functions": [PING["function"], {"name": "b", "parameters": closed(x={"type": "wizard"})}],
            "function_call": {"name": "b"},
        },
        "functions[1].parameters",
        "invalid_function_parameters",
    ),
]


def test_broken_schemas_and_grammars_are_refused_while_a_neighbour_goes_on() -> None:
    neighbour = {**SAMPLE, "tools": HERMES.tools(strict=False), "tool_choice": named("book"), "n": 2, "max_tokens": 90}
    with LocalOpenAI(HERMES.folder) as client:
        alone = [calls(choice.message) for choice in ask(client, **neighbour).choices]
        stream = ask(client, stream=True, **neighbour)
        told: dict[tuple[int, int], str] = {}
        waiting = list(BROKEN)
        for chunk in stream:
            if waiting:
                more, param, code = waiting.pop(0)
                with pytest.raises(openai.BadRequestError) as caught:
                    ask(client, **more)
                assert (caught.value.param, caught.value.code) == (param, code)
            for choice in chunk.choices:
                for made in choice.delta.tool_calls or []:
                    key = choice.index, made.index
                    told[key] = told.get(key, "") + made.function.arguments
        assert not waiting
    assert told == {(i, j): text for i, made in enumerate(alone) for j, (_, text) in enumerate(made)}
