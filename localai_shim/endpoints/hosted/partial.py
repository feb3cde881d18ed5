"""The one string in the arguments of a call, read while the model writes it."""

from __future__ import annotations

import json
import re
from typing import Protocol

_PIECES = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*'
)
"""Characters of a JSON string, up to its end or to an escape that is not whole."""


class Reader(Protocol):
    """Reads what events show of the arguments of a call."""

    def feed(self, text: str) -> str:
        """Take more of the arguments; returns what this adds to the events."""


class StringReader:
    """Reads an object of JSON that begins with a string.

    Args:
        name: key of the string.
    """

    def __init__(self, name: str) -> None:
        self._head = re.compile(rf'\s*\{{\s*"{name}"\s*:\s*"')
        self._text = ""
        self._at = -1
        """Position behind what was read of the string; -1: it has not begun."""

    def feed(self, text: str) -> str:
        """Take more of the object; returns what this adds to the string."""
        self._text += text
        if self._at < 0:
            head = self._head.match(self._text)
            if head is None:
                return ""
            self._text, self._at = self._text[head.end() :], 0
        pieces = _PIECES.match(self._text, self._at)
        if pieces is None or not pieces[0]:
            return ""
        self._at = pieces.end()
        return str(json.loads(f'"{pieces[0]}"', strict=False))
