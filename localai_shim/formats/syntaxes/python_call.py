"""Arguments that are keywords of a Python call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...grammar.subschemas import Schema
from ..layout import Layout
from ..python_literals import python_literal
from ..source import Reading, Source, UnreadableError
from ..values import dumps
from .arguments import Arguments, pairs

_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")
_OUTSIDE = re.compile(r"[^'\"()\[\]{},]+")
_INSIDE = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}
MAX_KEY = 256
MAX_DEPTH = 100  # of brackets in a value


@dataclass(frozen=True, slots=True)
class PythonArguments(Arguments):
    """Arguments that are keywords of a Python call; JSON's `true`, `false` and `null` are read, too."""

    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        def keyword() -> Reading[tuple[str, object]]:
            key = yield from _key(source)
            text = yield from _value(source)
            return key, _literal(text)

        yield from pairs(source, ")", keyword)
        yield from source.match(ends)
        return True

    def write(self, arguments: Mapping[str, object]) -> str:
        return ", ".join(f"{key}={python_value(value)}" for key, value in arguments.items())


def python_value(value: object) -> str:
    """A Python literal. Its strings are as in JSON, which Python reads alike."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{dumps(str(key))}: {python_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(python_value, value))}]"
    return dumps(value) if isinstance(value, str) else repr(value)


def _key(source: Source) -> Reading[str]:
    key = source.take((yield from source.run(_WORD, source.at, MAX_KEY)))
    if not key or len(key) > MAX_KEY or key[0].isdigit() or (yield from source.peek()) != "=":
        raise UnreadableError("no keyword")
    source.at += 1
    return key


def _value(source: Source) -> Reading[str]:
    """The text of a value, up to the comma or bracket behind it."""
    at, depth = source.at, 0
    while True:
        at = yield from source.run(_OUTSIDE, at)
        if at == len(source.text):
            yield from source.more()
        elif (char := source.text[at]) in "'\"":
            at = yield from _string_end(source, at)
        elif depth == 0 and char in ",)":
            return source.take(at)
        else:
            depth += (char in "([{") - (char in ")]}")
            if not 0 <= depth <= MAX_DEPTH:
                raise UnreadableError("brackets that do not match")
            at += 1


def _string_end(source: Source, at: int) -> Reading[int]:
    """The place behind the string that begins here."""
    quote = source.text[at]
    while len(source.text) - at < 3 and not source.ended:
        yield None
    mark = quote * 3 if source.text.startswith(quote * 3, at) else quote
    at += len(mark)
    while True:
        if at < len(source.text):
            at = yield from source.run(_INSIDE[quote], at)
        if at >= len(source.text):
            yield from source.more()
        elif source.text[at] == "\\":
            at += 2
        elif not source.text.startswith(mark, at):
            if len(source.text) - at < len(mark) and not source.ended:
                yield None
            else:
                at += 1
        elif (yield from _closes(source, at + len(mark))):
            return at + len(mark)
        else:
            at += 1


def _closes(source: Source, at: int) -> Reading[bool]:
    """A quote in front of this place ends its string: models write quotes in quotes."""
    at = yield from source.run(_SPACE, at)
    return at == len(source.text) or source.text[at] in ",)]}:'\""


def _literal(text: str) -> object:
    """The value of a Python literal, in which JSON's names may be.

    Raises:
        UnreadableError: it is none.
    """
    text = text.strip()
    try:
        return python_literal(text)
    except ValueError:
        pass
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":  # with quotes of its own kind in it
        return text[1:-1]
    raise UnreadableError("no literal")
