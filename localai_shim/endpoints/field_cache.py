"""Cache of the fields that were read of requests: clients send the same ones again and again, with other messages."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar


class ReadFields(Protocol):
    """Fields of a body, as they were read. Nobody changes them."""

    @property
    def is_light(self) -> bool:
        """True if what follows from these fields takes little time, such as no compiling for every prompt."""
        ...


T = TypeVar("T", bound=ReadFields)

MAX_LIGHT_ITEMS, MAX_LIGHT_CHARACTERS = 16, 2_000  # that take no longer than to have another thread do it
MAX_LIGHT_KEY_BYTES = 4_000  # tools may be among the fields, and stand in each prompt
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")
MAX_ENTRIES = 64  # of each model
MAX_KEY_BYTES = 2**16  # tools and schemas that are longer are read each time
_EXACT = 2  # the last version of marshal's format in which equal objects are equal bytes


class FieldCache:
    """Keeps what was read of the last bodies, without the fields that differ. May be used from several threads.

    What is kept was made of a copy of the body, and is shared by all requests that have an equal one.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Sequence[str], bytes], ReadFields] = {}

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
        found = self._known.get((differ, written))
        if found is not None:
            return found  # type: ignore[return-value]  # this `read` has made it
        copy = _copy(rest, written)
        if copy is None:
            return read(rest)
        made = read(copy)
        if len(self._known) >= MAX_ENTRIES:
            self._known.clear()
        self._known[differ, written] = made
        return made

    def is_light(self, body: Mapping[str, object], differ: Sequence[str]) -> bool:
        """Preparing a request takes less time than to have another thread do it: a short text, all else read before.

        Args:
            differ: the text's field, and those that have to be absent.
        """
        text, *absent = differ
        if not _is_short(body.get(text)) or any(body.get(name) is not None for name in absent):
            return False
        written = _written({name: value for name, value in body.items() if name not in differ})
        found = None if written is None else self._known.get((differ, written))
        return found is not None and found.is_light and len(written or b"") <= MAX_LIGHT_KEY_BYTES


def _is_short(text: object) -> bool:
    """True for a short text: a string, messages, or items."""
    if type(text) is str:
        return len(text) <= MAX_LIGHT_CHARACTERS
    if type(text) is not list or len(text) > MAX_LIGHT_ITEMS:
        return False
    characters = 0
    for item in text:
        if type(item) is not dict:
            return False
        for value in item.values():
            length = len(value) if type(value) is str else _characters(value)
            if length is None:
                return False
            characters += length
    return characters <= MAX_LIGHT_CHARACTERS


def _characters(parts: object) -> int | None:
    """Of a few parts, if these are text; 0 of null."""
    if parts is None:
        return 0
    if type(parts) is not list or len(parts) > MAX_LIGHT_ITEMS:
        return None
    characters = 0
    for part in parts:
        if type(part) is not dict or part.get("type") not in _TEXT_PARTS:
            return None
        text = part.get("text", part.get("refusal"))
        if type(text) is not str:
            return None
        characters += len(text)
    return characters


def _written(body: dict[str, Any]) -> bytes | None:
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
