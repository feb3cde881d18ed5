"""Grammars of whole answers that hold tool calls, one per format in which models write them.

The formats have the names of the parsers in `mlx_lm.tool_parsers` and `mlx_vlm.tools.parsers`, which read what these
grammars allow; `mistral_array` is the older form that the `mistral` parser also reads.

A custom tool is a function of one string, `input`. Where its grammar is Lark and the format writes arguments as JSON,
whose escapes such a grammar cannot describe, the text stands as it is behind a header:

    json_tools   <tool_call>\\n{"name": "x"}\\nTEXT\\n</tool_call>
    mistral      [TOOL_CALLS]x[ARGS]TEXT
    kimi_k2      functions.x:0<|tool_call_argument_begin|>TEXT<|tool_call_end|>
    harmony      <|channel|>commentary to=functions.x <|message|>TEXT
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from . import GrammarError
from .calls_gemma import function_gemma_call, gemma4_call
from .calls_xml import qwen3_coder_call
from .compile import lark
from .lark_rules import LarkRules
from .raw_text import ANY, containing
from .tool import Call, Tool, call_of, json_arguments
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Format:
    """How a format puts calls together.

    Attributes:
        start, end: what stands around a call, or around all calls of an answer where they are a `section`.
        call: (call, rules) -> an expression of what stands between the two.
        between: what stands between two calls.
        name: what a function's name has to match for upstream's parser to find it.
        around_text: markers that may stand around an answer that is not a call.
    """

    start: str
    end: str
    call: Callable[[Call, LarkRules], str]
    between: str = ""
    section: bool = False
    name: str = r"[\w-]+"
    around_text: tuple[str, str] | None = None

    def answer(self, call: str, rules: LarkRules, *, required: bool, parallel: bool) -> str:
        """An expression of a whole answer, from that of one call."""
        start, end, between = rules.marker(self.start), rules.marker(self.end), rules.marker(self.between)
        if required and self.section:
            return f"{start} {_several(call, between, parallel)} {end}"
        if required:
            return _several(rules.rule(f"{start} {call} {end}"), between, parallel)
        # Markers may be spelt in letters, too; readers that look at text would take that for a call.
        text = f"({ANY} & ~{containing(self.start)})"
        begin, plain = rules.until(text, self.start, lazy=True), rules.terminal(text)
        if self.around_text is not None:
            opening, closing = self.around_text
            plain = rules.rule(f"{plain} | {rules.marker(opening)} {rules.until(text, closing)}")
        if self.section:
            return f"{plain} | {begin} {_several(call, between, parallel)} {end}"
        if not parallel:
            return f"{plain} | {begin} {call} {end}"
        if not self.end:  # text behind a call would be taken for a part of it
            return f"{plain} | {begin} {call} ({start} {call})*"
        return f"({begin} {call} {end})* {plain}"


def answer_with_calls(
    format: str,
    tools: Sequence[Tool],
    vocabulary: Vocabulary,
    *,
    mode: Literal["auto", "required"],
    parallel: bool,
    follow: bool = False,
) -> str:
    """The source of the grammar of an answer.

    Args:
        format: one of `SUPPORTED`.
        tools: what may be called; at least one.
        vocabulary: markers that are special tokens in it are asked for as such.
        mode: "required": one or more calls and nothing else; every call follows its tool's schema. "auto": free
            text, in which calls may begin; those of strict and custom tools follow their schema or grammar, others
            are any JSON object (any parameters of the tool's, where a format writes parameters one by one).
        parallel: there may be several calls; otherwise nothing comes after the first. Harmony ends an answer with
            its first call in any case.
        follow: calls of every tool follow its schema, in mode "auto", too.

    Raises:
        GrammarError: there is no grammar of this format; or a tool cannot be written in it, which the message names.
    """
    if format not in SUPPORTED:
        raise GrammarError(f"There is no grammar for the tool calls of '{format}'.")
    if not tools:
        raise GrammarError("There are no tools to call.")
    rules = LarkRules(vocabulary)
    shape = _FORMATS[format]
    calls = []
    for tool in tools:
        try:
            if not re.fullmatch(shape.name, tool.name):
                raise GrammarError(f"'{format}' cannot write this name: use letters, digits and '_'.")
            call = call_of(tool, required=follow or mode == "required")
            calls.append(rules.rule(shape.call(call, rules)))
        except GrammarError as error:
            raise GrammarError(f"Tool '{tool.name}': {error}") from error
    one = rules.one_of(calls)
    if format == "harmony":
        if mode == "required":
            return rules.source(_harmony_start(rules, one, "analysis"))
        return rules.source(_harmony_start(rules, f"({one} | {_final(rules)})", "analysis", "commentary"))
    return rules.source(shape.answer(one, rules, required=mode == "required", parallel=parallel))


def no_call(start: str, vocabulary: Vocabulary, *, harmony: bool) -> str:
    """The source of free text in which no call begins.

    Args:
        start: what begins a call.
        vocabulary: special tokens are not text in it.
        harmony: the text stands in gpt-oss's channels.
    """
    rules = LarkRules(vocabulary)
    if harmony:
        return rules.source(_harmony_start(rules, _final(rules), "analysis", "commentary"))
    return rules.source(rules.terminal(f"{ANY} & ~{containing(start)}"))


def harmony_answer(content: str, vocabulary: Vocabulary) -> str:
    """The source of a gpt-oss answer whose final message follows another source, after any analysis."""
    rules = LarkRules(vocabulary)
    name, grammars = _as_part(content)
    start = _harmony_start(rules, f"{rules.marker('<|channel|>final<|message|>')} @{name}", "analysis")
    return _with_parts(rules.source(start), grammars)


def call_or(calls: str, content: str) -> str:
    """The source of an answer that is either of two: calls (of mode "required"), or a content."""
    (first, first_grammars), (second, second_grammars) = _as_part(calls), _as_part(content)
    return _with_parts(lark(f"start: @{first} | @{second}", forced=True), first_grammars | second_grammars)


# -- Formats ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JsonCall:
    """Writes a call whose arguments are JSON.

    Attributes:
        header: what stands before the arguments; NAME is the function's, INDEX any number.
        end: what stands behind them.
        custom: the same two for a custom tool's input that follows a Lark grammar, where they differ.
        is_item: the call is an item of a JSON array, in which such an input cannot be written.
    """

    header: str
    end: str = ""
    custom: tuple[str, str] | None = None
    is_item: bool = False

    def __call__(self, call: Call, rules: LarkRules) -> str:
        header, end = self.header, self.end
        if call.lark is None:
            arguments = json_arguments(call)
        elif self.is_item:
            raise GrammarError("Lark grammars are not possible where calls are items of a JSON array.")
        else:
            header, end = self.custom or (header, end)
            arguments = rules.embed(call.lark)
        before = [rules.marker(text) for text in header.replace("NAME", call.name).split("INDEX")]
        index = f" {rules.terminal('/0|[1-9][0-9]{0,3}/')} " if len(before) > 1 else ""
        return f"{index.join(before)} {arguments} {rules.marker(end)}"


_JSON_TOOLS = _JsonCall('\n{"name": "NAME", "arguments": ', "}\n", custom=('\n{"name": "NAME"}\n', "\n"))
_MISTRAL_ARRAY = _JsonCall('{"name": "NAME", "arguments": ', "}", is_item=True)
_KIMI_K2 = _JsonCall("<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>", "<|tool_call_end|>")
_COHERE2_MOE = _JsonCall('    {"tool_call_id": "INDEX", "tool_name": "NAME", "parameters": ', "}", is_item=True)
_COHERE_TEXT = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
_HARMONY = _JsonCall(  # whose end is an end of sequence
    "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
    custom=("<|channel|>commentary to=functions.NAME <|message|>", ""),
)


def _final(rules: LarkRules) -> str:
    return f"{rules.marker('<|channel|>final<|message|>')} {rules.terminal(ANY)}"


def _harmony_start(rules: LarkRules, rest: str, *channels: str) -> str:
    """Messages on these channels, such as analysis or the commentary before a call, and then the rest."""
    end = "<|end|><|start|>assistant"
    begin = rules.one_of([rules.marker(f"<|channel|>{channel}<|message|>") for channel in channels])
    return f"({begin} {rules.until(f'({ANY} & ~{containing(end)})', end)})* {rest}"


_FORMATS = {
    "json_tools": _Format("<tool_call>", "</tool_call>", _JSON_TOOLS, between="\n"),
    "qwen3_coder": _Format("<tool_call>", "</tool_call>", qwen3_coder_call, between="\n"),
    "mistral": _Format("[TOOL_CALLS]", "", _JsonCall("NAME[ARGS]")),
    "mistral_array": _Format("[TOOL_CALLS][", "]", _MISTRAL_ARRAY, between=", ", section=True),
    "gemma4": _Format("<|tool_call>", "<tool_call|>", gemma4_call),
    "function_gemma": _Format("<start_function_call>", "<end_function_call>", function_gemma_call, name=r"\w+"),
    "kimi_k2": _Format("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _KIMI_K2, section=True),
    "cohere2_moe": _Format(
        "<|START_ACTION|>[\n", "\n]<|END_ACTION|>", _COHERE2_MOE, between=",\n", section=True, around_text=_COHERE_TEXT
    ),
    "harmony": _Format("", "", _HARMONY),
}
SUPPORTED = frozenset(_FORMATS)
"""The formats that there are grammars for."""


# -- Parts ------------------------------------------------------------------------------------------------------------


def _several(expression: str, between: str, several: bool) -> str:
    return f"{expression} ({between} {expression})*" if several else expression


def _as_part(source: str) -> tuple[str, dict[str, dict[str, object]]]:
    """The name of a source's first grammar, so that another may refer to it, and all of its grammars by name."""
    text = source if source.startswith("{") else json.dumps({"grammars": [{"lark_grammar": source}]})
    first, *others = json.loads(text)["grammars"]
    name = "part_" + hashlib.sha256(json.dumps(first).encode()).hexdigest()[:16]
    return name, {name: {**first, "name": name}, **{other["name"]: other for other in others}}


def _with_parts(source: str, parts: dict[str, dict[str, object]]) -> str:
    return json.dumps({"grammars": [*json.loads(source)["grammars"], *parts.values()]})
