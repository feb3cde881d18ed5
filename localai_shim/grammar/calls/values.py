"""From a JSON Schema to rules for values that are not, or not quite, written as JSON.

llguidance compiles schemas for JSON itself. Formats that write strings or keys in a way of their own, or in which a
string must not hold the marker that ends the value, need rules of our own. They support what OpenAI's strict mode does:
types and lists of types, nested objects and arrays, `anyOf`, `$ref` and `$defs` with recursion, `enum`, `const`, and
the keywords for strings, numbers and arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...output.formats.description import CallFormat
from ...output.formats.references import resolve
from ...output.formats.subschemas import Schema
from ...output.formats.writing import dumps, json_type
from .. import GrammarError, TooComplexError
from ..compile import check, json_expression, json_schema, lark
from ..lark_rules import LarkRules, other_than, times
from ..raw_text import containing, shown, without
from ..schema import array_at, object_at, size_at
from ..vocabulary import literal

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
_MAX_NUMBER = {"integer": 2**53 - 1, "number": 10**15}
MAX_BRANCHES = 20_000
_CHARACTER = r'[^"\\\x00-\x1F\x7F]|\\["\\bfnrt]'


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the options that a schema leaves: values of one type, or constants.

    Attributes:
        type: of JSON Schema; empty for constants.
        schema: what else is demanded of the value.
        constants: the only values.
    """

    type: str
    schema: Schema
    constants: Sequence[object] = ()


class JsonStyle:
    """Spelling of strings, constants and keys: as JSON has them, but no string holds certain markers.

    Args:
        markers: none for JSON that holds anything; the first is the one that ends a value: strings with a pattern are
            only kept free of that.
    """

    separator = ", "
    """Between items and between properties."""
    words = ("true", "false", "null")

    def __init__(self, *markers: str) -> None:
        self.markers = markers

    def string(self, schema: Schema, rules: LarkRules, *, lenient: bool) -> str:
        """An expression of the strings that satisfy a schema."""
        kept = {key: schema[key] for key in ("minLength", "maxLength", "pattern", "format") if key in schema}
        if self.markers and "pattern" in kept:  # llguidance gives up on intersections of many patterns
            free = [{"type": "string", "pattern": without(_told_at_once(self.markers[0]))}]
            return json_expression({"type": "string", **kept, "allOf": free}, lenient=lenient)
        if not self.markers or "format" in kept:  # no format allows a marker
            if kept:
                check(json_schema({"type": "string", **kept}, lenient=lenient), f"No text satisfies {shown(kept)}")
            return json_expression({"type": "string", **kept}, lenient=lenient)
        low, high = size_at(schema, "minLength") or 0, size_at(schema, "maxLength")
        characters = f"/(?:{_CHARACTER}){times(low, high)}/"
        check(lark(f"start: TEXT\nTEXT: {characters}"))
        return rules.terminal(rf'"\"" ({characters} & ~{containing(*self.markers)}) "\""')

    def constant(self, value: object, rules: LarkRules) -> str:
        """An expression of one value."""
        return literal(self.write(value))

    def write(self, value: object) -> str:
        """A value as JSON."""
        text = dumps(value)
        return text.replace("<", "\\u003c") if any(marker in text for marker in self.markers) else text

    def key(self, name: str) -> str:
        """A property's name and what follows it. Raises GrammarError for a name that cannot be written."""
        return dumps(name) + ": "

    def other_key(self, names: Sequence[str]) -> str:
        """The body of a terminal: a key that is none of these."""
        return rf'(/"[^"\\\x00-\x1F\x7F<]*"/{other_than(map(dumps, names))}) ": "'


class ValueGrammar:
    """Rules for the values of one schema and what it refers to.

    Args:
        root: the schema that `$ref`s start from.
        lenient: ignore keywords and formats that have no rules here, and read `oneOf` as `anyOf`.
    """

    def __init__(self, rules: LarkRules, root: Schema, style: JsonStyle, *, lenient: bool) -> None:
        self.rules = rules
        self.root = root
        self.style = style
        self.lenient = lenient
        self._names: dict[str, str] = {}  # of rules, by the schema that they are for
        self._branches = 0

    def value(self, schema: object) -> str:
        """An expression of the values that satisfy a schema.

        Raises:
            GrammarError: the schema is broken, or says what these rules cannot.
        """
        key = json.dumps(schema)
        if key not in self._names:
            self._names[key] = name = self.rules.reserve()
            options = dict.fromkeys(self._expression(branch) for branch in self.branches(schema))
            self.rules.define(name, " | ".join(options))
        return self._names[key]

    def parameters(self) -> list[Branch]:
        """The options of the root, the parameters of a function.

        Raises:
            GrammarError: one is not an object.
        """
        branches = list(self.branches(self.root))
        if any(branch.type != "object" for branch in branches):
            raise GrammarError("The parameters of a function have to be a schema of type 'object'.")
        return branches

    def branches(self, schema: object, seen: frozenset[str] = frozenset()) -> Iterator[Branch]:
        """The schema's options; references are followed. None for a reference that leads back to itself."""
        if schema is True or schema == {}:
            schema = {"type": list(TYPES)}
        if not isinstance(schema, Mapping):
            raise GrammarError(f"No value satisfies the schema {json.dumps(schema)}.")
        self._refuse_unknown(schema)
        if "$ref" in schema:
            yield from self._referenced(schema, seen)
        elif options := array_at(schema, "anyOf") or array_at(schema, "oneOf"):
            self._check_one_of(schema)
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            for option in options:
                yield from self.branches(self._joined(rest, option), seen)
        elif "enum" in schema or "const" in schema:
            self._count_branch()
            yield Branch("", schema, self._constants(schema))
        else:
            for name in self._types(schema):
                self._count_branch()
                yield Branch(name, {**schema, "type": name})

    def _count_branch(self) -> None:
        """Options of options multiply."""
        self._branches += 1
        if self._branches > MAX_BRANCHES:
            raise TooComplexError(f"The schema is too large: it has more than {MAX_BRANCHES:,} options.")

    def number(self, branch: Branch) -> str:
        """An expression of a number, small enough for parsers that read all numbers as doubles."""
        limit = _MAX_NUMBER[branch.type]
        bounds: dict[str, float] = {"minimum": -limit, "maximum": limit}
        for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
            value = branch.schema.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                nearer = max if key == "minimum" else min
                bounds[key] = nearer(value, bounds[key]) if key in ("minimum", "maximum") else value
        return json_expression({"type": branch.type, **bounds}, lenient=self.lenient)

    def _expression(self, branch: Branch) -> str:
        match branch.type:
            case "":
                return self.rules.one_of([self.style.constant(value, self.rules) for value in branch.constants])
            case "string":
                return self.style.string(branch.schema, self.rules, lenient=self.lenient)
            case "integer" | "number":
                return self.number(branch)
            case "boolean":
                return " | ".join(map(literal, self.style.words[:2]))
            case "null":
                return literal(self.style.words[2])
            case "array":
                return self._array(branch.schema)
            case _:
                return f'"{{" {self.members(branch.schema, self.style.key, self.style.other_key)} "}}"'

    def members(self, schema: Schema, key: Callable[[str], str], other_key: Callable[[Sequence[str]], str]) -> str:
        """An expression of what is in an object: its properties in order, then any others.

        Args:
            key, other_key: see `JsonStyle`.
        """
        properties, required = self.properties(schema), array_at(schema, "required")
        members = [
            (self.rules.rule(f"{literal(key(name))} {self.value(member)}"), name in required)
            for name, member in properties
        ]
        others = schema.get("additionalProperties", True)
        other = None
        if others is not False:
            name = self.rules.terminal(other_key([name for name, _ in properties]))
            other = self.rules.rule(f"{name} {self.value(others)}")
        return self._listed(members, other, 0, None)

    def properties(self, schema: Schema) -> list[tuple[str, object]]:
        """Names and schemas of an object's properties; those that are only required come last."""
        listed = object_at(schema, "properties")
        others = schema.get("additionalProperties", True)
        unlisted = {str(name): others for name in array_at(schema, "required") if name not in listed}
        return list({**listed, **unlisted}.items())

    def _array(self, schema: Schema) -> str:
        low, high = item_counts(schema)
        first = array_at(schema, "prefixItems")[:high]
        items = [(self.value(item), n < low) for n, item in enumerate(first)]
        others = schema.get("items", True)
        if others is False and len(first) < low:
            raise GrammarError(f"Unsatisfiable schema: minItems ({low}) is greater than the number of items")
        other = None if others is False else self.value(others)
        more = None if high is None else high - len(first)
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
            rest = f"({comma} {other}){times(low, high)}"
            more = (
                "" if high == 1 else f" ({comma} {other}){times(max(0, low - 1), None if high is None else high - 1)}"
            )
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
        types = [str(name) for name in named] if isinstance(named, list) else [str(named)]
        if named is None:
            types = list(dict.fromkeys(_IMPLIED[key] for key in _IMPLIED if key in schema)) or list(TYPES)
        for name in types:
            if name not in (*TYPES, "integer"):
                raise GrammarError(f"Invalid type: {name}")
        return [name for name in types if name != "integer" or "number" not in types]

    def _constants(self, schema: Schema) -> list[object]:
        values = array_at(schema, "enum") if "enum" in schema else [schema["const"]]
        kept = [value for value in values if "type" not in schema or _is_of(value, self._types(schema))]
        if "const" in schema:
            kept = [value for value in kept if value == schema["const"]]
        if not kept:
            raise GrammarError(f"Unsatisfiable schema: no value of {json.dumps(values)} is allowed")
        return kept

    def _referenced(self, schema: Schema, seen: frozenset[str]) -> Iterator[Branch]:
        reference = str(schema["$ref"])
        try:
            target = resolve(self.root, reference)
        except KeyError:
            raise GrammarError(f"There is nothing at the $ref {reference!r} in this schema.") from None
        if reference not in seen:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            yield from self.branches(self._joined(rest, target), seen | {reference})

    def _joined(self, outer: Schema, inner: object) -> object:
        """Merge a schema with one that stands beside its '$ref', 'anyOf' or 'oneOf'."""
        outer = {key: value for key, value in outer.items() if key in _STRUCTURAL}
        if not outer or not isinstance(inner, Mapping):
            return inner
        clashing = [key for key in outer if key in inner and inner[key] != outer[key]]
        if clashing and not self.lenient:
            raise GrammarError(
                f"'{clashing[0]}' has one value beside '$ref', 'anyOf' or 'oneOf' and another within: keep one of them."
            )
        return {**outer, **inner}

    def _refuse_unknown(self, schema: Schema) -> None:
        unknown = [key for key in _UNKNOWN if schema.get(key) not in (None, False)]
        if unknown and not self.lenient:
            raise GrammarError(f"Unimplemented keys: {json.dumps(unknown)}. Leave them out, or set 'strict' to false.")

    def _check_one_of(self, schema: Schema) -> None:
        if self.lenient:
            return
        options = [self._telltale(option) for option in array_at(schema, "oneOf")]
        if any(_overlap(a, b) for n, a in enumerate(options) for b in options[n + 1 :]):
            raise GrammarError(
                "oneOf is only supported where a type or a constant property tells its options apart. Use anyOf."
            )

    def _telltale(self, option: object) -> _Telltale:
        types, constants = set[str](), dict[str, list[object]]()
        for branch in self.branches(option):
            types |= {branch.type} if branch.type else set(map(json_type, branch.constants))
            for name in array_at(branch.schema, "required") if branch.type else ():
                member = object_at(branch.schema, "properties").get(str(name))
                if isinstance(member, Mapping) and ("const" in member or "enum" in member):
                    constants.setdefault(str(name), []).extend(self._constants(member))
        return {"number" if name == "integer" else name for name in types}, constants


_Telltale = tuple[set[str], dict[str, list[object]]]
"""Signs that tell an option from another: its types, and the values of required properties that are constant."""


def item_counts(schema: Schema) -> tuple[int, int | None]:
    """The least and the most items of an array."""
    low, high = size_at(schema, "minItems") or 0, size_at(schema, "maxItems")
    if high is not None and low > high:
        raise GrammarError(f"Unsatisfiable schema: minItems ({low}) is greater than maxItems ({high})")
    return low, high


def _told_at_once(marker: str) -> str:
    """The beginning of a marker, up to where its first character comes again."""
    again = marker.find(marker[0], 1)
    return marker if again < 0 else marker[:again]


def cannot_write(text: str) -> str:
    """For errors: a string that holds a marker of the format."""
    return f"This model's tool-call format cannot write the string {json.dumps(text)}."


def no_lark(format: CallFormat, why: str) -> GrammarError:
    """The error for a custom tool with a Lark grammar that the format has no place for."""
    text = f"Lark grammars are not possible in this model's tool-call format ('{format.name}'), in which {why}"
    return GrammarError(f"{text}: use a regular expression.")


def _overlap(a: _Telltale, b: _Telltale) -> bool:
    """A value may satisfy both."""
    (types, constants), (others, theirs) = a, b
    if types & others != {"object"}:
        return bool(types & others)
    return not any(
        name in theirs and not any(value in theirs[name] for value in values) for name, values in constants.items()
    )


def _is_of(value: object, types: Sequence[str]) -> bool:
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    return json_type(value) in types or (is_whole and "integer" in types)
