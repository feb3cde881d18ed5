"""From a JSON Schema to rules for values that are not, or not quite, written as JSON.

llguidance compiles schemas for JSON itself. Formats that write strings or keys in a way of their own, or in which a
string must not hold the marker that ends the value, need rules of our own. They know what OpenAI's strict mode knows:
types and lists of types, nested objects and arrays, `anyOf`, `$ref` and `$defs` with recursion, `enum`, `const`, and
the keywords for strings, numbers and arrays.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .compile import GrammarError, check, guided, lark
from .error import TooComplexError
from .lark_rules import LarkRules
from .raw_text import containing, without
from .schema import Schema, resolve
from .vocabulary import literal

TYPES = ("string", "number", "boolean", "null", "array", "object")
# Keywords that constrain a value and have no rules here.
_UNKNOWN = (
    "allOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "uniqueItems", "contains",
    "propertyNames", "patternProperties", "minProperties", "maxProperties", "unevaluatedProperties",
    "unevaluatedItems", "additionalItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
# The type that a keyword is about, where a schema names none.
_IMPLIED = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
_STRUCTURAL = ("$ref", "anyOf", "oneOf", "enum", "const", "type", *_UNKNOWN, *_IMPLIED)
# Beyond these a double no longer holds every integer, and parsers that read numbers as doubles change them.
_LIMIT = {"integer": 2**53 - 1, "number": 10**15}


MAX_BRANCHES = 20_000
_CHARACTER = r'[^"\\\x00-\x1F\x7F]|\\["\\bfnrt]'


class Style(ABC):
    """How a format writes strings, constants and keys."""

    separator: str
    """Between items and between properties."""

    @abstractmethod
    def string(self, schema: Schema, rules: LarkRules, *, lenient: bool) -> str:
        """An expression of the strings that satisfy a schema."""

    @abstractmethod
    def constant(self, value: Any, rules: LarkRules) -> str:
        """An expression of one value."""

    @abstractmethod
    def key(self, name: str) -> str:
        """A property's name and what follows it. Raises GrammarError for a name that cannot be written."""

    @abstractmethod
    def other_key(self, names: Sequence[str]) -> str:
        """The body of a terminal: a key that is none of these."""


class JsonStyle(Style):
    """JSON in which no string holds certain markers.

    Args:
        markers: the first is what the parser looks for; patterns of the schema are only kept free of that.
    """

    separator = ", "

    def __init__(self, *markers: str) -> None:
        self._markers = markers

    def string(self, schema: Schema, rules: LarkRules, *, lenient: bool) -> str:
        kept = {key: schema[key] for key in ("minLength", "maxLength", "pattern", "format") if key in schema}
        if "pattern" in kept:  # llguidance gives up on intersections of many patterns
            free = [{"type": "string", "pattern": without(self._markers[0])}]
            return _json({"type": "string", **kept, "allOf": free}, lenient=lenient)
        if "format" in kept:  # none has room for a marker
            return _json({"type": "string", **kept}, lenient=lenient)
        low, high = schema.get("minLength") or 0, schema.get("maxLength")
        characters = f"/(?:{_CHARACTER}){{{int(low)},{'' if high is None else int(high)}}}/"
        check(lark(f"start: TEXT\nTEXT: {characters}"))
        return rules.terminal(rf'"\"" ({characters} & ~{containing(*self._markers)}) "\""')

    def constant(self, value: Any, rules: LarkRules) -> str:
        return literal(self.write(value))

    def write(self, value: Any) -> str:
        """A value as JSON."""
        text = json.dumps(value)
        return text.replace("<", "\\u003c") if any(marker in text for marker in self._markers) else text

    def key(self, name: str) -> str:
        return json.dumps(name) + ": "

    def other_key(self, names: Sequence[str]) -> str:
        known = "".join(f" & ~{literal(json.dumps(name))}" for name in names)
        return rf'(/"[^"\\\x00-\x1F\x7F<]*"/{known}) ": "'


class ValueGrammar:
    """Rules for the values of one schema and what it refers to.

    Args:
        root: the schema that `$ref`s start from.
        lenient: pass over keywords and formats that have no rules here, and read `oneOf` as `anyOf`.
    """

    def __init__(self, rules: LarkRules, root: Schema, style: Style, *, lenient: bool) -> None:
        self.rules = rules
        self.root = root
        self.style = style
        self.lenient = lenient
        self._known: dict[str, str] = {}
        self._branches = 0

    def value(self, schema: Any) -> str:
        """An expression of the values that satisfy a schema.

        Raises:
            GrammarError: the schema is broken, or says what these rules cannot.
        """
        known = json.dumps(schema)
        if known not in self._known:
            self._known[known] = name = self.rules.reserve()
            self.rules.define(
                name, " | ".join(dict.fromkeys(self._written(branch) for branch in self.branches(schema)))
            )
        return self._known[known]

    def branches(self, schema: Any, seen: frozenset[str] = frozenset()) -> Iterator[dict[str, Any]]:
        """The schema's options, each of one type or an `enum`; references are followed.

        Yields:
            `{"enum": [...]}`, or a schema with a single `type`; none for a reference that leads back to itself.
        """
        if schema is True or schema == {}:
            schema = {"type": list(TYPES)}
        if not isinstance(schema, Mapping):
            raise GrammarError(f"No value satisfies the schema {json.dumps(schema)}.")
        self._refuse_unknown(schema)
        if "$ref" in schema:
            yield from self._referenced(schema, seen)
        elif options := schema.get("anyOf") or schema.get("oneOf"):
            self._check_one_of(schema)
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            for option in options:
                yield from self.branches(self._joined(rest, option), seen)
        elif "enum" in schema or "const" in schema:
            self._count_branch()
            yield {"enum": self._constants(schema)}
        else:
            for name in self._types(schema):
                self._count_branch()
                yield {**schema, "type": name}

    def _count_branch(self) -> None:
        """Options of options multiply."""
        self._branches += 1
        if self._branches > MAX_BRANCHES:
            raise TooComplexError(f"The schema is too large: it has more than {MAX_BRANCHES:,} options.")

    def number(self, schema: Schema) -> str:
        """An expression of a number, small enough for parsers that read all numbers as doubles."""
        limit = _LIMIT[schema["type"]]
        bounds: dict[str, Any] = {"minimum": -limit, "maximum": limit}
        for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
            value = schema.get(key)
            if value is None or isinstance(value, bool):
                continue
            nearer = max if key == "minimum" else min
            bounds[key] = nearer(value, bounds[key]) if key in ("minimum", "maximum") else value
        return _json({"type": schema["type"], **bounds}, lenient=self.lenient)

    def _written(self, branch: dict[str, Any]) -> str:
        if "enum" in branch:
            return self.rules.one_of([self.style.constant(value, self.rules) for value in branch["enum"]])
        match branch["type"]:
            case "string":
                return self.style.string(branch, self.rules, lenient=self.lenient)
            case "integer" | "number":
                return self.number(branch)
            case "boolean":
                return '"true" | "false"'
            case "null":
                return '"null"'
            case "array":
                return self._array(branch)
            case _:
                return self.object(branch)

    def object(self, schema: Schema) -> str:
        """An expression of an object: its properties in order, then any others."""
        members = []
        required = schema.get("required") or ()
        for name, member in self.properties(schema):
            pair = self.rules.rule(f"{literal(self.style.key(name))} {self.value(member)}")
            members.append((pair, name in required))
        others = schema.get("additionalProperties", True)
        other = None
        if others is not False:
            key = self.rules.terminal(self.style.other_key([name for name, _ in self.properties(schema)]))
            other = self.rules.rule(f"{key} {self.value(others)}")
        return f'"{{" {self._listed(members, other, 0, None)} "}}"'

    def properties(self, schema: Schema) -> list[tuple[str, Any]]:
        """Names and schemas of an object's properties; those that are only required come last."""
        listed = dict(schema.get("properties") or {})
        others = schema.get("additionalProperties", True)
        return list({**listed, **{name: others for name in schema.get("required") or () if name not in listed}}.items())

    def _array(self, schema: Schema) -> str:
        low, high = int(schema.get("minItems") or 0), schema.get("maxItems")
        if high is not None and low > high:
            raise GrammarError(f"Unsatisfiable schema: minItems ({low}) is greater than maxItems ({high})")
        first = schema.get("prefixItems") or []
        first = first if high is None else first[: int(high)]
        items = [(self.value(item), n < low) for n, item in enumerate(first)]
        others = schema.get("items", True)
        if others is False and len(first) < low:
            raise GrammarError(f"Unsatisfiable schema: minItems ({low}) is greater than the number of items")
        other = None if others is False else self.value(others)
        more = None if high is None else int(high) - len(first)
        return f'"[" {self._listed(items, other, max(0, low - len(first)), more, ordered=True)} "]"'

    def _listed(
        self, members: list[tuple[str, bool]], other: str | None, low: int, high: int | None, *, ordered: bool = False
    ) -> str:
        """Members, each required or not, and from `low` to `high` others, with separators where they are wanted.

        Args:
            ordered: a member only comes when all before it came.
        """
        comma = literal(self.style.separator)
        rest = alone = ""
        if other is not None and high != 0:
            rest = f"({comma} {other}){{{low},{'' if high is None else high}}}"
            more = "" if high == 1 else f" ({comma} {other}){{{max(0, low - 1)},{'' if high is None else high - 1}}}"
            alone = f"{other}{more}" if low else f"({other}{more})?"
        after, before = rest or '""', alone or '""'  # what follows a member, and what begins the list
        for expression, required in reversed(members):
            with_it, first = self.rules.rule(f"{comma} {expression} {after}"), f"{expression} {after}"
            if required:
                after, before = with_it, self.rules.rule(first)
            elif ordered:
                after, before = self.rules.rule(f"({with_it})?"), self.rules.rule(f"({first})?")
            else:
                after, before = self.rules.rule(f"{with_it} | {after}"), self.rules.rule(f"{first} | {before}")
        return before

    def _types(self, schema: Schema) -> list[str]:
        named = schema.get("type")
        types: list[Any] = named if isinstance(named, list) else [named]
        if named is None:
            types = list(dict.fromkeys(_IMPLIED[key] for key in _IMPLIED if key in schema)) or list(TYPES)
        for name in types:
            if name not in (*TYPES, "integer"):
                raise GrammarError(f"Invalid type: {name}")
        return [name for name in types if name != "integer" or "number" not in types]

    def _constants(self, schema: Schema) -> list[Any]:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        kept = [value for value in values if "type" not in schema or _is_of(value, self._types(schema))]
        if "const" in schema:
            kept = [value for value in kept if value == schema["const"]]
        if not kept:
            raise GrammarError(f"Unsatisfiable schema: no value of {json.dumps(values)} is allowed")
        return kept

    def _referenced(self, schema: Schema, seen: frozenset[str]) -> Iterator[dict[str, Any]]:
        reference = schema["$ref"]
        try:
            target = resolve(self.root, reference)
        except KeyError:
            raise GrammarError(f"There is nothing at the $ref {reference!r} in this schema.") from None
        if reference not in seen:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            yield from self.branches(self._joined(rest, target), seen | {reference})

    def _joined(self, outer: Schema, inner: Any) -> Any:
        """A schema and one beside it, of which at most one may constrain the same thing."""
        outer = {key: value for key, value in outer.items() if key in _STRUCTURAL}
        if not outer or not isinstance(inner, Mapping):
            return inner
        clashing = [key for key in outer if key in inner and inner[key] != outer[key]]
        if clashing and not self.lenient:
            raise GrammarError(f"'{clashing[0]}' stands both in a schema and in one that it is made of.")
        return {**outer, **inner}

    def _refuse_unknown(self, schema: Schema) -> None:
        if self.lenient:
            return
        unknown = [key for key in _UNKNOWN if schema.get(key) not in (None, False)]
        if unknown:
            raise GrammarError(f"Unimplemented keys: {json.dumps(unknown)}")

    def _check_one_of(self, schema: Schema) -> None:
        options = schema.get("oneOf")
        if not options or self.lenient:
            return
        parts = [self._telling(option) for option in options]
        if any(_overlap(a, b) for n, a in enumerate(parts) for b in parts[n + 1 :]):
            raise GrammarError("oneOf is only supported where a type or a constant property tells its options apart.")

    def _telling(self, option: Any) -> tuple[set[str], dict[str, list[Any]]]:
        """What tells an option from another: its types, and the values of required properties that are constant."""
        types: set[str] = set()
        constants: dict[str, list[Any]] = {}
        for branch in self.branches(option):
            types |= {branch["type"]} if "type" in branch else {_type_of(value) for value in branch["enum"]}
            for name in branch.get("required") or ():
                member = (branch.get("properties") or {}).get(name)
                if isinstance(member, Mapping) and ("const" in member or "enum" in member):
                    constants.setdefault(name, []).extend(self._constants(member))
        return {"number" if name == "integer" else name for name in types}, constants


def _json(schema: Schema, *, lenient: bool) -> str:
    return "%json " + json.dumps(guided(schema, lenient=lenient))


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_of(value: Any, types: Sequence[str]) -> bool:
    return _type_of(value) in types or (
        "integer" in types and _type_of(value) == "number" and float(value).is_integer()
    )


def _overlap(a: tuple[set[str], dict[str, list[Any]]], b: tuple[set[str], dict[str, list[Any]]]) -> bool:
    if not a[0] & b[0]:
        return False
    told = (name for name in a[1] if name in b[1] and not any(value in b[1][name] for value in a[1][name]))
    return a[0] & b[0] != {"object"} or next(told, None) is None
