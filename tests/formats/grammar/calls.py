"""Grammars of the calls of every family, and their answers as the product reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import jsonschema

from localai_shim.formats.description import write_calls
from localai_shim.formats.grammar.answers import answer_with_calls
from localai_shim.formats.markup import Markup
from localai_shim.formats.syntaxes.arguments import JsonArguments
from localai_shim.formats.syntaxes.keyed import MarkedArguments, PythonArguments
from localai_shim.formats.syntaxes.tagged import Parameters
from localai_shim.formats.table import FORMATS as ROWS
from localai_shim.formats.values import OfferedTools
from localai_shim.grammar.compile import Grammar, Vocabulary
from localai_shim.grammar.tool import Tool
from localai_shim.output.answer import AnswerParser
from tests.formats.channels import CHANNELS
from tests.grammar.drafts import vocabulary_with
from tests.output.reading import Answer, Detokenizer, tokens

VALIDATOR = jsonschema.Draft202012Validator
FORMATS = sorted(ROWS)
_SPECIAL = re.compile(
    r'<\|"\|>|<\|[\w:]+\|?>|<\w+\|>|<｜[\w▁]+｜>|｜DSML｜|\[[A-Z_]{4,}\]|\]<\]minimax\[>\[|</?(?!KEY|NAME)[a-zA-Z][\w:]+>'
)


def texts_of(name: str) -> list[str]:
    """All that the description of a format says is written."""
    row, channels = ROWS[name], CHANNELS.get(name)
    texts = [row.call, *row.starts, *row.ends, *row.heads]
    if isinstance(row.arguments, Parameters):
        texts.append(row.arguments.layout)
    if isinstance(row.arguments, MarkedArguments):
        texts.append(row.arguments.quote)
    if channels is not None:
        texts += [*channels.opens, *channels.ends, channels.closes, channels.thought, channels.following]
    return texts


def markers_of(name: str) -> tuple[str, ...]:
    """What might be special tokens of a model that writes a format."""
    found = {marker for text in texts_of(name) for marker in _SPECIAL.findall(text)}
    return tuple(sorted(found))


def endings_of(name: str) -> tuple[str, ...]:
    """Ends of values, of which a writer that knows nothing would not think."""
    kind = ROWS[name].arguments
    if isinstance(kind, Parameters):
        behind = kind.layout.partition("VALUE")[2]
        return (*(behind.replace("KEY", key) for key in ("city", "a")), "]]>" + behind, '"')
    return (kind.quote, '"') if isinstance(kind, MarkedArguments) else ('"', "<|end|><|start|>assistant<|channel|>")


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
        "either": {"type": ["string", "integer"]},
        "few": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 3}, {"const": True}]},
        "share_or_name": {"type": ["number", "string"], "maxLength": 4},
        "one": {"enum": ["a", "5", 7, None, "null", [1]]},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "maxItems": 2},
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
SUM = 'start: term ("+" term)*\nterm: N | "(" start ")"\nN: /[0-9]{1,3}/\n%ignore / /'


def markup_of(name: str) -> Markup:
    return Markup(tools=ROWS[name], channels=CHANNELS.get(name))


def vocabulary_for(name: str, *, special: bool = True) -> Vocabulary:
    return vocabulary_with(*markers_of(name)) if special else vocabulary_with()


def compiled(
    name: str, tools: Sequence[Tool], *, mode: Any = "required", parallel: bool = False, special: bool = True
) -> tuple[Grammar, Vocabulary]:
    """The grammar of an answer in a format."""
    vocabulary = vocabulary_for(name, special=special)
    source = answer_with_calls(markup_of(name), tools, vocabulary, mode=mode, parallel=parallel)
    return Grammar(source, vocabulary), vocabulary


def offered(tools: Sequence[Tool]) -> OfferedTools:
    custom = frozenset(tool.name for tool in tools if tool.custom is not None)
    return OfferedTools([tool.template() for tool in tools], custom)


def answer(name: str, pieces: Sequence[str], tools: Sequence[Tool]) -> Answer:
    """An answer that comes in pieces and that the model ends, as the product reads it."""
    markup = markup_of(name)
    parser = AnswerParser(Detokenizer(pieces), markup, state=markup.state_after(""), tools=offered(tools))
    out = Answer()
    for token in tokens(pieces, "stop"):
        out.add(parser.feed(token))
    return out


def read(name: str, text: str, tools: Sequence[Tool]) -> list[tuple[str, Any]]:
    """The calls of an answer that is calls, behind thoughts at most, and nothing else."""
    found = answer(name, [text], tools)
    assert not found.content.strip() and not found.invalid, f"{text!r}: {found}"
    custom = offered(tools).custom
    return [(called, given if called in custom else json.loads(given)) for called, given in found.calls]


def written(name: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Calls as the model writes them; ends of messages that end the answer are no part of its text."""
    row, channels = ROWS[name], CHANNELS.get(name)
    text = write_calls(row, calls)
    if channels is None:
        return text
    for end in channels.ends:
        text = text.removesuffix(end)
    return channels.call.replace("NAME", calls[0][0]) + text


def valid(arguments: Any, schema: dict[str, Any]) -> None:
    VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).validate(arguments)


def raw_call(name: str, tool: str, text: str) -> str | None:
    """A call of a custom tool whose input stands as it is; None where a format has no place for that."""
    row = ROWS[name]
    if isinstance(row.arguments, PythonArguments) or (row.is_object and not row.each):
        return None
    if not isinstance(row.arguments, JsonArguments):
        return written(name, [(tool, {"input": text})]).replace(f"<![CDATA[{text}]]>", text)
    call = written(name, [(tool, {})]).replace("<|constrain|>json", "")
    if row.is_object:
        return call.replace(', "arguments": {}}', "}\n" + text)
    return call.replace("{}", text)
