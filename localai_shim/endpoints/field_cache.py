"""Cache of the fields that were read of requests: clients send the same ones again and again, with other messages."""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..threads.cache import LRUCache

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
