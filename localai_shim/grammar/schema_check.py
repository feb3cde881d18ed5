"""A value of the right kind at every keyword of a JSON Schema, as its metaschema demands.

Drafts 7 to 2020-12 together, and the booleans that draft 4 has for `exclusiveMinimum`; OpenAPI writes those still.
https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeGuard
from urllib.parse import unquote

from . import GrammarError
from .references import resolve
from .subschemas import Schema, children, subschemas

_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
# ECMA 262 -> Python, only to see whether a pattern is one at all.
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_ONLY_ECMA = re.compile(r"\\[pP]\{[^{}]*\}|\\u\{[0-9a-fA-F]+\}|\\c[A-Za-z]|\\[kK]<\w+>|\\/|\\-")


def check_schema(schema: object) -> None:
    """Raise GrammarError, which names the path and the reason, if a value of JSON is no JSON Schema."""
    _check(schema, "")


def check_references(root: Schema) -> None:
    """Raise GrammarError if a pointer into a `localized` schema leads to nothing, or to something that is no schema."""
    for part in subschemas(root):
        reference = part.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            continue
        try:
            target = resolve(root, reference)
        except KeyError:
            raise GrammarError(f"There is nothing at the $ref {reference!r}.") from None
        if not isinstance(target, Mapping | bool):
            raise GrammarError(f"There is no schema at the $ref {reference!r}.")


def _check(schema: object, path: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _unexpected(schema, path, "an object or a boolean")
    for keyword, value in schema.items():
        expected, holds = _KEYWORDS.get(keyword, _ANYTHING)
        if not holds(value):
            raise _unexpected(value, f"{path}/{keyword}", expected)
    for inner, child in children(schema):
        _check(child, f"{path}/{unquote(inner)}")


def _unexpected(value: object, path: str, expected: str) -> GrammarError:
    return GrammarError(f"{f'at {path}: ' if path else ''}expected {expected}, but got {json.dumps(value):.60}.")


# -- kinds of values -----------------------------------------------------------------------------------------------


def _is_pattern(pattern: object) -> bool:
    """A regular expression of ECMA 262, as far as Python's `re` can say."""
    try:
        re.compile(_NAMED_GROUP.sub("(?P<", _ONLY_ECMA.sub("x", pattern)) if isinstance(pattern, str) else "(")
    except (re.error, RecursionError, OverflowError) as error:
        return "look-behind requires fixed-width" in str(error)  # which ECMA's need not have
    return True


def _any_of(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


_is_string, _is_object = _any_of(str), _any_of(Mapping)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: object) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_string, value))


def _are_types(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(name in _TYPES for name in names)


_Kind = tuple[str, Callable[[object], bool]]
_ANYTHING: _Kind = ("anything", lambda value: True)
_KINDS: dict[_Kind, str] = {
    ("a string", _is_string): (
        "$ref $id $schema $anchor $dynamicRef $dynamicAnchor format title description $comment contentEncoding "
        "contentMediaType"
    ),
    ("a non-negative integer", _is_size): (
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains"
    ),
    ("a number", _is_number): "minimum maximum",
    ("a number or a boolean", _any_of(int, float)): "exclusiveMinimum exclusiveMaximum",
    ("a number above 0", lambda value: _is_number(value) and value > 0): "multipleOf",
    ("a boolean", _any_of(bool)): "uniqueItems deprecated readOnly writeOnly",
    (f"one or several of {', '.join(_TYPES)}", _are_types): "type",
    ("an array", _any_of(list)): "enum",
    ("an array of strings", _are_strings): "required",
    ("a regular expression", _is_pattern): "pattern",
    ("a non-empty array of schemas", lambda value: isinstance(value, list) and bool(value)): (
        "allOf anyOf oneOf prefixItems"
    ),
    ("an object of schemas", _is_object): "properties $defs definitions dependentSchemas",
    (
        "an object of schemas, by regular expressions",
        lambda value: isinstance(value, Mapping) and all(map(_is_pattern, value)),
    ): ("patternProperties"),
    (
        "an object of arrays of strings",
        lambda value: isinstance(value, Mapping) and all(map(_are_strings, value.values())),
    ): ("dependentRequired"),
    ("an object", _is_object): "dependencies",
}
_KEYWORDS = {keyword: kind for kind, keywords in _KINDS.items() for keyword in keywords.split()}
