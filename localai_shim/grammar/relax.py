"""JSON Schemas of which a grammar follows what it can, and leaves out the rest.

Whatever satisfies a schema satisfies what is left of it: only what narrows a value down is taken out, together with
what would mean something else without it. Formats are the exception: to the standard they are annotations, and a
grammar enforces those that it supports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache

from . import GrammarError, TooComplexError, UnsatisfiableError
from .compile import check, json_schema
from .schema import Schema, close_objects, map_children, object_at
from .schema_check import check_schema
from .schema_cost import MAX_MULTIPLES, bounded_nesting, check_size, multiples

_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_OLD_DRAFT = re.compile(r"json-schema\.org/draft-0[3-7]/")
_APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
_TOGETHER = ("prefixItems", "items", "additionalItems", "patternProperties", "additionalProperties")
# What is tried, one after the other, where the keywords of a number or of a string cannot be followed together.
_LESS: dict[str, tuple[tuple[str, ...], ...]] = {
    "number": (("multipleOf",), ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "string": (("pattern",), ("format",), ("minLength", "maxLength")),
    "object": (("patternProperties", "additionalProperties"),),
}


def relaxed(schema: Schema, *, closed: bool = True) -> dict[str, object]:
    """Copy of a schema without what no grammar can follow, for `json_schema(..., lenient=True)`.

    Args:
        schema: of draft 2020-12 or 7; one that can be written as JSON.
        closed: as `close_objects`, unless nothing would satisfy the schema then.

    Raises:
        GrammarError: it is not JSON Schema, nothing satisfies it, or it is too complex.
    """
    check_size(schema)
    with bounded_nesting():
        made: dict[str, object] = json.loads(_relaxed(json.dumps(schema), closed))
    return made


@lru_cache(maxsize=256)
def _relaxed(text: str, closed: bool) -> str:
    schema = json.loads(text)
    check_schema(schema)
    if _OLD_DRAFT.search(schema.get("$schema", "")):
        schema = _everywhere(schema, _referenced_alone)
    why: GrammarError | None = None
    for change in (_tidied, _reduced):
        for base in [close_objects(schema), schema] if closed else [schema]:
            candidate = _everywhere(base, change)
            why = _refusal(candidate)
            if why is None:
                return json.dumps(candidate)
            if isinstance(why, TooComplexError):
                raise why
    if isinstance(why, UnsatisfiableError):
        raise why
    return json.dumps({"type": schema["type"]} if "type" in schema else {})


def _refusal(schema: Schema) -> GrammarError | None:
    try:
        check(json_schema(schema, lenient=True))
    except GrammarError as error:
        return error
    return None


def _everywhere(schema: Schema, change: Callable[[dict[str, object]], dict[str, object]]) -> dict[str, object]:
    return change(map_children(schema, lambda key, child, path: _everywhere(child, change)))


def _tidied(node: dict[str, object]) -> dict[str, object]:
    """Written as llguidance expects it: whole numbers as integers, and what belongs together in one place.

    A multiple of a number with too many digits is left out: a schema that is too complex otherwise is refused.
    """
    if multiples(node) > MAX_MULTIPLES:
        del node["multipleOf"]
    for name in _SIZES:
        if isinstance(size := node.get(name), float):
            node[name] = int(size)
    if any(name in node for name in _APPLICATORS):  # each ends the part of a schema that is read as one
        for name in _TOGETHER:
            if name in node:
                node[name] = node.pop(name)
    return node


def _referenced_alone(node: dict[str, object]) -> dict[str, object]:
    """Drop the neighbours of a `$ref`, as drafts up to 7 do: what stands beside it counts for nothing."""
    if "$ref" not in node:
        return node
    return {name: value for name, value in node.items() if name in ("$ref", "$schema", "$id", "$defs", "definitions")}


def _reduced(node: dict[str, object]) -> dict[str, object]:
    """Without what llguidance cannot compile."""
    node = _tidied(node)
    reference = node.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        del node["$ref"]
    for kind in _LESS:
        _drop(node, kind)
    return node


def _drop(node: dict[str, object], kind: str) -> None:
    """Take out as many of the keywords for a type as it needs."""
    for names in _LESS[kind]:
        left = {name: node[name] for step in _LESS[kind] for name in step if name in node}
        if "patternProperties" in left:
            patterns = object_at(left, "patternProperties")
            left = {"patternProperties": {name: {} for name in patterns}, "additionalProperties": False}
        why = _refusal({"type": kind, **left}) if left else None
        if why is None or isinstance(why, TooComplexError | UnsatisfiableError):
            return
        for name in names:
            node.pop(name, None)
