"""JSON Schemas: what `format` means, and the changes before one becomes a grammar.

Pure functions; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import GrammarError
from .subschemas import Schema, list_at, localized, map_children, target_of

_COMPOSING = (
    "$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired", "dependencies",
    "unevaluatedProperties",
)  # fmt: skip

# Keywords that decide about values, or hold schemas that do. `contentSchema` and its like are annotations.
_KEYWORDS = frozenset((
    "$schema", "$ref", "$dynamicRef", "$recursiveRef", "$defs", "definitions", "type", "enum", "const",
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
    "properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
    "maxProperties", "unevaluatedProperties", "items", "prefixItems", "additionalItems", "contains", "minContains",
    "maxContains", "minItems", "maxItems", "uniqueItems", "unevaluatedItems", "minLength", "maxLength", "pattern",
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
))  # fmt: skip

_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
_TOGETHER = ("prefixItems", "items", "additionalItems", "patternProperties", "additionalProperties")

_MONTH_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_DATE = rf"[12]\d{{3}}-{_MONTH_DAY}"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_HOURS = r"T(?:\d+H(?:\d+M)?(?:\d+S)?|\d+M(?:\d+S)?|\d+S)"
_DAYS = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_GROUP = r"[0-9a-fA-F]{1,4}"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_PATH = r"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})*"

# RFC 3339, 5321, 1123, 2673, 4291, 4122 and 3986, at times a little less than they allow (no leap days, leap seconds
# or quoted mailboxes), so that every validator agrees.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_DAYS}(?:{_HOURS})?|{_HOURS}|\d+W)",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOSTNAME}",
    "hostname": _HOSTNAME,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "|".join(
        [rf"(?:{_GROUP}:){{7}}{_GROUP}", "::"]
        + [rf"(?:{_GROUP}:){{{n}}}(?::{_GROUP}){{1,{7 - n}}}" for n in range(1, 7)]
        + [rf"(?:{_GROUP}:){{1,7}}:", rf":(?::{_GROUP}){{1,7}}"]
    ),
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "uri": rf"[a-zA-Z][a-zA-Z0-9+.-]*://{_HOSTNAME}(?::\d{{1,5}})?(?:/{_PATH})*(?:\?{_PATH})?(?:#{_PATH})?",
}
"""Regular expressions of JSON Schema's `format`."""
_DATES = ("date", "time", "date-time")


def array_at(schema: Schema, keyword: str) -> list[object]:
    """The array at a keyword; empty where there is none."""
    return _value_at(schema, keyword, list, "an array") or []


def object_at(schema: Schema, keyword: str) -> Mapping[str, object]:
    """The object at a keyword; empty where there is none."""
    return _value_at(schema, keyword, Mapping, "an object") or {}


def size_at(schema: Schema, keyword: str) -> int | None:
    """The number at a keyword such as `maxLength`."""
    value: float | None = _value_at(schema, keyword, (int, float), "a number")
    return None if value is None else int(value)


def _value_at(schema: Schema, keyword: str, kind: type | tuple[type, ...], expected: str) -> Any:
    value = schema.get(keyword)
    if value is not None and not isinstance(value, kind):
        raise GrammarError(f"Invalid '{keyword}': expected {expected}.")
    return value


def takes_no_arguments(parameters: Schema | None) -> bool:
    """True if a tool's parameters are an object without properties, as tools without arguments are declared."""
    if not parameters:
        return True
    if any(parameters.get(key) for key in (*_COMPOSING, "properties", "patternProperties", "required")):
        return False
    return parameters.get("type", "object") == "object" and not parameters.get("additionalProperties")


def plain(schema: Schema) -> dict[str, object]:
    """A copy of a schema that says the same as llguidance expects it, and nothing else.

    Its references are `localized`. It has no annotations: llguidance reads a keyword that it does not know as a
    condition, which it cannot put together with some others. Sizes are integers, limits are numbers, and keywords that
    llguidance reads together have no other between them.
    """
    return _plain(localized(schema))


def _plain(schema: Schema) -> dict[str, object]:
    copy = map_children(schema, lambda key, child, path: _plain(child), negated=True)
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(is_exclusive := copy.get(exclusive), bool):  # as draft 4 writes it
            del copy[exclusive]
            if is_exclusive and limit in copy:
                copy[exclusive] = copy.pop(limit)
    for name in _SIZES:
        if isinstance(size := copy.get(name), float) and size.is_integer():
            copy[name] = int(size)
    if any(name in copy for name in _APPLICATORS):  # each ends the part of a schema that is read as one
        for name in _TOGETHER:
            if name in copy:
                copy[name] = copy.pop(name)
    return {
        name: value for name, value in copy.items() if name in _KEYWORDS and (name, value) != ("uniqueItems", False)
    }


def objects_only(schema: Schema, root: Schema | None = None) -> dict[str, object]:
    """A copy that only objects satisfy; a function's parameters do not have to say that they are one.

    Args:
        root: the schema that references start from; the schema itself by default.
    """
    root = schema if root is None else root
    copy = dict(schema)
    if "type" in copy:
        return copy
    for name in ("anyOf", "oneOf"):
        if isinstance(options := copy.get(name), list):
            copy[name] = [objects_only(each, root) if isinstance(each, Mapping) else each for each in options]
            return copy
    for part in (copy, *list_at(copy, "allOf")):
        if any(isinstance(each, Mapping) and "type" in each for each in (part, target_of(part, root))):
            return copy
    return {"type": "object", **copy}


def close_objects(schema: Schema) -> dict[str, object]:
    """A copy in which objects that list their properties and say no more have no others.

    Objects that are put together from several schemas (`allOf`, `$ref` next to properties, ...) stay as they are: their
    parts know nothing of each other's properties.
    """
    parts = set(_referenced_parts(schema))

    def close(node: Schema, is_part: bool, pointer: str) -> dict[str, object]:
        composed = any(key in node for key in _COMPOSING)
        inside = composed and "properties" in node  # then its options are parts of one object with it
        joined = inside or _is_joined(node)

        def close_child(key: str, child: Schema, path: str) -> dict[str, object]:
            in_part = is_part or (joined if key == "allOf" else inside)
            return close(child, key in _COMPOSING and in_part, f"{pointer}/{path}")

        closed = map_children(node, close_child)
        is_open = "properties" in node and "additionalProperties" not in node
        if is_open and not composed and not is_part and pointer not in parts:
            closed["additionalProperties"] = False
        return closed

    return close(schema, False, "#")


def exact_dates(schema: Schema) -> dict[str, object]:
    """A copy in which dates and times are such that Python's `datetime` reads them.

    llguidance's own allow 29 February of any year, and a sixty-first second in any minute.
    """
    copy = map_children(schema, lambda key, child, path: exact_dates(child))
    is_text = "pattern" not in copy and "string" in str(copy.get("type", "string"))
    if is_text and (format := copy.get("format")) in _DATES:
        copy["pattern"] = f"^(?:{FORMATS[str(format)]})$"
    return copy


def _is_joined(node: Schema) -> bool:
    """It is put together from several schemas."""
    return len(list_at(node, "allOf")) > 1


def _referenced_parts(node: Schema, is_part: bool = False) -> list[str]:
    """The references that stand for a part of an object: inside `allOf`, or next to properties."""
    is_part = is_part or "properties" in node
    joined = is_part or _is_joined(node)
    reference = node.get("$ref")
    found = [reference] if is_part and isinstance(reference, str) else []

    def visit(key: str, child: Schema, path: str) -> None:
        found.extend(_referenced_parts(child, key in _COMPOSING and (joined if key == "allOf" else is_part)))

    map_children(node, visit)
    return found
