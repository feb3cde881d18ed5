"""`oneOf` becomes `anyOf` if no value satisfies two options, and only then."""

from __future__ import annotations

import itertools
from typing import Any

import jsonschema
import pytest

from localai_shim.grammar.one_of import as_any_of

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 1.5, -1, "", "a", "b", [], [1], {}, {"k": "a"}, {"k": "b"}, {"k": 1}, {"k": True}),
    *({"j": 1}, {"k": "a", "j": 1}, {"k": None}, {"k": {"k": "a"}}, {"k": {"k": "b"}}),
]
OPTIONS: list[Any] = [
    *(True, False, {}, {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": ["string", "null"]}),
    *({"const": 1}, {"const": True}, {"const": 1.0}, {"enum": ["a", None]}, {"enum": ["b", 1]}, {"type": "object"}),
    {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
    {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
    {"type": "object", "properties": {"k": {"const": "b"}}},
    {"properties": {"k": {"const": "b"}}, "required": ["k"]},
    {"type": "object", "properties": {"k": {"$ref": "#/$defs/A"}}, "required": ["k"]},
    {"type": "object", "properties": {"k": {"$ref": "#/$defs/B"}}, "required": ["k"]},
    {"type": "object", "properties": {"j": {}}, "required": ["j"], "additionalProperties": False},
    {"type": "object", "patternProperties": {"k": {"const": "b"}}, "additionalProperties": False},
    *({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/itself"}, {"$ref": "#/$defs/nothing"}),
    *({"allOf": [{"type": "object"}, {"$ref": "#/$defs/A"}]}, {"anyOf": [{"type": "null"}, {"const": "a"}]}),
    {"anyOf": []},
]
DEFINITIONS = {
    "A": {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
    "B": {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
    "itself": {"anyOf": [{"$ref": "#/$defs/itself"}, {"type": "null"}]},
}


def takes(option: object, value: object) -> bool:
    """Whether a value satisfies an option; jsonschema does not come back from some references."""
    if option == {"$ref": "#/$defs/nothing"} or option == {"anyOf": []}:
        return True
    if option == {"$ref": "#/$defs/itself"}:
        return True
    return jsonschema.Draft202012Validator({"allOf": [option], "$defs": DEFINITIONS}).is_valid(value)


@pytest.mark.parametrize("pair", [*itertools.combinations(OPTIONS, 2)], ids=str)
def test_options_that_a_value_satisfies_both_of_stay(pair: tuple[object, object]) -> None:
    made = as_any_of({"oneOf": list(pair), "$defs": DEFINITIONS})
    if any(takes(pair[0], value) and takes(pair[1], value) for value in VALUES):
        assert "oneOf" in made


@pytest.mark.parametrize(
    "options",
    [
        [{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}],
        [{"const": 1}, {"const": 2}, {"enum": [3, "x"]}],
        [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"type": "null"}],
        [{"allOf": [{"$ref": "#/$defs/A"}, {"maxProperties": 3}]}, {"$ref": "#/$defs/B"}],
        [{"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, {"$ref": "#/$defs/B"}],
        [
            {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
            {"type": "object", "properties": {"b": {}}, "required": ["b"], "additionalProperties": False},
        ],
        [
            {"type": "object", "properties": {"k": {"$ref": "#/$defs/A"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"$ref": "#/$defs/B"}}},
        ],
    ],
    ids=str,
)
def test_options_that_exclude_each_other_are_those_of_anyof(options: list[Any]) -> None:
    schema = {"properties": {"x": {"oneOf": options, "title": "X"}}, "$defs": DEFINITIONS}
    assert as_any_of(schema)["properties"] == {"x": {"anyOf": options, "title": "X"}}


def test_options_are_compared_within_limits() -> None:
    def tree(depth: int, leaf: str) -> dict[str, Any]:
        if not depth:
            return {"const": leaf}
        return {"anyOf": [tree(depth - 1, leaf), tree(depth - 1, f"{leaf}x")]}

    schema = {"oneOf": [tree(9, "a"), tree(9, "b"), {"allOf": [{"$ref": "#"}]}]}
    assert as_any_of(schema) == schema
