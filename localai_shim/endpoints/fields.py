"""Reading an untrusted request body, with OpenAI's error for every way in which a field can be wrong.

Fields that clients send again and again, with other messages, are read once.
"""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import BadRequest
from ..prompt.messages import encodable
from ..threads.cache import LRUCache

_MISSING = object()


class Fields:
    """An object of a request of which every field has to be read: `finish` refuses those that were not.

    So does the end of a `with` block.

    Args:
        value: the object, untrusted; null means absent, as in OpenAI's API.
        path: where it is, such as `items[2].content[0]`; empty: it is the request's body.

    Raises:
        BadRequest: it is not an object.
    """

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise BadRequest.wrong_type(path, "an object", value)
        self.path = path
        self._given = value
        self._body = {key: given for key, given in value.items() if given is not None}
        self._read: set[str] = set()

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()

    def at(self, name: object) -> str:
        """The path of a field, for errors."""
        return f"{self.path}.{name}" if self.path else str(name)

    def get(self, name: str, default: object = None) -> object:
        """The value as it was sent."""
        self._read.add(name)
        return self._body.get(name, default)

    def require(self, name: str) -> object:
        """The value, which has to be there."""
        value = self.get(name, _MISSING)
        if value is _MISSING:
            raise BadRequest.missing(self.at(name))
        return value

    def has(self, name: str) -> bool:
        """True if the field is there and not null."""
        return name in self._body

    def is_null(self, name: str) -> bool:
        """True if the field is there as null."""
        return name in self._given and self._given[name] is None

    def has_only(self, name: str) -> bool:
        """True if no other field is."""
        return list(self._body) == [name]

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number within [low, high], as a float."""
        return as_number(self.at(name), self.get(name), low, high)

    def integer(self, name: str, low: int = -(2**63), high: int = 2**63 - 1) -> int | None:
        """An integer of 64 bits within [low, high]; 3.0 is not one, as in OpenAI's API."""
        return as_integer(self.at(name), self.get(name), low, high)

    def boolean(self, name: str) -> bool | None:
        """True or false."""
        return self._typed(name, bool, "a boolean")

    def string(self, name: str) -> str | None:
        """A string that is Unicode text."""
        value = self._typed(name, str, "a string")
        return None if value is None else encodable(value, self.at(name))

    def _typed(self, name: str, kind: type[T], expected: str) -> T | None:
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise BadRequest.wrong_type(self.at(name), expected, value)
        return value

    def text(self, name: str) -> str:
        """A required string."""
        self.require(name)
        return self.string(name) or ""

    def word(self, name: str, max_length: int | None = None) -> str:
        """A required string that is not empty."""
        value = self.text(name)
        if not value:
            raise BadRequest.empty_string(self.at(name))
        if max_length is not None and len(value) > max_length:
            raise BadRequest.long_string(self.at(name), max_length, len(value))
        return value

    def choice(self, name: str, options: Collection[str]) -> str | None:
        """A string out of a few."""
        value = self.string(name)
        if value is not None and value not in options:
            raise BadRequest.unknown_value(self.at(name), value, options)
        return value

    def option(self, name: str, options: Collection[str]) -> str:
        """A required string out of a few."""
        self.require(name)
        return self.choice(name, options) or ""

    def array(self, name: str) -> list[object]:
        """A required array."""
        return list(as_array(self.at(name), self.require(name)))

    def mapping(self, name: str) -> dict[str, object] | None:
        """A copy of an object."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise BadRequest.wrong_type(self.at(name), "an object", value)
        return None if value is None else dict(value)

    def inner(self, name: str) -> Fields:
        """The fields of an object; none where it is absent."""
        return Fields(self.get(name, {}), self.at(name))

    def refuse(self, why: Mapping[str, str]) -> None:
        """Fields of OpenAI's API that this endpoint does not honour, each with the reason."""
        for name, reason in why.items():
            if self.get(name) is not None:
                raise BadRequest.unsupported(self.at(name), reason)

    def finish(self, others: Collection[str] = ()) -> None:
        """Refuse what was not read: a misspelt field must not be ignored in silence.

        Args:
            others: fields that the endpoint reads elsewhere.
        """
        for name in self._body:
            if name not in self._read:
                known = [self.at(each) for each in sorted({*self._read, *others})]
                raise BadRequest.unknown_parameter(self.at(name), known, "takes no body")


def given(**values: object) -> dict[str, object]:
    """The values that are not null."""
    return {name: value for name, value in values.items() if value is not None}


def as_number(name: str, value: object, low: float, high: float) -> float | None:
    """A number within [low, high], as a float; None is None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest.wrong_type(name, "a decimal", value)
    return float(_in_range(name, value, low, high, "decimal"))


def as_integer(name: str, value: object, low: int, high: int) -> int | None:
    """An integer within [low, high]; None is None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest.wrong_type(name, "an integer", value)
    return int(_in_range(name, value, low, high, "integer"))


def as_array(
    name: str, value: object, expected: str = "an array of objects", *, empty: bool = True, most: int | None = None
) -> Sequence[object]:
    """An array.

    Args:
        expected: for the error, with its article.
        empty: it may be empty.
        most: items that it may have; None: any number.
    """
    if not isinstance(value, list | tuple):
        raise BadRequest.wrong_type(name, expected, value)
    if not (value or empty):
        raise BadRequest.empty_array(name)
    if most is not None and len(value) > most:
        raise BadRequest.long_array(name, most, len(value))
    return value


def as_strings(
    name: str, value: object, expected: str = "an array of strings", *, empty: bool = True, most: int | None = None
) -> list[str]:
    """An array of strings that are Unicode text; see `as_array`."""
    strings: list[str] = []
    for i, string in enumerate(as_array(name, value, expected, empty=empty, most=most)):
        if not isinstance(string, str):
            raise BadRequest.wrong_type(f"{name}[{i}]", "a string", string)
        strings.append(encodable(string, f"{name}[{i}]"))
    return strings


def _in_range(name: str, value: float, low: float, high: float, kind: str) -> float:
    if isinstance(value, float) and math.isnan(value):
        raise BadRequest.refused(name, f"expected a {kind} {_plain(low)} to {_plain(high)}, but got NaN instead")
    if low <= value <= high:
        return value
    side, end, bound = ("below", "min", f">= {_plain(low)}") if value < low else ("above", "max", f"<= {_plain(high)}")
    why = f"{kind} {side} {end}imum value. Expected a value {bound}, but got {_plain(value)} instead"
    raise BadRequest.refused(name, why, f"{kind}_{side}_{end}_value")


def _plain(value: float) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


T = TypeVar("T")

MAX_LIGHT_ITEMS, MAX_LIGHT_CHARACTERS = 16, 2_000  # that take no longer than to have another thread do it
MAX_LIGHT_KEY_BYTES = 4_000  # tools may be among the fields, and stand in each prompt
_SINGLE = ("n", "best_of")  # fields that ask for many answers
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
MAX_ENTRIES = 64  # of each model
MAX_KEY_BYTES = 2**16  # tools and schemas that are longer are read each time
_EXACT = 2  # the last version of marshal's format in which equal objects are equal bytes


class FieldCache:
    """Keeps what was read of bodies, without the fields that differ: the least recently used go first.

    Readings are made of a copy of the body, and are shared by all requests with an equal body. May be used from
    several threads.
    """

    def __init__(self) -> None:
        self._known: LRUCache[Any] = LRUCache(MAX_ENTRIES)  # by `differ`, and the bytes of the other fields

    def get(self, body: Mapping[str, object], differ: Sequence[str], read: Callable[[Mapping[str, object]], T]) -> T:
        """Reading of a body without the fields that `differ`, made now by `read` or before of an equal one.

        Args:
            body: JSON; where something else is in it, it is read as it is, and nothing is kept.
            differ: a tuple.
            read: the same function for the same fields; nothing is kept where it raises.
        """
        rest = {name: value for name, value in body.items() if name not in differ}
        written = _written(rest)
        if written is None:
            return read(rest)
        key = differ, written
        found: T | None = self._known.get(key)  # this `read` has made it
        if found is not None:
            return found
        copy = _copy(rest, written)
        if copy is None:
            return read(rest)
        made = read(copy)
        self._known.put(key, made)
        return made

    def is_light(self, body: Mapping[str, object], texts: Sequence[str], differ: Sequence[str]) -> bool:
        """Preparing a request takes less time than giving it to another thread: little text, all else read before.

        Args:
            texts: the field that has the text, and those that have to be absent.
            differ: as of `get`.
        """
        text, *absent = texts
        if any(body.get(name) is not None for name in absent) or any(body.get(name, 1) != 1 for name in _SINGLE):
            return False
        if _characters(body.get(text)) > MAX_LIGHT_CHARACTERS:
            return False
        own = _written({name: value for name, value in body.items() if name in differ and name != text})
        rest = _written({name: value for name, value in body.items() if name not in differ})
        if own is None or rest is None or len(own) + len(rest) > MAX_LIGHT_KEY_BYTES:
            return False
        return (differ, rest) in self._known


def _characters(text: object, depth: int = 0) -> float:
    """Of a string, a few messages or items, or their parts; without limit where these are not text."""
    if not text:
        return 0
    if type(text) is str:
        return len(text)
    if type(text) is not list or len(text) > MAX_LIGHT_ITEMS or depth > 1:
        return math.inf
    if not all(type(each) is dict and (depth == 0 or each.get("type") in _TEXT_PARTS) for each in text):
        return math.inf
    return sum(_characters(value, depth + 1) for each in text for value in each.values())


def _written(body: dict[str, object]) -> bytes | None:
    """Bytes that bodies with equal JSON have in common; None where it is none."""
    try:
        return marshal.dumps(body, _EXACT)
    except ValueError:
        return None


def _copy(body: Mapping[str, object], written: bytes) -> Mapping[str, object] | None:
    """Copy of a body from its bytes; None where that is long, or is not the body: numbers of NumPy are bytes then."""
    if len(written) > MAX_KEY_BYTES:
        return None
    copy: Mapping[str, object] = marshal.loads(written)
    try:
        return copy if copy == body else None
    except (ValueError, RecursionError):  # an array; nested too deep
        return None
