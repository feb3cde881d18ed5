"""Grammars of whole answers with tool calls, built from the description of a family's call format.

`formats.reading` reads every text of a grammar as calls of the same functions with the same arguments. The text around
calls contains nothing that the reader would take for a call.

A custom tool is a function of one string, `input`. A Lark grammar cannot describe the escapes of JSON. If the tool's
grammar is Lark and arguments are JSON, the unescaped text replaces the arguments; if a call is an object, the text
follows the object:

    <tool_call>\\n{"name": "x"}\\nTEXT\\n</tool_call>
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Literal

from ...grammar import GrammarError
from ...grammar.compile import Vocabulary, lark
from ...grammar.lark_rules import ANY, LarkRules, containing, holding, regex
from ...grammar.tool import Call, Tool, call_of, json_arguments
from ..description import CallFormat, Channels
from ..markup import Markup
from ..source import around, is_marker, layout
from ..syntaxes.arguments import JsonArguments
from ..syntaxes.keyed import MarkedArguments
from ..syntaxes.tagged import Parameters
from .arguments import marked_arguments, python_arguments, tagged_arguments
from .values import no_lark

_SPACE = r"[\s\x1c-\x1f]*"  # as Python has it


def opening(format: CallFormat) -> tuple[str, str]:
    """Text that opens a block, and the layout of a call behind it; without a marker a call's own beginning opens the
    block.
    """
    if format.start or not format.heads:
        return format.start, format.call
    _, head = layout(format.call).parts[0]
    return head, format.call.removeprefix(head)


def free_text(format: CallFormat) -> str:
    """The body of a terminal: texts in which nothing opens a block."""
    patterns = [_pattern(marker, format) for marker in (*format.starts, *format.heads)]
    return f"({ANY} & ~{holding(patterns)})" if patterns else ANY


def begins_as_a_call(format: CallFormat, names: Sequence[str]) -> str:
    """The body of a terminal: texts that begin as an answer in a format without markers does that calls something."""
    begins = [r"\["] if "[" in format.inside[0] or format.is_object else []
    before = around(format.call, "ARGUMENTS")[0]
    if format.is_object:
        begins.append(r"\{")
    elif (word := before.partition("NAME")[2].strip()) and before.startswith("NAME"):
        begins += [re.escape(name) + _SPACE + re.escape(word) for name in names]
    return regex(f"{_SPACE}(?:{'|'.join(begins)})(?s:.*)")


def in_message(channels: Channels) -> str:
    """The body of a terminal: texts in which no other message begins, and theirs does not end."""
    markers = [*channels.opens, *channels.ends, *channels.begins, channels.closes]
    return f"({ANY} & ~{containing(*filter(str.strip, markers))})"


def _pattern(marker: str, format: CallFormat) -> str:
    """A pattern of a marker. One that is a word opens a block only where a call follows."""
    if is_marker(marker):
        return re.escape(marker)
    words = [word for word in format.inside[0].split() if word not in "[{"]
    optional = "".join(f"(?:{re.escape(word)})?{_SPACE}" for word in words)
    return f"{re.escape(marker)}{_SPACE}{optional}" + r"[\[{]"


Mode = Literal["auto", "required"]
_NUMBERS = {"INDEX": "/0|[1-9][0-9]{0,3}/", "ID": "/[a-zA-Z0-9]{9}/"}
_SAYS_JSON = "<|constrain|>json"  # in headers of arguments


def answer_with_calls(
    markup: Markup,
    tools: Sequence[Tool],
    vocabulary: Vocabulary,
    *,
    mode: Mode,
    parallel: bool,
    follow: bool = False,
    thoughts: bool = True,
) -> str:
    """The source of the grammar of an answer.

    Args:
        markup: the model's markers, including those of a call format. If answers have channels, thoughts are part of
            the grammar; otherwise free text may contain structural markers.
        tools: the tools that may be called; at least one.
        vocabulary: markers that are special tokens in it must be written as these tokens.
        mode: "required": one or more calls and nothing else; every call follows its tool's schema. "auto": free
            text, in which calls may begin; those of strict and custom tools follow their schema or grammar, others
            are any JSON object (any parameters of the tool, if a format writes parameters one by one).
        parallel: there may be several calls; otherwise nothing comes after the first.
        follow: calls of every tool follow its schema, in mode "auto", too.
        thoughts: there may be some; otherwise the answer begins after them.

    Raises:
        GrammarError: a tool cannot be written in this format, which the message names.
    """
    if not tools:
        raise GrammarError("There are no tools to call.")
    rules, format, channels = LarkRules(vocabulary), markup.tools, markup.channels
    assert format is not None
    calls: dict[str, str] = {}
    for tool in tools:
        try:
            _check_name(tool.name, format, channels)
            call = call_of(tool, required=follow or mode == "required")
            calls[tool.name] = rules.rule(_call(call, format, channels, rules))
        except GrammarError as error:
            raise GrammarError(f"Tool '{tool.name}': {error}") from error
    if channels is not None:
        last = _calls_in_channels(calls, format, channels, rules, parallel)
        if mode == "required":
            return rules.source(_in_channels(last, channels, rules, thoughts=thoughts))
        text = f"{rules.marker(channels.content)} {rules.terminal(in_message(channels))}"
        return rules.source(_in_channels(f"({last} | {text})", channels, rules, preambles=True, thoughts=thoughts))
    one = rules.one_of([*calls.values()])
    if mode == "required":
        return rules.source(_blocks(one, format, rules, parallel))
    return rules.source(_among_text(one, [*calls], format, rules, parallel, markup.structural))


def no_call(markup: Markup, vocabulary: Vocabulary, *, thoughts: bool = True) -> str:
    """The source of an answer of free text, in which no call begins; see `answer_with_calls`."""
    rules, format, channels = LarkRules(vocabulary), markup.tools, markup.channels
    if channels is None:
        assert format is not None
        text = free_text(format)
        return rules.source(f"{_passages(text, markup.structural, rules)} {rules.terminal(text)}")
    last = f"{rules.marker(channels.content)} {rules.terminal(in_message(channels))}"
    return rules.source(_in_channels(last, channels, rules, preambles=True, thoughts=thoughts))


def content_in_channels(content: str, channels: Channels, vocabulary: Vocabulary, *, thoughts: bool = True) -> str:
    """The source of an answer in channels whose text for the user follows another source, after any thoughts."""
    rules = LarkRules(vocabulary)
    name, grammars = _as_part(content)
    answer = _in_channels(f"{rules.marker(channels.content)} @{name}", channels, rules, thoughts=thoughts)
    return _with_parts(rules.source(answer), grammars)


def call_or(calls: str, content: str) -> str:
    """The source of an answer that is either of two: calls (of mode "required"), or a content."""
    (first, first_grammars), (second, second_grammars) = _as_part(calls), _as_part(content)
    return _with_parts(lark(f"start: @{first} | @{second}", forced=True), first_grammars | second_grammars)


# -- One call ---------------------------------------------------------------------------------------------------------


def _check_name(name: str, format: CallFormat, channels: Channels | None) -> None:
    header = around(format.call, "ARGUMENTS")[0] if channels is None or channels.named else channels.call
    is_told = channels is None or re.search(channels.calls, header.replace("NAME", name)) is not None
    if not re.fullmatch(format.names, name) or not is_told:
        raise GrammarError(f"'{format.name}' cannot write this name: use another one, of letters, digits and '_'.")


def _call(call: Call, format: CallFormat, channels: Channels | None, rules: LarkRules) -> str:
    before, behind = around(opening(format)[1], "ARGUMENTS")
    for end in channels.ends if channels is not None else ():
        behind = behind.removesuffix(end)  # it ends the turn, as an end of sequence does
    kind = format.arguments
    if isinstance(kind, JsonArguments) and call.lark is not None:
        before, behind = _around_text(before, behind, format)
        arguments = rules.embed(call.lark)
    elif isinstance(kind, JsonArguments):
        arguments = json_arguments(call)
    elif isinstance(kind, Parameters):
        arguments = tagged_arguments(call, format, kind, rules)
    elif isinstance(kind, MarkedArguments):
        arguments = marked_arguments(call, format, kind, rules)
    else:
        arguments = python_arguments(call, format, rules)
    return f"{_written(before, call.name, rules, is_bare=format.bare)} {arguments} {rules.marker(behind)}"


def _around_text(before: str, behind: str, format: CallFormat) -> tuple[str, str]:
    """Rules for the markup around the text of a custom tool that JSON cannot hold."""
    if not format.is_object:
        return before.replace(_SAYS_JSON, ""), behind
    if not format.each:
        raise no_lark(format, "calls are items of a list")
    return before[: before.index("NAME")] + 'NAME"}\n', ""


def _written(text: str, name: str, rules: LarkRules, *, is_bare: bool) -> str:
    """An expression of a layout up to its arguments."""
    made, literal = [], ""
    for is_hole, part in layout(text).parts:
        if is_hole and part != "NAME":
            made += [rules.marker(literal), rules.terminal(_NUMBERS[part])]
            literal = ""
        else:
            literal += name if is_hole else part
    if text.startswith("{") and is_bare:  # an answer may be other JSON: both are read in the same lexemes then
        return " ".join(map(rules.marker, re.findall(r'"[^"]*"|[^"]+', literal)))
    return " ".join([*made, rules.marker(literal)])


# -- Blocks -----------------------------------------------------------------------------------------------------------


def _blocks(call: str, format: CallFormat, rules: LarkRules, parallel: bool) -> str:
    """An expression of calls and nothing else."""
    before, behind = format.inside
    start, end = rules.marker(opening(format)[0] + before), rules.marker(behind + format.end)
    if _has_own_blocks(format):
        return _several(rules.rule(f"{start} {call} {end}"), format.between, rules, parallel)
    return f"{start} {_several(call, format.between, rules, parallel)} {end}"


def _among_text(
    call: str, names: Sequence[str], format: CallFormat, rules: LarkRules, parallel: bool, structural: Sequence[str]
) -> str:
    """An expression of text in which calls may begin.

    Where nothing ends a block, text behind one would be taken for a part of it, and so none comes there.
    """
    text = free_text(format)
    passages = _passages(text, structural, rules)
    plain = f"{passages} {rules.terminal(text)}"
    start, _ = opening(format)
    if not start:
        other = rules.terminal(f"{text} & ~{begins_as_a_call(format, names)}")
        return f"{_blocks(call, format, rules, parallel)} | {other}"
    before, behind = format.inside
    begin = f"{passages} {rules.until(text, start + before, lazy=True)}"
    end = rules.marker(behind + format.end)
    if not parallel:
        return f"{plain} | {begin} {call} {end}"
    if not _has_own_blocks(format):
        return f"{plain} | {begin} {_several(call, format.between, rules, True)} {end}"
    if not format.end:
        again = rules.marker(format.between + start + before)
        return f"{plain} | {begin} {call} {end} ({again} {call} {end})*"
    return f"({begin} {call} {end})* {plain}"


def _passages(text: str, structural: Sequence[str], rules: LarkRules) -> str:
    """An expression of text that ends with a marker that says nothing, any number of times."""
    named = [marker for marker in structural if any(isinstance(part, int) for part in rules.vocabulary.split(marker))]
    if not named:
        return ""
    return f"({rules.one_of([rules.until(text, marker, lazy=True) for marker in named])})*"


def _has_own_blocks(format: CallFormat) -> bool:
    """True if each call has its own block, or its own beginning of a block."""
    return format.each or opening(format)[0] != format.start


def _several(expression: str, between: str, rules: LarkRules, several: bool) -> str:
    return f"{expression} ({rules.marker(between)} {expression})*" if several else expression


# -- Channels ---------------------------------------------------------------------------------------------------------


def _calls_in_channels(
    calls: dict[str, str], format: CallFormat, channels: Channels, rules: LarkRules, parallel: bool
) -> str:
    """An expression of the message that calls, or of several messages if the model continues after one."""
    one = rules.one_of([*calls.values()])
    if channels.named:
        return _several(one, format.between, rules, parallel and bool(format.between))
    before, behind = format.inside
    blocks = []
    for name, call in calls.items():
        start = rules.marker(channels.call.replace("NAME", name) + format.start + before)
        more = f"({rules.marker(format.between)} {one})*" if parallel else ""
        blocks.append(f"{start} {call} {more} {rules.marker(behind + format.end)}")
    return rules.one_of(blocks)


def _in_channels(
    last: str, channels: Channels, rules: LarkRules, *, preambles: bool = False, thoughts: bool = True
) -> str:
    """An expression of thoughts, and of text before other messages, and then of the last messages."""
    begins = [channels.thought if thoughts else "", channels.preamble if preambles else ""]
    begins = [text for text in begins if text]
    if not begins:
        return last
    begin = rules.one_of([rules.marker(text) for text in begins])
    return f"({begin} {rules.until(in_message(channels), channels.following)})* {last}"


# -- Parts ------------------------------------------------------------------------------------------------------------


def _as_part(source: str) -> tuple[str, dict[str, dict[str, object]]]:
    """The name of a source's first grammar, so that another may refer to it, and all of its grammars by name."""
    first, *others = json.loads(source)["grammars"]
    name = "part_" + hashlib.sha256(json.dumps(first).encode()).hexdigest()[:16]
    return name, {name: {**first, "name": name}, **{other["name"]: other for other in others}}


def _with_parts(source: str, parts: dict[str, dict[str, object]]) -> str:
    return json.dumps({"grammars": [*json.loads(source)["grammars"], *parts.values()]})
