"""Rules from a JSON Schema for values that are not, or not exactly, written as JSON.

llguidance compiles schemas for JSON itself. This module makes the rules for formats that write strings or keys in
another way, or in which a string must not hold the marker that ends the value. They support the same as OpenAI's strict
mode: types and lists of types, nested objects and arrays, `anyOf`, `$ref` and `$defs` with recursion, `enum`, `const`,
and the keywords for strings, numbers and arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...grammar import GrammarError, TooComplexError, UnsatisfiableError
from ...grammar.compile import check, json_expression, json_schema, lark, literal
from ...grammar.conjunction import conjunction, same
from ...grammar.lark_rules import LarkRules, containing, other_than, shown, times, without
from ...grammar.relax import log_left_out
from ...grammar.schema import array_at, object_at, size_at
from ...grammar.subschemas import Schema, is_number, json_type, resolve
from ..description import CallFormat
from ..values import dumps, dumps_without

TYPES = ("string", "number", "boolean", "null", "array", "object")
# Keywords that constrain a value and have no rules here.
_UNKNOWN = (
    "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "uniqueItems", "contains",
    "propertyNames", "patternProperties", "minProperties", "maxProperties", "unevaluatedProperties",
    "unevaluatedItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
# The type that a keyword is about, where a schema names none.
_IMPLIED = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
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
        return dumps_without(value, *self.markers)

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
        lenient: leave out keywords and formats that have no rules here, and log them; read `oneOf` as `anyOf`.
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
            options = dict.fromkeys(self.expressions(list(self.branches(schema))))
            self.rules.define(name, " | ".join(options))
        return self._names[key]

    def arguments(self, key: Callable[[str], str], other_key: Callable[[Sequence[str]], str]) -> str:
        """An expression of the members of the root, the parameters of a function; see `members`.

        Raises:
            GrammarError: they cannot be written.
        """
        return self.rules.one_of([self.members(branch.schema, key, other_key) for branch in self.parameters()])

    def parameters(self) -> list[Branch]:
        """The options of the root.

        Raises:
            GrammarError: one is not an object.
        """
        branches = list(self.branches(self.root))
        if any(branch.type != "object" for branch in branches):
            raise GrammarError("The parameters of a function have to be a schema of type 'object'.")
        return branches

    def branches(self, schema: object, seen: frozenset[str] = frozenset()) -> Iterator[Branch]:
        """The schema's options; references are followed. None for a reference that leads back to itself.

        Raises:
            UnsatisfiableError: no value satisfies it.
        """
        if schema is True or schema == {}:
            schema = {"type": list(TYPES)}
        if not isinstance(schema, Mapping):
            raise UnsatisfiableError(f"No value satisfies the schema {json.dumps(schema)}.")
        met = set(seen)
        flat = self._flat(schema, seen, met)
        if flat is None:
            return
        schema = flat
        if options := array_at(schema, "anyOf") or array_at(schema, "oneOf"):
            yield from self._alternatives(schema, options, frozenset(met))
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
            if is_number(value):
                nearer = max if key == "minimum" else min
                bounds[key] = nearer(value, bounds[key]) if key in ("minimum", "maximum") else value
        return json_expression({"type": branch.type, **bounds}, lenient=self.lenient)

    def expressions(self, branches: Sequence[Branch]) -> Iterator[str]:
        """Expressions of the values of a schema with these options."""
        return map(self.expression, branches)

    def expression(self, branch: Branch) -> str:
        """An expression of the values of one option."""
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
        required = array_at(schema, "required")
        unlisted = {str(name): others for name in required if name not in listed}
        found = {**listed, **unlisted}
        return [(name, member) for name, member in found.items() if member is not False or name in required]

    def _array(self, schema: Schema) -> str:
        low, high = item_counts(schema)
        first, others = array_at(schema, "prefixItems"), schema.get("items", True)
        if isinstance(others, list):  # as drafts before 2020 write it
            first, others = others, schema.get("additionalItems", True)
        first = first[:high]
        items = [(self.value(item), n < low) for n, item in enumerate(first)]
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
            kept = [value for value in kept if same(value) == same(schema["const"])]
        if not kept:
            raise UnsatisfiableError(f"Unsatisfiable schema: no value of {json.dumps(values)} is allowed")
        return kept

    def _flat(self, schema: Schema, outside: frozenset[str], met: set[str]) -> Schema | None:
        """A schema with what it refers to and its `allOf` put into it; None if it leads back to one of `outside`.

        Args:
            met: gets its references.
        """
        flat: dict[str, object] = {}
        waiting: list[object] = [schema]
        while waiting:
            part = waiting.pop()
            if part is False:
                raise UnsatisfiableError("No value satisfies the schema false.")
            if not isinstance(part, Mapping):
                continue
            self._refuse_unknown(part)
            waiting.extend(reversed(array_at(part, "allOf")))
            if isinstance(reference := part.get("$ref"), str):
                if reference in outside:
                    return None
                if reference not in met:
                    waiting.append(self._target(reference))
                met.add(reference)
            rest = {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
            flat = conjunction(flat, rest, self._clash)
        return flat

    def _target(self, reference: str) -> object:
        try:
            return resolve(self.root, reference)
        except KeyError:
            raise GrammarError(f"There is nothing at the $ref {reference!r} in this schema.") from None

    def _alternatives(self, schema: Schema, options: list[object], seen: frozenset[str]) -> Sequence[Branch]:
        """The rest of a schema with each of these options; some may be impossible."""
        if "oneOf" in schema and "anyOf" not in schema:
            self._leave_out(
                "oneOf", "oneOf is only supported if its options exclude each other by a type or a constant. Use anyOf."
            )
        name = "anyOf" if "anyOf" in schema else "oneOf"
        rest = {key: value for key, value in schema.items() if key != name}
        found, why = list[Branch](), None
        for option in options:
            try:
                found += self.branches({**rest, "allOf": [*array_at(rest, "allOf"), option]}, seen)
            except UnsatisfiableError as error:
                why = error
        if why is not None and not found:
            raise why
        return found

    def _clash(self, keyword: str) -> None:
        why = f"'{keyword}' has two values, next to a '$ref' or an option and in it: keep one of them."
        self._leave_out(keyword, why)

    def _leave_out(self, keyword: str, why: str) -> None:
        """A keyword has no rules here: it is an error, or is not followed."""
        if not self.lenient:
            raise GrammarError(why)
        log_left_out(json.dumps(self.root), f"'{keyword}', in this model's tool-call format")

    def _refuse_unknown(self, schema: Schema) -> None:
        for key in _UNKNOWN:
            if schema.get(key) not in (None, False):
                self._leave_out(key, f"Unimplemented keys: [\"{key}\"]. Leave them out, or set 'strict' to false.")


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


def unwritable(text: str, what: str = "string") -> GrammarError:
    """The error for a text that a format cannot write, such as a string that holds one of its markers."""
    return GrammarError(f"This model's tool-call format cannot write the {what} {json.dumps(text)}.")


def no_lark(format: CallFormat, why: str) -> GrammarError:
    """The error for a custom tool with a Lark grammar that the format has no place for."""
    text = f"Lark grammars are not possible in this model's tool-call format ('{format.name}'), in which {why}"
    return GrammarError(f"{text}: use a regular expression.")


def _is_of(value: object, types: Sequence[str]) -> bool:
    return json_type(value) in types or ("integer" in types and is_number(value) and float(value).is_integer())
