"""The schemas within a JSON Schema, and the types of values. Pure functions; nothing is changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from urllib.parse import quote

Schema = Mapping[str, object]

# Where a schema holds other schemas; anything else in it (`enum`, `default`, ...) is data.
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "if", "then", "else")
_NEGATING = ("not", "unevaluatedItems", "unevaluatedProperties", "contentSchema")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def children(node: Schema) -> Iterator[tuple[str, object]]:
    """Path and value of each child, including those of keywords that no grammar follows.

    A path is the end of a `pointer`. A value does not have to be a schema.
    """
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            yield from ((f"{key}/{step(name)}", child) for name, child in value.items())
        elif key in _LISTED and isinstance(value, list):
            yield from ((f"{key}/{n}", child) for n, child in enumerate(value))
        elif key in (*_ONE, *_NEGATING):
            yield key, value


def subschemas(schema: object) -> Iterator[Schema]:
    """A schema and all that it holds."""
    if isinstance(schema, Mapping):
        yield schema
        for _, child in children(schema):
            yield from subschemas(child)


def map_children(
    node: Schema, change: Callable[[str, Schema, str], object], *, negated: bool = False
) -> dict[str, object]:
    """A copy of a schema in which `change(keyword, child, path)` replaces each schema that it holds.

    Children that are `true` or `false` stay.

    Args:
        negated: change the children of `not` and similar keywords, too. A change that widens what they allow would
            narrow what the schema allows.
    """

    def changed(key: str, child: object, path: str) -> object:
        return change(key, child, path) if isinstance(child, Mapping) else child

    copy = dict(node)
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            copy[key] = {name: changed(key, child, f"{key}/{step(name)}") for name, child in value.items()}
        elif key in _LISTED and isinstance(value, list):
            copy[key] = [changed(key, child, f"{key}/{n}") for n, child in enumerate(value)]
        elif key in _ONE or (negated and key in _NEGATING):
            copy[key] = changed(key, value, key)
    return copy


@lru_cache(maxsize=4_096)
def step(name: object) -> str:
    """A key as a step of a JSON pointer in a URI."""
    return quote(str(name).replace("~", "~0").replace("/", "~1"), safe="!$&'()*+,;=:@?")


def json_type(value: object) -> str:
    """JSON's name of a value's type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list | tuple) else "object"
