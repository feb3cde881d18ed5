"""Structured outputs of chat.completions: requests that are refused, each with the field and the reason."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.conftest import refused
from tests.endpoints.answer.schemas import as_format, asks, integer, one_of, string
from tests.samples import only

FORMAT = "response_format"
JSON_SCHEMA = f"{FORMAT}.json_schema"


def named(**more: Any) -> dict[str, Any]:
    return {FORMAT: {"type": "json_schema", "json_schema": {"name": "answer", "schema": integer(), **more}}}


# kwargs of create() -> param, code and a piece of the message of the error
WRONG: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({FORMAT: "json_object"}, FORMAT, "invalid_type", "expected an object, but got a string"),
    ({FORMAT: ["json_object"]}, FORMAT, "invalid_type", "expected an object, but got an array"),
    ({FORMAT: {}}, f"{FORMAT}.type", "missing_required_parameter", "'response_format.type'"),
    ({FORMAT: {"type": None}}, f"{FORMAT}.type", "missing_required_parameter", "'response_format.type'"),
    ({FORMAT: {"type": "yaml"}}, f"{FORMAT}.type", "invalid_value", "'text', 'json_object', and 'json_schema'"),
    ({FORMAT: {"type": ["text"]}}, f"{FORMAT}.type", "invalid_type", "expected one of"),
    ({FORMAT: {"type": "text", "schema": {}}}, f"{FORMAT}.schema", "unknown_parameter", "response_format.schema"),
    ({FORMAT: {"type": "json_object", "json_schema": {}}}, JSON_SCHEMA, "unknown_parameter", JSON_SCHEMA),
    ({FORMAT: {"type": "json_schema"}}, JSON_SCHEMA, "missing_required_parameter", JSON_SCHEMA),
    ({FORMAT: {"type": "json_schema", "json_schema": []}}, JSON_SCHEMA, "invalid_type", "but got an array"),
    ({FORMAT: {"type": "json_schema", "json_schema": {}}}, f"{JSON_SCHEMA}.name", "missing_required_parameter", "name"),
    (named(name=5), f"{JSON_SCHEMA}.name", "invalid_type", "expected a string, but got an integer"),
    (named(name="my answer"), f"{JSON_SCHEMA}.name", "invalid_value", "'^[a-zA-Z0-9_-]{1,64}$'"),
    (named(name="x" * 65), f"{JSON_SCHEMA}.name", "invalid_value", "does not match pattern"),
    (named(name="answer\n"), f"{JSON_SCHEMA}.name", "invalid_value", "does not match pattern"),
    (named(strict="yes"), f"{JSON_SCHEMA}.strict", "invalid_type", "expected a boolean, but got a string"),
    (named(strict=1), f"{JSON_SCHEMA}.strict", "invalid_type", "expected a boolean, but got an integer"),
    (named(description=5), f"{JSON_SCHEMA}.description", "invalid_type", "expected a string, but got an integer"),
    (named(schema="{}"), f"{JSON_SCHEMA}.schema", "invalid_type", "expected an object, but got a string"),
    (named(schema=True), f"{JSON_SCHEMA}.schema", "invalid_type", "expected an object, but got a boolean"),
    (named(shema={}), f"{JSON_SCHEMA}.shema", "unknown_parameter", "response_format.json_schema.shema"),
    (named(schema={"const": math.nan}), f"{JSON_SCHEMA}.schema.const", "invalid_value", "no number nan"),
    (named(schema={"const": "\ud800"}), f"{JSON_SCHEMA}.schema", "invalid_value", "surrogates not allowed"),
    (named(schema={"const": {1, 2}}), f"{JSON_SCHEMA}.schema.const", "invalid_type", "but got set"),
    ({"guided_json": 5}, "guided_json", "invalid_type", "expected a JSON schema, but got an integer"),
    ({"guided_json": True}, "guided_json", "invalid_type", "expected a JSON schema, but got a boolean"),
    ({"guided_json": "[]"}, "guided_json", "invalid_type", "expected a JSON schema, but got an array"),
    ({"guided_json": "{"}, "guided_json", "invalid_value", "not JSON"),
    ({"guided_json": {"const": math.inf}}, "guided_json.const", "invalid_value", "no number inf"),
    ({"guided_regex": 5}, "guided_regex", "invalid_type", "expected a string, but got an integer"),
    ({"guided_regex": "\ud800"}, "guided_regex", "invalid_value", "lone surrogate"),
    ({"guided_choice": "yes"}, "guided_choice", "invalid_type", "expected an array of strings, but got a string"),
    ({"guided_choice": {"a": 1}}, "guided_choice", "invalid_type", "expected an array of strings, but got an object"),
    ({"guided_choice": ["a", 1]}, "guided_choice[1]", "invalid_type", "expected a string, but got an integer"),
    ({"guided_choice": ["a", "\ud800"]}, "guided_choice[1]", "invalid_value", "lone surrogate"),
    ({"guided_choice": []}, "guided_choice", "empty_array", "empty array"),
    ({"guided_grammar": ["start: x"]}, "guided_grammar", "invalid_type", "expected a string, but got an array"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", None, "'guided_regex' and 'guided_choice'"),
    ({"guided_json": {}, FORMAT: {"type": "json_object"}}, "guided_json", None, "'response_format' and 'guided_json'"),
    ({"guided_grammar": "start: x", **named()}, "guided_grammar", None, "cannot be combined: pass one of them"),
]

# A schema that cannot be used -> a piece of what llguidance says of it
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "not": ({"not": string()}, 'Unimplemented keys: ["not"]'),
    "if": ({"if": {"const": 1}, "then": {"type": "integer"}}, 'Unimplemented keys: ["if", "then"]'),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
    "contains": ({"type": "array", "contains": integer()}, 'Unimplemented keys: ["contains"]'),
    "dependentRequired": ({"type": "object", "dependentRequired": {"a": ["b"]}}, "Unimplemented keys"),
    "propertyNames": ({"type": "object", "propertyNames": {"const": "a"}}, "Unimplemented keys"),
    "oneOf that overlaps": ({"oneOf": [integer(), {"type": "number"}]}, "oneOf constraints are not supported"),
    "an unknown format": (string(format="colour"), "Unknown format: colour"),
    "an unknown type": ({"type": "strin"}, "Invalid type: strin"),
    "a type that is no name": ({"type": 5}, "type must be a string or array of strings"),
    "properties that are no object": ({"type": "object", "properties": []}, "properties must be an object"),
    "required that is no array": ({"type": "object", "required": "a"}, "Expected array for 'required'"),
    "allOf that is no array": ({"allOf": 5}, "allOf must be an array"),
    "a length that is no number": (string(maxLength="5"), "Expected positive integer for 'maxLength'"),
    "a negative length": (string(maxLength=-1), "Expected positive integer for 'maxLength'"),
    "a pattern that is none": (string(pattern="("), "unclosed group"),
    "look-ahead": (string(pattern="(?=a)b"), "look-around"),
    "a reference to nothing": ({"$ref": "#/$defs/x"}, "Pointer '/$defs/x' does not exist"),
    "a reference to elsewhere": ({"$ref": "https://example.com/x.json"}, "does not fetch resources"),
    "a reference to itself": ({"$ref": "#"}, "cannot be satisfied"),
    "a range that is empty": (one_of(a=integer(5, 3)), "required property 'a' is unsatisfiable"),
    "lengths that exclude each other": (one_of(a=string(minLength=5, maxLength=3)), "unsatisfiable"),
    "a type that excludes its enum": (one_of(a=string(enum=[1, 2])), "unsatisfiable"),
    "an enum of nothing": ({"enum": []}, "Unsatisfiable schema"),
    "a property that may not be": ({**one_of(a=False), "required": ["a"]}, "unsatisfiable"),
    "a name that is not listed": ({**one_of(a=integer()), "required": ["b"]}, "unsatisfiable"),
}


def _label(row: object) -> str | None:
    return str(row)[:50] if isinstance(row, dict) else None


@pytest.mark.parametrize(("kwargs", "param", "code", "fragment"), WRONG, ids=_label)
def test_a_wrong_field_is_refused_by_its_path(
    client: LocalOpenAI, kwargs: dict[str, Any], param: str, code: str | None, fragment: str
) -> None:
    with refused(param, code, fragment):
        client.chat.completions.create(**asks(**kwargs))


@pytest.mark.parametrize(("schema", "why"), BROKEN.values(), ids=BROKEN)
def test_a_schema_that_cannot_be_used_is_refused_for_llguidance_s_reason(
    client: LocalOpenAI, schema: dict[str, Any], why: str
) -> None:
    with refused("response_format", None, why):
        client.chat.completions.create(**asks(response_format=as_format(schema, strict=True)))
    with refused("guided_json", "invalid_value", why):
        client.chat.completions.create(**asks(guided_json=schema), stream=True)


# What is no JSON Schema, and what nothing satisfies, is refused whether it is strict or not -> a piece of the reason
NO_SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown type": ({"type": "strin"}, "/type: expected one or several of string, integer"),
    "a type that is no name": ({"type": 5}, "/type: expected one or several of string, integer"),
    "properties that are no object": ({"properties": []}, "/properties: expected an object of schemas"),
    "a property that is no schema": ({"properties": {"a": 5}}, "/properties/a: expected an object or a boolean"),
    "required that is no array": ({"required": "a"}, "/required: expected an array of strings"),
    "allOf that is no array": ({"allOf": 5}, "/allOf: expected a non-empty array of schemas"),
    "a length that is no number": (string(maxLength="5"), "/maxLength: expected a non-negative integer"),
    "a negative length": (string(maxLength=-1), "/maxLength: expected a non-negative integer"),
    "uniqueItems that is no boolean": ({"uniqueItems": "yes"}, "/uniqueItems: expected a boolean"),
    "not that is no schema": ({"not": 5}, "/not: expected an object or a boolean"),
    "a pattern that is none": (string(pattern="("), '/pattern: expected a regular expression, but got "("'),
    "a reference to nothing": ({"$ref": "#/$defs/x"}, "nothing at the $ref '#/$defs/x'"),
    "a range that is empty": (one_of(a=integer(5, 3)), "required property 'a' is unsatisfiable"),
    "an enum of nothing": ({"enum": []}, "Unsatisfiable schema"),
}


@pytest.mark.parametrize("strict", [False, None])
@pytest.mark.parametrize(("schema", "why"), NO_SCHEMA.values(), ids=NO_SCHEMA)
def test_what_is_no_schema_is_refused_in_any_case(
    client: LocalOpenAI, schema: dict[str, Any], why: str, strict: bool | None
) -> None:
    with refused("response_format", None, why):
        client.chat.completions.create(**asks(response_format=as_format(schema, strict=strict)))


FOLLOWED = [name for name in BROKEN if name not in NO_SCHEMA and "unsatisfiable" not in BROKEN[name][1]]


NOT_STRICT = [(name, strict) for strict in (False, None) for name in FOLLOWED if name != "a reference to itself"]


@pytest.mark.parametrize(("name", "strict"), only(NOT_STRICT[: len(NOT_STRICT) // 2 + 2], NOT_STRICT))
def test_a_schema_that_is_not_strict_is_followed_as_far_as_it_can_be(
    client: LocalOpenAI, name: str, strict: bool | None
) -> None:
    """OpenAI's API takes such schemas; it only promises less."""
    format = as_format(BROKEN[name][0], strict=strict)
    [choice] = client.chat.completions.create(**asks(response_format=format, max_tokens=60)).choices
    assert choice.finish_reason == "length" or json.loads(str(choice.message.content)) is not ...


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"guided_regex": "("}, "unclosed group"),
        ({"guided_regex": "(?!a)b"}, "look-around"),
        ({"guided_regex": r"[^\s\S]"}, "cannot be satisfied"),
        ({"guided_grammar": "start: missing"}, 'unknown name: "missing"'),
        ({"guided_grammar": "no grammar"}, "Expected token"),
        ({"guided_grammar": 'other: "x"'}, "start"),
        ({"guided_grammar": "start: start"}, "cannot be satisfied"),
    ],
    ids=str,
)
def test_a_grammar_that_cannot_be_used_is_refused_for_llguidance_s_reason(
    client: LocalOpenAI, extra: dict[str, Any], why: str
) -> None:
    [param] = extra
    with refused(param, "invalid_value", why):
        client.chat.completions.create(**asks(**extra))


@pytest.mark.parametrize("depth", [100, 200, 400, 2000])
def test_a_schema_that_is_nested_too_deeply_is_refused(client: LocalOpenAI, depth: int) -> None:
    schema = integer()
    for _ in range(depth):
        schema = one_of(a=schema)
    with pytest.raises(openai.BadRequestError, match=r"nested too deeply|recursion limit"):
        client.chat.completions.create(**asks(schema))


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_the_async_client_refuses_alike(async_client: AsyncLocalOpenAI, stream: bool) -> None:
    with refused("response_format", None, "Unimplemented keys"):
        format = as_format({"not": {}}, strict=True)
        await async_client.chat.completions.create(**asks(response_format=format), stream=stream)
    with refused("guided_regex", "invalid_value", "unclosed group"):
        await async_client.chat.completions.create(**asks(guided_regex="("), stream=stream)
