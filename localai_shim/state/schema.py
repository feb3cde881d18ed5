"""The tables, and how a connection to them is opened.

The tables of vector stores are created when they are first used: other programs' files need none.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time

from ..threads.system import Lock, sleep
from ..types import log
from .errors import StoreError

VERSION = 1
"""PRAGMA user_version. Files of a newer one are refused."""
APPLICATION_ID = 0x4C4F4149
"""PRAGMA application_id: tells our files from other programs'."""

SCHEMA = (
    # seq is the order of creation. `deleted` ones are there only for those that continue them (`children` of them).
    # `used` is the time of the last use, on a clock that ticks once per call; in memory only.
    """CREATE TABLE objects(
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, previous TEXT, owner TEXT,
        deleted INTEGER NOT NULL DEFAULT 0, children INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0,
        UNIQUE(kind, id))""",
    "CREATE INDEX objects_kind ON objects(kind)",
    "CREATE INDEX objects_previous ON objects(previous) WHERE previous IS NOT NULL",
    "CREATE INDEX objects_owner ON objects(owner) WHERE owner IS NOT NULL",
    """CREATE TRIGGER child_added AFTER INSERT ON objects WHEN new.previous IS NOT NULL BEGIN
        UPDATE objects SET children = children + 1 WHERE kind = 'response' AND id = new.previous; END""",
    """CREATE TRIGGER child_removed AFTER DELETE ON objects WHEN old.previous IS NOT NULL BEGIN
        UPDATE objects SET children = children - 1, used = max(used, old.used)
        WHERE kind = 'response' AND id = old.previous; END""",
    # What objects consist of: their bodies, items and events, in the order (number, seq).
    """CREATE TABLE pieces(
        seq INTEGER PRIMARY KEY, object INTEGER NOT NULL REFERENCES objects ON DELETE CASCADE, part TEXT NOT NULL,
        number INTEGER NOT NULL, id TEXT, json TEXT NOT NULL)""",
    "CREATE INDEX pieces_object ON pieces(object, part, number)",
    "CREATE INDEX pieces_id ON pieces(id) WHERE id IS NOT NULL",
    "CREATE UNIQUE INDEX pieces_unique ON pieces(object, id) WHERE part = 'items'",
    # Large strings, by the SHA-256 of their contents, and the pieces that they are in.
    "CREATE TABLE texts(hash BLOB PRIMARY KEY, content BLOB NOT NULL)",
    """CREATE TABLE uses(
        piece INTEGER NOT NULL REFERENCES pieces ON DELETE CASCADE, hash BLOB NOT NULL,
        PRIMARY KEY(piece, hash)) WITHOUT ROWID""",
    "CREATE INDEX uses_hash ON uses(hash)",
    """CREATE TRIGGER text_unused AFTER DELETE ON uses BEGIN
        DELETE FROM texts WHERE hash = old.hash AND NOT EXISTS (SELECT 1 FROM uses WHERE hash = old.hash); END""",
)
# What may be evicted: what no process works on and nothing continues.
MEMORY_SCHEMA = ("CREATE INDEX objects_used ON objects(used) WHERE children = 0 AND owner IS NULL",)

_creating = Lock()


def is_busy(error: BaseException) -> bool:
    """True if another process has a lock on the file."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def connect(path: str | None, seconds: float) -> sqlite3.Connection:
    """Open a database, and create the tables where it is new.

    Args:
        path: None: in memory.
        seconds: that it, and each statement later, waits for locks of other processes. If the tables exist,
            it does not wait for writers.

    Raises:
        StoreError: the file is another program's, or of a newer schema.
        sqlite3.Error, OSError: it cannot be opened, or is not a database.
    """
    if path is not None:
        _create(path)
    connection = sqlite3.connect(path or ":memory:", timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")  # one consistent view, while another connection may be creating the tables
        is_new = _is_new(connection)  # before anything is changed in another program's file
        connection.execute("COMMIT")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        if path is not None:
            _use_wal(connection, seconds)
        if is_new:
            _make_tables(connection, SCHEMA if path is not None else SCHEMA + MEMORY_SCHEMA)
        else:
            _check_writable(connection, seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: str) -> None:
    """Create an empty file that only its owner may read, where there is none.

    A file that is there is not opened: closing it would end the locks that this process holds on it.
    https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
    """
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _use_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """A log that is written before a commit returns; what was committed survives the process.

    It is flushed to the disk at checkpoints only: a power cut may take the latest commits, and breaks nothing.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # SQLite's own timeout does not cover this statement
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")


def _check_writable(connection: sqlite3.Connection, seconds: float) -> None:
    """Raise where the file cannot be written. One that another process writes just now can be."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _make_tables(connection: sqlite3.Connection, schema: tuple[str, ...]) -> None:
    connection.execute("BEGIN IMMEDIATE")  # fails where the file cannot be written
    if _is_new(connection):
        for statement in schema:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _is_new(connection: sqlite3.Connection) -> bool:
    """True if the database is empty; raises StoreError where its content cannot be used."""

    def value(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    application, version = value("PRAGMA application_id"), value("PRAGMA user_version")
    if (application, version) == (0, 0) and not value("SELECT count(*) FROM sqlite_master"):
        return True
    if application != APPLICATION_ID:
        raise StoreError("it is another program's database")
    if version > VERSION:
        raise StoreError(f"it was made by a newer version (schema {version}, this version knows {VERSION})")
    return False


TABLES = (
    """CREATE TABLE IF NOT EXISTS vector_stores(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)""",
    # `owner` is the process that embeds a file; `model` is that whose vectors its chunks have.
    """CREATE TABLE IF NOT EXISTS vector_files(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL REFERENCES vector_stores ON DELETE CASCADE,
        id TEXT NOT NULL, batch TEXT, status TEXT NOT NULL, owner TEXT, model TEXT, usage INTEGER NOT NULL DEFAULT 0,
        json TEXT NOT NULL, UNIQUE(store, id))""",
    "CREATE INDEX IF NOT EXISTS vector_files_id ON vector_files(id)",
    "CREATE INDEX IF NOT EXISTS vector_files_batch ON vector_files(batch) WHERE batch IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS vector_files_owner ON vector_files(owner) WHERE owner IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS vector_batches(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, store INTEGER NOT NULL REFERENCES vector_stores ON DELETE CASCADE,
        id TEXT NOT NULL UNIQUE, json TEXT NOT NULL)""",
    # Numbers are never used twice: the index of words may have rows of chunks that are gone.
    """CREATE TABLE IF NOT EXISTS vector_chunks(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL REFERENCES vector_files ON DELETE CASCADE,
        store INTEGER NOT NULL, start INTEGER NOT NULL, text TEXT NOT NULL, vector BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS vector_chunks_file ON vector_chunks(file, seq)",
    "CREATE INDEX IF NOT EXISTS vector_chunks_store ON vector_chunks(store, seq)",
)
WORDS = """CREATE VIRTUAL TABLE vector_words USING fts5(
    text, content='vector_chunks', content_rowid='seq', tokenize='unicode61')"""


def are_made(connection: sqlite3.Connection) -> bool:
    """True if the file has the tables."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'vector_chunks'"
    return connection.execute(query).fetchone() is not None


def make_tables(connection: sqlite3.Connection) -> bool:
    """Create the tables that are missing; False if there can be no index of words, which is logged."""
    for statement in TABLES:
        connection.execute(statement)
    return has_words(connection) or _make_words(connection)


def has_words(connection: sqlite3.Connection) -> bool:
    """True if there is an index of words that this SQLite can read."""
    try:
        connection.execute("SELECT rowid FROM vector_words LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True


def _make_words(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute(WORDS)
        connection.execute("INSERT INTO vector_words(vector_words) VALUES ('rebuild')")
    except sqlite3.OperationalError as error:
        log.warning("vector stores are searched by vectors only, not by words: this SQLite has no FTS5 (%s)", error)
        return False
    return True


def index_words(connection: sqlite3.Connection, seq: int, text: str) -> None:
    """Add a chunk's words to the index."""
    connection.execute("INSERT INTO vector_words(rowid, text) VALUES (?, ?)", (seq, text))


def forget_words(connection: sqlite3.Connection, where: str, value: int) -> None:
    """Remove the words of chunks from the index, before the chunks are deleted.

    Args:
        where: a condition on `vector_chunks` with one `?`.
    """
    query = f"""INSERT INTO vector_words(vector_words, rowid, text)
        SELECT 'delete', seq, text FROM vector_chunks WHERE {where}"""
    connection.execute(query, (value,))
