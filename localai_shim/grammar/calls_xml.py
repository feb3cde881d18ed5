"""Tool calls as Qwen3-Coder writes them: one tag per parameter, strings as they are, anything else as JSON.

The parser takes a parameter's text for null where it spells that, whatever the parameter's type, and for an object or
array where it is one and the parameter declares no type. So strings never spell either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from . import GrammarError
from .lark_rules import LarkRules, other_than
from .raw_text import containing, regex, text
from .schema import Schema, array_at, object_at
from .tool import Call
from .values import JsonStyle, ValueGrammar, cannot_write
from .vocabulary import literal

_END = "\n</parameter>\n"
_MARKERS = ("</parameter>", "</function>", "</tool_call>")
_STYLE = JsonStyle(*_MARKERS)
_NULL = "/(?i:null)/"
# Text that could be read as JSON; text that begins like it, where JSON is one of the options.
_JSON = regex(r"[ \t\r\n]*[\[{](?s:.*)[\]}][ \t\r\n]*")
_JSON_BEGUN = regex(r"[ \t\r\n]*[\[{](?s:.*)")


def qwen3_coder_call(call: Call, rules: LarkRules) -> str:
    """An expression of a call without its outer markers."""
    head, end = rules.marker(f"\n<function={call.name}>\n"), rules.marker("</function>\n")
    if call.lark is not None:
        return f"{head} {_tag('input', rules)} {rules.embed(call.lark)} {rules.marker(_END)} {end}"
    if not call.follows:
        return f"{head} {_any_parameters(call, rules)} {end}"
    values = ValueGrammar(rules, call.parameters, _STYLE, lenient=call.lenient)
    return f"{head} {rules.one_of([_parameters(branch.schema, values) for branch in values.parameters()])} {end}"


def _tag(name: str, rules: LarkRules) -> str:
    """What stands before a parameter's value."""
    if not re.fullmatch(r"[^\s<>]+", name):
        raise GrammarError(f"This model's tool-call format cannot write the parameter name {json.dumps(name)}.")
    return rules.marker(f"<parameter={name}>\n")


def _other_tag(names: Iterable[str], rules: LarkRules) -> str:
    """The same for any name but these."""
    return rules.terminal(rf'"<parameter=" (/[^\s<>]+/{other_than(names)}) ">\n"')


def _any_parameters(call: Call, rules: LarkRules) -> str:
    """Any parameters that the function has, in any order, with any text for their values."""
    names = object_at(call.schema or {}, "properties")
    tag = rules.one_of([_tag(name, rules) for name in names]) if names else _other_tag((), rules)
    return rules.rule(f"({tag} {rules.until(text({}, [containing(*_MARKERS)]), _END)})*")


def _parameters(schema: Schema, values: ValueGrammar) -> str:
    rules = values.rules
    parts = []
    members, required = values.properties(schema), array_at(schema, "required")
    for name, member in members:
        one = rules.rule(f"{_tag(name, rules)} {_value(member, values)}")
        parts.append(one if name in required else f"({one})?")
    others = schema.get("additionalProperties", True)
    if others is not False:
        parts.append(f"({_other_tag((name for name, _ in members), rules)} {_value(others, values)})*")
    return rules.rule(" ".join(parts) or '""')


def _value(schema: object, values: ValueGrammar) -> str:
    """An expression of a parameter's value and its closing tag."""
    rules = values.rules
    if schema is True or schema == {}:
        return rules.until(text({}, [containing(*_MARKERS)]), _END)
    branches = list(values.branches(schema))
    excluded = [containing(*_MARKERS), _NULL]
    if any(branch.type in ("object", "array") for branch in branches):
        excluded.append(_JSON_BEGUN)
    elif not (isinstance(schema, Mapping) and "type" in schema):
        excluded.append(_JSON)
    options = []
    for branch in branches:
        if not branch.type:
            options += [rules.terminal(literal(spelt + _END)) for spelt in _spelt(branch.constants)]
        elif branch.type == "string":
            options.append(rules.until(text(branch.schema, excluded, lenient=values.lenient), _END))
        elif branch.type == "null":  # one lexeme with the tag: as a text that goes on, strings may begin so
            options.append(rules.terminal(literal("null" + _END)))
        else:
            options.append(f"{values.value(branch.schema)} {rules.marker(_END)}")
    if not options:
        raise GrammarError("A $ref leads back to itself: no value satisfies it.")
    return rules.one_of(options)


def _spelt(constants: Sequence[object]) -> Iterator[str]:
    """Constants as text. Those that this format cannot write are left out, unless all are."""
    for value in constants:
        if not isinstance(value, str):
            yield _STYLE.write(value)
        elif value.lower() != "null" and not any(marker in value for marker in _MARKERS):
            yield value
        elif len(constants) == 1:
            raise GrammarError(cannot_write(value))
