"""Two JSON Schemas in one: what satisfies it satisfies both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from . import UnsatisfiableError
from .subschemas import Schema, is_number, list_at, properties_of

T = TypeVar("T")
_SAYS_NOTHING = ("$schema", "$defs", "definitions")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_OPTIONS = ("anyOf", "oneOf")
_MEMBERS = ("properties", "additionalProperties")


def conjunction(one: Schema, other: Schema, clash: Callable[[str], None]) -> dict[str, object]:
    """A schema of the values that satisfy two, neither of which has a `$ref` or an `allOf`.

    Options of both stay apart: those of the second are in an `allOf`.

    Args:
        clash: called with a keyword whose values no single one can replace; that of `one` stays then.

    Raises:
        UnsatisfiableError: their types or constants exclude each other.
    """
    made = {key: value for key, value in one.items() if key not in _SAYS_NOTHING}
    for key, value in other.items():
        if key in _SAYS_NOTHING or key in _MEMBERS:
            continue
        if key not in made or made[key] == value:
            made[key] = value
        elif key in _OPTIONS:
            made["allOf"] = [*list_at(made, "allOf"), {key: value}]
        elif key == "items" and not isinstance(value, list) and not isinstance(made[key], list):
            made[key] = _both(made[key], value)
        else:
            made[key] = _met(key, made[key], value, clash)
    if any("prefixItems" in a and "prefixItems" not in b and "items" in b for a, b in ((one, other), (other, one))):
        clash("items")
    return {**made, **_members(one, other)}


def same(value: object) -> str:
    """A text that equal values of JSON share, and no others."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _met(key: str, one: object, other: object, clash: Callable[[str], None]) -> object:
    """One value of a keyword that says what two say together."""
    if key in (*_UPPER, *_LOWER) and is_number(one) and is_number(other):
        return min(one, other) if key in _UPPER else max(one, other)
    if key == "required" and isinstance(one, list) and isinstance(other, list):
        return [*one, *(name for name in other if name not in one)]
    if key == "enum" and isinstance(one, list) and isinstance(other, list):
        theirs = set(map(same, other))
        return _not_empty([value for value in one if same(value) in theirs], "no value of both enumerations is allowed")
    if key == "type":
        return _not_empty(_common_types(one, other), f"no value is of type {one!r} and of type {other!r}")
    if key == "const":
        raise UnsatisfiableError(f"Unsatisfiable schema: no value is {one!r} and {other!r}")
    clash(key)
    return one


def _not_empty(values: list[T], why: str) -> list[T]:
    if not values:
        raise UnsatisfiableError(f"Unsatisfiable schema: {why}")
    return values


def _common_types(one: object, other: object) -> list[object]:
    first, second = ([*each] if isinstance(each, list) else [each] for each in (one, other))
    return [
        *(name for name in first if name in second or (name == "integer" and "number" in second)),
        *(name for name in second if name == "integer" and name not in first and "number" in first),
    ]


def _both(one: object, other: object) -> object:
    """Schema of a value that has to satisfy two."""
    if one is True or one == {} or one == other:
        return other
    if other is True or other == {}:
        return one
    return False if one is False or other is False else {"allOf": [one, other]}


def _members(one: Schema, other: Schema) -> dict[str, object]:
    """Two schemas' conditions on an object's members. To one, a member that only the other lists is any other."""
    listed, theirs = properties_of(one), properties_of(other)
    others, more = one.get("additionalProperties", True), other.get("additionalProperties", True)
    properties = {
        **{name: _both(schema, theirs.get(name, more)) for name, schema in listed.items()},
        **{name: _both(others, schema) for name, schema in theirs.items() if name not in listed},
    }
    rest = _both(others, more)
    return {
        **({"properties": properties} if properties else {}),
        **({} if rest is True else {"additionalProperties": rest}),
    }
