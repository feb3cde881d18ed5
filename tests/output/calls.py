"""Calls as upstream's parsers read them, for tests of the grammars that write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema

from localai_shim.adapters.markup import tool_format
from localai_shim.grammar.calls import SUPPORTED, answer_with_calls
from localai_shim.grammar.compile import Grammar
from localai_shim.grammar.tool import Tool
from localai_shim.grammar.vocabulary import Vocabulary
from tests.grammar.drafts import vocabulary_with

VALIDATOR = jsonschema.Draft202012Validator
# The special tokens of the models that write a format.
MARKERS = {
    "json_tools": ("<tool_call>", "</tool_call>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "mistral_array": ("[TOOL_CALLS]",),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "function_gemma": ("<start_function_call>", "<end_function_call>", "<escape>"),
    "kimi_k2": tuple(
        f"<|tool_call{name}|>" for name in ("s_section_begin", "s_section_end", "_begin", "_argument_begin", "_end")
    ),
    "cohere2_moe": ("<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "harmony": ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
}
ENDINGS = (
    "\n</parameter>\n",
    "</parameter>",
    '<|"|>',
    "<escape>",
    '"',
    "<|end|><|start|>assistant<|channel|>",
    "</function>",
)
FORMATS = sorted(SUPPORTED)
NESTED = [name for name in FORMATS if name != "function_gemma"]
WITH_LARK = [name for name in FORMATS if name not in ("mistral_array", "cohere2_moe")]
ENDED = [name for name in FORMATS if name not in ("harmony", "kimi_k2", "cohere2_moe", "mistral", "mistral_array")]

FLAT = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "units": {"type": "string", "enum": ["celsius", "with 'quotes'", "<b>&"]},
        "exact": {"type": "boolean"},
        "share": {"type": "number", "minimum": -1, "exclusiveMaximum": 2.5},
        "zip": {"type": "string", "pattern": "^\\d{5}$"},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["city", "days"],
}
DEEP = {
    "type": "object",
    "properties": {
        **FLAT["properties"],
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
        "place": {
            "type": "object",
            "properties": {
                "lat": {"type": "number", "minimum": 0, "maximum": 90},
                "name": {"type": ["string", "null"]},
            },
            "required": ["lat", "name"],
        },
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"enum": ["x", 1, None]}], "items": False},
        "tree": {"$ref": "#/$defs/Tree"},
        "note": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "null"}]},
        "limit": {"type": ["integer", "null"], "minimum": 0, "maximum": 5},
    },
    "required": ["city"],
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}},
            "required": ["v", "next"],
        }
    },
}


def schema_for(format: str) -> dict[str, Any]:
    return FLAT if format == "function_gemma" else DEEP


def compiled(
    format: str, tools: Sequence[Tool], *, mode: Any = "required", parallel: bool = False, special: bool = True
) -> tuple[Grammar, Vocabulary]:
    vocabulary = vocabulary_with(*MARKERS[format]) if special else vocabulary_with()
    return Grammar(answer_with_calls(format, tools, vocabulary, mode=mode, parallel=parallel), vocabulary), vocabulary


def parsed(format: str, text: str, schemas: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """What upstream's parser reads in an answer that is calls and nothing else."""
    upstream = tool_format(format.removesuffix("_array"))
    tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in (schemas or {}).items()] or None
    calls: list[dict[str, Any]] = []
    if format == "harmony":
        text = text[text.rindex(upstream.start) :]
    rest = text
    while rest:
        assert rest.startswith(upstream.start), f"{rest!r} is no call"
        rest = rest.removeprefix(upstream.start)
        body, end, rest = rest.partition(upstream.end) if upstream.end else (rest, "", "")
        assert end == upstream.end or format == "harmony"
        assert not rest.startswith("\n\n")
        rest = rest.removeprefix("\n")
        read = upstream.parse(body, tools)
        calls += read if isinstance(read, list) else [read]
    for call in calls:
        if isinstance(call["arguments"], str):
            call["arguments"] = json.loads(call["arguments"])
    return calls


def valid(arguments: dict[str, Any], schema: dict[str, Any], *, texts: bool = False) -> None:
    """Arguments satisfy their schema.

    Args:
        texts: they may be text, as the parser of tags knows no types without the schemas: one that is no valid value
            itself spells one in JSON.
    """
    values = dict(arguments)
    for name, value in arguments.items() if texts else ():
        member = {**schema["properties"].get(name, {}), "$defs": schema.get("$defs", {})}
        if isinstance(value, str) and not VALIDATOR(member, format_checker=VALIDATOR.FORMAT_CHECKER).is_valid(value):
            values[name] = json.loads(value)
    VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).validate(values)


SUM = 'start: term ("+" term)*\nterm: N | "(" start ")"\nN: /[0-9]{1,3}/\n%ignore / /'
HEADERS = {
    "json_tools": ('<tool_call>\n{"name": "sum"}\n', "\n</tool_call>"),
    "qwen3_coder": ("<tool_call>\n<function=sum>\n<parameter=input>\n", "\n</parameter>\n</function>\n</tool_call>"),
    "mistral": ("[TOOL_CALLS]sum[ARGS]", ""),
    "gemma4": ('<|tool_call>call:sum{input:<|"|>', '<|"|>}<tool_call|>'),
    "function_gemma": ("<start_function_call>call:sum{input:<escape>", "<escape>}<end_function_call>"),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.sum:0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "harmony": ("<|channel|>commentary to=functions.sum <|message|>", ""),
}
