"""The tools that a request offers, and arguments of their calls as the types that the JSON schemas ask for."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from ..grammar.subschemas import Schema, json_type, list_at, localized, properties_of, resolve
from .python_literals import python_literal

MAX_REFERENCE_DEPTH = 16  # references that lead to references
MAX_NESTING = 100
"""Levels of objects and arrays that are looked into.

Some parsers take thousands, others hundreds; Python walks about 300, fewer where the caller's own stack is deep.
"""


def argument_schema(parameters: Schema) -> Schema:
    """A function's schema for readers: references lead to its parts, and every argument is in `properties`.

    Alternatives may say different things of an argument, which then is of any of these kinds.
    """
    return _with_all_properties(localized(parameters))


def _with_all_properties(schema: Schema) -> Schema:
    found: dict[str, list[object]] = {}
    for part in _parts(schema):
        for name, member in properties_of(part).items():
            options = found.setdefault(name, [])
            if member not in ({}, True, *options):
                options.append(member)
    one_of_each = {name: {"anyOf": each} if len(each) > 1 else each[0] if each else {} for name, each in found.items()}
    return {**schema, "properties": one_of_each} if found else schema


def inner_schema(parameters: Schema, key: str) -> Schema:
    """The schema of an argument that is an object or an array, as `argument_schema` writes it; {} if there is none."""
    found = schema_at(parameters, key, "object", "array") or {}
    definitions = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
    return _with_all_properties({**found, **definitions})


def items_of(schema: Schema) -> Iterator[object]:
    """The schemas of an array's items, one after the other, without end."""
    first, others = list_at(schema, "prefixItems"), schema.get("items", {})
    if isinstance(others, list):  # as drafts before 2020 write it
        first, others = others, schema.get("additionalItems", {})
    return chain(first, repeat(others))


def _parts(schema: Schema) -> Iterator[Schema]:
    """An object's schema and all in it that say something about the same object."""
    waiting: list[object] = [schema]
    met = set[object]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        yield part
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in met:
            met.add(reference)
            with contextlib.suppress(KeyError):
                waiting.append(resolve(schema, reference))
        waiting += [part.get("then"), part.get("else")]
        for name in ("allOf", "anyOf", "oneOf"):
            waiting += list_at(part, name)


def takes_all_text(parameters: Mapping[str, object], key: str) -> bool:
    """An argument may be any text and nothing else, so that it can be passed on while it is written."""
    schema = _schema_of(parameters, key)
    if schema is None:
        return True
    return isinstance(schema, Mapping) and schema.get("type") == "string" and not ({"enum", "const"} & schema.keys())


def _schema_of(parameters: Mapping[str, object], key: str) -> object:
    """The schema of an argument, its own or that of all which have none; None where there is none."""
    properties, others = properties_of(parameters), parameters.get("additionalProperties")
    if key in properties:
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
    options = [*_options(schema, parameters)]
    is_text = any(_takes_text(option, text) for option in options)
    kinds = frozenset().union(*(_kinds(option) or () for option in options))
    if is_text and isinstance(schema, Mapping) and {"enum", "const"} & schema.keys():
        return text  # one of these
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text if is_text else _python_value(text, kinds)
    if not is_text:
        is_whole = isinstance(value, float) and value.is_integer() and kinds == frozenset(["integer"])
        return int(value) if isinstance(value, float) and is_whole else value
    return value if not isinstance(value, str) and _kind(value) & kinds else text


def schema_at(parameters: Mapping[str, object], key: str, *types: str) -> Mapping[str, object] | None:
    """The schema of an argument, or of the option of it that is of one of these types; None where there is none.

    An argument that has no schema may be of any type.
    """
    for option in _options(properties_of(parameters).get(key, {}), parameters):
        kinds = _kinds(option)
        if isinstance(option, Mapping) and (kinds is None or kinds & set(types)):
            return option
    return None


def _options(schema: object, root: Mapping[str, object], depth: int = 0) -> Iterator[object]:
    """The schemas without references and alternatives of which a value has to match one; True where none is found."""
    if depth > MAX_REFERENCE_DEPTH:
        yield True
    elif not isinstance(schema, Mapping):
        yield schema
    elif isinstance(reference := schema.get("$ref"), str):
        try:
            yield from _options(resolve(root, reference), root, depth + 1)
        except KeyError:
            yield True
    elif (
        isinstance(options := schema.get("anyOf", schema.get("oneOf")), list) and not {"enum", "const"} & schema.keys()
    ):
        for option in options:
            yield from _options(option, root, depth + 1)
    elif isinstance(parts := schema.get("allOf"), list) and not {"enum", "const", "type"} & schema.keys():
        narrowest = min(([*_options(part, root, depth + 1)] for part in parts), key=_breadth, default=[True])
        for option in narrowest:
            yield {**option, "allOf": parts} if isinstance(option, Mapping) else option
    else:
        yield schema


def _breadth(options: Sequence[object]) -> int:
    """Number of types that these options leave open; all if one says nothing about it."""
    kinds = [_kinds(option) for option in options]
    return sum(map(len, filter(None, kinds))) if None not in kinds else 1_000


def takes_text(parameters: Mapping[str, object], key: str, text: str) -> bool:
    """An argument may be this text."""
    options = _options(properties_of(parameters).get(key), parameters)
    return any(_takes_text(option, text) for option in options)


def _python_value(text: str, kinds: frozenset[str]) -> object:
    """The value of a Python literal, such as True, or a number; the text itself where it is none that JSON has."""
    for kind, read in (("integer", int), ("number", float)):
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return read(text)
    try:
        return python_literal(text)
    except ValueError:
        return text


def _kind(value: object) -> frozenset[str]:
    """The types of JSON Schema that a value is of."""
    name = json_type(value)
    return frozenset(["integer", name] if name == "number" and isinstance(value, int) else [name])


def _kinds(schema: object) -> frozenset[str] | None:
    """The types that one of the `_options` names; None where it names none."""
    if not isinstance(schema, Mapping):
        return None
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return frozenset().union(*map(_kind, values)) if isinstance(values, list) else None
    types = schema.get("type")
    return None if types is None else frozenset(types if isinstance(types, list) else [types])


def _takes_text(schema: object, text: str) -> bool:
    """True if a string is a value of one of the `_options`; a schema that is not understood takes any."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if "enum" in schema:
        return text in schema["enum"]
    if "const" in schema:
        return bool(text == schema["const"])
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
    """True if objects and arrays are nested more than `MAX_NESTING` levels deep."""
    found = [(value, 1)]
    while found:
        each, depth = found.pop()  # the last one, so that a value that holds itself is found out at once
        if isinstance(each, Mapping | list | tuple):
            if depth > MAX_NESTING:
                return True
            found += [(inner, depth + 1) for inner in (each.values() if isinstance(each, Mapping) else each)]
    return False


def dumps_without(value: object, *markers: str) -> str:
    """JSON in which no string holds a marker; these begin with `<`, which JSON does not need."""
    text = dumps(value)
    return text.replace("<", "\\u003c") if any(marker in text for marker in markers) else text


def dumps(value: object) -> str:
    """JSON with unescaped characters, except for lone surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request.

    Attributes:
        functions: as chat templates and parsers read them; a custom tool is a function of one string, `input`.
        custom: names of the custom tools among them.
    """

    functions: Sequence[dict[str, Any]] = ()
    custom: Collection[str] = ()
    _read: dict[str, Schema] = field(default_factory=dict[str, Schema], compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Names of the tools that may be called."""
        return [tool["function"]["name"] for tool in self.functions]

    def parameters(self, name: str) -> Schema:
        """The JSON schema of a function's arguments, as `argument_schema` writes it; {} if there is none."""
        if name not in self._read:
            functions = (tool["function"] for tool in self.functions)
            schema: Schema | None = next((each.get("parameters") for each in functions if each["name"] == name), None)
            self._read[name] = argument_schema(schema or {})
        return self._read[name]
