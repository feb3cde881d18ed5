"""Descriptions of how families of models write calls, and calls that are written so; `table.py` has the families."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from .source import layout
from .source import words_of as split
from .syntaxes.arguments import JSON, Arguments


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way of writing tool calls: blocks, in each of which a layout is repeated for every call.

    Attributes:
        name: name for users and in errors.
        call: the layout of a call, with NAME and ARGUMENTS, and INDEX (counted) or ID (generated) if the format has
            them. A layout that begins with `{` is a JSON object, whose keys may come in any order.
        arguments: how ARGUMENTS are written.
        start, end: markers around a block. Without a start, an answer may be calls from its first character on, and
            only functions that were offered are called; without an end, a block ends with its last call.
        inside: text that the model writes between these markers and the calls, such as brackets.
        between: text that the model writes between two calls, or between two blocks if each call is in a separate one.
        each: every call is in a separate block.
        openers: other markers that open a block; models that write no start may write these around the block.
        closers: other markers that close a block.
        heads: texts that begin a call if the start was omitted.
        thought: a block inside the reasoning is a block of calls, and ends the reasoning; otherwise the reasoning only
            mentions it, unless the answer ends with it.
        also: layouts of calls that the model sometimes writes, or that a newer or older form has; read, never written.
        names: a pattern of the names that the format can write.
        first_index: the first INDEX.
        signs: texts in a chat template that identify the family: all texts of any of these groups. None: its start.
        unlike: texts that no template of this family has.
        parsers: names of mlx-lm and mlx-vlm for the format, if they differ from its name here.
        channels: messages with headers that make up an answer.
        structural: markers without content, of a family that writes no reasoning.
    """

    name: str
    call: str
    arguments: Arguments = JSON
    start: str = ""
    end: str = ""
    inside: tuple[str, str] = ("", "")
    between: str = ""
    each: bool = False
    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    thought: bool = True
    also: tuple[str, ...] = ()
    names: str = r"[\w.-]+"
    first_index: int = 0
    signs: tuple[tuple[str, ...], ...] | None = field(default=None, compare=False)
    unlike: tuple[str, ...] = field(default=(), compare=False)
    parsers: tuple[str, ...] = field(default=(), compare=False)
    channels: Channels | None = field(default=None, compare=False)
    structural: tuple[str, ...] = field(default=(), compare=False)

    @property
    def starts(self) -> tuple[str, ...]:
        """All that opens a block."""
        return tuple(filter(None, (self.start, *self.openers)))

    @property
    def ends(self) -> tuple[str, ...]:
        """All that closes one."""
        return tuple(filter(None, (self.end, *self.closers)))

    @property
    def known_by(self) -> tuple[tuple[str, ...], ...]:
        """Groups of signs."""
        return tuple((start,) for start in (self.start,) if start) if self.signs is None else self.signs

    def sign_in(self, text: str) -> tuple[str, ...] | None:
        """The first group of signs that a text has; None if it has none, or is of another family."""
        if any(other in text for other in self.unlike):
            return None
        return next((signs for signs in self.known_by if all(sign in text for sign in signs)), None)

    @property
    def bare(self) -> bool:
        """A call may begin without any marker."""
        return not (self.start or self.heads)

    @property
    def is_object(self) -> bool:
        """A call is a JSON object."""
        return self.call.lstrip().startswith("{")


@dataclass(frozen=True, slots=True)
class Channels:
    """Messages with headers that make up an answer: thoughts, text for the user, and calls.

    Attributes:
        opens: markers that begin a header.
        closes: the marker that ends a header.
        ends: markers that end a message.
        thinks: a pattern found in headers of thoughts.
        calls: a pattern found in headers of calls; its group is the function's name if the header has it.
        headers: a pattern of whole headers; a header that does not match it is text.
        words: a pattern of the beginning of a header that has no end: the rest is text.
        initial: an answer begins inside a header, which the prompt opened.
        begins: beginnings of headers that no marker opens.
        thought, content: the text before a thought, and before the text for the user.
        preamble: the text before text that further messages follow.
        call: the text before a block of calls, with the NAME of its first function, if calls do not have their own
            headers in the format.
        following: text that the model writes between two messages.
        named: the header of a call names its function; otherwise the block in the message does.
    """

    opens: tuple[str, ...]
    closes: str
    ends: tuple[str, ...]
    thinks: str
    calls: str
    headers: str = r"(?s:.*)"
    words: str = r""
    initial: bool = False
    begins: tuple[str, ...] = ()
    thought: str = ""
    content: str = ""
    preamble: str = ""
    call: str = ""
    following: str = ""
    named: bool = True


_MARKS = r"[\"'>),:\s]"  # models write these between a name and its arguments, whatever their format is


@cache
def words_of(format: CallFormat) -> tuple[str, ...]:
    """The literal words of a format's markers and layouts, the longest first."""
    texts = [*format.starts, *format.ends, *format.heads, *format.inside, format.between, format.call, *format.also]
    texts += format.arguments.layouts
    literals = (part for text in texts for is_hole, part in layout(text).parts if not is_hole)
    return tuple(sorted({word for literal in literals for word in split(literal)}, key=len, reverse=True))


@cache
def closers_of(format: CallFormat) -> tuple[str, ...]:
    """The special tokens that end a call or a parameter: in no other text do they mean anything."""
    behind = [text.partition("ARGUMENTS")[2] for text in (format.call, *format.also)]
    behind += [text.partition("VALUE")[2] for text in format.arguments.layouts]
    return tuple(dict.fromkeys(text[text.index("<") :].strip() for text in behind if "|" in text or "｜" in text))


@cache
def separator_of(format: CallFormat) -> re.Pattern[str]:
    """A pattern of all that may be written between a function's name and its arguments."""
    texts = (text.partition("NAME")[2].partition("ARGUMENTS")[0] for text in (format.call, *format.also))
    parts = {part for text in texts for part in re.findall(r"<[^<>]*>|[^<\s]{2,}", text)}
    patterns = [re.escape(part).replace("INDEX", r"\d+") for part in sorted(parts, key=len, reverse=True)]
    return re.compile(f"^(?:{'|'.join([*patterns, _MARKS])})*")


Call = tuple[str, Mapping[str, object]]
"""A function's name and its arguments."""
_ID_LETTERS = 9  # of an id that a model makes up
RESULT = ("<tool_response>\n", "\n</tool_response>")
"""Around a result, for templates that do not show results."""
_TOOLS = """You can call functions. Each of these lines describes one as JSON, with a schema of its parameters:
{functions}

To call a function, answer with its name and its arguments, exactly like this:
{example}
Write this for each call, and nothing after the last one. The results come back in <tool_response> blocks. \
Where no function helps, answer in words."""


def write_calls(format: CallFormat, calls: Sequence[Call]) -> str:
    """The calls of one turn, markers included."""
    numbered = enumerate(calls, format.first_index)
    written = [_call(format, name, arguments, number) for number, (name, arguments) in numbered]
    before, behind = format.inside
    start = format.start if not format.bare else ""
    if format.each:
        return format.between.join(f"{start}{before}{call}{behind}{format.end}" for call in written)
    return f"{start}{before}{format.between.join(written)}{behind}{format.end}"


def write_tools(format: CallFormat, functions: Sequence[Mapping[str, object]]) -> str:
    """Functions, and how to call them, for a template that does not show tools."""
    lines = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    example = write_calls(format, [("function_name", {"parameter": "value"})])
    return _TOOLS.format(functions=lines, example=example)


def _call(format: CallFormat, name: str, arguments: Mapping[str, object], number: int) -> str:
    holes = {
        "NAME": name,
        "ARGUMENTS": format.arguments.write(arguments),
        "INDEX": str(number),
        "ID": str(number).rjust(_ID_LETTERS, "0"),
    }
    return layout(format.call).write(holes)
