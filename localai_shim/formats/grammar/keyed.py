"""Arguments with bare keys: keywords of a Python call, and what the Gemma models write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...grammar.lark_rules import JSON_BEGUN, LarkRules, containing, other_than, text
from ...grammar.subschemas import Schema
from ...grammar.tool import Call
from ..description import CallFormat
from ..syntaxes.keyed import MarkedArguments, marked_value, python_value
from .values import Branch, JsonStyle, ValueGrammar, no_lark, unwritable

# -- Python -----------------------------------------------------------------------------------------------------------


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
    return f'(/[a-zA-Z_][a-zA-Z0-9_]{{0,127}}/{other_than(names)}) "="'


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
        return f'(/[a-zA-Z_][a-zA-Z0-9_]{{0,127}}/{other_than(names)}) ":"'

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
