"""What was read of requests' fields: clients send the same ones again and again, with other messages."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MAX_READINGS = 64  # of each model
MAX_KEY_BYTES = 2**16  # tools and schemas that are longer are read each time
_EXACT = 2  # the last version of marshal's format in which equal objects are equal bytes


class Readings:
    """Keeps what was read of the last bodies, without the field that differs. May be used from several threads.

    What is kept was made of a copy of the body, and is shared by all requests that have an equal one.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], object] = {}

    def get(self, body: Mapping[str, object], differs: str, read: Callable[[Mapping[str, object]], T]) -> T:
        """What `read` makes of a body without the field `differs`, or has made of an equal one.

        Args:
            body: JSON; where something else is in it, it is read as it is, and nothing is kept.
            read: the same function for the same `differs`; nothing is kept where it raises.
        """
        rest = {name: value for name, value in body.items() if name != differs}
        written = _written(rest)
        if written is None:
            return read(rest)
        found = self._known.get((differs, written))
        if found is not None:
            return found  # type: ignore[return-value]  # this `read` has made it
        copy = _copy(rest, written)
        if copy is None:
            return read(rest)
        made = read(copy)
        if len(self._known) >= MAX_READINGS:
            self._known.clear()
        self._known[differs, written] = made
        return made

    def find(self, body: Mapping[str, object], differs: str) -> object | None:
        """What was read of an equal body, if that is still here."""
        written = _written({name: value for name, value in body.items() if name != differs})
        return None if written is None else self._known.get((differs, written))


def _written(body: dict[str, Any]) -> bytes | None:
    """Bytes that bodies with equal JSON have in common; None where it is none."""
    try:
        return marshal.dumps(body, _EXACT)
    except ValueError:
        return None


def _copy(body: Mapping[str, object], written: bytes) -> Mapping[str, object] | None:
    """What was written of a body; None where that is long, or is not the body: numbers of NumPy are bytes then."""
    if len(written) > MAX_KEY_BYTES:
        return None
    copy: Mapping[str, object] = marshal.loads(written)
    try:
        return copy if copy == body else None
    except (ValueError, RecursionError):  # an array; nested too deep
        return None
