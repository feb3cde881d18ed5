"""What is certain of a call before it is complete.

A stream reads one block of calls piece by piece and emits (place in the block, name, more of the arguments' JSON). What
was emitted is never taken back; whether it all was a call is decided by upstream's parser when the block is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol

from .markup import ToolFormat

Fragment = tuple[int, str, str]
Parse = Callable[[str], list[tuple[str, str]]]


class CallStream(Protocol):
    """One block of calls."""

    def feed(self, text: str) -> list[Fragment]: ...

    @property
    def rest(self) -> str:
        """What was read since the last complete call, where that is known."""
        ...

    @property
    def end(self) -> int:
        """Where in the block the last arguments end; its length, where that is not known."""
        ...


def make_stream(format: ToolFormat, parse: Parse) -> CallStream | None:
    """The stream for a format; None where nothing is certain before the end.

    Args:
        parse: a whole block -> (name, arguments as JSON) of each call.
    """
    if format.style == "json":
        return _JsonStream(None)
    if format.style == "header":
        return _JsonStream(format.header)
    if format.style == "closed":
        return _ClosedStream(format, parse)
    return None


_decode = json.JSONDecoder().raw_decode
_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_OBJECT = re.compile(r"[\s,]*\[?\s*\{")
_SPACE = re.compile(r"[\s,]*")
# What may stand between the arguments and the next call of an array: other keys with plain values, and the brace.
_NEXT = re.compile(r'(?:\s*,\s*"[^"]*"\s*:\s*(?:"[^"]*"|[\w.+-]+))*\s*\}\s*,\s*(?=\{)')


class _JsonStream:
    """Arguments that are written as JSON are passed on as they are written.

    Args:
        header: finds where a call's arguments begin; None: a call is an object with its name and arguments, or an
            array of such objects follows the start (Mistral writes both forms).
    """

    def __init__(self, header: re.Pattern[str] | None) -> None:
        self._header = header
        self._head = ""  # what was read since the last arguments ended
        self._value: _ValueEnd | None = None
        self._name = ""
        self._place = -1
        self._between = False  # two calls of an array
        self._given_up = False
        self._length = self._end = 0

    @property
    def rest(self) -> str:
        is_known = self._header is not None and self._value is None and self._place >= 0
        return self._head if is_known else ""

    @property
    def end(self) -> int:
        return self._end if self._value is None else self._length

    def feed(self, text: str) -> list[Fragment]:
        self._length += len(text)
        out: list[Fragment] = []
        while text and not self._given_up:
            if self._value is None:
                self._head += text
                text = self._find_arguments()
                if self._value is not None:
                    out.append((self._place, self._name, ""))
                continue
            end = self._value.feed(text)
            out.append((self._place, self._name, text if end is None else text[:end]))
            if end is None:
                break
            self._value, self._head, self._between, text = None, "", True, text[end:]
            self._end = self._length - len(text)
        return out

    def _find_arguments(self) -> str:
        """Begin a call's arguments if the head is complete; returns what follows it."""
        head = self._head
        if self._place < 0 and head.lstrip().startswith("["):
            self._header = None
        if self._header is not None:
            match = self._header.search(head)
            return self._begin(match.group("name"), match.end()) if match else ""
        if self._between:
            match = _NEXT.match(head)
            if match is None:
                return ""
            head, self._between = head[match.end() :], False
            self._head = head
        return self._find_in_object(head)

    def _find_in_object(self, head: str) -> str:
        match = _OBJECT.match(head)
        at = match.end() if match else len(head)
        name: str | None = None
        try:
            while at < len(head):
                key, at = _decode(head, _skip(head, at))
                at = _skip(head, at)
                if head[at] != ":":
                    raise ValueError
                at = _skip(head, at + 1)
                if key in _ARGUMENTS:
                    if head[at] == "{" and name is not None:
                        return self._begin(name, at)
                    # Before the name, or written as a string: known when it is complete.
                    self._given_up = True
                    return ""
                value, at = _decode(head, at)
                if key in _NAMES and isinstance(value, str):
                    name = value.strip() or None
        except (ValueError, IndexError):
            pass  # not complete yet
        return ""

    def _begin(self, name: str, at: int) -> str:
        self._name, self._place, self._value = name.strip(), self._place + 1, _ValueEnd()
        rest, self._head = self._head[at:], ""
        return rest


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


_EVENTS = re.compile(r'["{}\[\]]|\\.?', re.DOTALL)


class _ValueEnd:
    """Finds where a JSON object ends, in one pass over text that comes in pieces."""

    __slots__ = ("_depth", "_escaped", "_string")

    def __init__(self) -> None:
        self._depth = 0
        self._string = self._escaped = False

    def feed(self, text: str) -> int | None:
        """Index behind the end, or None."""
        skip, self._escaped = int(self._escaped), False
        for event in _EVENTS.finditer(text, skip):
            what = event.group()
            if what[0] == "\\":
                self._escaped = len(what) == 1
            elif what == '"':
                self._string = not self._string
            elif not self._string:
                self._depth += 1 if what in "{[" else -1
                if self._depth <= 0:
                    return event.end()
        return None


class _ClosedStream:
    """Closes the call behind its last complete argument and parses that."""

    def __init__(self, format: ToolFormat, parse: Parse) -> None:
        self._boundary, self._suffix, self._parse = format.boundary, format.suffix, parse
        self._quote = format.quote
        self._quotes = 0  # before `_seen`
        self._text = ""
        self._seen = 0
        self._emitted: list[str] = []

    rest = ""

    @property
    def end(self) -> int:
        return len(self._text)

    def feed(self, text: str) -> list[Fragment]:
        self._text += text
        out: list[Fragment] = []
        while (end := self._text.find(self._boundary, self._seen)) >= 0:
            if self._quote:
                self._quotes += self._text.count(self._quote, self._seen, end)
            self._seen = end + len(self._boundary)
            if self._quotes % 2:
                continue
            out += self._close_at(self._seen if len(self._boundary) > 1 else end)  # a comma is not part of the argument
        return out

    def _close_at(self, keep: int) -> list[Fragment]:
        try:
            calls = self._parse(self._text[:keep] + self._suffix)
        except Exception:  # upstream's parsers raise what they like; the end of the block decides
            return []
        out: list[Fragment] = []
        for place, (name, arguments) in enumerate(calls):
            certain = arguments if place < len(calls) - 1 else arguments.removesuffix("}")
            if place == len(self._emitted):
                self._emitted.append("")
            elif certain == self._emitted[place]:
                continue
            if not certain.startswith(self._emitted[place]):
                continue
            out.append((place, name, certain[len(self._emitted[place]) :]))
            self._emitted[place] = certain
        return out
