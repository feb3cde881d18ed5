"""Text around calls: the text that opens a block of calls, and terminals of text that no reader takes for a block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...grammar.raw_text import ANY, containing, holding, regex
from ..description import CallFormat, Channels
from ..layout import around, layout
from ..markers import is_marker

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
