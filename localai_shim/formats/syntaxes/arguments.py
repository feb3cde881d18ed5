"""The base of the syntaxes of arguments, and JSON that comes in pieces: values, and calls that are objects."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...grammar.subschemas import Schema, properties_of
from ..source import Event, Layout, NoCallError, Reading, Source, UnreadableError
from ..values import OfferedTools, dumps


class Arguments(ABC):
    """One syntax of a call's arguments."""

    __slots__ = ()
    begins = "{"
    """First character of arguments, by which a name with nothing around it is known to be a call's."""

    @property
    def layouts(self) -> tuple[str, ...]:
        """Layouts of their parts, of which literals are no part of a value."""
        return ()

    @abstractmethod
    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        """Emit arguments as one JSON object, and read what ends the call.

        Args:
            ends: what comes behind the last argument.
            schema: finds the schema of the arguments, which decides types that the model does not write.

        Returns:
            The call is whole: it ended, or its block or the turn did, and not only a text that was cut.

        Raises:
            UnreadableError: something else is there.
        """

    @abstractmethod
    def write(self, arguments: Mapping[str, object]) -> str:
        """Arguments as they are in a call."""


def pairs(source: Source, end: str, pair: Callable[[], Reading[tuple[str, object]]]) -> Reading[None]:
    """Emit arguments with commas between them as one JSON object, up to what ends them.

    Args:
        pair: reads one.
    """
    written = "{"
    while (yield from source.peek()) != end:
        if source.text.startswith(",", source.at) and written != "{":
            source.at += 1
            continue
        begins = source.at
        try:
            key, value = yield from pair()
        except UnreadableError:
            source.at = begins  # nothing of it is lost
            raise
        yield Event("arguments", f"{written}{json.dumps(key, ensure_ascii=False)}: {dumps(value)}")
        written = ", "
        source.forget()
    yield Event("arguments", "{}" if written == "{" else "}")


_SCALAR = re.compile(r"[^\s,:{}\[\]\"]*")
NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
MAX_KEYS = 64  # of an object that may be a call


@dataclass(frozen=True, slots=True)
class JsonArguments(Arguments):
    """Arguments that are a JSON object."""

    def read(self, source: Source, ends: Sequence[Layout], schema: Callable[[], Schema]) -> Reading[bool]:
        if (yield from source.peek()) != "{":
            raise UnreadableError("no JSON object")
        yield from json_text(source)
        yield from source.match(ends)
        return True

    def write(self, arguments: Mapping[str, object]) -> str:
        return dumps(arguments)


JSON = JsonArguments()


def json_text(source: Source) -> Reading[None]:
    """Emit a JSON object, as it is written, as arguments.

    Raises:
        UnreadableError: a stop came before its end, or the text's end.
    """
    scan = _Scan(source)
    while True:
        end = scan.find_end()
        if source.at < (upto := scan.at if end is None else end):
            yield Event("arguments", source.take(upto))
        if end is not None:
            return
        if scan.stopped:
            raise UnreadableError("a marker came inside the arguments")
        source.forget()
        scan.at = 0
        yield from source.more()


def json_value(source: Source) -> Reading[str]:
    """The JSON value that begins here, as it is written."""
    if (yield from source.peek()) in ("{", "[", '"'):
        return (yield from _scanned(source))
    end = yield from source.run(_SCALAR, source.at)
    if end == source.at:
        raise UnreadableError("no value")
    return source.take(end)


def _scanned(source: Source) -> Reading[str]:
    """The object, array or string that begins here, as it is written."""
    scan = _Scan(source)
    while (end := scan.find_end()) is None:
        if scan.stopped:
            raise UnreadableError("a marker came inside a value")
        yield from source.more()
    return source.take(end)


def object_call(source: Source, key: str, only: Collection[str] | None, offered: OfferedTools) -> Reading[None]:
    """Read a call that is an object: its keys may come in any order, and others may be among them.

    Args:
        key: `name` where one of its values is the name; `NAME` where the name is a key, and the arguments its value.
        only: names that may be called; None: any.
        offered: the tools; the text of a custom one may be behind the object.

    Raises:
        NoCallError: it names no function, or none of these.
        UnreadableError: it is no JSON.
    """
    name: str | None = None
    arguments: str | None = None
    others: dict[str, str] = {}  # members that may be the arguments, or some of them
    depth = 1
    source.at += 1
    for _ in range(MAX_KEYS):
        following = yield from source.peek()
        if following == "}":
            source.at += 1
            depth -= 1
            if depth == 0:
                break
            continue
        if following == ",":
            source.at += 1
            continue
        if following != '"':
            raise UnreadableError("no key")
        found = _loaded((yield from _scanned(source)))
        if (yield from source.peek()) != ":":
            raise UnreadableError("no value")
        source.at += 1
        value = yield from source.peek()
        if key == "NAME" and name is None and value == "{":
            name, is_arguments = str(found), True
            _accept(name, only)
        else:
            is_arguments = key != "NAME" and found in _ARGUMENTS and arguments is None
        if is_arguments and name is not None and value == "{":
            yield Event("name", name)
            yield from json_text(source)
            yield from _close(source, depth)
            yield Event("end")
            return
        if is_arguments:
            arguments = yield from json_value(source)
            if (yield from source.peek()) not in (",", "}", ""):
                raise UnreadableError("no comma")
        elif key != "NAME" and found in NAMES and value == '"' and name is None:
            name = str(_loaded((yield from _scanned(source)))).strip()
            _accept(name, only)
        elif found == "function" and value == "{" and name is None:  # OpenAI's own form
            source.at += 1
            depth += 1
        elif key == "NAME" or (only is not None and name is None and found not in ("type", "id", "index")):
            raise NoCallError("an object that is no call")
        else:
            others[str(found)] = yield from json_value(source)
    if not name:
        raise NoCallError("an object that names no function")
    is_free = name in offered.custom
    if only is not None and arguments is None and not is_free:
        raise NoCallError("an object that happens to have a name")
    yield Event("name", name)
    if is_free and arguments is None:
        end = yield from source.until()
        yield Event("broken", source.take(end).removeprefix("\n").removesuffix("\n"))
        return
    if arguments is None:
        arguments = _among(others, properties_of(offered.parameters(name)))
    yield Event("arguments", _normal(arguments))
    yield Event("end")


def _among(members: Mapping[str, str], properties: Collection[str]) -> str | None:
    """The arguments of a call without their usual name: models write them next to the call's name, or rename them."""
    own = [f"{json.dumps(name)}: {value}" for name, value in members.items() if name in properties]
    objects = [value for value in members.values() if value.startswith("{")]
    return f"{{{', '.join(own)}}}" if own else objects[0] if len(objects) == 1 else None


def _close(source: Source, depth: int) -> Reading[None]:
    """Skip what follows the arguments in a call's object; an object that has no end ends with its arguments."""
    while depth:
        following = yield from source.peek()
        if following == "}":
            source.at += 1
            depth -= 1
        elif following == ",":
            comma = source.begins = source.at
            source.at += 1
            if (yield from source.peek()) != '"':
                source.at, source.begins = comma, None  # between two calls
                return
            source.begins = None
            yield from _scanned(source)
            if (yield from source.peek()) == ":":
                source.at += 1
                yield from json_value(source)
        else:
            return


def _accept(name: str, only: Collection[str] | None) -> None:
    if not name or (only is not None and name not in only):
        raise NoCallError("no function that was offered")


def _normal(arguments: str | None) -> str:
    """Arguments as an object where they are none, or were written as a string."""
    if arguments is None or arguments in ("null", '""'):
        return "{}"
    if arguments.startswith('"'):
        text = _loaded(arguments)
        return text if isinstance(text, str) and text else "{}"
    return arguments


def _loaded(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except ValueError as error:
        raise UnreadableError(str(error)) from None


class _Scan:
    """Finds the end of an object, an array or a string, in one pass over a source.

    Attributes:
        at: the place up to which the source belongs to the value.
        stopped: a stop is at that place. A stop in a string is text, unless a raw newline came before it in the string:
            such a string was never closed.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.at = source.at
        self.stopped = False
        self._depth = 0
        self._string = self._torn = False
        stops = source.stop.pattern.pattern
        self._events = re.compile(rf'(?P<stop>{stops})|["{{}}\[\]\n]|\\.', re.DOTALL)

    def find_end(self) -> int | None:
        """The place behind the end, once it is there."""
        source = self._source
        held = len(source.text) if source.ended else source.held((*source.stops, "\\\\"))
        while (found := self._events.search(source.text, self.at)) is not None and found.start() < held:
            if found["stop"]:
                if not self._string or self._torn:
                    self.at, self.stopped = found.start(), True
                    return None
                self.at = found.start() + 1
                continue
            self._take(found.group())
            self.at = found.end()
            if self._depth <= 0 and not self._string:
                return self.at
        self.at = max(self.at, held)
        return None

    def _take(self, event: str) -> None:
        if event == '"':
            self._string = not self._string
            self._torn = False
        elif event == "\n":
            self._torn = self._string
        elif event[0] != "\\" and not self._string:
            self._depth += 1 if event in "{[" else -1
