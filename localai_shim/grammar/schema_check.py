"""Check of JSON Schemas: every keyword has a value of the kind that its metaschema demands.

Drafts 7 to 2020-12 together, and the booleans that draft 4 has for `exclusiveMinimum`; OpenAPI writes those still.
https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

from ..output.formats.references import resolve
from . import GrammarError
from .schema import Schema, subschemas

_Check = Callable[[object, str], None]

_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
# ECMA 262 -> Python, only to see whether a pattern is one at all.
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_ONLY_ECMA = re.compile(r"\\[pP]\{[^{}]*\}|\\u\{[0-9a-fA-F]+\}|\\c[A-Za-z]|\\[kK]<\w+>|\\/|\\-")


def check_schema(schema: object) -> None:
    """Find out whether a value is a JSON Schema.

    Raises:
        GrammarError: it is none; the message says where and why.
    """
    _check(schema, "")
    if isinstance(schema, Mapping):
        _check_references(schema)


def is_pattern(pattern: str) -> bool:
    """True if a text is a regular expression of ECMA 262, as far as Python's `re` can say."""
    text = _NAMED_GROUP.sub("(?P<", _ONLY_ECMA.sub("x", pattern))
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return "look-behind requires fixed-width" in str(error)  # which ECMA's need not have
    return True


def _check(schema: object, path: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _unexpected(schema, path, "an object or a boolean")
    for keyword, value in schema.items():
        if not isinstance(keyword, str):
            raise GrammarError(f"{_at(path)}{keyword!r} is not a keyword.")
        if check := _KEYWORDS.get(keyword):
            check(value, f"{path}/{keyword}")


def _must(what: str, holds: Callable[[object], bool]) -> _Check:
    def check(value: object, path: str) -> None:
        if not holds(value):
            raise _unexpected(value, path, what)

    return check


def _each(what: str, check_one: _Check) -> _Check:
    """The values of an object are checked."""

    def check(value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _unexpected(value, path, what)
        for name, inner in value.items():
            check_one(inner, f"{path}/{name}")

    return check


def _schemas(value: object, path: str) -> None:
    if not isinstance(value, list) or not value:
        raise _unexpected(value, path, "a non-empty array of schemas")
    for n, inner in enumerate(value):
        _check(inner, f"{path}/{n}")


def _items(value: object, path: str) -> None:
    if value != []:  # draft 7 had it
        (_schemas if isinstance(value, list) else _check)(value, path)


def _by_pattern(value: object, path: str) -> None:
    _named(value, path)
    for name in value if isinstance(value, Mapping) else ():
        _pattern(name, path)


def _pattern(value: object, path: str) -> None:
    _string(value, path)
    if not is_pattern(str(value)):
        raise GrammarError(f"at {path}: {value!r} is not a regular expression.")


def _dependency(value: object, path: str) -> None:
    (_strings if isinstance(value, list) else _check)(value, path)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: object) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()


def _types(value: object, path: str) -> None:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        shown = value if isinstance(value, str) else _kind(value)
        raise GrammarError(f"Invalid type: {shown} at {path}. Types are {', '.join(_TYPES)}, and arrays of them.")


_string = _must("a string", _is_string)
_strings = _must("an array of strings", lambda value: isinstance(value, list) and all(map(_is_string, value)))
_size = _must("a non-negative integer", _is_size)
_number = _must("a number", _is_number)
_bound = _must("a number", lambda value: _is_number(value) or isinstance(value, bool))
_boolean = _must("a boolean", lambda value: isinstance(value, bool))

_named = _each("an object of schemas", _check)

_KEYWORDS: dict[str, _Check] = {
    **dict.fromkeys(("$ref", "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "format"), _string),
    **dict.fromkeys(("title", "description", "$comment", "contentEncoding", "contentMediaType"), _string),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _size),
    **dict.fromkeys(("minContains", "maxContains"), _size),
    **dict.fromkeys(("minimum", "maximum"), _number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _bound),
    "multipleOf": _must("a number above 0", lambda value: _is_number(value) and value > 0),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _boolean),
    "type": _types,
    "enum": _must("an array", lambda value: isinstance(value, list)),
    "required": _strings,
    "pattern": _pattern,
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _schemas),
    "items": _items,
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "contentSchema"), _check),
    **dict.fromkeys(("additionalItems", "additionalProperties"), _check),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _check),
    **dict.fromkeys(("properties", "$defs", "definitions", "dependentSchemas"), _named),
    "patternProperties": _by_pattern,
    "dependentRequired": _each("an object of arrays", _strings),
    "dependencies": _each("an object", _dependency),
}


def _check_references(root: Schema) -> None:
    """A pointer into the schema leads somewhere; where parts have ids, it may start from any of them."""
    parts = list(subschemas(root))
    if any(isinstance(part.get("$id"), str) for part in parts if part is not root):
        return
    for part in parts:
        reference = part.get("$ref")
        try:
            if isinstance(reference, str) and reference.startswith("#/"):
                resolve(root, reference)
        except KeyError:
            raise GrammarError(f"There is nothing at the $ref {reference!r}.") from None


def _unexpected(value: object, path: str, what: str) -> GrammarError:
    return GrammarError(f"{_at(path)}expected {what}, but got {_kind(value)}.")


def _at(path: str) -> str:
    return f"at {path}: " if path else ""


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "a boolean", str: f"{value!r:.60}", list: "an array", dict: "an object"}
    return names.get(type(value), f"{value!r:.60}")
