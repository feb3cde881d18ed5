"""Arguments that stand without quotes are of the types of their schema."""

from __future__ import annotations

from typing import Any

import pytest

from localai_shim.formats.values import (
    OfferedTools,
    argument_schema,
    json_or_text,
    schema_at,
    takes_all_text,
    takes_text,
    typed_value,
)
from localai_shim.grammar.subschemas import properties_of


def function(schema: object) -> dict[str, Any]:
    """Parameters with one argument, `x`."""
    return {"properties": {"x": schema}, "$defs": {"size": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, "null", "null"),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, "12.0", 12),
        ({"type": "integer"}, "some", "some"),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", True),
        ({"type": "null"}, "None", None),
        ({"type": "array"}, "[1, 'a']", [1, "a"]),
        ({"type": "object"}, "{'a': True}", {"a": True}),
        ({"type": "array"}, "{1, 'a'}", [1, "a"]),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "7", 7),
        ({"type": ["integer", "string"]}, "x", "x"),
        ({"type": ["boolean", "string"]}, "7", "7"),
        ({"type": ["null", "string"]}, '"a"', '"a"'),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, "[]", []),
        ({"oneOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]}, "12", 12),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", 2]}, "1", "1"),
        ({"enum": ["1", 2]}, "2", 2),
        ({"const": 7}, "7", 7),
        ({"const": "7"}, "7", "7"),
        ({"$ref": "#/$defs/size"}, "3", 3),
        ({"$ref": "#/$defs/nothing"}, "3", "3"),
        ({"$ref": "#/$defs/loop"}, "3", "3"),
        ({}, "3", "3"),
        (True, "3", "3"),
        ({"type": "integer"}, "[" * 10_000, "[" * 10_000),
    ],
)
def test_a_value_is_what_its_text_spells_in_its_types(schema: object, text: str, expected: object) -> None:
    found = typed_value(text, function(schema), "x")
    assert found == expected
    assert type(found) is type(expected)


def test_an_argument_that_the_function_does_not_have_is_text() -> None:
    assert typed_value("3", function({"type": "integer"}), "y") == "3"
    assert typed_value("3", {}, "y") == "3"
    assert properties_of(function({})) == {"x": {}} and properties_of({}) == {}


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        ({"type": "string"}, True),
        ({"type": ["string"]}, False),
        ({"type": "string", "enum": ["a"]}, False),
        ({}, False),
    ],
)
def test_an_argument_may_be_all_text(schema: object, takes: bool) -> None:
    assert takes_all_text(function(schema), "x") == takes
    assert takes_all_text(function(schema), "y")


@pytest.mark.parametrize(
    ("schema", "text", "takes"),
    [
        ({"type": "string", "pattern": "^a"}, "ab", True),
        ({"type": "string", "pattern": "^a"}, "ba", False),
        ({"type": "string", "pattern": "("}, "x", True),
        ({"type": "string", "minLength": 2}, "x", False),
        ({"type": "integer"}, "x", False),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x", True),
        (False, "x", False),
    ],
)
def test_an_argument_may_be_a_text(schema: object, text: str, takes: bool) -> None:
    assert takes_text(function(schema), "x", text) == takes


def test_the_option_of_an_argument_that_is_of_a_type() -> None:
    array = {"type": "array", "items": {}}
    assert schema_at(function({"anyOf": [{"type": "null"}, array]}), "x", "array", "object") == array
    assert schema_at(function({"type": "string"}), "x", "array") is None
    assert schema_at(function({"$ref": "#/$defs/size"}), "x", "integer") == {"type": "integer"}
    assert schema_at(function({"$ref": "#/$defs/nothing"}), "x", "array") is None
    assert schema_at(function({}), "y", "array") == {}


def test_what_is_no_json_is_text() -> None:
    assert json_or_text("[1]") == [1]
    assert json_or_text("[1") == "[1"
    assert json_or_text("[" * 100_000) == "[" * 100_000


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"n": INTEGER}}}}, 7),
        ({"$ref": "#args", "$defs": {"Args": {"$anchor": "args", "properties": {"n": INTEGER}}}}, 7),
        ({"allOf": [{"properties": {"n": {}}}, {"properties": {"n": INTEGER}}]}, 7),
        ({"anyOf": [{"properties": {"n": INTEGER}}, {"properties": {"m": {}}}]}, 7),
        ({"oneOf": [{"properties": {"n": INTEGER}}, {"properties": {"n": {"type": "null"}}}]}, 7),
        ({"properties": {"n": {"allOf": [{"$ref": "#/$defs/Box[int]"}]}}, "$defs": {"Box[int]": INTEGER}}, 7),
        ({"properties": {"n": {"allOf": [{"minimum": 3}, INTEGER], "title": "N"}}}, 7),
        ({"properties": {"n": {"allOf": [{"type": "string"}]}}}, "7"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "7"),
        ({"properties": 5, "allOf": 5, "$ref": 5, "$defs": 5, "anyOf": [5]}, "7"),
    ],
    ids=str,
)
def test_an_argument_is_found_in_all_parts_of_a_functions_schema(schema: dict[str, Any], expected: object) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert typed_value("7", OfferedTools([tool]).parameters("f"), "n") == expected


def test_a_chain_of_references_is_followed_to_its_end() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, "d3000": {"properties": {"n": INTEGER}}}}
    assert typed_value("7", argument_schema(schema), "n") == 7
