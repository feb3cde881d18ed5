"""Stored responses, conversations, chat completions, files and batches, in memory or in a file.

Of the API it knows only ids.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..types import Json
from . import rows
from .database import Database
from .errors import DuplicateError, MissingError, StoreError
from .rows import encode

__all__ = ["DEFAULT_LIMIT_BYTES", "DuplicateError", "Json", "Kind", "MissingError", "Page", "Store", "StoreError"]

Kind = Literal["response", "conversation", "chat.completion", "file", "batch"]
Items = list[Json]  # inside of Store, `list` is a method
Ids = list[str]
Owners = list[tuple[str, str]]
Numbered = list[tuple[int, Json]]

DEFAULT_LIMIT_BYTES = 256 * 2**20
"""Bytes that a store in memory may take."""

MAX_INTEGER = 2**63 - 1  # SQLite's largest


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a list."""

    data: list[Json]
    has_more: bool


class Store:
    """Objects, their items and events. Methods are atomic, thread-safe, and durable when they return.

    Args:
        path: a file, which several stores and processes may have open; it is created where it does not exist, readable
            by its owner only. Writes survive any end of the process (a power cut may take the
            latest writes, and corrupts nothing). None: in memory, as long as this object lives.
        limit: most bytes; in memory only. The least recently used objects are evicted. Those that a process works on or
            that a stored response continues are not, nor what was used just now, however large: a chain in use is kept
            whole, since its next response reads all of it.

    Raises:
        Overdue: from every method: another process or thread has used the store until the deadline of the request that
            the method was called for (`threads.deadline.until`). Nothing has changed.
        StoreError: here and from every method: the store cannot be used. The message says which, and why.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, limit: int = DEFAULT_LIMIT_BYTES) -> None:
        absolute = None if path is None else os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._database = Database(absolute)
        self.limit = limit if path is None else None
        """Most bytes of a store in memory; None: it is a file."""
        self._clock = 0  # ticks once per call, under the database's lock
        self._empty = self._page_size = 0
        if self.limit is not None:
            with self._database.transaction(write=False) as connection:
                self._empty = rows.pages(connection)
                self._page_size = int(connection.execute("PRAGMA page_size").fetchone()[0])

    def close(self) -> None:
        """Idempotent. Garbage collection does it, too."""
        self._database.close()

    def transaction(self, *, write: bool) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A transaction for other tables than those of objects; see `Database.transaction`."""
        return self._write() if write else self._read()

    # Objects

    def save(
        self,
        kind: Kind,
        id: str,
        body: Json,
        *,
        parts: Mapping[str, Sequence[Json]] = {},
        numbered: Mapping[str, Iterable[tuple[int, Json]]] = {},
        copies: Mapping[str, tuple[Kind, str, str]] = {},
        previous: str | None = None,
        conversation: str | None = None,
        append: Sequence[Json] = (),
        owner: str | None = None,
        unless: Collection[str] = (),
    ) -> bool:
        """Insert an object, or replace the one with this id.

        Args:
            kind: the object's.
            id: the object's.
            body: the object.
            parts: named lists of items, such as "input" and "output"; the others stay as they are.
            numbered: items that are added to parts, each under its number.
            copies: parts that are copies of another object's: its kind, its id and its part.
            previous: the response that this one continues; only read when the object is new.
            conversation: the conversation that `append` is appended to, in the same transaction.
            append: items with ids.
            owner: the process that still works on the object; None: none does.
            unless: values of the body's "status": if the stored object has one of them, nothing is changed.

        Returns:
            False if nothing was changed.

        Raises:
            MissingError: there is no such conversation, or nothing to copy; nothing is changed.
            DuplicateError: the conversation has an item with the id of one of `append`; nothing is changed.
        """
        encoded = encode(body)
        prepared = {part: rows.prepare(items) for part, items in parts.items()}
        appended = rows.prepare(append)
        with self._write() as connection:
            if unless:
                found = rows.find(connection, kind, id)
                if found is not None and rows.body(connection, found).get("status") in unless:
                    return False
            seq = rows.write_object(connection, kind, id, previous, owner)
            rows.replace(connection, seq, rows.BODY, [(None, encoded)])
            for part, items in prepared.items():
                rows.replace(connection, seq, part, items)
            rows.add(connection, seq, numbered)
            for part, (its_kind, its_id, its_part) in copies.items():
                rows.copy(connection, (self._require(connection, its_kind, its_id), its_part), (seq, part))
            self._use(connection, seq)
            if conversation is not None:
                self._append(connection, "conversation", conversation, rows.ITEMS, appended)
        return True

    def get(self, kind: Kind, id: str) -> Json | None:
        """A copy of an object, or None."""
        with self._read() as connection:
            seq = self._find(connection, kind, id)
            return None if seq is None else rows.body(connection, seq)

    def update(
        self,
        kind: Kind,
        id: str,
        change: Callable[[Json], Json],
        *,
        numbered: Mapping[str, Iterable[tuple[int, Json]]] = {},
        drop: Collection[str] = (),
        release: bool = False,
    ) -> Json | None:
        """Replace an object by what `change` returns for it; no other thread or process comes between.

        Args:
            kind: the object's.
            id: the object's.
            change: must not use the store. If it raises, nothing is changed.
            numbered: items that are added to parts, each under its number.
            drop: parts to remove.
            release: no process works on the object any more.

        Returns:
            The new object; None if there is none.
        """
        with self._write() as connection:
            seq = self._find(connection, kind, id)
            if seq is None:
                return None
            changed = change(rows.body(connection, seq))
            rows.replace(connection, seq, rows.BODY, [(None, encode(changed))])
            rows.add(connection, seq, numbered)
            for part in drop:
                rows.replace(connection, seq, part, [])
            if release:
                connection.execute("UPDATE objects SET owner = NULL WHERE seq = ?", (seq,))
            return changed

    def delete(self, kind: Kind, id: str) -> bool:
        """Remove an object; False if there was none. The items of a response stay while others continue it."""
        with self._write() as connection:
            seq = rows.find(connection, kind, id)
            if seq is not None:
                rows.delete(connection, seq)
            return seq is not None

    def list(
        self,
        kind: Kind,
        *,
        after: str | None,
        limit: int,
        descending: bool,
        where: Callable[[Json], bool] | None = None,
    ) -> Page:
        """Objects in the order in which they were first saved.

        Args:
            kind: the objects'.
            after: the id of the one before the page.
            limit: how many objects a page has at most.
            descending: newest first.
            where: which objects to list. Must not use the store.

        Raises:
            MissingError: there is no object with the id `after`.
        """
        with self._read() as connection:
            beyond, order, start = _direction(descending)
            if after is not None:
                start = rows.require(connection, kind, after)
            query = f"""SELECT json FROM objects JOIN pieces ON object = objects.seq AND part = ?
                WHERE kind = ? AND NOT deleted AND objects.seq {beyond} ? ORDER BY objects.seq {order}"""
            found: Items = []
            with contextlib.closing(connection.execute(query, (rows.BODY, kind, start))) as cursor:
                while len(found) <= limit and (row := cursor.fetchone()) is not None:
                    body = rows.read(connection, row[0])
                    if where is None or where(body):
                        found.append(body)
            return Page(found[:limit], len(found) > limit)

    # Items

    def items(self, kind: Kind, id: str, part: str = rows.ITEMS) -> Items:
        """The items of a part, in order; none where there is no such part.

        Raises:
            MissingError: the object is not there.
        """
        with self._read() as connection:
            seq = self._require(connection, kind, id)
            query = "SELECT json FROM pieces WHERE object = ? AND part = ? ORDER BY number, seq"
            return rows.read_all(connection, query, (seq, part))

    def page(self, kind: Kind, id: str, part: str, *, after: str | None, limit: int, descending: bool) -> Page:
        """Some of the items of a part, in order.

        Args:
            kind: the object's.
            id: the object's.
            part: which of its lists.
            after: the id of the item before the page. Where several items have it, the page begins after all of them.
            limit: how many items a page has at most.
            descending: newest first.

        Raises:
            MissingError: the object is not there; or (kind "item") the part has no item with the id `after`.
        """
        with self._read() as connection:
            seq = self._require(connection, kind, id)
            beyond, order, start = _direction(descending)
            if after is not None:
                farthest = "min" if descending else "max"
                query = f"SELECT {farthest}(seq) FROM pieces WHERE object = ? AND part = ? AND id = ?"
                (start,) = connection.execute(query, (seq, part, rows.key(after))).fetchone()
                if start is None:
                    raise MissingError("item", after)
            query = f"""SELECT json FROM pieces WHERE object = ? AND part = ? AND number = 0 AND seq {beyond} ?
                ORDER BY seq {order} LIMIT ?"""
            found = rows.read_all(connection, query, (seq, part, start, min(limit + 1, MAX_INTEGER)))
            return Page(found[:limit], len(found) > limit)

    def item(self, kind: Kind, id: str, item_id: str) -> Json | None:
        """The item with this id, in any part of an object; None also where the object is not there."""
        with self._read() as connection:
            seq = self._find(connection, kind, id)
            if seq is None:
                return None
            query = "SELECT json FROM pieces WHERE object = ? AND id = ? ORDER BY seq DESC LIMIT 1"
            return next(iter(rows.read_all(connection, query, (seq, rows.key(item_id)))), None)

    def append(self, kind: Kind, id: str, items: Sequence[Json]) -> None:
        """Append items to the part "items", in which ids are unique; all or none.

        Raises:
            MissingError: the object is not there.
            DuplicateError: it has one with the id of a new one.
            ValueError: one has no id.
        """
        prepared = rows.prepare(items)
        with self._write() as connection:
            self._append(connection, kind, id, rows.ITEMS, prepared)

    def remove_item(self, kind: Kind, id: str, item_id: str) -> bool:
        """Remove the items with this id from all parts of an object; False if there is none, or no such object."""
        with self._write() as connection:
            seq = rows.find(connection, kind, id)
            query = "DELETE FROM pieces WHERE object = ? AND id = ?"
            return connection.execute(query, (seq, rows.key(item_id))).rowcount > 0

    def find_item(self, item_id: str) -> Json | None:
        """The newest item with this id in any object that is not deleted."""
        with self._read() as connection:
            query = """SELECT json FROM pieces JOIN objects ON objects.seq = object
                WHERE pieces.id = ? AND NOT deleted ORDER BY pieces.seq DESC LIMIT 1"""
            return next(iter(rows.read_all(connection, query, (rows.key(item_id),))), None)

    # Chains

    def chain(self, id: str) -> Items:
        """The items of a response and of those that it continues, oldest response first: its input, then its output.

        Those of deleted responses are among them.

        Raises:
            MissingError: there is no such response; or one that it continues was gone when it was saved.
        """
        with self._read() as connection:
            self._require(connection, "response", id)
            chain: dict[str, int] = {}  # newest first
            at: str | None = rows.key(id)
            while at is not None and at not in chain:
                chain[at], at = rows.link(connection, at)
            query = """SELECT json FROM pieces WHERE object = ? AND part IN ('input', 'output')
                ORDER BY part, number, seq"""
            return [item for seq in reversed(chain.values()) for item in rows.read_all(connection, query, (seq,))]

    # Numbered items: events of responses in the background, contents of files, lines of batches

    def events(self, id: str) -> Items:
        """The events of a response, in order.

        Raises:
            MissingError: the response is not there.
        """
        return [event for _, event in self.numbered("response", id, rows.EVENTS, after=-1, limit=MAX_INTEGER)]

    def add_numbered(self, kind: Kind, id: str, part: str, items: Iterable[tuple[int, Json]]) -> None:
        """Add items to a part, each under its number.

        Raises:
            MissingError: the object is not there.
        """
        with self._write() as connection:
            rows.add(connection, self._require(connection, kind, id), {part: items})

    def numbered(self, kind: Kind, id: str, part: str, *, after: int, limit: int) -> Numbered:
        """The first `limit` items of a part with larger numbers than `after`, in their order, with their numbers.

        Raises:
            MissingError: the object is not there.
        """
        with self._read() as connection:
            seq = self._require(connection, kind, id)
            query = """SELECT number, json FROM pieces WHERE object = ? AND part = ? AND number > ?
                ORDER BY number, seq LIMIT ?"""
            found = connection.execute(query, (seq, part, after, limit)).fetchall()
            return [(number, rows.read(connection, text)) for number, text in found]

    def numbers(self, kind: Kind, id: str, part: str) -> set[int]:
        """The numbers of the items of a part."""
        with self._read() as connection:
            query = "SELECT number FROM pieces WHERE object = ? AND part = ?"
            return {number for (number,) in connection.execute(query, (self._find(connection, kind, id), part))}

    # Processes

    def owned(self, kind: Kind = "response") -> Owners:
        """(id, owner) of the objects that a process works on, in the order in which they were first saved."""
        with self._read() as connection:
            query = "SELECT id, owner FROM objects WHERE kind = ? AND owner IS NOT NULL ORDER BY seq"
            return [(rows.unkey(id), owner) for id, owner in connection.execute(query, (kind,)).fetchall()]

    def claim(self, kind: Kind, owner: str, left: Callable[[str, Json], bool]) -> Ids:
        """Have a process work on the objects that others have left; of several that ask at once, one gets them.

        Args:
            kind: the objects'.
            owner: the process.
            left: takes an object's owner and the object. Must not use the store.

        Returns:
            The ids of what it works on from now on, in the order in which they were first saved.
        """
        with self._write() as connection:
            query = "SELECT seq, owner, id FROM objects WHERE kind = ? AND owner IS NOT NULL ORDER BY seq"
            found = connection.execute(query, (kind,)).fetchall()
            mine = [(seq, id) for seq, whose, id in found if left(whose, rows.body(connection, seq))]
            connection.executemany("UPDATE objects SET owner = ? WHERE seq = ?", [(owner, seq) for seq, _ in mine])
            return [rows.unkey(id) for _, id in mine]

    # Inside of transactions

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._database.transaction(write=False) as connection:
            self._clock += 1
            yield connection

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._database.transaction(write=True) as connection:
            self._clock += 1
            yield connection
            if self.limit is not None:
                self._evict(connection, self.limit)

    def _find(self, connection: sqlite3.Connection, kind: Kind, id: str) -> int | None:
        """An object's seq, which is marked as used; None where there is none."""
        seq = rows.find(connection, kind, id)
        if seq is not None:
            self._use(connection, seq)
        return seq

    def _use(self, connection: sqlite3.Connection, seq: int) -> None:
        """Mark an object as used now."""
        if self.limit is not None:
            connection.execute("UPDATE objects SET used = ? WHERE seq = ?", (self._clock, seq))

    def _evict(self, connection: sqlite3.Connection, limit: int) -> None:
        """Evict what was used least recently.

        Objects that others continue are never candidates, so that they need not be marked at each use; when the last
        one that continues them is removed, they take over its time.
        """
        query = """SELECT seq FROM objects WHERE children = 0 AND owner IS NULL AND used < ?
            ORDER BY used LIMIT 1"""
        while (rows.pages(connection) - self._empty) * self._page_size > limit:
            row = connection.execute(query, (self._clock,)).fetchone()
            if row is None:
                return
            rows.remove(connection, row[0])

    def _require(self, connection: sqlite3.Connection, kind: Kind, id: str) -> int:
        seq = rows.require(connection, kind, id)
        self._use(connection, seq)
        return seq

    def _append(self, connection: sqlite3.Connection, kind: Kind, id: str, part: str, items: rows.Prepared) -> None:
        seq = self._require(connection, kind, id)
        for item in items:
            rows.put(connection, seq, part, item)


def _direction(descending: bool) -> tuple[str, str, int]:
    """(comparison with what comes later in a list, order, a seq before all)."""
    return ("<", "DESC", MAX_INTEGER) if descending else (">", "ASC", -1)
