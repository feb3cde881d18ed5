"""Reads and writes rows inside a transaction.

Large strings, such as images in data: URLs, are replaced in JSON by hashes of their content.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..types import Json, map_texts
from .errors import DuplicateError, MissingError

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


BODY = ""  # the part that is an object itself
EVENTS = "event"
ITEMS = "items"
"""The part in which ids are unique."""


def key(id: str) -> str:
    """An id as it is stored: SQLite takes no lone surrogates, and callers may ask for any id."""
    return json.dumps(id)[1:-1]


def unkey(key: str) -> str:
    """The id of which `key` is the stored form."""
    return str(json.loads(f'"{key}"'))


Prepared = list[tuple[str | None, Encoded]]
"""(id, JSON) of items."""


def prepare(items: Iterable[Json]) -> Prepared:
    """Encode items, which takes time, before a transaction begins."""
    return [(key(own) if isinstance(own := item.get("id"), str) else None, encode(item)) for item in items]


def find(connection: sqlite3.Connection, kind: str, id: str) -> int | None:
    """An object's seq; None where there is none, or it was deleted."""
    query = "SELECT seq FROM objects WHERE kind = ? AND id = ? AND NOT deleted"
    row = connection.execute(query, (kind, key(id))).fetchone()
    return None if row is None else int(row[0])


def require(connection: sqlite3.Connection, kind: str, id: str) -> int:
    """An object's seq; raises MissingError where there is none."""
    seq = find(connection, kind, id)
    if seq is None:
        raise MissingError(kind, id)
    return seq


def link(connection: sqlite3.Connection, key: str) -> tuple[int, str | None]:
    """A response's seq, deleted or not, and the key of the one before it; raises MissingError where there is none."""
    query = "SELECT seq, previous FROM objects WHERE kind = 'response' AND id = ?"
    row: tuple[int, str | None] | None = connection.execute(query, (key,)).fetchone()
    if row is None:
        raise MissingError("response", unkey(key))
    return row


def read(connection: sqlite3.Connection, text: str) -> Json:
    """A piece's value, from its JSON and its large strings."""

    def fetch(digest: bytes) -> bytes:
        return bytes(connection.execute("SELECT content FROM texts WHERE hash = ?", (digest,)).fetchone()[0])

    value: Json = decode(text, fetch)
    return value


def read_all(connection: sqlite3.Connection, query: str, values: Sequence[str | int]) -> list[Json]:
    """The values of the pieces whose JSON is in the query's first column."""
    return [read(connection, row[0]) for row in connection.execute(query, values).fetchall()]


def body(connection: sqlite3.Connection, seq: int) -> Json:
    """The object itself, without its items."""
    return read_all(connection, "SELECT json FROM pieces WHERE object = ? AND part = ?", (seq, BODY))[0]


def put(connection: sqlite3.Connection, seq: int, part: str, item: tuple[str | None, Encoded], number: int = 0) -> None:
    """Add a piece to an object.

    Raises:
        DuplicateError: `part` is ITEMS, and the object has one with this id there.
    """
    id, encoded = item
    if part == ITEMS:
        if id is None:
            raise ValueError("Items of a conversation need an id.")
        query = "SELECT 1 FROM pieces WHERE object = ? AND id = ? AND part = 'items'"
        if connection.execute(query, (seq, id)).fetchone():
            raise DuplicateError(unkey(id))
    query = "INSERT INTO pieces(object, part, number, id, json) VALUES (?, ?, ?, ?, ?)"
    piece = connection.execute(query, (seq, part, number, id, encoded.text)).lastrowid
    for digest, content in encoded.large.items():
        connection.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (digest, content))
        connection.execute("INSERT INTO uses VALUES (?, ?)", (piece, digest))


def replace(connection: sqlite3.Connection, seq: int, part: str, items: Prepared) -> None:
    """Replace all pieces of a part."""
    query = "SELECT seq FROM pieces WHERE object = ? AND part = ?"
    old = connection.execute(query, (seq, part)).fetchall()  # a DELETE by part takes 20 us, also where there is nothing
    connection.executemany("DELETE FROM pieces WHERE seq = ?", old)
    for item in items:
        put(connection, seq, part, item)


def add(connection: sqlite3.Connection, seq: int, numbered: Mapping[str, Iterable[tuple[int, Json]]]) -> None:
    """Add items to parts of an object, each under its number."""
    for part, items in numbered.items():
        for number, item in items:
            put(connection, seq, part, (None, encode(item)), number)


def copy(connection: sqlite3.Connection, source: tuple[int, str], target: tuple[int, str]) -> None:
    """Replace a part (seq of its object, name) by copies of another's pieces; large strings are shared."""
    replace(connection, *target, [])
    query = "SELECT seq FROM pieces WHERE object = ? AND part = ? ORDER BY number, seq"
    for (old,) in connection.execute(query, source).fetchall():
        query = (
            "INSERT INTO pieces(object, part, number, id, json) SELECT ?, ?, number, id, json FROM pieces WHERE seq = ?"
        )
        new = connection.execute(query, (*target, old)).lastrowid
        connection.execute("INSERT INTO uses SELECT ?, hash FROM uses WHERE piece = ?", (new, old))


def write_object(connection: sqlite3.Connection, kind: str, id: str, previous: str | None, owner: str | None) -> int:
    """Insert an object without pieces, or set the owner of the existing one; its seq."""
    row = connection.execute("SELECT seq FROM objects WHERE kind = ? AND id = ?", (kind, key(id))).fetchone()
    if row is not None:
        connection.execute("UPDATE objects SET owner = ?, deleted = 0 WHERE seq = ?", (owner, row[0]))
        return int(row[0])
    query = """INSERT INTO objects(kind, id, previous, owner, children) VALUES (?, ?, ?, ?,
        (SELECT count(*) FROM objects WHERE ? = 'response' AND previous = ?))"""
    previous = None if previous is None else key(previous)
    seq = connection.execute(query, (kind, key(id), previous, owner, kind, key(id))).lastrowid
    assert seq is not None
    return seq


def delete(connection: sqlite3.Connection, seq: int) -> None:
    """Remove an object. If others continue it, its input and output stay until the last of these is removed."""
    if connection.execute("SELECT children FROM objects WHERE seq = ?", (seq,)).fetchone()[0]:
        connection.execute("UPDATE objects SET deleted = 1, owner = NULL WHERE seq = ?", (seq,))
        connection.execute("DELETE FROM pieces WHERE object = ? AND part NOT IN ('input', 'output')", (seq,))
    else:
        remove(connection, seq)


def remove(connection: sqlite3.Connection, seq: int) -> None:
    """Remove an object that none continues, and the deleted ones that were kept for it."""
    while True:
        previous = connection.execute("SELECT previous FROM objects WHERE seq = ?", (seq,)).fetchone()[0]
        connection.execute("DELETE FROM objects WHERE seq = ?", (seq,))
        query = "SELECT seq FROM objects WHERE kind = 'response' AND id = ? AND deleted AND children = 0"
        row = connection.execute(query, (previous,)).fetchone()
        if row is None:
            return
        seq = row[0]


def pages(connection: sqlite3.Connection) -> int:
    """Number of the database's pages that are in use."""
    (total,), (free,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count"))
    return int(total) - int(free)
