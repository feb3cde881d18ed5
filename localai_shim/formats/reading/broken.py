"""Reads calls that break their format: the function's name, and the arguments as they were written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..description import CallFormat
from ..words import closers_of, separator_of, words_of

_JSON_NAME = re.compile(r'"(?:tool_)?name"\s*:\s*"\s*(?P<name>[^"\\\s][^"\\]*)"')
_JSON_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
# What models write before a name besides marks, numbers, and the words of their format.
_WORDS = ("tool_name", "tool", "name", "function", "functions", "call", "invoke", "index")


def broken_call(format: CallFormat, body: str, names: Sequence[str], *, cut: bool) -> tuple[str, str] | None:
    """The name of the function that a block calls, and what follows it; None where no name can be read.

    Args:
        format: how the model writes calls.
        body: what is between the markers.
        names: of the functions that were offered. Where a call breaks its format's syntax, only these count.
        cut: the block has no end: a name at its end may not be whole.
    """
    if format.is_object and (found := _JSON_NAME.search(body)) is not None:
        arguments = _JSON_ARGUMENTS.search(body)
        if arguments is not None:
            return found["name"].strip(), _without_brace(body[arguments.end() :])
        rest = "" if cut else _without_brace(body[found.end() :].lstrip(", \n"))
        return found["name"].strip(), rest if re.search(r"\w", rest) else ""
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    words = "|".join({*_WORDS, *re.findall(r"[^\W\d]\w*", " ".join(words_of(format)))})
    before = rf"^(?:\W|\d+\b|(?:{words})\b)*?"
    found = re.match(rf"{before}(?P<name>{longest_first})(?![\w-]){'(?=.)' if cut else ''}", body, re.DOTALL)
    if found is None:
        return None
    rest = separator_of(format).sub("", body[found.end() :].strip())
    for closer in closers_of(format):
        rest = rest.removesuffix(closer).rstrip()
    return found["name"], rest if re.search(r"\w", rest) else ""


def _without_brace(arguments: str) -> str:
    """Arguments without their last brace, where more braces close than open: it ends the object around them."""
    text = arguments.strip().rstrip(", \n")
    if text.count("}") > text.count("{"):
        text = text.removesuffix("]").rstrip().removesuffix("}").rstrip()
    return text
