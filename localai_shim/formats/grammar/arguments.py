"""Grammars of arguments that are not JSON: with bare keys, in a Python call or as Gemma writes them, and between tags.

Between tags, strings are written as they are, anything else as JSON or as elements. If the model names no types,
readers take a text for what the parameter's schema says; if that allows strings and other values, no string spells one
of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape

from ...grammar import UnsatisfiableError
from ...grammar.compile import expression, literal
from ...grammar.lark_rules import JSON_BEGUN, LarkRules, containing, holding, other_than, regex, text, times
from ...grammar.schema import array_at, object_at
from ...grammar.subschemas import Schema, json_type
from ...grammar.tool import Call
from ..description import CallFormat
from ..source import around, layout
from ..syntaxes.keyed import MarkedArguments, marked_value, python_value
from ..syntaxes.tagged import CDATA, Parameters
from ..values import typed_value
from .values import Branch, JsonStyle, ValueGrammar, item_counts, no_lark, unwritable

# -- Python -----------------------------------------------------------------------------------------------------------


_BARE_KEY = "/[a-zA-Z_][a-zA-Z0-9_]{0,127}/"


class PythonStyle(JsonStyle):
    """Python's literals; its strings are written as JSON writes them, which Python reads alike."""

    words = ("True", "False", "None")

    def write(self, value: object) -> str:
        return python_value(value)


def python_arguments(call: Call, format: CallFormat, rules: LarkRules) -> str:
    """An expression of the keywords of a call.

    Raises:
        GrammarError: they cannot be written.
    """
    if call.lark is not None:
        raise no_lark(format, "all text is quoted")
    return ValueGrammar(rules, call.parameters, PythonStyle(), lenient=call.lenient).arguments(_keyword, _other_keyword)


def _keyword(name: str) -> str:
    if not name.isidentifier():
        raise unwritable(name, "parameter name")
    return f"{name}="


def _other_keyword(names: Sequence[str]) -> str:
    return f'({_BARE_KEY}{other_than(names)}) "="'


# -- Gemma ------------------------------------------------------------------------------------------------------------


class MarkedStyle(JsonStyle):
    """Values as the Gemma models write them: strings between marks.

    Args:
        kind: which marks.
        excluded: what else no string holds.
    """

    separator = ","

    def __init__(self, kind: MarkedArguments, *excluded: str) -> None:
        super().__init__(kind.quote, *excluded)
        self.kind = kind

    def string(self, schema: Schema, rules: LarkRules, *, lenient: bool, excluded: Sequence[str] = ()) -> str:
        body = text(schema, [containing(*self.markers), *excluded], lenient=lenient)
        return f"{rules.marker(self.kind.quote)} {rules.until(body, self.kind.quote)}"

    def constant(self, value: object, rules: LarkRules) -> str:
        self._check(value)
        return rules.marker(marked_value(self.kind, value))

    def key(self, name: str) -> str:
        if not re.fullmatch(r"[\w$./-]+", name):
            raise unwritable(name, "property name")
        return f"{name}:"

    def other_key(self, names: Sequence[str]) -> str:
        return f'({_BARE_KEY}{other_than(names)}) ":"'

    def _check(self, value: object) -> None:
        if isinstance(value, str):
            if any(marker in value for marker in self.markers):
                raise unwritable(value)
        elif not self.kind.nests:
            return
        elif isinstance(value, list):
            for item in value:
                self._check(item)
        elif isinstance(value, dict):
            for name, item in value.items():
                self.key(name)
                self._check(item)


def marked_arguments(call: Call, format: CallFormat, kind: MarkedArguments, rules: LarkRules) -> str:
    """An expression of arguments without their braces.

    Raises:
        GrammarError: they cannot be written.
    """
    if call.lark is not None:
        quote = rules.marker(kind.quote)
        return f'"input:" {quote} {rules.embed(call.lark)} {quote}'
    style = MarkedStyle(kind, format.start, format.end)
    kind_of_values = ValueGrammar if kind.nests else _FlatValues
    return kind_of_values(rules, call.parameters, style, lenient=call.lenient).arguments(style.key, style.other_key)


class _FlatValues(ValueGrammar):
    """Values of which objects and arrays are JSON between marks, as strings are: no string begins like these then."""

    def expressions(self, branches: Sequence[Branch]) -> Iterator[str]:
        assert isinstance(self.style, MarkedStyle)
        quote, markers = self.rules.marker(self.style.kind.quote), self.style.markers
        json_values = ValueGrammar(self.rules, self.root, JsonStyle(*markers), lenient=self.lenient)
        excluded = [JSON_BEGUN] if any(map(_is_nested, branches)) else []
        for branch in branches:
            if branch.type in ("array", "object"):
                yield f"{quote} {json_values.value(branch.schema)} {quote}"
            elif branch.type == "string":
                yield self.style.string(branch.schema, self.rules, lenient=self.lenient, excluded=excluded)
            else:
                yield self.expression(branch)


def _is_nested(branch: Branch) -> bool:
    return branch.type in ("object", "array") or any(isinstance(value, list | dict) for value in branch.constants)


# -- Tags -------------------------------------------------------------------------------------------------------------

_KEY = r'[^\s<>"|=]+'
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# Strings that readers would take for a value of another type that the parameter may have.
_NUMBER_BEGUN = regex(r"\s*-?[0-9](?s:.*)")
_BOOLEAN = regex(r"[ \t\r\n]*(?:true|false)[ \t\r\n]*")
_NUMERIC = regex(r"[ \t\r\n]*(?:-?[0-9][0-9.eE+-]*|NaN|-?Infinity)[ \t\r\n]*")
# Values of any size that are one lexeme with the tag behind them: as a text that goes on, strings may begin so.
_LEXEMES = {
    "null": '"null"',
    "boolean": '("true" | "false")',
    "integer": "/-?(?:0|[1-9][0-9]{0,14})/",
    "number": r"/-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?/",
}


def tagged_arguments(call: Call, format: CallFormat, kind: Parameters, rules: LarkRules) -> str:
    """An expression of a call's parameters.

    Raises:
        GrammarError: they cannot be written.
    """
    if call.lark is not None:
        tags = _Tags(format, kind, ValueGrammar(rules, {}, JsonStyle(), lenient=True))
        return f"{tags.head('input', 'string')} {rules.embed(call.lark)} {rules.marker(tags.end('input'))}"
    style = JsonStyle(*_markers(format, kind))
    if not call.follows:
        return _Tags(format, kind, ValueGrammar(rules, {}, style, lenient=True)).any_of(call)
    tags = _Tags(format, kind, ValueGrammar(rules, call.parameters, style, lenient=call.lenient))
    return rules.one_of([tags.all_of(branch.schema) for branch in tags.values.parameters()])


def _markers(format: CallFormat, kind: Parameters) -> list[str]:
    """Markers that no string holds: the ends of values, calls and blocks, and the beginnings of elements."""
    behind = around(kind.layout, "VALUE")[1].strip()
    own = kind.element or behind
    tail = around(format.call, "ARGUMENTS")[1].strip()
    more = CDATA[1:] if kind.cdata else ()
    return list(dict.fromkeys(marker for marker in (own, tail, format.end, *more) if marker))


class _Tags:
    """Writes parameters.

    Args:
        format, kind: how the model writes them.
        values: rules for their values.
    """

    def __init__(self, format: CallFormat, kind: Parameters, values: ValueGrammar) -> None:
        self._kind, self.values, self._rules = kind, values, values.rules
        self._head, self._behind = around(kind.layout, "VALUE")
        begins = self._head.partition("KEY")[0].split()
        tags = [*map(re.escape, _markers(format, kind)), r"\s*".join(map(re.escape, begins))]
        self._barred = holding(tags)

    # -- Tags ---------------------------------------------------------------------------------------------------------

    def head(self, name: str, type: str) -> str:
        """Text in front of a value of a type, which has JSON's name."""
        key = escape(name) if self._kind.escaped else name
        if not re.fullmatch(_KEY, key):
            raise unwritable(name, "parameter name")
        return self._rules.marker(layout(self._head).write({"KEY": key, "TYPE": self._kind.type_name(type)}))

    def other_head(self, names: Sequence[str], type: str) -> str:
        """The same for any name but these: one lexeme with the text around it, as those begin so, too."""
        before, _, behind = self._head.replace("TYPE", self._kind.type_name(type)).partition("KEY")
        vocabulary = self._rules.vocabulary
        first, last = list(vocabulary.split(before)), list(vocabulary.split(behind))
        begin = first.pop() if first and isinstance(first[-1], str) else ""
        end = last.pop(0) if last and isinstance(last[0], str) else ""
        key = self._rules.terminal(f"{literal(str(begin))} (/{_KEY}/{other_than(names)}) {literal(str(end))}")
        return " ".join([*map(expression, first), key, *map(expression, last)])

    def end(self, name: str) -> str:
        """Text behind a value."""
        return self._behind.replace("KEY", escape(name) if self._kind.escaped else name)

    # -- Parameters ---------------------------------------------------------------------------------------------------

    def all_of(self, schema: Schema) -> str:
        """An expression of the properties of an object in order, then of any others."""
        parts = self._members(schema, self._one)
        others = schema.get("additionalProperties", True)
        if others is not False and "KEY" not in self._behind:  # no grammar says that two names are the same
            parts.append(f"({self._other([name for name, _ in self.values.properties(schema)], others)})*")
        return self._rules.rule(" ".join(parts) or '""')

    def _members(self, schema: Schema, write: Callable[[str, object], str]) -> list[str]:
        """Expressions of the properties of an object, in order."""
        written = ((name, write(name, member)) for name, member in self.values.properties(schema))
        required = array_at(schema, "required")
        return [one if name in required else f"({one})?" for name, one in written]

    def any_of(self, call: Call) -> str:
        """Any parameters that the function has, in any order, of any value."""
        names = object_at(call.schema or {}, "properties")
        if names:
            return self._rules.rule(f"({self._rules.one_of([self._one(name, True) for name in names])})*")
        return self._rules.rule(f"({self._other([], True)})*" if "KEY" not in self._behind else '""')

    def _one(self, name: str, schema: object) -> str:
        return self._parameter(lambda type: self.head(name, type), schema, name, self.end(name))

    def _other(self, names: Sequence[str], schema: object) -> str:
        return self._parameter(lambda type: self.other_head(names, type), schema, "", self._behind)

    def _parameter(self, head: Callable[[str], str], schema: object, name: str, end: str) -> str:
        """An expression of a parameter, whose tag may depend on the type of its value."""
        options: dict[str, list[str]] = {}
        for type, value in self._options(schema, name, end):
            options.setdefault(head(type), []).append(value)
        if not options:
            raise UnsatisfiableError("A $ref leads back to itself: no value satisfies it.")
        return self._rules.rule(" | ".join(f"{tag} {self._rules.one_of(made)}" for tag, made in options.items()))

    # -- Values -------------------------------------------------------------------------------------------------------

    def _options(self, schema: object, name: str, end: str) -> Iterator[tuple[str, str]]:
        """Types, and expressions of values with their end."""
        typed = bool(self._kind.text_type)
        if (schema is True or schema == {}) and not typed:
            yield from self._texts({}, [], end)
            return
        branches = list(self.values.branches(schema))
        union = not typed and any(branch.type == "string" for branch in branches)
        excluded = list(dict.fromkeys(_spelling_others(branches))) if union else []
        for branch in branches:
            if not branch.type:
                yield from self._constants(branch, schema, name, end)
            elif branch.type == "string":
                yield from self._texts(branch.schema, excluded, end)
            elif union and branch.type in _LEXEMES and not _is_bounded(branch):
                yield branch.type, self._rules.until(_LEXEMES[branch.type], end)
            elif branch.type in ("array", "object") and self._kind.element is not None and _is_plain(schema):
                yield branch.type, f"{self._elements(branch, self._kind.element)} {self._rules.marker(end)}"
            else:
                yield from self._json(branch, end)

    def _json(self, branch: Branch, end: str) -> Iterator[tuple[str, str]]:
        value = self.values.value(branch.schema)
        yield branch.type, f"{value} {self._rules.marker(end)}"
        if self._kind.cdata:
            yield branch.type, f"{literal(CDATA[0])} {value} {self._rules.marker(CDATA[1] + end)}"

    def _texts(self, schema: Schema, excluded: Sequence[str], end: str) -> Iterator[tuple[str, str]]:
        rules, lenient = self._rules, self.values.lenient
        if not self._kind.cdata:
            yield "string", rules.until(text(schema, [self._barred, *excluded], lenient=lenient), end)
            return
        plain = text(schema, [containing("<", "&"), *excluded], lenient=lenient)
        marked = text(schema, [containing(CDATA[1]), *excluded], lenient=lenient)
        yield "string", rules.until(plain, end)
        # llguidance panics where a lexeme with a complement, which nothing can make longer, is before a special token.
        yield (
            "string",
            f"{literal(CDATA[0])} {rules.until(marked, CDATA[1][:-1])} {rules.marker(CDATA[1][-1] + end)}",
        )

    def _constants(self, branch: Branch, schema: object, name: str, end: str) -> Iterator[tuple[str, str]]:
        """Constants as text. Those that this format cannot write are left out, unless all are."""
        root = {**self.values.root, "properties": {name: schema}}
        style = self.values.style
        for value in branch.constants:
            spelt = value if isinstance(value, str) else style.write(value)
            if isinstance(value, str):
                is_read = bool(self._kind.text_type) or typed_value(value, root, name) == value
                if not is_read or any(marker in value for marker in style.markers):
                    if len(branch.constants) == 1:
                        raise unwritable(value)
                    continue
            if not (self._kind.cdata and re.search("[<&]", spelt)):
                yield json_type(value), self._rules.until(literal(spelt), end)
            if self._kind.cdata:
                yield json_type(value), self._rules.until(literal(CDATA[0] + spelt), CDATA[1] + end)

    # -- Elements -----------------------------------------------------------------------------------------------------

    def _elements(self, branch: Branch, mark: str) -> str:
        """An expression of an object or an array that is written as elements."""
        schema, rules = branch.schema, self._rules
        if branch.type == "array":
            low, high = item_counts(schema)
            one = self._element("item", schema["items"], mark)
            return rules.rule('""' if high == 0 else f"({one}){times(low, high)}")
        return rules.rule(" ".join(self._members(schema, partial(self._element, mark=mark))) or '""')

    def _element(self, name: str, schema: object, mark: str) -> str:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise unwritable(name, "property name")
        return self._parameter(lambda _: self._rules.marker(f"{mark}<{name}>"), schema, name, f"{mark}</{name}>")


def _spelling_others(branches: Sequence[Branch]) -> Iterator[str]:
    """Bodies of terminals: texts that readers take for a value that is no string, and that might not be allowed."""
    for branch in branches:
        types = {branch.type} if branch.type else set(map(json_type, branch.constants))
        if types & {"array", "object"}:
            yield JSON_BEGUN
        if "boolean" in types and not branch.type:
            yield _BOOLEAN
        if types & {"integer", "number"}:
            if not branch.type or _is_bounded(branch):
                yield _NUMBER_BEGUN
            elif branch.type == "number":
                yield _NUMERIC


def _is_bounded(branch: Branch) -> bool:
    return any(branch.schema.get(name) is not None for name in _BOUNDS)


def _is_plain(schema: object) -> bool:
    """Readers know the types of all that is in elements of this schema."""
    if not isinstance(schema, Mapping) or any(name in schema for name in ("$ref", "allOf", "prefixItems")):
        return False
    options = [*array_at(schema, "anyOf"), *array_at(schema, "oneOf")]
    if options:
        nested = [option for option in options if isinstance(option, Mapping) and option.get("type") in _NESTED]
        return len(nested) < 2 and all(map(_is_plain, options))
    if "enum" in schema or "const" in schema:
        return True
    match schema.get("type"):
        case "object":
            return schema.get("additionalProperties") is False and all(
                map(_is_plain, object_at(schema, "properties").values())
            )
        case "array":
            return _is_plain(schema.get("items"))
        case str():
            return True
        case list() as types:
            return not set(types) & set(_NESTED)
        case _:
            return False


_NESTED = ("array", "object")
