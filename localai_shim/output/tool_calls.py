"""Tool calls from what a model writes between its markers: deltas while it writes, upstream's parser at the end.

A block that upstream's parser cannot read is a call nevertheless where its function's name can be read: its arguments
are delivered as they stand, as OpenAI does, so that whoever runs the tool can tell the model what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..types import Json
from .arguments import json_or_text, typed_arguments
from .broken_calls import broken_call, left_over
from .call_stream import CallStream, make_stream
from .markup import ToolFormat


@dataclass(slots=True)
class CallDelta:
    """What one token added to a call.

    Arguments concatenate to a JSON object, or to what the model wrote in its place; a custom tool's are its input.
    """

    index: int
    arguments: str = ""
    name: str | None = None
    """Set in a call's first delta."""
    custom: bool = False


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """Text that was marked as a call and cannot be read as one."""

    text: str
    """All of it, markers included."""
    error: str


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request.

    Attributes:
        functions: as chat templates and parsers read them; a custom tool is a function of one string, `input`.
        custom: names of the custom tools among them.
    """

    functions: Sequence[Json] = ()
    custom: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        """What may be called."""
        return [tool["function"]["name"] for tool in self.functions]

    def parameters(self, name: str) -> Mapping[str, object]:
        """A function's JSON schema, or {}."""
        schemas = (tool["function"].get("parameters") for tool in self.functions if tool["function"]["name"] == name)
        return next(schemas, None) or {}


def _unreadable(body: str, tools: Sequence[Mapping[str, object]] | None) -> object:
    raise ValueError("the model's tool-call format is not known")


_UNKNOWN = ToolFormat("unknown", "", "", _unreadable)


class CallParser:
    """The calls of one answer.

    Args:
        format: how the model writes them; None: in no way that is known, and every call is invalid.
        tools: what it may call; without any, every call is invalid.
    """

    def __init__(self, format: ToolFormat | None, tools: OfferedTools) -> None:
        self._format, self._tools = format or _UNKNOWN, tools
        self._emitted: list[_Emitted] = []
        self._first = 0  # index of the block's first call
        self._marker = ""
        self._parts: list[str] = []
        self._stream: CallStream | None = None

    @property
    def calls(self) -> int:
        """How many calls there are so far."""
        return len(self._emitted)

    def open(self, marker: str) -> None:
        """A block begins."""
        self._marker, self._parts, self._first = marker, [], len(self._emitted)
        self._stream = make_stream(self._format, self._parse) if self._tools.functions else None

    def feed(self, text: str) -> list[CallDelta]:
        """Take more of the block."""
        self._parts.append(text)
        if self._stream is None:
            return []
        return [d for fragment in self._stream.feed(text) for d in self._emit(*fragment)]

    def close(self, marker: str, *, cut: bool) -> tuple[list[CallDelta], InvalidCall | None]:
        """The block ends.

        Args:
            marker: what ended it.
            cut: no end came, and the answer is at its limit: what looks complete may not be.

        Returns:
            What was not emitted yet of its calls, and what of its text belongs to none of them.
        """
        body = "".join(self._parts)
        try:
            calls = self._finished(body, cut)
        except Exception as error:  # upstream's parsers raise what they like
            return self._as_they_stand(body, marker, str(error) or repr(error), cut)
        rest = "" if self._format.end or self._stream is None else self._stream.rest.strip()
        behind = InvalidCall(rest, "text behind a call, for which this format has no end marker") if rest else None
        return [d for place, call in enumerate(calls) for d in self._emit_rest(place, *call)], behind

    # -----------------------------------------------------------------------------------------------------------

    def _finished(self, body: str, cut: bool) -> list[tuple[str, str]]:
        """The calls of a block, as (name, arguments or input). Raises where it cannot be read as calls."""
        if not self._tools.functions:
            raise ValueError("no tools were offered")
        raw = self._raw_custom(body)
        if raw is not None:
            return [raw]
        if cut and self._format.style not in ("json", "header"):
            raise ValueError("the answer reached its limit before the call was complete")
        calls = self._parse(body)
        if not calls:
            raise ValueError("no call was found in this text")
        if not all(self._accepts(name) for name, _ in calls):
            raise ValueError("it calls a function that was not offered")
        emitted = self._emitted[self._first :]
        if len(emitted) > len(calls):
            raise ValueError("fewer calls were found than were streamed already")
        for place, (name, arguments) in enumerate(calls):
            if place < len(emitted) and not emitted[place].leads_to(name, arguments):
                raise ValueError("the complete call contradicts what was streamed of it")
        return calls

    def _as_they_stand(self, body: str, marker: str, why: str, cut: bool) -> tuple[list[CallDelta], InvalidCall | None]:
        """The calls of a block that cannot be parsed, as they were written."""
        names = self._tools.names
        place, text = len(self._emitted) - self._first, self._marker + body + marker
        if place:  # what was emitted stands, and is a call
            body = text = "" if self._stream is None else left_over(body[self._stream.end :])
        found = broken_call(self._format, body, names, cut=cut) if names else None
        if found is not None and self._accepts(found[0]):
            name, arguments = found
            none = "" if cut or name in self._tools.custom else "{}"
            return self._emit_rest(place, name, arguments or none), None
        return [], InvalidCall(text, why) if text else None

    def _parse(self, body: str) -> list[tuple[str, str]]:
        """The calls as upstream's parser reads them: (name, arguments as JSON)."""
        functions = list(self._tools.functions)
        if not self._format.untyped:
            return [self._normalised(call) for call in _listed(self._format.parse(body, functions))]
        written = _listed(self._format.parse(body, None))
        try:
            read = [call["arguments"] for call in _listed(self._format.parse(body, functions))]
        except (ValueError, OverflowError):
            try:
                return [self._normalised(call, {}) for call in written]
            except KeyError:  # a value that is not what the schema wants: whoever runs the tool says so
                return [self._normalised(call, typed=False) for call in written]
        return [self._normalised(call, other) for call, other in zip(written, read, strict=True)]

    def _normalised(
        self, call: Mapping[str, object], read: Mapping[str, object] | None = None, *, typed: bool = True
    ) -> tuple[str, str]:
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        name = function.get("name", function.get("tool_name"))
        if not isinstance(name, str) or not name.strip():
            raise ValueError("the call has no name")
        name = name.strip()
        arguments = function.get("arguments", function.get("parameters"))
        if isinstance(arguments, str) and arguments:
            loaded = json_or_text(arguments)
            arguments = loaded if isinstance(loaded, dict) else arguments
            if not isinstance(arguments, dict):
                return name, arguments
        arguments = {} if arguments is None or arguments == "" else arguments
        if not isinstance(arguments, dict):
            return name, _dumps(arguments)
        if typed and self._format.style not in ("json", "header"):
            arguments = typed_arguments(arguments, self._tools.parameters(name), read)
        if name in self._tools.custom and isinstance(text := arguments.get("input"), str):
            return name, text
        return name, _dumps(arguments)

    def _raw_custom(self, body: str) -> tuple[str, str] | None:
        """A custom tool's input that a grammar made the model write as it is, behind a header."""
        for name in self._tools.custom:
            header = f'\n{{"name": {json.dumps(name)}}}\n'
            if body.startswith(header):
                return name, body.removeprefix(header).removesuffix("\n")
            for header in (f"{name}[ARGS]", f"functions.{name}<|message|>"):
                text = body.removeprefix(header)
                if text != body and not _is_input(json_or_text(text)):
                    return name, text
        return None

    def _accepts(self, name: str) -> bool:
        return not self._format.lenient or name in self._tools.names

    def _emit(self, place: int, name: str, fragment: str) -> list[CallDelta]:
        """More of the block's call at this place. Custom tools' input is emitted when it is complete."""
        index = self._first + place
        if index > len(self._emitted) or name in self._tools.custom or not self._accepts(name):
            return []
        delta = CallDelta(index, fragment)
        if index == len(self._emitted):
            self._emitted.append(_Emitted(name))
            delta.name = name
        self._emitted[index].parts.append(fragment)
        return [delta] if fragment or delta.name else []

    def _emit_rest(self, place: int, name: str, arguments: str) -> list[CallDelta]:
        """What was not emitted yet of a complete call."""
        index = self._first + place
        if index == len(self._emitted):
            self._emitted.append(_Emitted(name, [arguments]))
            return [CallDelta(index, arguments, name, custom=name in self._tools.custom)]
        emitted = "".join(self._emitted[index].parts)
        rest = arguments[len(emitted) :] if arguments.startswith(emitted) else ""
        self._emitted[index].parts.append(rest)
        return [CallDelta(index, rest)] if rest else []


@dataclass(slots=True)
class _Emitted:
    """A call as far as it was emitted."""

    name: str
    parts: list[str] = field(default_factory=list[str])

    def leads_to(self, name: str, arguments: str) -> bool:
        """Whether what was emitted is the beginning of this, or the same JSON value."""
        emitted = "".join(self.parts)
        return name == self.name and (arguments.startswith(emitted) or json_or_text(emitted) == json_or_text(arguments))


def _listed(parsed: Any) -> list[Json]:
    return parsed if isinstance(parsed, list) else [parsed]


def _is_input(value: object) -> bool:
    """The arguments of a custom tool that was called as a function."""
    return isinstance(value, dict) and list(value) == ["input"] and isinstance(value["input"], str)


def _dumps(value: object) -> str:
    """JSON, with characters as they are but for lone surrogates, which no encoding has."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _encodes(text) else json.dumps(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
