"""JSON Schemas in the form that grammars are made of: strict ones whole, others without what no grammar can follow.

Whatever satisfies a schema satisfies what is left of it: only what narrows a value down is taken out, together with
what would mean something else without it. Formats are the exception: to the standard they are annotations, and a
grammar enforces those that it supports. Omissions are logged.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from . import GrammarError, TooComplexError, UnsatisfiableError
from .compile import check, json_schema
from .one_of import as_any_of
from .schema import close_objects, object_at, plain
from .schema_checks import (
    MAX_MULTIPLES,
    bounded_nesting,
    check_cost,
    check_references,
    check_schema,
    check_size,
    multiples,
)
from .subschemas import DRAFT_7, Schema, map_children, resolve, subschemas

log = logging.getLogger("localai_shim")

_OPTIONS = ("allOf", "anyOf", "oneOf")
_ROOT = ("$schema", "$defs", "definitions")  # what a schema holds that says nothing about its own values
# What is tried, one after the other, if the keywords of a type cannot be followed together.
_LESS: dict[str, tuple[tuple[str, ...], ...]] = {
    "number": (("multipleOf",), ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "string": (("pattern",), ("format",), ("minLength", "maxLength")),
    "object": (("patternProperties", "additionalProperties"),),
    "": (("enum", "const"),),
}
_Change = Callable[[dict[str, object]], dict[str, object]]


def strict_form(schema: Schema) -> dict[str, object]:
    """Copy of a schema that says the same in the form that llguidance reads, with its objects closed.

    Raises:
        GrammarError: it is too complex, or nothing satisfies it.
    """
    check_size(schema)
    with bounded_nesting():
        made = plain(schema)
        check_cost(made)
        return as_any_of(close_objects(made))


def relaxed(schema: Schema, *, closed: bool = True) -> dict[str, object]:
    """Copy of a schema without what no grammar can follow, for `json_schema(..., lenient=True)`.

    Logs what was left out, once for each schema.

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


@lru_cache(maxsize=1_024)
def log_left_out(text: str, what: str) -> None:
    """Log, once, that a grammar does not follow all of a schema.

    Args:
        text: the schema as JSON.
        what: the part that it does not follow.
    """
    log.warning("A JSON Schema is followed only in part. Not followed: %s. The schema: %.300s", what, text)


@lru_cache(maxsize=256)
def _relaxed(text: str, closed: bool) -> str:
    written = json.loads(text)
    check_schema(written)
    schema = plain(written)
    check_references(schema)
    if schema.get("$schema") == DRAFT_7:
        schema = _everywhere(schema, _referenced_alone)
    why: GrammarError | None = None
    for change in _changes(schema):
        for base in [close_objects(schema), schema] if closed else [schema]:
            candidate = _everywhere(as_any_of(base), change)
            try:
                warnings = check(json_schema(candidate, lenient=True))
            except TooComplexError:
                raise
            except GrammarError as error:
                why = error
                continue
            if left_out := [*_lost(base, candidate), *(each.rstrip(".") for each in warnings)]:
                log_left_out(text, "; ".join(left_out))
            return json.dumps(candidate)
        if isinstance(why, UnsatisfiableError):
            raise why
    log_left_out(text, f"all but its type, since llguidance cannot compile it: {why}")
    return json.dumps({"type": schema["type"]} if "type" in schema else {})


def _changes(schema: Schema) -> Iterator[_Change]:
    """Changes that make llguidance compile a schema; each takes out more than the one before."""
    yield _tidied
    yield _reduced
    yield partial(_untangled, _circular(schema))


def _lost(before: Schema, after: Schema) -> Sequence[str]:
    """The keywords that were taken out of a schema."""
    one, other = (Counter(name for part in subschemas(schema) for name in part) for schema in (before, after))
    for count in (one, other):
        count["anyOf"] += count.pop("oneOf", 0)
    return [f"'{name}'" for name in one if other[name] < one[name]]


def _refusal(schema: Schema) -> GrammarError | None:
    try:
        check(json_schema(schema, lenient=True))
    except GrammarError as error:
        return error
    return None


def _everywhere(schema: Schema, change: _Change) -> dict[str, object]:
    return change(map_children(schema, lambda key, child, path: _everywhere(child, change)))


def _tidied(node: dict[str, object]) -> dict[str, object]:
    """Without a multiple of a number with too many digits: a schema that is too complex otherwise is refused."""
    if multiples(node) > MAX_MULTIPLES:
        del node["multipleOf"]
    return node


def _referenced_alone(node: dict[str, object]) -> dict[str, object]:
    """Drop the neighbors of a `$ref`, as drafts up to 7 do: they count for nothing."""
    if "$ref" not in node:
        return node
    return {name: value for name, value in node.items() if name in ("$ref", *_ROOT)}


def _reduced(node: dict[str, object]) -> dict[str, object]:
    """Without what llguidance cannot compile."""
    node = _tidied(node)
    reference = node.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
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
        why = _refusal({"type": kind, **left} if kind else left) if left else None
        if why is None or isinstance(why, TooComplexError | UnsatisfiableError):
            return
        for name in names:
            node.pop(name, None)


# -- References that lead back to themselves ------------------------------------------------------------------------


def _circular(schema: Schema) -> frozenset[str]:
    """The references of a schema whose targets refer to themselves, or are between two that do."""
    leads: dict[str, set[str]] = {}
    waiting = _references(schema)
    while waiting:
        reference = waiting.pop()
        if reference not in leads:
            leads[reference] = _references(resolve(schema, reference))
            waiting |= leads[reference]
    return frozenset(_without_ends(_reversed(_without_ends(leads))))


def _without_ends(leads: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """A graph without the nodes from which every path ends."""
    back, left = _reversed(leads), {node: len(to) for node, to in leads.items()}
    ends = [node for node, count in left.items() if not count]
    for end in ends:
        for node in back[end]:
            left[node] -= 1
            if not left[node]:
                ends.append(node)
    gone = set(ends)
    return {node: to - gone for node, to in leads.items() if node not in gone}


def _reversed(leads: Mapping[str, set[str]]) -> dict[str, set[str]]:
    back: dict[str, set[str]] = {node: set() for node in leads}
    for node, to in leads.items():
        for each in to:
            back[each].add(node)
    return back


def _references(schema: object) -> set[str]:
    found = (part.get("$ref") for part in subschemas(schema))
    return {each for each in found if isinstance(each, str) and each.startswith("#")}


def _untangled(circular: frozenset[str], node: dict[str, object]) -> dict[str, object]:
    """Without the neighbors of a reference that leads back to itself, with which llguidance cannot compile it."""
    node = _reduced(node)
    kept = {name: node[name] for name in _ROOT if name in node}
    if node.get("$ref") in circular:
        return {"$ref": node["$ref"], **kept}
    for name in _OPTIONS:
        options = node.get(name)
        found = [each for each in options if isinstance(each, dict) and each.get("$ref") in circular] if options else []  # type: ignore[attr-defined]
        if found:
            return {name: found[:1] if name == "allOf" else options, **kept}
    return node
