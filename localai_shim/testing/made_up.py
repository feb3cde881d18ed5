"""Answers to requests without a script: what the request asks for, the same for the same request and seed."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..grammar.subschemas import localized, resolve
from ..types import GrammarConstraint, Json
from .answers import Answer, ToolCall
from .model.tokenizer import ScriptedTokenizer
from .requests import OfferedTool, Request, tool_fields

_TEXTS = (
    "This is a made-up answer.",
    "Here is what I found.",
    "That is a good question.",
    "Let me explain it in a few words.",
    "The short answer is yes.",
)
_WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet")
_OTHER_TEXTS = ("7", "42", "3.5", "2026", "12345", "A", "AB", "ABC", "A1", "ABC-123", "+4930123456")
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1DT2H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "uri": "https://example.com/",
}
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
"""Simple ones first."""
MAX_DEPTH = 5
"""Of an instance; below it, the simplest of several alternatives is taken and optional properties are left out."""
MAX_RANDOM_TOKENS = 400
"""After this number, a random answer takes each chance to end."""


def random_numbers(asked: Request, seed: int) -> random.Random:
    """The numbers from which an answer to a request is made."""
    body = json.dumps([seed, asked.choice, asked.snapshot()], sort_keys=True)
    return random.Random(hashlib.sha256(body.encode()).digest())


def make_up(asked: Request, numbers: random.Random, *, later: bool = False) -> Answer:
    """A call of a tool that the request requires, an instance of its schema, or a short text.

    The request's grammar, which `steer` follows, may want more than this looks at.

    Args:
        later: a required call was made already, in an earlier round of the same answer.
    """
    tool = None if later else _required_tool(asked, numbers)
    if tool is not None:
        parameters = tool.fields.get("parameters") or {"type": "object"}
        given = numbers.choice(_TEXTS) if tool.is_custom else instance(parameters, numbers)
        return Answer((ToolCall(tool.written_name, given),))
    if asked.schema is not None:
        return Answer((json.dumps(instance(asked.schema, numbers), ensure_ascii=False),))
    text = numbers.choice(_TEXTS)
    is_json = (asked.response_format or {}).get("type") == "json_object"
    return Answer((json.dumps({"answer": text}) if is_json else text,))


def _required_tool(asked: Request, numbers: random.Random) -> OfferedTool | None:
    """The tool that the answer must call, if there is one."""
    choice, tools = asked.tool_choice, [tool for tool in asked.offered_tools if not tool.is_server]
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools", choice)
        if "tools" not in allowed:
            return _named_tool(asked, choice)
        named = [_named_tool(asked, tool) for tool in allowed["tools"]]
        tools, choice = [tool for tool in named if tool is not None], allowed.get("mode")
    return numbers.choice(tools) if choice == "required" and tools else None


def _named_tool(asked: Request, choice: Json) -> OfferedTool | None:
    fields = tool_fields(choice)
    return asked.offered_tool(str(fields.get("name")), fields.get("namespace"))


# -- instances of JSON schemas ----------------------------------------------------------------------------------------


def instance(schema: Json, numbers: random.Random) -> Any:
    """A small, plausible instance of a JSON schema."""
    root = localized(schema)
    return _Instance(root, numbers).make(root, 0)


class _Instance:
    def __init__(self, root: Mapping[str, object], numbers: random.Random) -> None:
        self._root, self._numbers = root, numbers

    def make(self, schema: object, depth: int) -> object:
        """An instance of a schema inside the root."""
        if not isinstance(schema, Mapping) or not schema:
            return self._numbers.choice(_WORDS)
        schema = self._flat(dict(schema))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._numbers.choice(list(schema["enum"]))
        options = _without_text_of_numbers(schema.pop("anyOf", None) or schema.pop("oneOf", None) or ())
        if options:
            one = min(options, key=_weight) if depth >= MAX_DEPTH else self._numbers.choice(options)
            return self.make(_merged(schema, one), depth + 1)
        kind = self._type(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return self._numbers.random() < 0.5
        return None if kind == "null" else self._string(schema)

    def _flat(self, schema: Json) -> Json:
        """A copy of a schema, with what it refers to and `allOf` put into it."""
        out = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        for part in [*schema.get("allOf", ()), *([resolve(self._root, schema["$ref"])] if "$ref" in schema else ())]:
            if isinstance(part, Mapping):
                out = _merged(out, self._flat(dict(part)))
        return out

    def _type(self, schema: Json, depth: int) -> str:
        hint = "object" if "properties" in schema else "array" if "items" in schema else "string"
        given = schema.get("type") or hint
        if isinstance(given, str):
            return given
        return str(min(given, key=_TYPES.index) if depth >= MAX_DEPTH else self._numbers.choice(given))

    def _object(self, schema: Json, depth: int) -> dict[str, object]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        names = [name for name in properties if name in required or depth < MAX_DEPTH - 2]
        more = [name for name in required if name not in properties]
        extra = schema.get("additionalProperties")
        return {name: self.make(properties.get(name, extra), depth + 1) for name in names + more}

    def _array(self, schema: Json, depth: int) -> list[object]:
        first, least = schema.get("prefixItems", ()), schema.get("minItems", 0)
        count = max(least, min(schema.get("maxItems", 1_000), len(first) or int(depth < MAX_DEPTH)))
        return [self.make(first[i] if i < len(first) else schema.get("items"), depth + 1) for i in range(count)]

    def _number(self, schema: Json, *, whole: bool) -> float:
        above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
        low, high = max(schema.get("minimum", -math.inf), above), min(schema.get("maximum", math.inf), below)
        low = low if low > -math.inf else min(0, high - 10)
        high = min(high, low + 10)
        step = schema.get("multipleOf") or (1 if whole else (high - low) / 4 or 1)
        first, last = math.ceil(low / step), math.floor(high / step)
        first, last = first + (first * step <= above), last - (last * step >= below)
        value = step * self._numbers.randint(first, max(first, last))
        return round(value) if whole else round(float(value), 6)

    def _string(self, schema: Json) -> str:
        text = _FORMATS.get(schema.get("format", "")) or self._numbers.choice(_matching(schema.get("pattern")))
        while len(text) < schema.get("minLength", 0):
            text += f" {self._numbers.choice(_WORDS)}"
        return text[: schema.get("maxLength")]


def _without_text_of_numbers(options: Sequence[Json]) -> Sequence[Json]:
    """Alternatives without text next to numbers: pydantic's Decimal, which only takes the text of a number."""
    if not any(_kind(option) in ("integer", "number") for option in options):
        return options
    return [option for option in options if _kind(option) != "string"]


def _kind(schema: object) -> object:
    return schema.get("type") if isinstance(schema, Mapping) and "enum" not in schema else None


def _matching(pattern: object) -> Sequence[str]:
    """The words, or other texts, that match a pattern; the words where none does."""
    if not isinstance(pattern, str):
        return _WORDS
    try:
        found = [text for text in (*_WORDS, *_OTHER_TEXTS, *_FORMATS.values()) if re.search(pattern, text)]
    except re.error:
        found = []
    return found or _WORDS


def _weight(schema: object) -> int:
    """Deepest nesting of an instance."""
    if not isinstance(schema, Mapping):
        return len(_TYPES)
    if "const" in schema or "enum" in schema:
        return 0
    return _TYPES.index(schema["type"]) if schema.get("type") in _TYPES else len(_TYPES)


def _merged(one: Json, other: Json) -> Json:
    """Both schemas in one, as far as their keywords can be put together."""
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        out["required"] = [*one["required"], *other["required"]]
    return out


# -- grammars ---------------------------------------------------------------------------------------------------------


def steer(text: str, constraint: GrammarConstraint, tokenizer: ScriptedTokenizer, numbers: random.Random) -> list[int]:
    """Tokens that a request's grammar allows: a proposed text's as far as it allows them, then random ones."""
    import numpy as np

    proposed, out = tokenizer.encode(text), list[int]()
    while len(out) < 2 * MAX_RANDOM_TOKENS:
        mask = np.zeros((len(tokenizer) + 31) // 32, np.int32)
        if not constraint.mask(mask):
            return out + proposed
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        if proposed and proposed[0] in allowed:
            token = proposed.pop(0)
        elif not allowed or any(end in allowed for end in tokenizer.eos_token_ids):
            break
        else:
            proposed.clear()
            hurry = 1 + 100 * (len(out) > MAX_RANDOM_TOKENS)
            token = numbers.choices(allowed, [_likelihood(each, hurry) for each in allowed])[0]
        out.append(token)
        if constraint.accept(token):
            break
    return out


def _likelihood(token: int, hurry: int) -> float:
    """Closing brackets and quotes come soon, then letters and digits; other characters only where nothing else may."""
    if token > 126 or token < 32:
        return 1e-9
    char = chr(token)
    if char in '"]})':
        return 8.0 * hurry
    return 1.0 if char.isalnum() else 1e-3 if char == "\\" else 0.2
