"""Schemas that are not strict: what a grammar cannot follow is left out, and every valid value can still be said."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localai_shim.grammar import GrammarError, UnsatisfiableError, relax
from localai_shim.grammar.compile import GrammarCompiler, json_schema
from localai_shim.grammar.relax import relaxed, strict_form
from tests.grammar.drafts import says, vocabulary_with
from tests.samples import only, sampled

VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary_with())


def spellings(value: Any) -> Iterator[Any]:
    """A value with the keys of its objects in every order: the grammar wants them in the schema's."""
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            for members in itertools.product(*(list(spellings(value[name])) for name in names)):
                yield dict(zip(names, members, strict=True))
    elif isinstance(value, list):
        yield from (list(items) for items in itertools.product(*map(list, map(spellings, value))))
    else:
        yield int(value) if isinstance(value, float) and value.is_integer() else value


def sayable(compiler: GrammarCompiler, schema: dict[str, Any], value: Any, *, closed: bool = False) -> bool:
    grammar = compiler.compile(json_schema(relaxed(schema, closed=closed), lenient=True))
    texts = (json.dumps(made, ensure_ascii=False) for made in itertools.islice(spellings(value), 200))
    return any(says(grammar, compiler.vocabulary, text.replace("\x7f", "\\u007f")) for text in texts)


# schema, a value that satisfies it, one that does not and that no grammar lets through either (... if there is none)
PARTLY: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "a set": ({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, [1, 2], ["a"]),
    "a path": ({"type": "string", "format": "path"}, "/a/b", 5),
    "a look-ahead": ({"type": "string", "pattern": "^(?=a).{3}$", "maxLength": 3}, "abc", "abcd"),
    "a look-behind": ({"type": "string", "pattern": "(?<!b)a"}, "ca", 5),
    "a back-reference": ({"type": "string", "pattern": r"(a|b)\1"}, "aa", 5),
    "not": ({"type": "integer", "not": {"const": 3}}, 4, "a"),
    "if": ({"type": "integer", "if": {"minimum": 3}, "then": {"multipleOf": 2}}, 4, "a"),
    "options that overlap": ({"oneOf": [{"type": "integer"}, {"multipleOf": 2, "type": "number"}]}, 3, "a"),
    "contains": ({"type": "array", "contains": {"const": 1}, "items": {"type": "integer"}}, [2, 1], ["a"]),
    "names": ({"type": "object", "propertyNames": {"maxLength": 1}}, {"a": 1}, []),
    "names that need others": (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "dependentRequired": {"a": ["b"]}},
        {"a": 1, "b": 2},
        {"a": "x"},
    ),
    "patterns that overlap, and nothing else": (
        {
            "type": "object",
            "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}},
            "additionalProperties": False,
        },
        {"ab": 5},
        [],
    ),
    "names by a look-ahead": (
        {"type": "object", "patternProperties": {"^(?=a)": {"type": "integer"}}, "additionalProperties": False},
        {"abc": 5},
        [],
    ),
    "options between patterns and the rest": (
        {
            "type": "object",
            "patternProperties": {"^x": {"type": "integer"}},
            "anyOf": [{"required": ["x1"]}, {"required": ["x2"]}],
            "additionalProperties": False,
        },
        {"x1": 5},
        {"y": 1},
    ),
    "a multiple of many digits": ({"type": "number", "multipleOf": 0.0000000000123456, "minimum": 0}, 0, -1),
    "a length that no machine counts to": ({"type": "string", "maxLength": 10**12}, "abc", 5),
    "a required name that is not listed": (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]},
        {"a": 1, "b": 2},
        {"a": 1},
    ),
    "draft 7's references, which stand alone": (
        {**DRAFT_7, "definitions": {"a": {"type": "integer"}}, "allOf": [{"$ref": "#/definitions/a", "maximum": 3}]},
        5,
        "a",
    ),
    "whole numbers written as decimals": ({"type": "string", "maxLength": 3.0, "minLength": 1.0}, "abc", "abcd"),
}


@pytest.mark.parametrize(("schema", "valid", "invalid"), PARTLY.values(), ids=PARTLY)
@pytest.mark.parametrize("closed", [False, True])
def test_what_can_be_followed_is_followed_and_the_rest_left_out(
    compiler: GrammarCompiler, schema: dict[str, Any], valid: Any, invalid: Any, closed: bool
) -> None:
    validator = VALIDATORS["draft7" if "$schema" in schema else "draft2020-12"](schema)
    assert validator.is_valid(valid) and not validator.is_valid(invalid)
    assert sayable(compiler, schema, valid, closed=closed)
    assert not sayable(compiler, schema, invalid, closed=closed)


def test_a_reference_to_elsewhere_is_left_out(compiler: GrammarCompiler) -> None:
    """Nothing is fetched."""
    elsewhere = {"$ref": "https://example.com/x.json"}
    schema = {"type": "object", "properties": {"a": elsewhere, "b": {"type": "integer"}}}
    assert sayable(compiler, schema, {"a": "x", "b": 1})
    assert not sayable(compiler, schema, {"b": "x"})


# schema, a value that satisfies it, one that does not and that no grammar lets through either
CIRCULAR: dict[str, tuple[dict[str, Any], Any, Any]] = {
    name: ({"type": "object", "properties": {"n": {"type": "integer", "minimum": 7}, "next": next}}, valid, {"n": 6})
    for name, (next, valid) in {
        "a type": ({"type": "object", "$ref": "#"}, {"n": 7, "next": {"n": 8}}),
        "types": ({"type": ["object", "null"], "anyOf": [{"$ref": "#"}, {"type": "null"}]}, {"next": {"next": None}}),
        "a required name": ({"allOf": [{"$ref": "#"}, {"required": ["n"]}]}, {"n": 8, "next": {"n": 7}}),
        "an annotation": ({"$ref": "#", "nullable": True, "deprecated": True}, {"next": {"n": 7}}),
    }.items()
}


@pytest.mark.parametrize(("schema", "valid", "invalid"), CIRCULAR.values(), ids=CIRCULAR)
def test_the_neighbors_of_a_reference_to_itself_do_not_disable_a_schema(
    compiler: GrammarCompiler, schema: dict[str, Any], valid: Any, invalid: Any
) -> None:
    assert sayable(compiler, schema, valid)
    assert not sayable(compiler, schema, invalid)
    assert not sayable(compiler, schema, {"next": invalid})


def test_a_constant_that_no_grammar_holds_is_left_out_alone(compiler: GrammarCompiler) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 10**400}, "n": {"minimum": 7, "type": "integer"}}}
    assert sayable(compiler, schema, {"a": "x", "n": 7})
    assert not sayable(compiler, schema, {"a": "x", "n": 6})


# -- What is left out is logged ---------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, schema: dict[str, Any]) -> list[str]:
    """What is logged of a schema that nothing was logged of before, however often it is used."""
    fresh = {"title": f"schema {next(NUMBERS)}", **schema}
    caplog.clear()
    for _ in range(3):
        relaxed(fresh)
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


NUMBERS = itertools.count()
LEFT_OUT = {
    "'pattern'": {"type": "string", "pattern": "(?=a)"},
    "'$ref'": {"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}},
    "'multipleOf'": {"type": "number", "multipleOf": 0.0000000000123456},
    "'type'": {"type": "object", "properties": {"a": {"$ref": "#", "type": "object"}}},
    "'const'": {"const": 10**400},
    'Unimplemented keys: ["uniqueItems"]': {"type": "array", "uniqueItems": True},
    "Unknown format: path": {"type": "string", "format": "path"},
    "oneOf not fully supported": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
}


@pytest.mark.parametrize(("what", "schema"), LEFT_OUT.items(), ids=LEFT_OUT)
def test_what_is_left_out_is_logged_once_for_each_schema(
    what: str, schema: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    [message] = logged(caplog, schema)
    assert f"Not followed: {what}" in message and '"title"' in message


def test_a_schema_that_cannot_be_compiled_at_all_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str) -> None:
        raise GrammarError("no reason")

    monkeypatch.setattr(relax, "check", refuse)
    schema = {"type": "object", "properties": {"a": {}}}
    [message] = logged(caplog, schema)
    assert "Not followed: all but its type, since llguidance cannot compile it: no reason" in message


@pytest.mark.parametrize(("schema", "_", "__"), [*PARTLY.values(), *CIRCULAR.values()], ids=[*PARTLY, *CIRCULAR])
def test_a_strict_schema_is_an_error_if_anything_had_to_be_left_out(
    schema: dict[str, Any], _: Any, __: Any, caplog: pytest.LogCaptureFixture, compiler: GrammarCompiler
) -> None:
    """Or if no object of the listed properties satisfies it: such a schema has to list them all."""
    is_relaxed = bool(logged(caplog, schema)) or schema == PARTLY["a required name that is not listed"][0]
    with pytest.raises(GrammarError) if is_relaxed else contextlib.nullcontext():
        compiler.compile(json_schema(strict_form(schema)))


def test_a_schema_that_can_be_followed_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"anyOf": [{"const": 1}, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert json.dumps(relaxed(schema)) == json.dumps(schema)
    assert not logged(caplog, schema)


def test_objects_are_closed_unless_nothing_would_satisfy_them_then() -> None:
    listed = {"type": "object", "properties": {"a": True}}
    assert relaxed(listed) == {**listed, "additionalProperties": False}
    assert relaxed({**listed, "required": ["b"]}) == {**listed, "required": ["b"]}


@pytest.mark.parametrize("schema", [{"enum": []}, {"type": "integer", "minimum": 3, "maximum": 2}, {"allOf": [False]}])
def test_what_nothing_satisfies_is_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsatisfiableError):
        relaxed(schema)


# -- the public test suite --------------------------------------------------------------------------------------------


# A dialect that knows no `minimum`; to us, `$schema` chooses between drafts only.
DIALECTS = "vocabulary: schema that uses custom metaschema with with no validation vocabulary"


def _suite() -> Iterator[Any]:
    folder = Path(os.environ.get("JSON_SCHEMA_TEST_SUITE", "/nonexistent"), "tests")
    for draft_name in VALIDATORS:
        for path in sorted((folder / draft_name).glob("*.json")):
            cases = [] if path.stem == "format" else json.loads(path.read_text(encoding="utf-8"))
            for case in cases:
                if isinstance(case["schema"], dict) and f"{path.stem}: {case['description']}" != DIALECTS:
                    schema = case["schema"] if draft_name != "draft7" else {**DRAFT_7, **case["schema"]}
                    values = [[test["data"] for test in case["tests"] if test["valid"] is v] for v in (True, False)]
                    yield pytest.param(schema, *values, id=f"{draft_name}: {path.stem}: {case['description']}")


@pytest.mark.skipif("JSON_SCHEMA_TEST_SUITE" not in os.environ, reason="names no copy of the JSON-Schema-Test-Suite")
@pytest.mark.parametrize(("schema", "values", "invalid"), sampled(_suite(), 80))
def test_every_valid_value_of_the_official_suite_can_be_said(
    schema: dict[str, Any], values: list[Any], invalid: list[Any], compiler: GrammarCompiler
) -> None:
    """Of `format` all but the known ones are annotations to the suite, and texts are held to those."""
    with contextlib.nullcontext() if values else contextlib.suppress(UnsatisfiableError):
        relaxed(schema, closed=False)
    for value in values:
        assert sayable(compiler, schema, value), json.dumps(value)


@pytest.mark.skipif("JSON_SCHEMA_TEST_SUITE" not in os.environ, reason="names no copy of the JSON-Schema-Test-Suite")
@pytest.mark.parametrize("part", only([4], [1, 4]))
def test_most_invalid_values_of_the_official_suite_cannot_be_said(compiler: GrammarCompiler, part: int) -> None:
    """So that the test above is not passed by grammars of any JSON."""
    refused = [
        not sayable(compiler, param.values[0], value)
        for param in list(_suite())[::part]
        if param.values[1]
        for value in param.values[2]
    ]
    assert sum(refused) >= 0.5 * len(refused) > 300 / part, f"{sum(refused)} of {len(refused)}"
