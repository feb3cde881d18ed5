"""Answers that nobody scripted: what the request asks for, held against jsonschema and the request's own grammar."""

from __future__ import annotations

import decimal
import json
import random
import re
from typing import Annotated, Any

import jsonschema
import openai
import pydantic
import pytest

from localai_shim.testing import ScriptedOpenAI, scripted
from localai_shim.testing.made_up import instance, random_numbers
from tests.testing.asking import ask

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 12},
        "age": {"type": "integer", "minimum": 18, "maximum": 20},
        "score": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "role": {"enum": ["admin", "user"]},
        "born": {"type": "string", "format": "date"},
        "email": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        "boss": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "age", "score", "role", "born", "email", "tags", "boss"],
    "additionalProperties": False,
}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


NODE = an_object(value={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
BOTH = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"b": {"type": "null"}}, "required": ["b"]},
]
FORMATS = ("date-time", "time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri", "duration")
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": PERSON,
    "definitions": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "list of lists": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "minItems": 2, "items": False},
    "multiples": an_object(n={"type": "integer", "multipleOf": 7, "minimum": 8}),
    "negative": an_object(n={"type": "number", "maximum": -5}),
    "no type": {"properties": {"a": {"maximum": 3}, "b": {"items": {"type": "null"}}}, "required": ["a", "b"]},
    "all of": {"allOf": BOTH},
    "unknown property": {"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}},
    "formats": an_object(**{name: {"type": "string", "format": name} for name in FORMATS}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_instance_follows_its_schema_whatever_the_seed(name: str) -> None:
    schema = SCHEMAS[name]
    check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for seed in range(40):
        made = instance(schema, random.Random(seed))
        check.validate(made)
        assert instance(schema, random.Random(seed)) == made


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_request_s_grammar_allows_an_instance_as_it_was_proposed(name: str) -> None:
    for seed in range(3):
        with scripted(seed=seed) as client:
            made = formatted(client, SCHEMAS[name])
            assert made == instance(SCHEMAS[name], random_numbers(client.calls[0], seed))


def test_a_schema_that_only_refers_to_itself_fails_the_request() -> None:
    with scripted() as client, pytest.raises(openai.BadRequestError):
        formatted(client, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})


def formatted(client: ScriptedOpenAI, schema: dict[str, Any], **more: Any) -> Any:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return json.loads(ask(client, response_format=format, **more).choices[0].message.content)


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_with_a_schema_is_an_instance(seed: int) -> None:
    with scripted(seed=seed) as client:
        made = formatted(client, PERSON)
        jsonschema.validate(made, PERSON)
        assert made == formatted(client, PERSON), "equal requests get equal answers"


def test_different_seeds_and_requests_make_different_answers() -> None:
    made = []
    for seed in range(6):
        with scripted(seed=seed) as client:
            made += [formatted(client, PERSON), formatted(client, PERSON, temperature=0.5)]
    assert len({json.dumps(each) for each in made}) > 6


@pytest.mark.parametrize(
    "schema",
    [
        an_object(id={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, n={"type": "integer"}),
        an_object(url={"type": "string", "pattern": "^https://[a-z]+\\.com$"}),
    ],
)
def test_where_the_schema_has_more_the_grammar_says_how_to_go_on(schema: dict[str, Any]) -> None:
    for seed in range(3):
        with scripted(seed=seed) as client:
            jsonschema.validate(formatted(client, schema), schema)


def test_choices_patterns_and_json_objects_are_followed() -> None:
    with scripted() as client:
        choice = ask(client, extra_body={"guided_choice": ["red", "green"]}).choices[0].message.content
        assert choice in ("red", "green")
        regex = ask(client, extra_body={"guided_regex": "[a-f]{4}-[0-9]{2}"}).choices[0].message.content
        assert re.fullmatch("[a-f]{4}-[0-9]{2}", regex)
        assert isinstance(
            json.loads(ask(client, response_format={"type": "json_object"}).choices[0].message.content), dict
        )


LEAVE: dict[str, Any] = {"type": "function", "function": {"name": "leave"}}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "greet", "parameters": PERSON, "strict": True}},
    LEAVE,
]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"greet", "leave"}),
        ({"type": "function", "function": {"name": "greet"}}, {"greet"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [LEAVE]}}, {"leave"}),
    ],
)
def test_a_tool_that_is_required_is_called_with_valid_arguments(choice: Any, names: set[str]) -> None:
    for seed in range(4):
        with scripted(seed=seed) as client:
            (call,) = ask(client, tools=TOOLS, tool_choice=choice).choices[0].message.tool_calls
            assert call.function.name in names
            if call.function.name == "greet":
                jsonschema.validate(json.loads(call.function.arguments), PERSON)
            client.assert_tool_called(call.function.name)


CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": name, "parameters": an_object(id={"type": "integer"})} for name in "ab"],
}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"a", "b"}),
        ({"type": "function", "name": "crm.b"}, {"b"}),
        ({"type": "function", "namespace": "crm", "name": "b"}, {"b"}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "crm.a"}]}, {"a"}),
    ],
)
def test_a_tool_in_a_namespace_is_called_and_never_the_namespace(choice: Any, names: set[str]) -> None:
    for seed in range(8):
        with scripted(seed=seed) as client:
            (item,) = client.responses.create(model="m", input="Hi", tools=[CRM], tool_choice=choice).output  # type: ignore[list-item]
        assert item.type == "function_call" and item.namespace == "crm" and item.name in names
        assert isinstance(json.loads(item.arguments)["id"], int)


class Priced(pydantic.BaseModel):
    """Fields that pydantic describes as a number or a text."""

    price: decimal.Decimal
    discount: decimal.Decimal | None
    steps: list[decimal.Decimal]
    tax: Annotated[decimal.Decimal, pydantic.Field(gt=0, lt=1)]


def described(pattern: str | None) -> dict[str, Any]:
    """Its schema, with a pattern for the text, as some versions of pydantic have it."""
    schema = Priced.model_json_schema()
    text = json.dumps(schema)
    if pattern is not None:
        written = json.dumps({"type": "string", "pattern": pattern})
        text = re.sub(r'\{("pattern": "[^"]*", )?"type": "string"\}', lambda _: written, text)
    return dict(json.loads(text))


@pytest.mark.parametrize("pattern", [None, r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"])
def test_a_decimal_is_a_number(pattern: str | None) -> None:
    tool: Any = {"type": "function", "name": "f", "parameters": described(pattern), "strict": False}
    for seed in range(12):
        Priced.model_validate(instance(described(pattern), random.Random(seed)))
        with scripted(seed=seed) as client:
            if pattern is None:  # strict formats take no look-around, OpenAI's neither
                made = client.responses.parse(model="m", input="Hi", text_format=Priced)
                assert isinstance(made.output_parsed, Priced)
            (item,) = client.responses.create(model="m", input="Hi", tools=[tool], tool_choice="required").output
        assert item.type == "function_call"
        Priced.model_validate_json(item.arguments)


def test_a_text_matches_its_pattern_where_no_grammar_does_it() -> None:
    for pattern in (r"^\d{5}$", r"^(?!x)[A-Z]+$", r"^[a-z]+$"):
        made = {str(instance({"type": "string", "pattern": pattern}, random.Random(seed))) for seed in range(5)}
        assert all(re.search(pattern, text) for text in made)
    assert instance({"type": "string", "pattern": "("}, random.Random(0))


def test_no_tool_is_called_unless_it_is_required() -> None:
    with scripted() as client:
        for choice in ("auto", "none"):
            message = ask(client, tools=TOOLS, tool_choice=choice).choices[0].message
            assert message.content and not message.tool_calls, "a loop of an agent ends"


def test_responses_and_custom_tools_are_answered_too() -> None:
    class Found(pydantic.BaseModel):
        names: list[str]
        count: int

    with scripted() as client:
        assert isinstance(client.responses.parse(model="m", input="Hi", text_format=Found).output_parsed, Found)
        flat: list[Any] = [{"type": "function", "name": "greet", "parameters": PERSON, "strict": True}]
        (item,) = client.responses.create(model="m", input="Hi", tools=flat, tool_choice="required").output
        assert item.type == "function_call"
        jsonschema.validate(json.loads(item.arguments), PERSON)
        custom: list[Any] = [{"type": "custom", "name": "run"}]
        (item,) = client.responses.create(model="m", input="Hi", tools=custom, tool_choice="required").output
        assert item.type == "custom_tool_call" and item.input


def test_several_choices_may_differ_and_streams_are_made_up_alike() -> None:
    with scripted(seed=1) as client:
        made = [choice.message.content for choice in ask(client, n=8).choices]
        assert len(set(made)) > 1
        text = client.completions.create(model="m", prompt="Once").choices[0].text
        assert text
        events = list(client.responses.create(model="m", input="Hi", stream=True))
        assert events[-1].response.output_text  # type: ignore[union-attr]


def test_what_is_scripted_is_never_made_up() -> None:
    with scripted("one", assert_complete=False) as client:
        ask(client)
        with pytest.raises(AssertionError, match="no reply is scripted"):
            ask(client)
    with scripted() as client:
        client.when(user="nobody says this").reply("x").always()
        with pytest.raises((AssertionError, openai.APIError), match="no reply is scripted"):
            ask(client)
        client.stage.raised.clear()
