"""Arguments of formats that write values without quotes, as the types that their JSON schema asks for."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Mapping, Sequence

from .references import resolve

MAX_REFERENCE_DEPTH = 16  # references that lead to references
MAX_NESTING = 100
"""Levels of objects and arrays that are looked into.

Some parsers take thousands, others hundreds; Python walks about 300, fewer where the caller's own stack is deep.
"""


def takes_all_text(parameters: Mapping[str, object], key: str) -> bool:
    """An argument may be any text and nothing else, so that it can be passed on while it is written."""
    schema = _schema_of(parameters, key)
    if schema is None:
        return True
    return isinstance(schema, Mapping) and schema.get("type") == "string" and not ({"enum", "const"} & schema.keys())


def _schema_of(parameters: Mapping[str, object], key: str) -> object:
    """The schema of an argument, its own or that of all which have none; None where there is none."""
    properties, others = parameters.get("properties"), parameters.get("additionalProperties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return others if isinstance(others, Mapping) and others else None


def typed_value(text: str, parameters: Mapping[str, object], key: str) -> object:
    """The value of an argument that was written without quotes.

    Where its schema has several types, it is what the text spells as JSON if that is of one of them, else the text.

    Args:
        text: as it was written.
        parameters: the function's JSON schema.
        key: the argument's name.
    """
    if takes_all_text(parameters, key):
        return text
    schema = _schema_of(parameters, key)
    is_text, kinds = _takes_text(schema, text, parameters), _kinds(schema, parameters)
    if is_text and isinstance(schema, Mapping) and {"enum", "const"} & schema.keys():
        return text  # one of these
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text if is_text else _python_value(text, kinds or frozenset())
    if not is_text:
        is_whole = isinstance(value, float) and value.is_integer() and kinds == frozenset(["integer"])
        return int(value) if isinstance(value, float) and is_whole else value
    return value if not isinstance(value, str) and kinds is not None and _kind(value) & kinds else text


def schema_at(parameters: Mapping[str, object], key: str, *types: str) -> Mapping[str, object] | None:
    """The schema of an argument, or of the option of it that is of one of these types; None where there is none.

    An argument that has no schema may be of any type.
    """
    properties = parameters.get("properties")
    schema = properties.get(key, {}) if isinstance(properties, Mapping) else {}
    return _option(schema, parameters, types, 0)


def _option(
    schema: object, root: Mapping[str, object], types: Sequence[str], depth: int
) -> Mapping[str, object] | None:
    if not isinstance(schema, Mapping) or depth > MAX_REFERENCE_DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        try:
            return _option(resolve(root, reference), root, types, depth + 1)
        except KeyError:
            return None
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            found = (_option(option, root, types, depth + 1) for option in options)
            return next((option for option in found if option is not None), None)
    kinds = _kinds(schema, root)
    return schema if kinds is None or kinds & set(types) else None


def has_schema(parameters: Mapping[str, object], key: str) -> bool:
    """An argument is among those that the function says it has."""
    properties = parameters.get("properties")
    return isinstance(properties, Mapping) and key in properties


def takes_text(parameters: Mapping[str, object], key: str, text: str) -> bool:
    """An argument may be this text."""
    properties = parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    return schema is None or _takes_text(schema, text, parameters)


def _python_value(text: str, kinds: frozenset[str]) -> object:
    """The value of a Python literal, such as True, or a number; the text itself where it is none that JSON has."""
    for kind, read in (("integer", int), ("number", float)):
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return read(text)
    try:
        value: object = ast.literal_eval(text.strip())
        return json.loads(json.dumps(value))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _kind(value: object) -> frozenset[str]:
    """The types of JSON Schema that a value is of."""
    if isinstance(value, bool):
        return frozenset(["boolean"])
    if isinstance(value, int):
        return frozenset(["integer", "number"])
    if isinstance(value, float):
        return frozenset(["number"])
    if isinstance(value, str):
        return frozenset(["string"])
    return frozenset(["object" if isinstance(value, dict) else "array" if isinstance(value, list) else "null"])


def _kinds(schema: object, root: Mapping[str, object], depth: int = 0) -> frozenset[str] | None:
    """The types that a schema names; None where it names none."""
    if not isinstance(schema, Mapping) or depth > MAX_REFERENCE_DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        try:
            return _kinds(resolve(root, reference), root, depth + 1)
        except KeyError:
            return None
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return frozenset().union(*map(_kind, values)) if isinstance(values, list) else None
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            found = [_kinds(option, root, depth + 1) for option in options]
            return frozenset().union(*(kinds for kinds in found if kinds is not None))
    types = schema.get("type")
    return None if types is None else frozenset(types if isinstance(types, list) else [types])


def _takes_text(schema: object, text: str, root: Mapping[str, object], depth: int = 0) -> bool:
    """True if a string is a value of the schema; a schema that is not understood takes any."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if depth > MAX_REFERENCE_DEPTH:
        return True
    if isinstance(reference := schema.get("$ref"), str):
        try:
            return _takes_text(resolve(root, reference), text, root, depth + 1)
        except KeyError:
            return True
    if "enum" in schema:
        return text in schema["enum"]
    if "const" in schema:
        return bool(text == schema["const"])
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            return any(_takes_text(option, text, root, depth + 1) for option in options)
    types = schema.get("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        return False
    try:
        fits = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        return bool(fits and ("pattern" not in schema or re.search(schema["pattern"], text)))
    except (TypeError, re.error):
        return True


def json_or_text(text: str) -> object:
    """Read a text as JSON; the text itself where it is none, or is nested more deeply than `MAX_NESTING`."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if text.count("{") + text.count("[") > MAX_NESTING and nests_too_deeply(value) else value


def nests_too_deeply(value: object) -> bool:
    """True if objects and arrays stand in each other more than `MAX_NESTING` times."""
    found = [(value, 1)]
    while found:
        each, depth = found.pop()  # the last one, so that a value that holds itself is found out at once
        if isinstance(each, Mapping | list | tuple):
            if depth > MAX_NESTING:
                return True
            found += [(inner, depth + 1) for inner in (each.values() if isinstance(each, Mapping) else each)]
    return False
