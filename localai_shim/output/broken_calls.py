"""Reads calls that upstream's parser refuses: the function's name, and the arguments as they were written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .markup import ToolFormat

_JSON_NAME = re.compile(r'"(?:tool_)?name"\s*:\s*"(?P<name>[^"\\]*[^"\\\s][^"\\]*)"')
_JSON_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
# What formats write before a name: marks, numbers, and the words of their syntax.
_SYNTAX = r"^(?:\W|\d+\b|(?:tool_name|tool|name|functions?|call|invoke|atem|open|minimax|index)\b)*?"
_CLOSERS = re.compile(r"(?:[\s}\]]|<\|\w+\|>)*")


def broken_call(format: ToolFormat, body: str, names: Sequence[str], *, cut: bool) -> tuple[str, str] | None:
    """The name of the function that a block calls, and what follows it; None where no name can be read.

    Args:
        format: how the model writes calls.
        body: what is between the markers.
        names: of the functions that were offered. Where a call breaks its format's syntax, only these count.
        cut: the block has no end: a name at its end may not be whole.
    """
    if format.style == "json" and (found := _JSON_NAME.search(body)) is not None:
        arguments = _JSON_ARGUMENTS.search(body)
        return found["name"].strip(), "" if arguments is None else _without_brace(body[arguments.end() :])
    if format.header is not None:
        found = re.search(format.header.pattern.removesuffix(r"(?=\{)"), body)
        if found is not None:
            return found["name"], body[found.end() :].strip()
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    found = re.match(rf"{_SYNTAX}(?P<name>{longest_first})(?![\w-]){'(?=.)' if cut else ''}", body, re.DOTALL)
    if found is None:
        return None
    rest = body[found.end() :].strip().removesuffix(format.suffix).lstrip("\"'>),: \n")
    return found["name"], rest if re.search(r"\w", rest) else ""


def left_over(text: str) -> str:
    """What of the text behind a call is none of the call's own: neither the end of its object nor more of its keys."""
    closers = _CLOSERS.match(text)
    assert closers is not None
    rest = text[closers.end() :].lstrip(",").strip()
    return rest if "}" in closers.group() or not text.lstrip().startswith(",") else ""


def _without_brace(arguments: str) -> str:
    """Arguments without their last brace, where more braces close than open: it ends the object around them."""
    text = arguments.strip()
    if text.count("}") > text.count("{"):
        text = text.removesuffix("]").rstrip().removesuffix("}").rstrip()
    return text
