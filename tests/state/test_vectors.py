"""Vector stores as they are kept: their tables come with their first use, and whatever is removed leaves nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from localai_shim.state.store import MissingError, Store
from localai_shim.state.vector_search import extent_of, read_blocks, read_chunks, searched_files, with_words
from localai_shim.state.vectors import Chunk, Vectors, has_unfinished, remove_everywhere

ME, OTHER = "me", "other"
VECTOR = b"\0\0\x80\x3f"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "state.db" if request.param == "file" else None)
    yield made
    made.close()


@pytest.fixture
def vectors(store: Store) -> Vectors:
    made = Vectors(store)
    made.create("vs_1", {"name": "docs"})
    return made


def fill(vectors: Vectors, id: str, file: str, *texts: str) -> int:
    """The number of a file that has been embedded."""
    [seq] = vectors.attach(id, [(file, {"filename": file})], owner=ME)
    assert vectors.begin(seq, ME) is not None
    assert vectors.add_chunks(seq, ME, [Chunk(10 * i, text, VECTOR) for i, text in enumerate(texts)])
    assert vectors.end(seq, ME, model="m")
    return seq


def count(vectors: Vectors, table: str) -> int:
    with vectors.store.transaction(write=False) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found


def test_a_file_without_vector_stores_has_no_tables_for_them(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    assert not has_unfinished(store)
    remove_everywhere(store, "file-1")
    with sqlite3.connect(tmp_path / "state.db") as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'vector%'").fetchall()
    Vectors(store)
    Vectors(store)
    store.close()


def test_vector_stores_survive_their_process(tmp_path: Path) -> None:
    first = Vectors(Store(tmp_path / "state.db"))
    first.create("vs_1", {"name": "docs"})
    fill(first, "vs_1", "file-1", "rain in Paris")
    first.store.close()
    again = Vectors(Store(tmp_path / "state.db"))
    held = again.get("vs_1")
    assert held is not None and held.body == {"name": "docs"} and held.counts["completed"] == 1
    assert with_words(again, ["vs_1"], "Paris", searched_files(again, ["vs_1"]), 5) == [1]
    again.store.close()


def test_usage_counts_texts_and_vectors(vectors: Vectors) -> None:
    fill(vectors, "vs_1", "file-1", "ab", "cd")
    file = vectors.file("vs_1", "file-1")
    assert file is not None and file["usage"] == 2 * (2 + len(VECTOR))
    held = vectors.get("vs_1")
    assert held is not None and held.usage == file["usage"]


def test_texts_do_not_overlap(vectors: Vectors) -> None:
    fill(vectors, "vs_1", "file-1", "0123456789abcdef", "abcdefghijklmno", "klm")
    assert vectors.texts_of("vs_1", "file-1") == ["0123456789", "abcdefghij", "klm"]
    assert vectors.texts_of("vs_1", "file-2") is None


def test_removing_a_file_leaves_no_words_and_no_chunks(vectors: Vectors) -> None:
    fill(vectors, "vs_1", "file-1", "rain in Paris")
    kept = fill(vectors, "vs_1", "file-2", "sun in Paris")
    assert vectors.remove_file("vs_1", "file-1") and not vectors.remove_file("vs_1", "file-1")
    files = searched_files(vectors, ["vs_1"])
    assert list(files) == [kept]
    assert with_words(vectors, ["vs_1"], "rain Paris", files, 5) == [2]
    assert count(vectors, "vector_chunks") == 1
    with vectors.store.transaction(write=True) as connection:
        connection.execute("INSERT INTO vector_words(vector_words) VALUES ('integrity-check')")


def test_deleting_a_vector_store_leaves_nothing(vectors: Vectors) -> None:
    vectors.create("vs_2", {})
    fill(vectors, "vs_1", "file-1", "rain")
    fill(vectors, "vs_2", "file-1", "sun")
    vectors.attach("vs_1", [("file-3", {})], owner=ME, batch=("vsfb_1", {"cancelled": False}))
    assert vectors.delete("vs_1") and not vectors.delete("vs_1")
    assert [count(vectors, f"vector_{table}") for table in ("stores", "files", "batches", "chunks")] == [1, 1, 0, 1]
    assert not has_unfinished(vectors.store)


def test_a_file_removed_everywhere_is_in_no_vector_store(vectors: Vectors) -> None:
    vectors.create("vs_2", {})
    for id in ("vs_1", "vs_2"):
        fill(vectors, id, "file-1", "rain")
        fill(vectors, id, "file-2", "sun")
    remove_everywhere(vectors.store, "file-1")
    for id in ("vs_1", "vs_2"):
        assert vectors.file(id, "file-1") is None and vectors.file(id, "file-2") is not None


def test_only_the_owner_adds_chunks_and_ends_a_file(vectors: Vectors) -> None:
    [seq] = vectors.attach("vs_1", [("file-1", {})], owner=ME)
    assert vectors.begin(seq, OTHER) is None
    assert not vectors.add_chunks(seq, OTHER, [Chunk(0, "a", VECTOR)])
    assert not vectors.end(seq, OTHER)
    assert [task.file_id for task in vectors.claim(OTHER, lambda owner: owner == ME)] == ["file-1"]
    assert not vectors.add_chunks(seq, ME, [Chunk(0, "a", VECTOR)])
    assert vectors.end(seq, OTHER, error={"code": "server_error", "message": "x"})
    file = vectors.file("vs_1", "file-1")
    assert file is not None and file["status"] == "failed" and file["last_error"]["message"] == "x"


def test_a_file_that_is_begun_again_has_no_old_chunks(vectors: Vectors) -> None:
    [seq] = vectors.attach("vs_1", [("file-1", {"filename": "a"})], owner=ME)
    vectors.add_chunks(seq, ME, [Chunk(0, "rain", VECTOR)])
    assert vectors.begin(seq, ME) is not None
    assert count(vectors, "vector_chunks") == 0
    vectors.add_chunks(seq, ME, [Chunk(0, "sun", VECTOR)])
    vectors.end(seq, ME, model="m")
    files = searched_files(vectors, ["vs_1"])
    assert with_words(vectors, ["vs_1"], "rain", files, 5) == []
    assert len(with_words(vectors, ["vs_1"], "sun", files, 5)) == 1


def test_numbers_of_chunks_are_never_used_again(vectors: Vectors) -> None:
    fill(vectors, "vs_1", "file-1", "rain")
    first = extent_of(vectors, "vs_1")
    vectors.remove_file("vs_1", "file-1")
    assert extent_of(vectors, "vs_1").chunks == 0
    fill(vectors, "vs_1", "file-2", "sun")
    assert extent_of(vectors, "vs_1").last > first.last
    assert read_chunks(vectors, [first.last]) == {}


def test_blocks_have_all_chunks_in_their_order(vectors: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localai_shim.state.vector_search.BLOCK", 3)
    fill(vectors, "vs_1", "file-1", *"abcdefg")
    blocks = list(read_blocks(vectors, "vs_1"))
    assert [len(block) for block in blocks] == [3, 3, 1]
    assert [row[0] for block in blocks for row in block] == list(range(1, 8))
    assert [row[0] for block in read_blocks(vectors, "vs_1", 5) for row in block] == [6, 7]


def test_a_vector_store_that_is_not_there_takes_no_files(vectors: Vectors) -> None:
    with pytest.raises(MissingError):
        vectors.attach("vs_none", [("file-1", {})], owner=ME)
    assert vectors.get("vs_none") is None and vectors.update("vs_none", dict) is None
