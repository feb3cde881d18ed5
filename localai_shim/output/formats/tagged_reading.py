"""Reading arguments that are written one by one, between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import unescape

from ..arguments import takes_all_text, typed_value
from .description import Parameters
from .json_reading import json_value
from .layout import Layout, around, layout
from .source import Event, Reading, Source, UnreadableError

_CDATA = ("<![CDATA[", "]]>")


def parameters(source: Source, kind: Parameters, ends: tuple[Layout, ...], schema: Mapping[str, object]) -> Reading[bool]:
    """Emit parameters as one JSON object, up to what ends the call.

    Args:
        ends: what comes behind the last parameter, which is read, too.
        schema: of the arguments; it decides the types of values where the model does not say them.

    Returns:
        The call's end was there; otherwise its block, or the text, ends behind a parameter.

    Raises:
        UnreadableError: something else stands there.
    """
    head, behind = around(kind.layout, "VALUE")
    heads = [layout(head)]
    whole = around(kind.whole, "VALUE") if kind.whole else None
    written = "{"
    while True:
        if (yield from source.match(ends)) is not None:
            yield Event("arguments", "{}" if written == "{" else "}")
            return True
        found = yield from source.match(heads)
        if found is None:
            if whole is not None and (yield from source.match([layout(whole[0])])) is not None:
                yield Event("arguments", (yield from json_value(source)))
                yield from source.match([layout(whole[1])])
                written = ""
                continue
            if (yield from source.peek()) and source.stop.match(source.text, source.at) is None:
                raise UnreadableError("neither a parameter nor the end of the call")
            if written:
                yield Event("arguments", "{}" if written == "{" else "}")
            return False
        holes = found[1].holes
        key = unescape(holes["KEY"]) if kind.escaped else holes["KEY"]
        yield Event("arguments", f"{written}{json.dumps(key, ensure_ascii=False)}: ")
        written = ", "
        value = _Value(source, kind, behind.replace("KEY", holes["KEY"]), heads, ends)
        if _is_text(kind, holes.get("TYPE"), schema, key):
            yield from value.stream(starts_line=head.endswith("\n"))
        else:
            text = yield from value.read(starts_line=head.endswith("\n"))
            typed = _typed(kind, text, holes.get("TYPE"), schema, key)
            yield Event("arguments", dumps(typed))


def _is_text(kind: Parameters, type: str | None, schema: Mapping[str, object], key: str) -> bool:
    if kind.text_type:
        return type == kind.text_type
    return takes_all_text(schema, key)


def _typed(kind: Parameters, text: str, type: str | None, schema: Mapping[str, object], key: str) -> object:
    if kind.element is not None and text.lstrip().startswith(kind.element):
        return _elements(text, kind.element, schema, key)
    if kind.text_type:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return typed_value(text, schema, key)


class _Value:
    """A parameter's value: the text up to its end tag. One that neither a parameter nor the call's end follows is text.

    Args:
        behind: the layout behind the value.
        heads, ends: what may follow that.
    """

    def __init__(
        self, source: Source, kind: Parameters, behind: str, heads: list[Layout], ends: tuple[Layout, ...]
    ) -> None:
        self._source, self._kind = source, kind
        self._tag = behind.strip()
        self._line = behind.startswith("\n")
        self._following = (*heads, *ends)

    def read(self, *, starts_line: bool) -> Reading[str]:
        """The whole value."""
        parts: list[str] = []
        for event in self.stream(starts_line=starts_line, quoted=False):
            if event is None:
                yield None
            else:
                parts.append(event.text)
        return "".join(parts)

    def stream(self, *, starts_line: bool, quoted: bool = True) -> Reading[None]:
        """Emit the value as the inside of a JSON string, and its quotes; unquoted as it is."""
        source = self._source
        if quoted:
            yield Event("arguments", '"')
        cdata = self._kind.cdata and (yield from source.literal(_CDATA[:1])) is not None
        if starts_line and not cdata:
            while source.at == len(source.text) and not source.ended:
                yield None
            source.at += source.text.startswith("\n", source.at)
        while (end := (yield from self._next_end(cdata))) is None:
            source_end = self._certain(cdata)
            if source_end > source.at:
                text = source.take(source_end)
                yield Event("arguments", inside(text) if quoted else text)
            source.forget()
            yield from source.more()
        text = source.take(end)
        if cdata:
            yield from source.literal(_CDATA[1:])
        elif self._line:
            text = text.removesuffix("\n")
        yield Event("arguments", inside(text) + '"' if quoted else text)
        yield from source.literal([self._tag])

    def _certain(self, cdata: bool) -> int:
        """The place up to which the text is the value's, whatever follows."""
        source = self._source
        tag = _CDATA[1] if cdata else self._tag
        found = source.text.find(tag, source.at)
        end = source.held([tag]) if found < 0 else found
        if self._line and not cdata and end > source.at and source.text[end - 1] == "\n":
            end -= 1
        return end

    def _next_end(self, cdata: bool) -> Reading[int | None]:
        """The place of the end tag; None where it is not there yet."""
        source = self._source
        if cdata:
            found = source.text.find(_CDATA[1], source.at)
            return None if found < 0 else found
        at = source.at
        while (found := source.text.find(self._tag, at)) >= 0:
            behind = found + len(self._tag)
            while (follows := self._follows(behind)) is None:
                if source.ended:
                    return found
                yield None
            if follows:
                return found
            at = behind
        return None

    def _follows(self, at: int) -> bool | None:
        """A parameter, the call's end or a stop follows; None: not known yet."""
        source = self._source
        rest = source.text[at:].lstrip()
        if not rest:
            return None
        if source.stop.match(rest):
            return True
        waits = any(stop.startswith(rest) for stop in source.stops)
        for layout_ in self._following:
            found = layout_.match(source.text, at)
            if found is not None and not hasattr(found, "end"):
                waits = True
            elif found is not None:
                return True
        return None if waits else False


def _elements(text: str, element: str, schema: Mapping[str, object], key: str) -> object:
    """An object or an array that is written as elements."""
    names = re.compile(rf"\s*{re.escape(element)}<(\w[\w.-]*)>")
    properties = schema.get("properties")
    inner = properties.get(key, {}) if isinstance(properties, Mapping) else {}
    inner = inner if isinstance(inner, Mapping) else {}
    found: list[tuple[str, str]] = []
    at = 0
    while (head := names.match(text, at)) is not None:
        end = _element_end(text, head.end(), element, head[1])
        if end is None:
            break
        found.append((head[1], text[head.end() : end]))
        at = end + len(f"{element}</{head[1]}>")
    if text[at:].strip():
        return text
    items = inner.get("items")
    if inner.get("type") == "array" or (inner.get("type") != "object" and {name for name, _ in found} == {"item"}):
        each = {"properties": {"item": items if isinstance(items, Mapping) else {}}}
        return [_element(value, element, each, "item") for _, value in found]
    return {name: _element(value, element, inner, name) for name, value in found}


def _element_end(text: str, at: int, element: str, name: str) -> int | None:
    """The place of the end tag of an element, in which others of its name may stand."""
    tags = re.compile(rf"{re.escape(element)}<(/?){re.escape(name)}>")
    depth = 1
    for tag in tags.finditer(text, at):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.start()
    return None


def _element(text: str, element: str, schema: Mapping[str, object], key: str) -> object:
    if text.lstrip().startswith(f"{element}<"):
        return _elements(text, element, schema, key)
    return typed_value(text, schema, key)


def inside(text: str) -> str:
    """The inside of a JSON string; lone surrogates, which no encoding has, are escaped."""
    return dumps(text)[1:-1]


def dumps(value: object) -> str:
    """JSON, with characters as they are but for lone surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
