from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest

from localai_shim.grammar.schema import close_objects, exact_dates, takes_no_arguments

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (A, CLOSED),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "additionalProperties": False}),
        ({**A, "additionalProperties": True}, {**A, "additionalProperties": True}),
        ({**A, "additionalProperties": A}, {**A, "additionalProperties": CLOSED}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED}),
        ({"prefixItems": [A, True]}, {"prefixItems": [CLOSED, True]}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"oneOf": [A]}, {"oneOf": [CLOSED]}),
        ({"allOf": [A]}, {"allOf": [CLOSED]}),
        ({"$defs": {"A": A}, "$ref": "#/$defs/A"}, {"$defs": {"A": CLOSED}, "$ref": "#/$defs/A"}),
        ({"definitions": {"A": A}}, {"definitions": {"A": CLOSED}}),
        ({"patternProperties": {"^x": A}}, {"patternProperties": {"^x": CLOSED}}),
        ({"enum": [A], "default": A, "examples": [A]}, {"enum": [A], "default": A, "examples": [A]}),
        (
            {"type": "object", "properties": {"properties": A}},
            {"type": "object", "properties": {"properties": CLOSED}, "additionalProperties": False},
        ),
    ],
)
def test_objects_that_list_their_properties_are_closed(schema: dict[str, Any], closed: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert close_objects(schema) == closed
    assert schema == before


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, {"type": "object", "properties": {"b": {}}, "required": ["b"]}]},
        {"$defs": {"A": A}, "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}, "required": ["b"]}]},
        {"$defs": {"A": A}, "$ref": "#/$defs/A", "properties": {"b": {}}, "required": ["b"]},
        {**A, "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"c": {}}}]},
        {"allOf": [A, {"anyOf": [{"properties": {"b": {}}, "required": ["b"]}]}]},
        {"$defs": {"x/y": A}, "allOf": [{"$ref": "#/$defs/x~1y"}, {"properties": {"b": {}}}]},
    ],
)
def test_parts_of_an_object_do_not_shut_each_other_out(schema: dict[str, Any]) -> None:
    jsonschema.validate({"a": 1, "b": 2}, schema)
    jsonschema.validate({"a": 1, "b": 2}, close_objects(schema))


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        {"title": "No arguments", "properties": {}},
    ],
)
def test_tools_without_arguments_are_declared_in_many_ways(parameters: dict[str, Any] | None) -> None:
    assert takes_no_arguments(parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        A,
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^x": {}}},
        {"$ref": "#/$defs/A", "$defs": {"A": A}},
        {"anyOf": [A]},
        {"type": "array"},
    ],
)
def test_tools_with_arguments_are_told_from_those(parameters: dict[str, Any]) -> None:
    assert not takes_no_arguments(parameters)


def test_dates_become_such_as_python_reads() -> None:
    schema = {"properties": {"at": {"type": ["string", "null"], "format": "date"}, "n": {"format": "int32"}}}
    exact = exact_dates(schema)
    assert exact["properties"]["n"] == {"format": "int32"}
    for text, valid in [("2024-01-31", True), ("2023-02-29", False), ("2024-04-31", False), ("24-1-1", False)]:
        assert jsonschema.Draft202012Validator(exact).is_valid({"at": text}) is valid
