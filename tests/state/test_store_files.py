"""Files of a store: who may read them, and those that cannot be used."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import warnings
import weakref
from pathlib import Path

import pytest

from localai_shim.state.store import MissingError, Store, StoreError
from tests.state.forking import end, fork
from tests.warm import python

ROOT = Path(__file__).parents[2]


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(path)
        store.save("response", "r1", {})
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("state.db", "state.db-wal", "state.db-shm"), 0o600)
    store.close()


def test_a_path_may_be_a_string_a_path_or_begin_with_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = Store(Path("~/state.db"))
    store.save("response", "r1", {"n": 1})
    for same in (str(tmp_path / "state.db"), "~/state.db", "state.db", tmp_path / "state.db"):
        other = Store(same)
        assert other.get("response", "r1") == {"n": 1}
        other.close()
    assert {file.name for file in tmp_path.iterdir()} == {"state.db", "state.db-wal", "state.db-shm"}
    monkeypatch.chdir("/")
    assert end(fork(lambda: store.save("response", "r2", {}))) == 0  # opens the file again
    assert store.get("response", "r2") == {}
    store.close()


def refused(path: Path, *fragments: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(path)
    assert type(caught.value) is StoreError
    for fragment in (str(path), *fragments):
        assert fragment in str(caught.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database at all. " * 100)
    refused(path, "file is not a database")
    assert path.read_bytes() == b"not a database at all. " * 100


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    before = path.read_bytes()
    refused(path, "another program's database")
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    refused(path, "newer version", "schema 2")
    assert path.read_bytes() == before


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    store = Store(path)
    assert store.save("response", "r1", {}) is True
    store.close()


def test_a_file_that_is_damaged_later_is_reported(path: Path) -> None:
    store = Store(path)
    for n in range(50):
        store.save("response", f"r{n}", {"text": "x" * 3000})
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(0).randbytes(size - 4096))
    with pytest.raises(StoreError, match="malformed"):
        Store(path).get("response", "r1")


def test_folders_that_are_not_there_or_no_folders_are_reported(path: Path) -> None:
    refused(path.parent / "nothing" / "state.db", "No such file or directory")
    path.touch()
    refused(path / "state.db", "Not a directory")
    refused(path.parent, "unable to open database file")


def test_a_folder_or_file_that_may_not_be_written_is_reported() -> None:
    folder = Path(tempfile.mkdtemp())

    def child() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)  # may write nothing here; root may write everything
        refused(folder / "state.db", "Permission denied")
        refused(folder / "old.db", "readonly")

    try:
        store = Store(folder / "old.db")
        store.close()
        (folder / "old.db").chmod(0o444)
        folder.chmod(0o555)
        assert end(fork(child)) == 0
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_full_disk_is_reported_and_nothing_of_the_call_is_kept(path: Path) -> None:
    store = Store(path)
    store.save("response", "r1", {"n": 1})
    connection = store._database._connection
    assert connection is not None
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="full") as caught:
        store.save("response", "r1", {"n": 2}, parts={"output": [{"id": "o1", "text": "x" * 100_000}]})
    assert str(path) in str(caught.value)
    assert store.get("response", "r1") == {"n": 1}
    assert store.items("response", "r1", "output") == []
    store.save("response", "r1", {"n": 3})
    assert store.get("response", "r1") == {"n": 3}
    store.close()


# Life


def test_garbage_collection_closes_the_file(path: Path) -> None:
    store = Store(path)
    store.save("response", "r1", {})
    assert path.with_name("state.db-wal").exists()
    gone = weakref.ref(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del store
        gc.collect()
    assert gone() is None
    assert not path.with_name("state.db-wal").exists()


def test_a_script_that_ends_with_stores_open_ends_quietly(path: Path) -> None:
    code = f"""
from localai_shim.state.store import Store
file, memory = Store({str(path)!r}), Store()
file.save("response", "r1", {{}})
print("done")
"""
    command = [*python(), "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    store = Store(path)
    assert store.get("response", "r1") == {}
    store.close()


def test_a_missing_object_is_a_store_error_and_says_which(path: Path) -> None:
    store = Store(path)
    with pytest.raises(StoreError, match="there is no conversation with the id 'c1'") as caught:
        store.append("conversation", "c1", [])
    assert isinstance(caught.value, MissingError)
    store.close()
