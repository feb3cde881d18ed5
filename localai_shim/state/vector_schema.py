"""The tables of vector stores, which are created when they are first used: other programs' files need none."""

from __future__ import annotations

import sqlite3

from ..types import log

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
