"""Tool calls as the Gemma models write them: `call:NAME{key:value,...}`, with bare keys and marked strings.

Gemma 4 nests: objects and arrays are written the same way, strings between `<|"|>`. FunctionGemma's parser reads one
flat object up to the first `}`, strings between `<escape>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .compile import GrammarError
from .lark_rules import LarkRules
from .raw_text import containing, text
from .schema import Schema
from .tool_spec import Call
from .values import Style, ValueGrammar
from .vocabulary import literal

_NO_ARGUMENTS = {"type": "object", "additionalProperties": False}


class GemmaStyle(Style):
    """Values as Gemma writes them.

    Args:
        quote: the marker on both sides of a string.
        excluded: what else a string must not hold, for the parser's sake.
    """

    separator = ","

    def __init__(self, quote: str, *excluded: str) -> None:
        self.quote = quote
        self.excluded = (quote, *excluded)

    def string(self, schema: Schema, rules: LarkRules, *, lenient: bool) -> str:
        body = text(schema, [containing(*self.excluded)], lenient=lenient)
        return f"{rules.marker(self.quote)} {rules.until(body, self.quote)}"

    def constant(self, value: Any, rules: LarkRules) -> str:
        return rules.marker(self.write(value))

    def write(self, value: Any) -> str:
        """A value as the model would write it."""
        if isinstance(value, str):
            if any(marker in value for marker in self.excluded):
                raise GrammarError(f"This format cannot write the string {json.dumps(value)}.")
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, list):
            return f"[{','.join(self.write(item) for item in value)}]"
        if isinstance(value, dict):
            return f"{{{','.join(self.key(name) + self.write(item) for name, item in value.items())}}}"
        return json.dumps(value)

    def key(self, name: str) -> str:
        if not re.fullmatch(r"\w+", name):
            raise GrammarError(f"This format cannot write the property name {json.dumps(name)}.")
        return f"{name}:"

    def other_key(self, names: Sequence[str]) -> str:
        known = "".join(f" & ~{literal(name)}" for name in names)
        return f'(/[a-zA-Z_][a-zA-Z0-9_]*/{known}) ":"'


def gemma4_call(call: Call, rules: LarkRules) -> str:
    """An expression of a call without its markers."""
    style = GemmaStyle('<|"|>', "<|tool_call>", "<tool_call|>")
    return _call(call, rules, style, _arguments(call), flat=False)


def function_gemma_call(call: Call, rules: LarkRules) -> str:
    """An expression of a call without its markers.

    Raises:
        GrammarError: an argument is an object or an array.
    """
    style = GemmaStyle("<escape>", "}", "<start_function_call>", "<end_function_call>")
    schema = _arguments(call)
    if "additionalProperties" not in schema:
        schema = {**schema, "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
    return _call(call, rules, style, schema, flat=True)


def _arguments(call: Call) -> Schema:
    if not call.follows:
        return {"type": "object"}
    return call.schema if call.schema is not None else _NO_ARGUMENTS


def _call(call: Call, rules: LarkRules, style: GemmaStyle, schema: Schema, *, flat: bool) -> str:
    values = ValueGrammar(rules, schema, style, lenient=call.lenient)
    head = rules.marker(f"call:{call.name}")
    if call.lark is not None:
        key = rules.marker(f"{{input:{style.quote}")
        return f"{head} {key} {rules.embed(call.lark)} {rules.marker(style.quote + '}')}"
    branches = list(values.branches(schema))
    if any(branch.get("type") != "object" for branch in branches):
        raise GrammarError("The parameters of a function are an object.")
    if flat:
        for branch in branches:
            _check_flat(values, branch)
    return f"{head} {rules.one_of([values.object(branch) for branch in branches])}"


def _check_flat(values: ValueGrammar, schema: Schema) -> None:
    members = [*values.properties(schema), ("additional properties", schema.get("additionalProperties", True))]
    for name, member in members:
        if member is False:
            continue
        for branch in values.branches(member):
            inside = branch.get("enum", [])
            if branch.get("type") in ("object", "array") or any(isinstance(v, (list, dict)) for v in inside):
                raise GrammarError(f"This format has no way to write objects and arrays: '{name}' may be one.")
