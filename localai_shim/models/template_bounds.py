"""Bounds of what an operation of a chat template may make: none takes gigabytes, or minutes that nothing interrupts."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

MAX_CHARACTERS = 1 << 26  # of a text: ten times what fills a context of a million tokens
MAX_WIDTH = 100_000  # that a text may be padded or indented by, as of a range of the sandbox
MAX_BITS = 4096  # of an integer
OPERATORS = frozenset({"+", "*", "**", "%"})
_WIDE = re.compile(r"\d{6,}")
_PADDED = ("batch", "center", "format", "indent", "slice", "tojson", "truncate", "wordwrap")
"""Filters whose arguments are widths."""


def operate(_: object, sign: str, left: object, right: object) -> object:
    """Result of one of `OPERATORS`.

    Raises:
        ValueError: it would be too large.
    """
    sizes = [len(each) for each in (left, right) if isinstance(each, str | list | tuple)]
    if sign == "%" and isinstance(left, str):
        _check_format(left, right if isinstance(right, tuple) else (right,))
    elif sign == "*" and sizes:
        times = right if isinstance(right, int) else left
        _check_size(sizes[0] * times if isinstance(times, int) else 0)
    elif sign == "+":
        _check_size(sum(sizes))
    elif sign in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if (bits * max(right, 1) if sign == "**" else bits + right.bit_length()) > MAX_BITS:
            raise ValueError("a number of this template is too large")
    return _SIGNS[sign](left, right)


_SIGNS: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add,
    "*": operator.mul,
    "**": operator.pow,
    "%": operator.mod,
}


def join(texts: Iterable[str]) -> str:
    """A text of its pieces, as they come."""
    found, size = [], 0
    for text in texts:
        size += len(text)
        _check_size(size)
        found.append(text)
    return "".join(found)


def check_call(function: object, arguments: Sequence[object], named: Mapping[str, object]) -> None:
    """Refuse a call of a text's method that makes too large a text."""
    function = getattr(function, "__wrapped__", function)  # the sandbox's, of `format`
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, str):
        return
    name, given = getattr(function, "__name__", ""), [*arguments, *named.values()]
    if name in ("format", "format_map"):
        _check_format(owner, given)
    elif name == "replace":
        _check_replaced(owner, *arguments[:2])
    elif name == "join" and arguments and isinstance(arguments[0], list | tuple):
        _check_joined(arguments[0], owner)
    elif name not in ("split", "rsplit", "startswith", "endswith", "find", "rfind", "count", "index"):
        _check_widths(given)


def bounded(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """A filter that refuses what would make too large a text."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def checked(*arguments: object, **named: object) -> object:
        value, *others = arguments[first:] or (None,)
        if name in _PADDED:
            _check_widths([*others, *named.values()])
        if name == "format":
            _check_format(value, others)
        elif name == "replace":
            _check_replaced(value, *others[:2])
        elif name == "join" and isinstance(value, list | tuple):
            _check_joined(value, *others[:1])
        return function(*arguments, **named)

    return checked


def _check_size(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise ValueError(f"this template makes more than {MAX_CHARACTERS:,} characters")


def _check_widths(given: Iterable[object]) -> None:
    if any(isinstance(each, int) and each > MAX_WIDTH for each in given):
        raise ValueError(f"this template pads a text by more than {MAX_WIDTH:,} characters")


def _check_format(text: object, given: Iterable[object]) -> None:
    if isinstance(text, str) and _WIDE.search(text):
        raise ValueError("this template formats a text with too large a width")
    if isinstance(text, str) and ("*" in text or "{" in text):  # widths may stand in arguments
        _check_widths(given)


def _check_replaced(text: object, old: object = "", new: object = "") -> None:
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        _check_size(text.count(old) * len(new))


def _check_joined(items: Sequence[object], between: object = "") -> None:
    _check_size(sum(len(item) for item in items if isinstance(item, str)))
    _check_size(len(items) * len(between) if isinstance(between, str) else 0)
