"""What is done to a JSON Schema before it becomes a grammar. Pure functions; nothing is changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .formats import FORMATS

Schema = Mapping[str, Any]

# Where a schema holds other schemas; anything else in it (`enum`, `default`, ...) is data.
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "if", "then", "else")
_NEGATING = ("not", "unevaluatedItems", "unevaluatedProperties", "contentSchema")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_COMPOSING = (
    "$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired", "dependencies",
    "unevaluatedProperties",
)  # fmt: skip

_DATES = ("date", "time", "date-time")


def takes_no_arguments(parameters: Schema | None) -> bool:
    """Whether a tool's parameters are an object without properties, as tools without arguments are declared."""
    if not parameters:
        return True
    if any(parameters.get(key) for key in (*_COMPOSING, "properties", "patternProperties", "required")):
        return False
    return parameters.get("type", "object") == "object" and not parameters.get("additionalProperties")


def close_objects(schema: Schema) -> dict[str, Any]:
    """A copy in which objects that list their properties and say no more have no others.

    Objects that are put together from several schemas (`allOf`, `$ref` beside properties, ...) stay as they are: their
    parts know nothing of each other's properties.
    """
    parts = set(_referenced_parts(schema))

    def close(node: Any, *, part: bool, pointer: str) -> Any:
        if not isinstance(node, Mapping):
            return node
        composed = any(key in node for key in _COMPOSING)
        inside = composed and "properties" in node  # then its options are parts of one object with it
        joined = inside or _is_joined(node)
        closed = map_children(
            node,
            lambda key, child, path: close(
                child,
                part=key in _COMPOSING and (part or (joined if key == "allOf" else inside)),
                pointer=f"{pointer}/{path}",
            ),
        )
        is_open = "properties" in node and "additionalProperties" not in node
        if is_open and not composed and not part and pointer not in parts:
            closed["additionalProperties"] = False
        return closed

    closed: dict[str, Any] = close(schema, part=False, pointer="#")
    return closed


def exact_dates(schema: Schema) -> dict[str, Any]:
    """A copy in which dates and times are such that Python's `datetime` reads them.

    llguidance's own let through 29 February of any year, and a sixty-first second in any minute.
    """
    copy: dict[str, Any] = map_children(
        schema, lambda key, child, path: exact_dates(child) if isinstance(child, Mapping) else child
    )
    if copy.get("format") in _DATES and "pattern" not in copy and "string" in str(copy.get("type", "string")):
        copy["pattern"] = f"^(?:{FORMATS[copy['format']]})$"
    return copy


def subschemas(schema: Any) -> Iterator[Schema]:
    """A schema and all that it holds, those of keywords that no grammar follows included."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            held: Iterable[Any] = value.values()
        elif key in _LISTED and isinstance(value, list):
            held = value
        else:
            held = [value] if key in (*_ONE, *_NEGATING) else ()
        for child in held:
            yield from subschemas(child)


def resolve(root: Schema, reference: str) -> Any:
    """What a local `$ref` points to.

    Raises:
        KeyError: nothing is there, or it lies outside of the schema.
    """
    if not reference.startswith("#"):
        raise KeyError(reference)
    node: Any = root
    for step in reference[1:].split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(step) if isinstance(node, list) else step]
        except (IndexError, TypeError, ValueError):
            raise KeyError(reference) from None
    return node


def map_children(node: Schema, change: Callable[[str, Any, str], Any]) -> dict[str, Any]:
    """A copy of a schema with `change(keyword, child, path)` in the place of each schema that it holds."""
    copy = dict(node)
    for key, value in node.items():
        if key in _NAMED and isinstance(value, Mapping):
            copy[key] = {name: change(key, child, f"{key}/{_escape(name)}") for name, child in value.items()}
        elif key in _LISTED and isinstance(value, list):
            copy[key] = [change(key, child, f"{key}/{n}") for n, child in enumerate(value)]
        elif key in _ONE:
            copy[key] = change(key, value, key)
    return copy


def _is_joined(node: Schema) -> bool:
    """It is put together from several schemas."""
    parts = node.get("allOf")
    return isinstance(parts, list) and len(parts) > 1


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _referenced_parts(node: Any, part: bool = False) -> Iterator[str]:
    """The references that stand for a part of an object: inside `allOf`, or beside properties."""
    if not isinstance(node, Mapping):
        return
    part = part or "properties" in node
    joined = part or _is_joined(node)
    if part and isinstance(node.get("$ref"), str):
        yield node["$ref"]
    found: list[str] = []

    def visit(key: str, child: Any, path: str) -> None:
        found.extend(_referenced_parts(child, key in _COMPOSING and (joined if key == "allOf" else part)))

    map_children(node, visit)
    yield from found
