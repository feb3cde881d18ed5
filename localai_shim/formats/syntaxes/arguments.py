"""Base of the syntaxes of arguments."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from ..layout import Layout
from ..source import Event, Reading, Source, UnreadableError
from ..values import dumps

Schema = Mapping[str, object]


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
