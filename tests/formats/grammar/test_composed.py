"""Schemas with references and of several parts, in the tool-call format of every family."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from jsonschema.validators import validator_for

from localai_shim.formats.syntaxes.arguments import JsonArguments
from localai_shim.formats.table import FORMATS as ROWS
from localai_shim.grammar import GrammarError
from localai_shim.grammar.tool import Tool
from tests.formats.grammar.calls import FORMATS, compiled, endings_of, read, written
from tests.grammar.drafts import drafts, says

RAW = [name for name in FORMATS if not isinstance(ROWS[name].arguments, JsonArguments)]
N = {"type": "integer", "minimum": 7000}


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["n"]}


# Schemas of an object whose `n` is 7000 at least, as servers and generators write them.
SAYING_THE_SAME: dict[str, dict[str, Any]] = {
    "a draft with https": {"$schema": "https://json-schema.org/draft-07/schema#", **objects(n=N)},
    "OpenAPI's dialect": {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", **objects(n=N)},
    "an id that is no URI": {"$id": "My Schema", **objects(n=N)},
    "the same in a part": objects(n={"$id": "My Number", **N}),
    "a generic of pydantic": {**objects(n={"$ref": "#/$defs/Box[int]"}), "$defs": {"Box[int]": N}},
    "a generic of TypeScript": {**objects(n={"$ref": "#/definitions/Box<int>"}), "definitions": {"Box<int>": N}},
    "a name with blanks": {**objects(n={"$ref": "#/$defs/My Number"}), "$defs": {"My Number": N}},
    "an anchor": {**objects(n={"$ref": "#n"}), "$defs": {"N": {"$anchor": "n", **N}}},
    "an id as TypeBox writes it": {**objects(n={"$ref": "T0"}), "$defs": {"N": {"$id": "T0", **N}}},
    "OpenAPI's components": {
        **objects(n={"$ref": "#/components/schemas/N"}),
        "components": {"schemas": {"N": N}},
    },
    "a reference at the root": {"$ref": "#/definitions/Args", "definitions": {"Args": objects(n=N)}},
    "a reference in allOf": {**objects(n={"allOf": [{"$ref": "#/$defs/N"}], "title": "N"}), "$defs": {"N": N}},
    "limits next to a reference": {
        **objects(n={"$ref": "#/$defs/N", "minimum": 7000}),
        "$defs": {"N": {"type": "integer", "minimum": 3}},
    },
    "the weaker limit next to it": {**objects(n={"$ref": "#/$defs/N", "minimum": 3}), "$defs": {"N": N}},
    "limits in several parts": objects(n={"allOf": [{"type": "integer"}, {"minimum": 7000}, {"minimum": 5}]}),
    "options of one kind": objects(n={"anyOf": [{"type": "integer"}, {"type": "null"}], "allOf": [N]}),
    "a limit of draft 4": objects(n={"type": "integer", "minimum": 6999, "exclusiveMinimum": True}),
    "no type": {"properties": {"n": N}, "required": ["n"]},
    "no type behind a reference": {
        "$ref": "#/$defs/Args",
        "$defs": {"Args": {"properties": {"n": N}, "required": ["n"]}},
    },
    "two parts": {"allOf": [{"type": "object", "properties": {"n": N}}, {"required": ["n"]}]},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", SAYING_THE_SAME)
def test_no_way_of_writing_a_schema_disables_it(
    name: str, format: str, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [Tool("f", SAYING_THE_SAME[name], strict)]
    grammar, vocabulary = compiled(format, tools)
    good, low, text = (written(format, [("f", {"n": n})]) for n in (7000, 6999, "seven"))
    assert says(grammar, vocabulary, good) and read(format, good, tools) == [("f", {"n": 7000})]
    assert not says(grammar, vocabulary, low) and not says(grammar, vocabulary, text)
    assert not says(grammar, vocabulary, written(format, [("f", {})]))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("strict", [True, False])
def test_arguments_are_an_object_if_a_schema_does_not_say_so(strict: bool) -> None:
    options = {"anyOf": [{"properties": {"n": N}, "required": ["n"]}, {"required": ["m"]}]}
    for schema in (SAYING_THE_SAME["no type"], SAYING_THE_SAME["no type behind a reference"], options):
        grammar, vocabulary = compiled("hermes", [Tool("f", schema, strict)])
        for arguments in ("5", "null", "[]"):
            text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
            assert not says(grammar, vocabulary, text)


# schema of a member, values that it has, values that it has not
COMPOSED: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "objects in parts": (
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
            ]
        },
        [{"a": 1, "b": True}],
        [{"a": 1}, {"a": True, "b": True}],
    ),
    "a closed part": (
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
                {"type": "object", "properties": {"b": {"type": "boolean"}}},
            ]
        },
        [{"a": 1}, {}],
        [{"a": 1, "b": True}],
    ),
    "a property in two parts": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 3}},
            "allOf": [{"properties": {"a": {"maximum": 5}}, "required": ["a"]}],
            "additionalProperties": False,
        },
        [{"a": 3}, {"a": 5}],
        [{"a": 2}, {"a": 6}, {}],
    ),
    "options of options": (
        {
            "anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "null"}],
            "allOf": [{"anyOf": [{"type": "integer", "minimum": 3}, {"type": "boolean"}]}],
        },
        [3, True],
        [2, None],
    ),
    "enumerations": ({"enum": [1, 2, 3, True], "allOf": [{"enum": [2, 3, 4]}, {"enum": [3, 1]}]}, [3], [1, 2, True, 4]),
    "a constant among others": ({"enum": [1, True, "x"], "const": True}, [True], [1, "x"]),
    "a type next to options": (
        {"type": ["object", "null"], "anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}, {"type": "integer"}]},
        [{"x": 1}, None],
        [1, {}],
    ),
    "integers that are numbers": ({"type": ["number", "null"], "allOf": [{"type": ["integer"]}]}, [3], [1.5, None]),
    "items of two parts": (
        {"type": "array", "items": {"type": "integer"}, "allOf": [{"items": {"minimum": 3}}], "maxItems": 2},
        [[], [3, 4]],
        [[2], ["a"], [3, 3, 3]],
    ),
    "a tuple of draft 7": (
        {"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}], "additionalItems": False, "minItems": 2},
        [[1, True]],
        [[1], [True, 1], [1, True, 1]],
    ),
    "oneOf by a constant": (
        {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "discriminator": {"propertyName": "k"}},
        [{"k": "a", "v": 1}, {"k": "b", "v": True}],
        [{"k": "a", "v": True}, {"k": "c", "v": 1}],
    ),
}
PARTS = {
    "P": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    **{
        name.upper(): {
            "type": "object",
            "properties": {"k": {"const": name}, "v": {"type": kind}},
            "required": ["k", "v"],
        }
        for name, kind in (("a", "integer"), ("b", "boolean"))
    },
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("format", [*RAW, "hermes"])
@pytest.mark.parametrize("name", COMPOSED)
def test_a_schema_of_several_parts_is_followed_as_a_whole(
    name: str, format: str, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    member, good, bad = COMPOSED[name]
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"], "$defs": PARTS}
    if "additionalItems" in member:
        schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    valid = validator_for(schema)(schema).validate
    tools = [Tool("f", schema, strict)]
    grammar, vocabulary = compiled(format, tools)
    for value in good:
        valid({"a": value})
        text = written(format, [("f", {"a": value})])
        assert read(format, text, tools) == [("f", {"a": value})]
        if format != "minimax_m3" or not isinstance(value, dict | list):  # as elements or as JSON
            assert says(grammar, vocabulary, text), value
    for value in bad:
        assert not says(grammar, vocabulary, written(format, [("f", {"a": value})])), value
    for text in drafts(grammar, vocabulary, 3, endings=endings_of(format)):
        [(_, arguments)] = read(format, text, tools)
        valid(arguments)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


CLASHING = {
    "two patterns": {"type": "string", "pattern": "^a", "allOf": [{"pattern": "b$"}]},
    "items next to a tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "allOf": [{"items": {"minimum": 3}}],
    },
    "options that may both hold": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "names by a pattern": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    "no value": {"type": "integer", "not": {"const": 3}},
}


@pytest.mark.parametrize("format", ["glm", "gemma4", "lfm2", "minimax_m3"])
@pytest.mark.parametrize("name", CLASHING)
def test_what_a_format_cannot_follow_is_an_error_or_logged(
    name: str, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {f"of_{format}": CLASHING[name]}}
    with pytest.raises(GrammarError, match=r"^Tool 'f': "):
        compiled(format, [Tool("f", schema, strict=True)])
    compiled(format, [Tool("f", schema)])
    assert [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("format", [*RAW, "hermes"])
def test_parts_that_exclude_each_other_are_an_error(format: str) -> None:
    for member in (
        {"type": "integer", "allOf": [{"type": "string"}]},
        {"allOf": [{"const": 1}, {"const": 2}]},
        {"enum": [1], "allOf": [{"enum": [2]}]},
        {"type": "null", "anyOf": [{"type": "integer"}, {"type": "string"}]},
    ):
        schema = {"type": "object", "properties": {"a": member}, "required": ["a"]}
        for strict in (True, False):
            with pytest.raises(GrammarError):
                compiled(format, [Tool("f", schema, strict)])
