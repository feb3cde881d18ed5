"""Checks of a JSON Schema before it becomes a grammar: what its keywords hold, and what compiling it costs.

Every keyword needs a value of the kind that its metaschema demands: drafts 7 to 2020-12 together, and the booleans that
draft 4 has for `exclusiveMinimum`, which OpenAPI still writes.
https://json-schema.org/draft/2020-12/json-schema-validation

Costs are counted, not timed, so they do not depend on the machine. llguidance itself limits automata and parsing. The
limits here cover what takes time before that: the number of a schema's parts, properties that may be left out
(quadratic), and multiples (an automaton of as many states).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from urllib.parse import unquote

from . import GrammarError, TooComplexError, UnsatisfiableError
from .subschemas import Schema, children, is_number, list_at, properties_of, resolve, subschemas, target_of

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


def _is_size(value: object) -> bool:
    return is_number(value) and value >= 0 and float(value).is_integer()


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
    ("a number", is_number): "minimum maximum",
    ("a number or a boolean", _any_of(int, float)): "exclusiveMinimum exclusiveMaximum",
    ("a number above 0", lambda value: is_number(value) and value > 0): "multipleOf",
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


MAX_SCHEMA_PARTS = 5_000
# Of one object: a state of llguidance's parser holds four items for each, and 2,000 at most.
MAX_OPTIONAL_PROPERTIES = 500
MAX_ENUM_CHARACTERS = 500_000
MAX_MULTIPLES = 20_000
MAX_PATTERN_LENGTH = 100_000
# Compiling takes time in the square of these, where they follow each other: 1.3 s for 1,000.
MAX_OPTIONAL_PARTS = 1_000
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<low>\d+)(?:,(?P<high>\d*))?\}|.", re.DOTALL)
PATTERN_PARTS = 10  # a pattern or a format costs as much as so many plain parts


@contextmanager
def bounded_nesting() -> Iterator[None]:
    """Raise TooComplexError for a schema that is nested beyond what Python's stack holds."""
    try:
        yield
    except RecursionError:
        raise TooComplexError("The schema is nested too deeply.") from None


def check_cost(schema: Schema) -> None:
    """Find out whether a schema can be compiled within a fraction of a second, and comes to an end.

    Raises:
        TooComplexError: it is too large.
        UnsatisfiableError: a value of it would never end.
    """
    with bounded_nesting():
        parts = check_size(schema)
        _at_most(sum(map(multiples, parts)), MAX_MULTIPLES, "states for its 'multipleOf'")
        for part in parts:
            for pattern in _patterns(part):
                check_pattern(pattern)
            _at_most(_optional(part), MAX_OPTIONAL_PROPERTIES, "properties of one object that may be left out")
        if not _ends(schema, parts):
            raise UnsatisfiableError(
                "The schema cannot be satisfied: it requires itself, so that no value of it ever ends."
            )


def check_size(schema: Schema) -> list[Schema]:
    """The parts of a schema, if they are not too many to look at.

    Raises:
        TooComplexError: they are.
    """
    with bounded_nesting():
        parts = list(islice(subschemas(schema), MAX_SCHEMA_PARTS + 1))
        weight = sum(PATTERN_PARTS if "pattern" in part or "format" in part else 1 for part in parts)
        _at_most(weight, MAX_SCHEMA_PARTS, "parts (a pattern counts as ten)")
        _at_most(sum(map(_constants, parts)), MAX_ENUM_CHARACTERS, "characters of constants")
    return parts


def _at_most(count: int, limit: int, what: str, whose: str = "schema") -> None:
    if count > limit:
        raise TooComplexError(f"The {whose} is too large: it has more than {limit:,} {what}.")


def _constants(part: Schema) -> int:
    """The length of its constants as JSON."""
    return sum(
        len(json.dumps(part[name], ensure_ascii=False, default=str)) for name in ("enum", "const") if name in part
    )


def check_pattern(pattern: str) -> None:
    """Find out whether a regular expression is short when its repeats are written out, and leaves few parts open.

    Raises:
        TooComplexError: it is not.
    """
    totals, last, optional, before = [0], 0, 0, ""
    for token in _TOKEN.finditer(pattern):
        may_be_left_out = token[0] in ("?", "*") or (token["low"] is not None and int(token["low"][:9]) == 0)
        optional += may_be_left_out and before not in ("(", "*", "+", "?")  # of a group's beginning, or a lazy repeat
        before = token[0]
        if token[0] == "(":
            totals.append(0)
        elif token[0] == ")" and len(totals) > 1:
            last = totals.pop()
            totals[-1] += last
        elif token["low"] is not None:
            times = max(int(token["low"][:9]), int((token["high"] or "0")[:9]))
            totals[-1] += last * (times - 1)
            last *= times
        else:
            last = 1
            totals[-1] += 1
    _at_most(sum(totals), MAX_PATTERN_LENGTH, "characters, repeats written out", "pattern")
    _at_most(optional, MAX_OPTIONAL_PARTS, "parts that may be left out ('?', '*', '{0')", "pattern")


def multiples(part: Schema) -> int:
    """States of an automaton of the multiples that a schema asks for; 0 where llguidance refuses to make one."""
    value = part.get("multipleOf")
    if not is_number(value):
        return 0
    digits = "".join(map(str, Decimal(str(value)).as_tuple().digits))
    return 0 if len(digits) > 9 else int(digits.rstrip("0") or 0)  # llguidance refuses those itself


def _patterns(part: Schema) -> list[str]:
    named = part.get("patternProperties")
    found = [part.get("pattern"), *(named if isinstance(named, Mapping) else ())]
    return [pattern for pattern in found if isinstance(pattern, str)]


def _optional(part: Schema) -> int:
    required = {name for name in list_at(part, "required") if isinstance(name, str)}
    return sum(name not in required for name in properties_of(part))


def _ends(root: Schema, parts: list[Schema]) -> bool:
    """True if some value of a schema is finite, as far as its references, required properties and items tell."""
    by_id = {id(part): part for part in parts}
    needs = {key: _needs(part, root, by_id) for key, part in by_id.items()}
    needed_by: dict[int, list[int]] = {}
    for key, groups in needs.items():
        for inner in (inner for group in groups for inner in group):
            needed_by.setdefault(inner, []).append(key)
    finite: set[int] = set()
    waiting = list(by_id)
    while waiting:
        key = waiting.pop()
        if key not in finite and all(any(inner in finite for inner in group) for group in needs[key]):
            finite.add(key)
            waiting += needed_by.get(key, [])
    return id(root) in finite


def _needs(part: Schema, root: Schema, known: Mapping[int, Schema]) -> list[list[int]]:
    """Groups of parts, by id: a value of this part is finite if one of each group has finite values."""
    if "enum" in part or "const" in part:
        return []
    groups: list[list[object]] = [[child] for child in (*list_at(part, "allOf"), target_of(part, root))]
    groups += [options for name in ("anyOf", "oneOf") if (options := list_at(part, name))]
    if part.get("type") in ("object", ["object"]):
        groups += [[child] for child in _required(part)]
    if part.get("type") in ("array", ["array"]):
        groups += [[child] for child in _first_items(part)]
    # What is not an object, such as `true`, is finite, and so is what lies where no schema is looked for.
    return [list(map(id, group)) for group in groups if all(id(child) in known for child in group)]


def _required(part: Schema) -> list[object]:
    properties = properties_of(part)
    others = True if "patternProperties" in part else part.get("additionalProperties", True)
    return [properties.get(name, others) for name in list_at(part, "required") if isinstance(name, str)]


def _first_items(part: Schema) -> list[object]:
    least = part.get("minItems", 0)
    if not is_number(least):
        return []
    first = list_at(part, "prefixItems") or list_at(part, "items")
    others = part.get("items", True)
    return [*first[: int(least)], *([others] if len(first) < least and not isinstance(others, list) else [])]
