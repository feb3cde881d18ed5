"""Reading arguments as the Gemma models write them: `{key:value,...}`, with bare keys and strings between marks."""

from __future__ import annotations

import json
import re

from .description import MarkedArguments
from .source import Event, Reading, Source, UnreadableError
from .tagged_reading import dumps

_KEY = re.compile(r"\s*([^\s:,{}\[\]]+)\s*:")
_SCALAR = re.compile(r"[^,{}\[\]]*")
MAX_DEPTH = 100


def marked_arguments(source: Source, kind: MarkedArguments) -> Reading[None]:
    """Emit arguments as one JSON object, up to its brace.

    Raises:
        UnreadableError: something else stands there.
    """
    written = "{"
    while (yield from source.peek()) != "}":
        if source.text.startswith(",", source.at) and written != "{":
            source.at += 1
            continue
        key = yield from _key(source, kind)
        value = yield from _value(source, kind, 0)
        yield Event("arguments", f"{written}{json.dumps(key, ensure_ascii=False)}: {dumps(value)}")
        written = ", "
        source.forget()
    yield Event("arguments", "{}" if written == "{" else "}")


def _key(source: Source, kind: MarkedArguments) -> Reading[str]:
    if (yield from source.literal([kind.quote])) is not None:
        key = yield from _string(source, kind.quote)
        if (yield from source.peek()) != ":":
            raise UnreadableError("no value")
        source.at += 1
        return key
    while (found := _KEY.match(source.text, source.at)) is None:
        if not re.fullmatch(r"\s*[^\s:,{}\[\]]*\s*", source.rest):
            raise UnreadableError("no key")
        yield from source.more()
    source.at = found.end()
    return found[1].strip("\"'")


def _string(source: Source, quote: str) -> Reading[str]:
    """The text up to a mark, which is read."""
    while (end := source.text.find(quote, source.at)) < 0:
        yield from source.more()
    text = source.take(end)
    source.at += len(quote)
    return text


def _value(source: Source, kind: MarkedArguments, depth: int) -> Reading[object]:
    if depth > MAX_DEPTH:
        raise UnreadableError("nested too deeply")
    first = yield from source.peek()
    if (yield from source.literal([kind.quote])) is not None:
        return (yield from _string(source, kind.quote))
    if first == "{" and kind.nests:
        return (yield from _object(source, kind, depth))
    if first == "[" and kind.nests:
        return (yield from _array(source, kind, depth))
    while (found := _SCALAR.match(source.text, source.at)) is not None and found.end() == len(source.text):
        yield from source.more()
    assert found is not None
    text = source.take(found.end()).strip()
    if not text:
        raise UnreadableError("no value")
    try:
        value: object = json.loads(text)
    except ValueError:
        value = {"None": None, "True": True, "False": False}.get(text, text)
    return value


def _object(source: Source, kind: MarkedArguments, depth: int) -> Reading[object]:
    made: dict[str, object] = {}
    source.at += 1
    while (following := (yield from source.peek())) != "}":
        if following == ",":
            source.at += 1
            continue
        key = yield from _key(source, kind)
        made[key] = yield from _value(source, kind, depth + 1)
    source.at += 1
    return made


def _array(source: Source, kind: MarkedArguments, depth: int) -> Reading[object]:
    made: list[object] = []
    source.at += 1
    while (following := (yield from source.peek())) != "]":
        if following == ",":
            source.at += 1
            continue
        made.append((yield from _value(source, kind, depth + 1)))
    source.at += 1
    return made
