"""Arguments with bare keys: what the Gemma models write, with strings between marks, and keywords of a Python call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...grammar.subschemas import Schema, json_type, properties_of
from ..python_literals import python_literal
from ..source import Layout, Reading, Source, UnreadableError
from ..values import dumps, dumps_without, json_or_text, schema_at, takes_text, typed_value
from .arguments import Arguments, pairs

_KEY = re.compile(r"[^\s:,{}\[\]]+")
MAX_KEY = 256
_SCALAR = re.compile(r"[^,{}\[\]]*")
_ENDS = {"{": "}", "[": "]"}
MAX_DEPTH = 100  # of brackets in a value


@dataclass(frozen=True, slots=True)
class MarkedArguments(Arguments):
    """Arguments as the Gemma models write them: bare keys, and strings between marks.

    Attributes:
        quote: the mark on both sides of a string.
        nests: objects and arrays are written the same way; otherwise they are JSON between marks.
    """

    quote: str
    nests: bool = True

    @property
    def layouts(self) -> tuple[str, ...]:
        return (self.quote,)

    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        known = schema()

        def pair() -> Reading[tuple[str, object]]:
            key = yield from _key(source, self)
            value = yield from _value(source, self, 0)
            return key, value.of(known, key) if isinstance(value, _Bare | _Marked) else value

        yield from pairs(source, "}", pair)
        yield from source.match(ends)
        return True

    def write(self, arguments: Mapping[str, object]) -> str:
        return ",".join(f"{key}:{marked_value(self, value)}" for key, value in arguments.items())


def marked_value(kind: MarkedArguments, value: object) -> str:
    """A value between marks."""
    if isinstance(value, str):
        return f"{kind.quote}{value}{kind.quote}"
    if isinstance(value, dict | list | tuple) and not kind.nests:
        return f"{kind.quote}{dumps_without(value, kind.quote)}{kind.quote}"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{marked_value(kind, item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(marked_value(kind, item) for item in value)}]"
    return dumps(value)


def _key(source: Source, kind: MarkedArguments) -> Reading[str]:
    if (yield from source.literal([kind.quote])) is not None:
        key = yield from _string(source, kind.quote)
        if (yield from source.peek()) != ":":
            raise UnreadableError("no value")
        source.at += 1
        return key
    yield from source.peek()
    key = source.take((yield from source.run(_KEY, source.at, MAX_KEY)))
    if not 0 < len(key) <= MAX_KEY or (yield from source.peek()) != ":":
        raise UnreadableError("no key")
    source.at += 1
    return key.strip("\"'")


def _string(source: Source, quote: str) -> Reading[str]:
    """The text up to a mark, which is read."""
    scanned = source.at
    while (end := source.text.find(quote, scanned)) < 0:
        scanned = source.held((quote,))
        yield from source.more()
    text = source.take(end)
    source.at += len(quote)
    return text


def _value(source: Source, kind: MarkedArguments, depth: int) -> Reading[object]:
    if depth > MAX_DEPTH:
        raise UnreadableError("nested too deeply")
    first = yield from source.peek()
    if (yield from source.literal([kind.quote])) is not None:
        text = yield from _string(source, kind.quote)
        return text if kind.nests or depth else _Marked(text)
    if first in _ENDS:
        return (yield from _nested(source, kind, depth, _ENDS[first]))
    end = yield from source.run(_SCALAR, source.at)
    if end == len(source.text):
        yield from source.more()
    text = source.take(end).strip()
    if not text:
        raise UnreadableError("no value")
    return _Bare(text)


class _Bare(str):
    """A value without marks."""

    def of(self, schema: Mapping[str, object], key: str) -> object:
        """Value that the text means: by its schema, or as JSON."""
        if key in properties_of(schema):
            return typed_value(str(self), schema, key)
        return {"None": None, "True": True, "False": False}.get(self, json_or_text(str(self)))


class _Marked(str):
    """A value between marks of a model that writes objects and arrays there, as JSON."""

    def of(self, schema: Mapping[str, object], key: str) -> object:
        """Value that the text means: one of JSON if its schema allows that, and otherwise a string."""
        value = json_or_text(str(self))
        if isinstance(value, dict | list) and schema_at(schema, key, json_type(value)) is not None:
            return value
        return str(self) if takes_text(schema, key, str(self)) else typed_value(str(self), schema, key)


def _nested(source: Source, kind: MarkedArguments, depth: int, end: str) -> Reading[object]:
    """An object or, where `end` is a square bracket, an array."""
    keys: list[str] = []
    values: list[object] = []
    source.at += 1
    while (following := (yield from source.peek())) != end:
        if following == ",":
            source.at += 1
            continue
        if end == "}":
            keys.append((yield from _key(source, kind)))
        value = yield from _value(source, kind, depth + 1)
        values.append(value.of({}, "") if isinstance(value, _Bare) else value)
    source.at += 1
    return dict(zip(keys, values, strict=True)) if end == "}" else values


# -- keywords of a Python call ---------------------------------------------------------------------------------------

_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")
_OUTSIDE = re.compile(r"[^'\"()\[\]{},]+")
_INSIDE = {quote: re.compile(rf"[^{quote}\\]+") for quote in "'\""}


@dataclass(frozen=True, slots=True)
class PythonArguments(Arguments):
    """Arguments that are keywords of a Python call; JSON's `true`, `false` and `null` are read, too."""

    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        def keyword() -> Reading[tuple[str, object]]:
            key = yield from _keyword(source)
            text = yield from _value_text(source)
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


def _keyword(source: Source) -> Reading[str]:
    key = source.take((yield from source.run(_WORD, source.at, MAX_KEY)))
    if not key or len(key) > MAX_KEY or key[0].isdigit() or (yield from source.peek()) != "=":
        raise UnreadableError("no keyword")
    source.at += 1
    return key


def _value_text(source: Source) -> Reading[str]:
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
