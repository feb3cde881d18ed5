"""Calls that are right by construction: models with random weights make them, and neighbours notice nothing."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import refused
from tests.endpoints.scripting import (
    PING,
    arguments,
    ask,
    calls,
    check_stream,
    function,
    gathered,
    invalid,
    marked_model,
    said,
    token_id,
)
from tests.samples import only

EOS = "<|im_end|>"
PROMPT = """
{%- for tool in tools or [] %}{{ tool.function.name }} {% endfor -%}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% endif -%}"""
"""A short prompt: these models understand nothing anyway."""


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


FLAT: dict[str, Any] = {
    "forecast": closed(
        unit={"enum": ["celsius", "fahrenheit"]},
        days={"type": "integer", "minimum": 1, "maximum": 14},
        city={"type": "string", "minLength": 1, "maxLength": 8},
    ),
    "move": closed(
        x={"type": "integer", "minimum": -50, "maximum": 50},
        fast={"type": "boolean"},
        level={"enum": [1, 2, 3]},
    ),
    "note": closed(text={"type": ["string", "null"], "maxLength": 8}, kind={"const": "memo"}),
    "ping": closed(),
}
GUEST = closed(name={"type": "string", "maxLength": 6}, age={"type": "integer", "minimum": 0, "maximum": 99})
NESTED: dict[str, Any] = {
    **FLAT,
    "book": {
        **closed(
            host={"$ref": "#/$defs/guest"},
            guests={"type": "array", "items": {"$ref": "#/$defs/guest"}, "maxItems": 2},
            room=closed(floor={"enum": [1, 2]}, view={"anyOf": [{"const": "sea"}, {"type": "null"}]}),
        ),
        "$defs": {"guest": GUEST},
    },
}


@dataclass(frozen=True)
class Format:
    """How a family of models writes calls.

    Attributes:
        markers: their special tokens, the one that begins a call first.
        hint: what of their templates tells the format.
        schemas: of the arguments that it can write.
    """

    name: str
    markers: Sequence[str]
    hint: str
    schemas: dict[str, Any] = field(default_factory=lambda: NESTED)

    @property
    def folder(self) -> Path:
        return marked_model(f"{{#- tool_calls {self.hint} -#}}{PROMPT}", *self.markers)

    def tools(self, *, strict: bool, only: Sequence[str] = ()) -> list[Any]:
        return [
            {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}
            for name, schema in self.schemas.items()
            if not only or name in only
        ]

    @property
    def ends(self) -> dict[str, int]:
        """A bias that ends an answer where it may end."""
        return {token_id(self.folder, EOS): 100}

    @property
    def begins(self) -> dict[str, Any]:
        """Makes a model begin with a call if it may, and end where it may after that."""
        return {
            "logit_bias": {token_id(self.folder, self.markers[0]): 90, **self.ends},
            "extra_body": {"min_tokens": 1},
        }


FORMATS = [
    Format(
        "json_tools", ("<tool_call>", "</tool_call>"), '<tool_call>{"name": , "arguments": }</tool_call> tool_call.name'
    ),
    Format("qwen3_coder", ("<tool_call>", "</tool_call>"), "<tool_call>\n<function=name>"),
    Format("mistral", ("[TOOL_CALLS]", "[ARGS]"), "[TOOL_CALLS]name[ARGS]"),
    Format("gemma4", ("<|tool_call>", "<tool_call|>", '<|"|>'), "<|tool_call>call:name<tool_call|>"),
    Format(
        "function_gemma",
        ("<start_function_call>", "<end_function_call>", "<escape>"),
        "<start_function_call>call:name<end_function_call>",
        FLAT,
    ),
]
EVERY = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
HERMES = FORMATS[0]
GLM = Format("glm47", ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"), "<arg_key>")
SAMPLE: dict[str, Any] = {"temperature": 1, "seed": 11, "max_tokens": 500}


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


def allowing(mode: str, *names: str) -> Any:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


async def together(client: AsyncLocalOpenAI, requests: Sequence[dict[str, Any]]) -> list[Any]:
    """The answers to requests that are made at once."""
    made: list[Any] = [None] * len(requests)

    async def one(i: int) -> None:
        made[i] = await ask(client, **{**SAMPLE, **requests[i]})

    async with anyio.create_task_group() as group:
        for i in range(len(requests)):
            group.start_soon(one, i)
    return made


def run(folder: Path, requests: Sequence[dict[str, Any]]) -> list[Any]:
    async def main() -> list[Any]:
        async with AsyncLocalOpenAI(folder) as client:
            return await together(client, requests)

    return anyio.run(main)


def check_calls(choice: Any, schemas: dict[str, Any], *, single: bool = False) -> None:
    """The choice is calls and nothing else, which name these functions and follow their schemas."""
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.content is None and not invalid(choice.message)
    made = arguments(choice.message)
    assert len(made) == 1 if single else made
    for name, given in made:
        jsonschema.validate(given, schemas[name])


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
    assert len({tuple(calls(choice.message)) for choice in choices}) > 6 * fifths


@EVERY
def test_at_most_one_call_follows_its_schema_although_it_is_not_strict(format: Format) -> None:
    more = {"tools": format.tools(strict=False), "parallel_tool_calls": False, "n": 10}
    [made] = run(format.folder, [{**more, **format.begins}])
    for choice in made.choices:
        check_calls(choice, format.schemas, single=True)


@EVERY
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


def custom(name: str, syntax: str, definition: str) -> Any:
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": format}}


@EVERY
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


# -- refused ----------------------------------------------------------------------------------------------------------

NO_GRAMMAR: list[tuple[dict[str, Any], str]] = [
    ({"tools": [PING], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [PING], "tool_choice": named("ping")}, "tool_choice"),
    ({"tools": [PING, function("pong")], "tool_choice": allowing("auto", "ping")}, "tool_choice"),
    ({"tools": [PING], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"tools": [PING, function("pong", strict=True)]}, "tools[1].function.strict"),
    ({"tools": [custom("phone", "regex", "[0-9]+")]}, "tools[0].custom.format"),
    ({"tools": [PING], "response_format": {"type": "json_object"}}, "response_format"),
]


def test_what_needs_a_grammar_is_refused_for_a_format_that_has_none() -> None:
    with LocalOpenAI(GLM.folder) as client:
        for more, param in NO_GRAMMAR:
            with refused(param, "unsupported_value", "grammar of its tool-call format"):
                ask(client, **more)
        more = {"max_tokens": 5, "extra_body": {"ignore_eos": True}}
        for fine in ({"tools": [PING]}, {"functions": [PING["function"]]}, {"tools": [PING], "tool_choice": "none"}):
            assert ask(client, **fine, **more).choices[0].finish_reason == "length"


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


# -- neighbours -------------------------------------------------------------------------------------------------------


@functools.cache
def thinking_model() -> Path:
    """Hermes calls, and a template that opens a block of reasoning where it is told to."""
    template = f"{{#- <tool_call> tool_call.name -#}}{PROMPT}{{% if enable_thinking %}}<think>{{% endif %}}"
    return marked_model(template, *HERMES.markers, "<think>", "</think>")


def asked(i: int) -> dict[str, Any]:
    """The i-th of 32 requests of which no two ask for the same."""
    names = list(HERMES.schemas)
    name = names[i % len(names)]
    more: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Question {i}"}],
        "seed": i,
        "temperature": 0.5 + i / 32,
        "max_tokens": 200,
    }
    tools, ends = HERMES.tools(strict=False), {token_id(thinking_model(), EOS): 100}
    thinks = {"enable_thinking": True, "thinking_budget": i % 7}
    kinds: list[dict[str, Any]] = [
        {"tools": tools, "tool_choice": named(name), "logit_bias": ends},
        {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": tools, "tool_choice": named(name), "logit_bias": ends, "extra_body": thinks},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "guest", "schema": GUEST}}},
        {"extra_body": {"guided_regex": f"[a-z]{{{i}}}", **thinks}},
        {"functions": [{"name": name, "parameters": HERMES.schemas[name]}], "function_call": {"name": name}},
        {"tools": [custom("phone", "regex", f"[0-9]{{{i}}}")], "tool_choice": "required", "logit_bias": ends},
        {"max_tokens": 20 + i, "extra_body": {"ignore_eos": True}},
    ]
    return {**more, **kinds[i % 8]}


def check_answer(i: int, choice: Any) -> None:
    """What came is what the i-th request asked for."""
    message, kind = choice.message, i % 8
    names = list(HERMES.schemas)
    name = names[i % len(names)]
    if kind in (0, 1, 2):
        check_calls(choice, HERMES.schemas if kind == 1 else {name: HERMES.schemas[name]}, single=kind == 1)
    elif kind == 3:
        jsonschema.validate(json.loads(message.content), GUEST)
    elif kind == 4:
        assert re.fullmatch(f"[a-z]{{{i}}}", message.content)
    elif kind == 5:
        assert message.function_call.name == name and choice.finish_reason == "function_call"
        jsonschema.validate(json.loads(message.function_call.arguments), HERMES.schemas[name])
    elif kind == 6:
        assert all(re.fullmatch(f"[0-9]{{{i}}}", text) for _, text in calls(message)) and message.tool_calls
    else:
        assert choice.finish_reason == "length" and message.content


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """What the i-th request is answered with when it is made alone."""
    with LocalOpenAI(thinking_model()) as client:

        @functools.cache
        def answer(i: int) -> list[dict[str, Any]]:
            completion = ask(client, **asked(i))
            check_answer(i, completion.choices[0])
            return said(completion)

        yield answer


async def streamed(client: AsyncLocalOpenAI, i: int) -> list[dict[str, Any]]:
    chunks = [chunk async for chunk in await ask(client, stream=True, **asked(i))]
    check_stream(chunks)
    return said(gathered(chunks))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only([], ["asyncio", "trio"]))
async def test_thirty_two_neighbours_get_what_each_asked_for_as_if_alone(alone: Callable[[int], Any]) -> None:
    made: list[Any] = [None] * 32

    async def one(client: AsyncLocalOpenAI, i: int) -> None:
        made[i] = said(await ask(client, **asked(i))) if i % 3 else await streamed(client, i)

    async with AsyncLocalOpenAI(thinking_model()) as client, anyio.create_task_group() as group:
        for i in range(32):
            group.start_soon(one, client, i)
    assert made == [alone(i) for i in range(32)]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", only(["trio"], ["asyncio", "trio"]))
async def test_guided_rows_that_are_cancelled_leave_the_others_as_they_were(alone: Callable[[int], Any]) -> None:
    made: dict[int, Any] = {}

    async def stay(client: AsyncLocalOpenAI, i: int) -> None:
        made[i] = await streamed(client, i)

    async def leave(client: AsyncLocalOpenAI, i: int) -> None:
        stream = await ask(client, stream=True, **asked(i))
        for _ in range(2 + i % 5):
            if await anext(stream, None) is None:
                break
        await stream.close()

    async with AsyncLocalOpenAI(thinking_model()) as client, anyio.create_task_group() as group:
        for i in range(32):
            group.start_soon(leave if i % 2 == (i // 8) % 2 else stay, client, i)
    assert len(made) == 16
    assert {i: alone(i) for i in made} == made
