"""JSON as it is stored: large strings, such as images as data: URLs, are replaced by the hashes of their contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

LARGE = 4096
"""Strings of at least this many characters are kept apart."""

# Strings that begin with NUL have a second character that says what they are: a reference, or user data that begins so.
_MARK = "\0"
_REFERENCE = _MARK + "#"
_ESCAPED = _MARK + "="
_MARK_IN_JSON = '"\\u0000'


class Encoded(NamedTuple):
    """A JSON value, ready to be stored."""

    text: str
    """ASCII, so that every string can be stored, lone surrogates included."""
    large: dict[bytes, bytes]
    """SHA-256 -> content, UTF-8 in which surrogates pass, of the large strings."""


def encode(value: Any) -> Encoded:
    """Take large strings, wherever they are but in keys, out of a JSON value.

    Raises:
        TypeError: it is no JSON value.
    """
    large: dict[bytes, bytes] = {}
    return Encoded(json.dumps(_pack(value, large), separators=(",", ":")), large)


def decode(text: str, fetch: Callable[[bytes], bytes]) -> Any:
    """The value that was encoded.

    Args:
        text: what `encode` made of it.
        fetch: SHA-256 -> content.
    """
    value = json.loads(text)
    return _unpack(value, fetch) if _MARK_IN_JSON in text else value


def _pack(value: Any, large: dict[bytes, bytes]) -> Any:
    if isinstance(value, str):
        if len(value) >= LARGE:
            content = value.encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(content).digest()
            large[digest] = content
            return _REFERENCE + digest.hex()
        return _ESCAPED + value if value.startswith(_MARK) else value
    if isinstance(value, dict):
        return {key: _pack(item, large) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, large) for item in value]
    return value


def _unpack(value: Any, fetch: Callable[[bytes], bytes]) -> Any:
    if isinstance(value, str):
        if value.startswith(_REFERENCE):
            return fetch(bytes.fromhex(value[len(_REFERENCE) :])).decode("utf-8", "surrogatepass")
        return value.removeprefix(_ESCAPED)
    if isinstance(value, dict):
        return {key: _unpack(item, fetch) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpack(item, fetch) for item in value]
    return value
