"""The words of a call format: what is no part of a name or an argument."""

from __future__ import annotations

import re
from functools import cache

from .description import CallFormat
from .layout import layout
from .layout import words_of as split

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
