"""JSON as it is stored: large strings, such as images in data: URLs, are replaced by hashes of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..types import map_texts

LARGE_CHARS = 4096
"""Strings of at least this many characters are stored once per content."""

# A string that begins with NUL has a second character that tells a reference from user data that begins so.
_MARK = "\0"
_REFERENCE = _MARK + "#"
_ESCAPED = _MARK + "="
_MARK_IN_JSON = '"\\u0000'


class Encoded(NamedTuple):
    """A JSON value, ready to be stored."""

    text: str
    """ASCII, so that any string can be stored, with lone surrogates, too."""
    large: dict[bytes, bytes]
    """The large strings: SHA-256 -> content, in UTF-8 that lets surrogates pass."""


def encode(value: object) -> Encoded:
    """Encode a JSON value, with its large strings, other than keys, apart.

    Raises:
        TypeError: it is not a JSON value.
    """
    large: dict[bytes, bytes] = {}

    def pack(text: str) -> str:
        if len(text) < LARGE_CHARS:
            return _ESCAPED + text if text.startswith(_MARK) else text
        content = text.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(content).digest()
        large[digest] = content
        return _REFERENCE + digest.hex()

    return Encoded(json.dumps(map_texts(value, pack), separators=(",", ":")), large)


def decode(text: str, fetch: Callable[[bytes], bytes]) -> Any:
    """The value that `encode` was given.

    Args:
        text: of what `encode` returned.
        fetch: SHA-256 -> content.
    """

    def unpack(text: str) -> str:
        if text.startswith(_REFERENCE):
            return fetch(bytes.fromhex(text[len(_REFERENCE) :])).decode("utf-8", "surrogatepass")
        return text.removeprefix(_ESCAPED)

    value = json.loads(text)
    return map_texts(value, unpack) if _MARK_IN_JSON in text else value
