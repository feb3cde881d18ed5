"""Arguments that are written one by one, between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

from ...grammar.subschemas import Schema, json_type, properties_of
from ..source import Event, Layout, Match, Partial, Reading, Source, UnreadableError, around, layout, skip_space
from ..values import (
    dumps,
    inner_schema,
    items_of,
    json_or_text,
    schema_at,
    takes_all_text,
    takes_text,
    typed_value,
)
from .arguments import Arguments, json_value

_WRAPPERS = ("arguments", "input")  # of which models make one parameter that holds all


CDATA = ("<![CDATA[", "]]>")
"""Around a value that holds marks."""


@dataclass(frozen=True, slots=True)
class Parameters(Arguments):
    """Arguments that are written one by one, between tags.

    Attributes:
        layout: of one argument, with KEY and VALUE (and TYPE if the model names a value's type). A newline at either
            side of VALUE is markup; all other whitespace there belongs to the value.
        text_type: TYPE of a value that is text, and so not JSON; empty if the schema decides.
        other_type: TYPE of all other values; empty if it is JSON's name of their type.
        escaped: keys are escaped as in XML.
        cdata: a value may be in `<![CDATA[...]]>`.
        element: text before each tag if objects and arrays are written as nested elements.
        also: layouts of one argument that the model sometimes writes, without TYPE; the schema decides then.
        whole: a layout with VALUE for all arguments together as JSON, which the model sometimes writes.
    """

    layout: str
    text_type: str = ""
    other_type: str = ""
    escaped: bool = False
    cdata: bool = False
    element: str | None = None
    also: tuple[str, ...] = ()
    whole: str = ""
    begins = "<"

    def type_name(self, type: str) -> str:
        """Name that the model has for a JSON type; empty where it names none."""
        if type == "string" or not self.text_type:
            return self.text_type
        return self.other_type or type.replace("integer", "number")

    @property
    def layouts(self) -> tuple[str, ...]:
        return (self.layout, *self.also, self.whole)

    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        known = schema()
        head, behind = around(self.layout, "VALUE")
        heads = [layout(around(text, "VALUE")[0]) for text in (self.layout, *self.also)]
        awaited = set(properties_of(known))
        whole = around(self.whole, "VALUE") if self.whole else None
        written = "{"
        while True:
            yield from source.peek()
            if (yield from source.match(ends)) is not None:
                if written:
                    yield Event("arguments", "{}" if written == "{" else "}")
                return True
            found = yield from source.match(heads)
            if found is None:
                if whole is not None and (yield from source.match([layout(whole[0])])) is not None:
                    yield Event("arguments", (yield from json_value(source)))
                    yield from source.match([layout(whole[1])])
                    written = ""
                    continue
                if not (yield from source.stops_here()):
                    raise UnreadableError("neither a parameter nor the end of the call")
                is_cut = source.cut and source.at == len(source.text)  # more parameters would have come
                if written and not is_cut:
                    yield Event("arguments", "{}" if written == "{" else "}")
                return not is_cut
            holes = found[1].holes
            key = unescape(holes["KEY"]) if self.escaped else holes["KEY"]
            value = _Value(source, self, behind.replace("KEY", holes["KEY"]), heads, ends, awaited)
            if written == "{" and key in _WRAPPERS and awaited and key not in awaited:
                text = yield from value.read(starts_line=head.endswith("\n"))
                inner = json_or_text(text)
                yield Event("arguments", text if isinstance(inner, dict) else dumps({key: text})[:-1])
                written = "" if isinstance(inner, dict) else ", "
                continue
            yield Event("arguments", f"{written}{json.dumps(key, ensure_ascii=False)}: ")
            written = ", "
            awaited.discard(key)
            if _is_text(self, holes.get("TYPE"), known, key):
                yield from value.stream(starts_line=head.endswith("\n"))
            else:
                text = yield from value.read(starts_line=head.endswith("\n"))
                typed = _typed(self, text, holes.get("TYPE"), known, key)
                yield Event("arguments", dumps(typed))

    def write(self, arguments: Mapping[str, object]) -> str:
        return "".join(_parameter(self, key, value) for key, value in arguments.items())


def _parameter(kind: Parameters, key: str, value: object) -> str:
    type = kind.type_name(json_type(value))
    holes = {"KEY": escape(key) if kind.escaped else key, "VALUE": _written(kind, value), "TYPE": type}
    return layout(kind.layout).write(holes)


def _written(kind: Parameters, value: object) -> str:
    if kind.element is not None and isinstance(value, dict):
        return "".join(_written_element(kind.element, str(key), item) for key, item in value.items())
    if kind.element is not None and isinstance(value, list | tuple):
        return "".join(_written_element(kind.element, "item", item) for item in value)
    text = value if isinstance(value, str) else dumps(value)
    return text.join(CDATA) if kind.cdata and re.search(r"[<&\s]", text) else text


def _written_element(mark: str, key: str, value: object) -> str:
    inner = _written(Parameters("", element=mark), value)
    return f"{mark}<{key}>{inner}{mark}</{key}>"


def _is_text(kind: Parameters, type: str | None, schema: Mapping[str, object], key: str) -> bool:
    return takes_all_text(schema, key) and (
        not kind.text_type or type in (None, kind.text_type) or key in properties_of(schema)
    )


def _typed(kind: Parameters, text: str, type: str | None, schema: Mapping[str, object], key: str) -> object:
    if kind.element is not None:
        return _element(text, kind.element, schema, key)
    if kind.text_type and type is not None and key not in properties_of(schema):
        return text if type == kind.text_type else json_or_text(text)
    if kind.text_type and type == kind.text_type and takes_text(schema, key, text):
        return text
    if kind.text_type and type is not None and type != kind.text_type and not takes_all_text(schema, key):
        value = json_or_text(text)
        return value if not isinstance(value, str | float) else typed_value(text, schema, key)
    return typed_value(text, schema, key)


class _Value:
    """A parameter's value: the text up to its end tag. One that neither a parameter nor the call's end follows is text.

    Args:
        behind: the layout behind the value.
        heads, ends: what may follow that.
        awaited: parameters that did not come yet.
    """

    def __init__(
        self,
        source: Source,
        kind: Parameters,
        behind: str,
        heads: Sequence[Layout],
        ends: Sequence[Layout],
        awaited: Collection[object],
    ) -> None:
        self._source, self._kind = source, kind
        self._tag = behind.strip()
        self._behind = None if kind.element is not None else layout(behind)
        self._line = behind.startswith("\n")
        self._heads, self._ends, self._awaited = heads, ends, awaited
        self._past = source.at  # no end stands before this place
        self._opening = "" if kind.element is None else self._tag.replace("</", "<", 1)
        self._depth = 0  # of elements of this name in the value
        words = {each.steps[0][1] for each in (*heads, *ends)}
        self._candidates = (self._tag if self._behind is None else self._behind.steps[0][1], *sorted(words))
        self._gap = (0, 0)  # where whitespace was skipped last, and up to where
        self._pattern = re.compile("|".join(map(re.escape, self._candidates)))

    def read(self, *, starts_line: bool) -> Reading[str]:
        """The whole value."""
        parts: list[str] = []
        try:
            for event in self.stream(starts_line=starts_line, quoted=False):
                if event is None:
                    yield None
                else:
                    parts.append(event.text)
        except UnreadableError as error:
            raise UnreadableError(str(error), "".join(parts)) from error
        return "".join(parts)

    def stream(self, *, starts_line: bool, quoted: bool = True) -> Reading[None]:
        """Emit the value as the inside of a JSON string, and its quotes; unquoted as it is."""
        source = self._source
        if quoted:
            yield Event("arguments", '"')
        cdata = self._kind.cdata and (yield from source.literal(CDATA[:1])) is not None
        if starts_line and not cdata:
            while source.at == len(source.text) and not source.ended:
                yield None
            source.at += source.text.startswith("\n", source.at)
        while (end := (yield from self._next_end(cdata))) is None:
            source_end = self._certain(cdata)
            if source_end > source.at:
                text = source.take(source_end)
                yield Event("arguments", inside(text) if quoted else text)
            self._past, self._gap = max(self._past, source.at) - source.at, (0, 0)
            source.forget()
            yield from source.more()
        text = source.take(end)
        if cdata:
            yield from source.literal(CDATA[1:])
        elif self._line:
            text = text.removesuffix("\n")
        yield Event("arguments", inside(text) + '"' if quoted else text)
        yield from source.literal([self._tag]) if self._behind is None else source.match([self._behind])

    def _certain(self, cdata: bool) -> int:
        """The place up to which the text is the value's, whatever follows."""
        source = self._source
        candidates = CDATA[1:] if cdata else self._candidates
        end = source.held(candidates)
        for text in candidates:
            found = source.text.find(text, max(source.at, self._past), end)
            end = end if found < 0 else found
        if self._line and not cdata and end > source.at and source.text[end - 1] == "\n":
            end -= 1
        return end

    def _next_end(self, cdata: bool) -> Reading[int | None]:
        """The place of the value's end; None where it is not there yet."""
        source = self._source
        if cdata:
            found = source.text.find(CDATA[1], source.at)
            return None if found < 0 else found
        self._past = max(self._past, source.at)
        while (candidate := self._pattern.search(source.text, self._past)) is not None:
            while (ends := self._ends_at(candidate.start())) is None:
                if source.ended:
                    return candidate.start()
                yield None
            if ends:
                return candidate.start()
            if self._opening:
                step = source.text.startswith(self._opening, candidate.start())
                self._depth = max(0, self._depth + step - source.text.startswith(self._tag, candidate.start()))
            self._past = candidate.end()
        return None

    def _ends_at(self, start: int) -> bool | None:
        """The value ends there: with its tag or, where that was left away, with a parameter or the call's end."""
        source = self._source
        if self._behind is not None:
            behind = self._behind.match(source.text, start)
            if isinstance(behind, Match):
                return self._follows(behind.end, (*self._heads, *self._ends))
            if behind is not None:
                return None
        elif source.text.startswith(self._tag, start):
            return not self._depth and self._follows(start + len(self._tag), (*self._heads, *self._ends))
        elif self._tag.startswith(source.text[start : start + len(self._tag)]):
            return None
        for head in self._heads:
            found = head.match(source.text, start)
            if isinstance(found, Match) and self._opening:
                return False  # an element of the value
            if found is not None:
                return None if isinstance(found, Partial) else found.holes["KEY"] in self._awaited
        for tail in self._ends:
            found = tail.match(source.text, start)
            if found is not None:
                return None if isinstance(found, Partial) else self._follows(found.end, ())
        return False

    def _follows(self, at: int, layouts: Sequence[Layout]) -> bool | None:
        """A stop follows, or one of these; None: not known yet."""
        source = self._source
        begins, end = self._gap
        end = skip_space(source.text, end if begins == at else at)
        self._gap = at, end
        if end == len(source.text):
            return None
        if source.stop.pattern.match(source.text, end):
            return True
        waits = source.stop.may_go_on(source.text, end)
        for each in layouts:
            found = each.match(source.text, end)
            if isinstance(found, Match):
                return True
            waits = waits or found is not None
        return None if waits else False


def _elements(text: str, element: str, schema: Mapping[str, object], key: str) -> object:
    """An object or an array that is written as elements."""
    names = re.compile(rf"\s*{re.escape(element)}<(\w[\w.-]*)>")
    inner = inner_schema(schema, key)
    if not text.strip():
        return [] if inner.get("type") == "array" else {}
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
    if inner.get("type") == "array" or (inner.get("type") != "object" and {name for name, _ in found} == {"item"}):
        return [
            _element(value, element, {**inner, "properties": {"item": item}}, "item")
            for (_, value), item in zip(found, items_of(inner), strict=False)
        ]
    made: dict[str, object] = {}
    for name, value in found:
        one = _element(value, element, inner, name)
        if name in made and schema_at(inner, name, "array") is not None:  # an array without items' tags
            before = made[name]
            made[name] = [*before, one] if isinstance(before, list) else [before, one]
        else:
            made[name] = one
    return made


def _element_end(text: str, at: int, element: str, name: str) -> int | None:
    """The place of the end tag of an element, which may contain other elements of its name."""
    tags = re.compile(rf"{re.escape(element)}<(/?){re.escape(name)}>")
    depth = 1
    for tag in tags.finditer(text, at):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.start()
    return None


def _element(text: str, element: str, schema: Mapping[str, object], key: str) -> object:
    inner = schema_at(schema, key, "object", "array")
    if inner is not None and (text.lstrip().startswith(f"{element}<") or (not text and "type" in inner)):
        return _elements(text, element, schema, key)
    return typed_value(text, schema, key)


def inside(text: str) -> str:
    """The inside of a JSON string; lone surrogates, which no encoding has, are escaped."""
    return dumps(text)[1:-1]
