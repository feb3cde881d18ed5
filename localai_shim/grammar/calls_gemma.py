"""Tool calls as the Gemma models write them: `call:NAME{key:value,...}`, with bare keys and marked strings.

Gemma 4 nests: objects and arrays are written the same way, strings between `<|"|>`. FunctionGemma's parser reads one
flat object up to the first `}`, strings between `<escape>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from . import GrammarError
from .lark_rules import LarkRules, other_than
from .raw_text import containing, text
from .schema import Schema
from .tool import Call
from .values import Branch, ValueGrammar, cannot_write


class GemmaStyle:
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

    def constant(self, value: object, rules: LarkRules) -> str:
        return rules.marker(self.write(value))

    def write(self, value: object) -> str:
        """A value as the model would write it."""
        if isinstance(value, str):
            if any(marker in value for marker in self.excluded):
                raise GrammarError(cannot_write(value))
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, list):
            return f"[{','.join(self.write(item) for item in value)}]"
        if isinstance(value, dict):
            return f"{{{','.join(self.key(name) + self.write(item) for name, item in value.items())}}}"
        return json.dumps(value)

    def key(self, name: str) -> str:
        if not re.fullmatch(r"\w+", name):
            raise GrammarError(f"This model's tool-call format cannot write the property name {json.dumps(name)}.")
        return f"{name}:"

    def other_key(self, names: Sequence[str]) -> str:
        return f'(/[a-zA-Z_][a-zA-Z0-9_]*/{other_than(names)}) ":"'


def gemma4_call(call: Call, rules: LarkRules) -> str:
    """An expression of a call without its markers."""
    return _call(call, rules, GemmaStyle('<|"|>', "<|tool_call>", "<tool_call|>"), call.parameters)


def function_gemma_call(call: Call, rules: LarkRules) -> str:
    """An expression of a call without its markers.

    Raises:
        GrammarError: an argument is an object or an array.
    """
    style = GemmaStyle("<escape>", "}", "<start_function_call>", "<end_function_call>")
    schema = {"additionalProperties": {"type": ["string", "number", "boolean", "null"]}, **call.parameters}
    return _call(call, rules, style, schema, is_flat=True)


def _call(call: Call, rules: LarkRules, style: GemmaStyle, schema: Schema, *, is_flat: bool = False) -> str:
    head = rules.marker(f"call:{call.name}")
    if call.lark is not None:
        key = rules.marker(f"{{input:{style.quote}")
        return f"{head} {key} {rules.embed(call.lark)} {rules.marker(style.quote + '}')}"
    values = ValueGrammar(rules, schema, style, lenient=call.lenient)
    branches = values.parameters()
    for branch in branches if is_flat else ():
        _check_flat(values, branch.schema)
    return f"{head} {rules.one_of([values.object_value(branch.schema) for branch in branches])}"


def _check_flat(values: ValueGrammar, schema: Schema) -> None:
    members = [*values.properties(schema), ("additional properties", schema.get("additionalProperties", True))]
    for name, member in members:
        if member is not False and any(map(_is_nested, values.branches(member))):
            raise GrammarError(
                f"This model's tool-call format cannot write objects and arrays: '{name}' may be one. Use plain values."
            )


def _is_nested(branch: Branch) -> bool:
    return branch.type in ("object", "array") or any(isinstance(value, list | dict) for value in branch.constants)
