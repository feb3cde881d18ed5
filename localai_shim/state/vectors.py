"""Vector stores, their files and batches of files, and chunks with their vectors: ids and states, no shapes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..types import Json
from . import schema
from .errors import FullError, MissingError
from .rows import key, unkey
from .store import MAX_INTEGER, Page, Store

STATES = ("in_progress", "completed", "cancelled", "failed")
MEMORY_SHARE = 0.5
"""Share of a store in memory that chunks may take: they are never evicted."""
_IN_STORE = "store = (SELECT seq FROM vector_stores WHERE id = ?)"


class Held(NamedTuple):
    """A vector store or a batch of files, with what is known of its files."""

    body: Json
    counts: dict[str, int]
    """State -> number of files."""
    usage: int
    """Bytes of the chunks of its files."""


class Chunk(NamedTuple):
    """A piece of a file's text."""

    start: int
    """Position of its first character in the text."""
    text: str
    vector: bytes
    """float32 numbers."""


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be embedded."""

    seq: int
    file_id: str
    body: Json


Numbers = list[int]  # inside of Vectors, `list` is a method
Texts = list[str]
Stores = list[tuple[str, Held]]
Tasks = list[Task]


class Vectors:
    """The vector stores in a store. Methods are atomic, thread-safe, and durable when they return.

    Args:
        store: keeps them.

    Raises:
        StoreError: from every method: the store cannot be used.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        with store.transaction(write=True) as connection:
            self.has_words = schema.make_tables(connection)

    # Vector stores

    def create(self, id: str, body: Json) -> None:
        """Add a vector store."""
        with self._write() as connection:
            connection.execute("INSERT INTO vector_stores(id, json) VALUES (?, ?)", (key(id), json.dumps(body)))

    def get(self, id: str) -> Held | None:
        """A vector store; None if there is none."""
        with self._read() as connection:
            row = connection.execute("SELECT seq, json FROM vector_stores WHERE id = ?", (key(id),)).fetchone()
            return None if row is None else _held(connection, row[1], "store = ?", row[0])

    def update(self, id: str, change: Callable[[Json], Json]) -> Held | None:
        """Replace a vector store's body by what `change` returns for it; None if there is none."""
        with self._write() as connection:
            row = connection.execute("SELECT seq, json FROM vector_stores WHERE id = ?", (key(id),)).fetchone()
            if row is None:
                return None
            text = json.dumps(change(json.loads(row[1])))
            connection.execute("UPDATE vector_stores SET json = ? WHERE seq = ?", (text, row[0]))
            return _held(connection, text, "store = ?", row[0])

    def delete(self, id: str) -> bool:
        """Remove a vector store with all that belongs to it; False if there was none."""
        with self._write() as connection:
            seq = _seq_of(connection, id)
            if seq is None:
                return False
            self._clear(connection, "store = ?", seq)
            connection.execute("DELETE FROM vector_stores WHERE seq = ?", (seq,))
            return True

    def empty(self, id: str) -> None:
        """Remove all files of a vector store."""
        with self._write() as connection:
            seq = _seq_of(connection, id)
            if seq is not None:
                self._clear(connection, "store = ?", seq)
                connection.execute("DELETE FROM vector_files WHERE store = ?", (seq,))

    def list(self, *, after: str | None, limit: int, descending: bool) -> tuple[Stores, bool]:
        """(id, vector store) in the order in which they were created, and whether there are more.

        Raises:
            MissingError: there is none with the id `after`.
        """
        with self._read() as connection:
            start = None if after is None else _seq_of(connection, after)
            if after is not None and start is None:
                raise MissingError("vector_store", after)
            query = "SELECT seq, json, id FROM vector_stores WHERE 1"
            found = _page(connection, query, (), start, limit, descending)
            stores = [(unkey(id), _held(connection, text, "store = ?", seq)) for seq, text, id in found[:limit]]
            return stores, len(found) > limit

    # Files

    def attach(
        self, id: str, files: Sequence[tuple[str, Json]], *, owner: str, batch: tuple[str, Json] | None = None
    ) -> Numbers:
        """Add files that are to be embedded; one that is there already is replaced.

        Args:
            id: the vector store's.
            files: ids and bodies.
            owner: the process that embeds them.
            batch: id and body of the batch that they belong to, which is created.

        Returns:
            Numbers for `begin`.

        Raises:
            MissingError: there is no such vector store.
        """
        with self._write() as connection:
            store = _seq_of(connection, id)
            if store is None:
                raise MissingError("vector_store", id)
            if batch is not None:
                query = "INSERT INTO vector_batches(store, id, json) VALUES (?, ?, ?)"
                connection.execute(query, (store, key(batch[0]), json.dumps(batch[1])))
            numbers = []
            for file, body in files:
                self._remove(connection, "store = ? AND id = ?", store, key(file))
                query = """INSERT INTO vector_files(store, id, batch, status, owner, json)
                    VALUES (?, ?, ?, 'in_progress', ?, ?)"""
                values = (store, key(file), None if batch is None else key(batch[0]), owner, json.dumps(body))
                seq = connection.execute(query, values).lastrowid
                assert seq is not None
                numbers.append(seq)
            return numbers

    def file(self, id: str, file_id: str) -> Json | None:
        """A file's body with its `status`, `usage`, and `owner`; None if the vector store has no such file."""
        with self._read() as connection:
            query = f"SELECT seq, status, usage, owner, json FROM vector_files WHERE {_IN_STORE} AND id = ?"
            row = connection.execute(query, (key(id), key(file_id))).fetchone()
            return None if row is None else _file(row)

    def files(
        self, id: str, *, batch: str | None, status: str | None, after: str | None, limit: int, descending: bool
    ) -> Page:
        """Files of a vector store in the order in which they were added, as `file` returns them.

        Args:
            batch: only those of this batch.
            status: only those with this status.

        Raises:
            MissingError: the vector store has no file with the id `after`.
        """
        conditions, values = [_IN_STORE], [key(id)]
        for name, value in (("batch", batch), ("status", status)):
            if value is not None:
                conditions.append(f"{name} = ?")
                values.append(key(value))
        with self._read() as connection:
            start = None
            if after is not None:
                query = f"SELECT seq FROM vector_files WHERE {_IN_STORE} AND id = ?"
                row = connection.execute(query, (key(id), key(after))).fetchone()
                if row is None:
                    raise MissingError("item", after)
                start = row[0]
            query = f"SELECT seq, status, usage, owner, json FROM vector_files WHERE {' AND '.join(conditions)}"
            found = _page(connection, query, values, start, limit, descending)
            return Page([_file(row) for row in found[:limit]], len(found) > limit)

    def update_file(self, id: str, file_id: str, change: Callable[[Json], Json]) -> Json | None:
        """Replace a file's body by what `change` returns for it; None if the vector store has no such file."""
        with self._write() as connection:
            query = f"SELECT seq, status, usage, owner, json FROM vector_files WHERE {_IN_STORE} AND id = ?"
            row = connection.execute(query, (key(id), key(file_id))).fetchone()
            if row is None:
                return None
            text = json.dumps(change(json.loads(row[4])))
            connection.execute("UPDATE vector_files SET json = ? WHERE seq = ?", (text, row[0]))
            return _file((*row[:4], text))

    def remove_file(self, id: str, file_id: str) -> bool:
        """Remove a file and its chunks from a vector store; False if it had none."""
        with self._write() as connection:
            return self._remove(connection, f"{_IN_STORE} AND id = ?", key(id), key(file_id))

    def texts_of(self, id: str, file_id: str) -> Texts | None:
        """The text of a file in pieces, none of which overlap; None if the vector store has no such file."""
        with self._read() as connection:
            query = f"SELECT seq FROM vector_files WHERE {_IN_STORE} AND id = ?"
            row = connection.execute(query, (key(id), key(file_id))).fetchone()
            if row is None:
                return None
            query = "SELECT start, text FROM vector_chunks WHERE file = ? ORDER BY seq"
            found = connection.execute(query, row).fetchall()
            ends = [*(start for start, _ in found[1:]), MAX_INTEGER]
            return [text[: end - start] for (start, text), end in zip(found, ends, strict=False)]

    # Batches of files

    def batch(self, id: str, batch_id: str) -> Held | None:
        """A batch of files; None if the vector store has no such batch."""
        with self._read() as connection:
            query = f"SELECT json FROM vector_batches WHERE {_IN_STORE} AND id = ?"
            row = connection.execute(query, (key(id), key(batch_id))).fetchone()
            return None if row is None else _held(connection, row[0], "batch = ?", key(batch_id))

    def cancel_batch(self, id: str, batch_id: str) -> Held | None:
        """Cancel the files of a batch that are not embedded yet; None if there is no such batch."""
        with self._write() as connection:
            query = f"SELECT json FROM vector_batches WHERE {_IN_STORE} AND id = ?"
            row = connection.execute(query, (key(id), key(batch_id))).fetchone()
            if row is None:
                return None
            query = "SELECT seq FROM vector_files WHERE batch = ? AND status = 'in_progress'"
            found = connection.execute(query, (key(batch_id),)).fetchall()
            for (seq,) in found:
                self._clear(connection, "file = ?", seq)
                query = "UPDATE vector_files SET status = 'cancelled', owner = NULL, usage = 0 WHERE seq = ?"
                connection.execute(query, (seq,))
            body = json.loads(row[0])
            if found:
                body["cancelled"] = True
                query = "UPDATE vector_batches SET json = ? WHERE id = ?"
                connection.execute(query, (json.dumps(body), key(batch_id)))
            return _held(connection, json.dumps(body), "batch = ?", key(batch_id))

    # Embedding

    def claim(self, owner: str, left: Callable[[str], bool]) -> Tasks:
        """Have a process embed the files that others have left; of several that ask at once, one gets them.

        Args:
            owner: the process.
            left: says whether a file's owner works no longer. Must not use the store.
        """
        with self._write() as connection:
            query = "SELECT seq, id, json, owner FROM vector_files WHERE owner IS NOT NULL ORDER BY seq"
            found = [row for row in connection.execute(query).fetchall() if row[3] != owner and left(row[3])]
            query = "UPDATE vector_files SET owner = ? WHERE seq = ?"
            connection.executemany(query, [(owner, row[0]) for row in found])
            return [_task(row) for row in found]

    def begin(self, seq: int, owner: str) -> Task | None:
        """A file that is to be embedded, without what was embedded of it; None if it is not to be any more."""
        with self._write() as connection:
            query = "SELECT seq, id, json FROM vector_files WHERE seq = ? AND owner = ?"
            row = connection.execute(query, (seq, owner)).fetchone()
            if row is None:
                return None
            self._clear(connection, "file = ?", seq)
            connection.execute("UPDATE vector_files SET usage = 0 WHERE seq = ?", (seq,))
            return _task(row)

    def add_chunks(self, seq: int, owner: str, chunks: Iterable[Chunk]) -> bool:
        """Add chunks to a file that is being embedded; False if it is not to be any more.

        Raises:
            FullError: the store is in memory, and has no room for them.
        """
        with self._write() as connection:
            query = "SELECT store FROM vector_files WHERE seq = ? AND owner = ?"
            row = connection.execute(query, (seq, owner)).fetchone()
            if row is None:
                return False
            added = 0
            for chunk in chunks:
                query = "INSERT INTO vector_chunks(file, store, start, text, vector) VALUES (?, ?, ?, ?, ?)"
                number = connection.execute(query, (seq, row[0], *chunk)).lastrowid
                assert number is not None
                if self.has_words:
                    schema.index_words(connection, number, chunk.text)
                added += len(chunk.text.encode()) + len(chunk.vector)
            connection.execute("UPDATE vector_files SET usage = usage + ? WHERE seq = ?", (added, seq))
            limit = self.store.limit
            if limit is not None:
                (used,) = connection.execute("SELECT total(usage) FROM vector_files").fetchone()
                if used > limit * MEMORY_SHARE:
                    raise FullError(f"{limit * MEMORY_SHARE / 2**20:.0f} MiB of chunks fit into a store in memory")
            return True

    def end(self, seq: int, owner: str, *, model: str | None = None, error: Json | None = None) -> bool:
        """End the embedding of a file; False if it had ended.

        Args:
            model: that has embedded it.
            error: the file's `last_error`; None: it is completed.
        """
        with self._write() as connection:
            query = "SELECT json FROM vector_files WHERE seq = ? AND owner = ?"
            row = connection.execute(query, (seq, owner)).fetchone()
            if row is None:
                return False
            if error is not None:
                self._clear(connection, "file = ?", seq)
                connection.execute("UPDATE vector_files SET usage = 0 WHERE seq = ?", (seq,))
            status, body = ("completed" if error is None else "failed"), {**json.loads(row[0]), "last_error": error}
            query = "UPDATE vector_files SET status = ?, owner = NULL, model = ?, json = ? WHERE seq = ?"
            connection.execute(query, (status, model, json.dumps(body), seq))
            return True

    # Inside of transactions

    def _clear(self, connection: sqlite3.Connection, where: str, value: int) -> None:
        """Remove chunks, of a file or of a vector store."""
        if self.has_words:
            schema.forget_words(connection, where, value)
        connection.execute(f"DELETE FROM vector_chunks WHERE {where}", (value,))

    def _remove(self, connection: sqlite3.Connection, where: str, *values: str | int) -> bool:
        """Remove files."""
        found = connection.execute(f"SELECT seq FROM vector_files WHERE {where}", values).fetchall()
        for (seq,) in found:
            self._clear(connection, "file = ?", seq)
            connection.execute("DELETE FROM vector_files WHERE seq = ?", (seq,))
        return bool(found)

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self.store.transaction(write=False) as connection:
            yield connection

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self.store.transaction(write=True) as connection:
            yield connection


def has_unfinished(store: Store) -> bool:
    """True if some files of vector stores are not embedded yet."""
    with store.transaction(write=False) as connection:
        if not schema.are_made(connection):
            return False
        query = "SELECT 1 FROM vector_files WHERE owner IS NOT NULL LIMIT 1"
        return connection.execute(query).fetchone() is not None


def remove_everywhere(store: Store, file_id: str) -> None:
    """Remove a file and its chunks from all vector stores, if there are some."""
    with store.transaction(write=False) as connection:
        if not schema.are_made(connection):
            return
    vectors = Vectors(store)
    with vectors._write() as connection:
        vectors._remove(connection, "id = ?", key(file_id))


def _seq_of(connection: sqlite3.Connection, id: str) -> int | None:
    row = connection.execute("SELECT seq FROM vector_stores WHERE id = ?", (key(id),)).fetchone()
    return None if row is None else int(row[0])


def _held(connection: sqlite3.Connection, text: str, where: str, value: int | str) -> Held:
    query = f"SELECT status, count(*), sum(usage) FROM vector_files WHERE {where} GROUP BY status"
    found = connection.execute(query, (value,)).fetchall()
    counts = dict.fromkeys(STATES, 0) | {status: count for status, count, _ in found}
    return Held(json.loads(text), counts, sum(usage for _, _, usage in found))


def _file(row: tuple[int, str, int, str | None, str]) -> Json:
    _, status, usage, owner, text = row
    return {**json.loads(text), "status": status, "usage": usage, "owner": owner}


def _task(row: Sequence[object]) -> Task:
    body: Json = json.loads(str(row[2]))
    return Task(int(str(row[0])), unkey(str(row[1])), body)


def _page(
    connection: sqlite3.Connection,
    query: str,
    values: Sequence[str],
    start: int | None,
    limit: int,
    descending: bool,
) -> list[Any]:
    """Rows of a query behind `start`, one more than `limit` if there are more."""
    beyond, order, first = ("<", "DESC", MAX_INTEGER) if descending else (">", "ASC", -1)
    query += f" AND seq {beyond} ? ORDER BY seq {order} LIMIT ?"
    return connection.execute(query, (*values, first if start is None else start, limit + 1)).fetchall()
