"""Reads vector stores for a search: files, vectors in blocks, chunks with words of a query, and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..types import Json
from .rows import key, unkey
from .vectors import Vectors

BLOCK = 2048
"""Vectors that are read in one transaction: what else uses the store waits no longer than for these."""
MAX_WORDS = 64
"""Different words of a query that are looked up."""
_WORD = re.compile(r"\w+")


class Searched(NamedTuple):
    """A file that is searched."""

    file_id: str
    body: Json
    model: str | None
    """Name of the model that has made its vectors."""


class Found(NamedTuple):
    """A chunk that was found."""

    file: int
    text: str


def searched_files(vectors: Vectors, ids: Sequence[str]) -> dict[int, Searched]:
    """Number -> file, of the files in vector stores that are completed."""
    marks = ", ".join("?" * len(ids))
    query = f"""SELECT f.seq, f.id, f.json, f.model FROM vector_files f JOIN vector_stores s ON s.seq = f.store
        WHERE s.id IN ({marks}) AND f.status = 'completed' ORDER BY f.seq"""
    with vectors.store.transaction(write=False) as connection:
        rows = connection.execute(query, [key(id) for id in ids]).fetchall()
    return {seq: Searched(unkey(id), json.loads(body), model) for seq, id, body, model in rows}


class Extent(NamedTuple):
    """The chunks of a vector store: as long as it is the same, so are they."""

    last: int
    """Number of the newest chunk; -1: there is none."""
    chunks: int
    bytes: int
    """Size of a vector."""


def extent_of(vectors: Vectors, id: str) -> Extent:
    """The extent of a vector store."""
    query = """SELECT max(seq), count(*) FROM vector_chunks
        WHERE store = (SELECT seq FROM vector_stores WHERE id = ?)"""
    with vectors.store.transaction(write=False) as connection:
        last, count = connection.execute(query, (key(id),)).fetchone()
        if not count:
            return Extent(-1, 0, 0)
        (size,) = connection.execute("SELECT length(vector) FROM vector_chunks WHERE seq = ?", (last,)).fetchone()
        return Extent(last, count, size)


def read_blocks(vectors: Vectors, id: str, last: int = -1) -> Iterator[list[tuple[int, int, bytes]]]:
    """(number, number of the file, vector) of the chunks of a vector store behind number `last`, in blocks."""
    query = """SELECT seq, file, vector FROM vector_chunks
        WHERE store = (SELECT seq FROM vector_stores WHERE id = ?) AND seq > ? ORDER BY seq LIMIT ?"""
    while True:
        with vectors.store.transaction(write=False) as connection:
            rows = connection.execute(query, (key(id), last, BLOCK)).fetchall()
        if rows:
            yield rows
        if len(rows) < BLOCK:
            return
        last = rows[-1][0]


def with_words(vectors: Vectors, ids: Sequence[str], query: str, files: Collection[int], most: int) -> list[int]:
    """Chunks with words of a query, the most relevant first, by BM25; none if there is no index of words.

    Args:
        files: numbers of the files whose chunks are wanted.
        most: chunks.
    """
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]
    if not vectors.has_words or not words:
        return []
    marks = ", ".join("?" * len(ids))
    match = " OR ".join(f'"{word}"' for word in words)
    statement = f"""SELECT c.seq, c.file FROM vector_words JOIN vector_chunks c ON c.seq = vector_words.rowid
        WHERE vector_words MATCH ? AND c.store IN (SELECT seq FROM vector_stores WHERE id IN ({marks}))
        ORDER BY vector_words.rank"""
    found: list[int] = []
    with vectors.store.transaction(write=False) as connection:
        cursor = connection.execute(statement, (match, *[key(id) for id in ids]))
        try:
            for seq, file in cursor:
                if file in files:
                    found.append(seq)
                    if len(found) == most:
                        break
        finally:
            cursor.close()
    return found


def read_chunks(vectors: Vectors, numbers: Sequence[int]) -> dict[int, Found]:
    """Number -> chunk, of those that are still there and whose file is completed."""
    marks = ", ".join("?" * len(numbers))
    query = f"""SELECT c.seq, c.file, c.text FROM vector_chunks c JOIN vector_files f ON f.seq = c.file
        WHERE c.seq IN ({marks}) AND f.status = 'completed'"""
    with vectors.store.transaction(write=False) as connection:
        return {seq: Found(file, text) for seq, file, text in connection.execute(query, list(numbers)).fetchall()}
