"""A value that a metaschema refuses is refused by its path, keyword by keyword."""

from __future__ import annotations

import contextlib
from typing import Any

import jsonschema
import pytest
from jsonschema.exceptions import SchemaError

from localai_shim.grammar import GrammarError
from localai_shim.grammar.schema_checks import _KEYWORDS, check_schema

ONE = ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties", "unevaluatedProperties")
VALUES: list[object] = [
    *(None, True, -1, 0, 1.5, 2, 2.0, "a", "(", "string", [], {}, [{}], {"a": {}}, [5], {"a": 5}, ["string"]),
    *(["string", 5], {"a": ["b"]}, {"a": [5]}, {"(": {}}, [True], [["string"]], {"a": [["b"]]}, {"a": None}),
]
MORE: list[tuple[str, object]] = [
    *(("exclusiveMinimum", True), ("exclusiveMaximum", True)),  # as draft 4 and OpenAPI write them
    *((name, text) for name in ("$schema", "$anchor", "$dynamicAnchor") for text in ("a", "(", "string")),
    ("items", []),
]


@pytest.mark.parametrize("keyword", sorted({*_KEYWORDS, *ONE, "items"} - {"dependencies"}))
def test_a_keyword_takes_the_values_that_its_metaschema_takes(keyword: str) -> None:
    validator = jsonschema.Draft7Validator if keyword == "items" else jsonschema.Draft202012Validator
    for value in VALUES:
        with contextlib.nullcontext() if is_taken(validator, keyword, value) else pytest.raises(GrammarError):
            check_schema({keyword: value})


def is_taken(validator: Any, keyword: str, value: object) -> bool:
    with contextlib.suppress(SchemaError):
        validator.check_schema({keyword: value})
        return True
    return any(keyword == name and value == taken for name, taken in MORE)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"anyOf": [{}, {"minLength": -1}]}}}, "/properties/a/anyOf/1/minLength"),
        ({"items": {"not": {"type": "colour"}}}, "/items/not/type"),
        ({"patternProperties": {"(": {}}}, "/patternProperties"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_by_its_path(schema: object, path: str) -> None:
    with pytest.raises(GrammarError, match=f"^at {path}: expected "):
        check_schema(schema)
