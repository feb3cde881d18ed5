"""Threads, processes, fork, kill, and files that cannot be used."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localai_shim.state.store import DuplicateError, MissingError, Store, StoreError

ROOT = Path(__file__).parents[2]
IMAGE = "data:image/png;base64," + "A" * 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def fork(child: Callable[[], object]) -> int:
    """Start a process that runs `child`, and shares this one's memory as it is now; its id.

    The process ends within a minute, and with 0 where `child` returns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forking with threads: that is the test
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            child()
            code = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    return pid


def end(pid: int) -> int:
    """Wait for a process; its exit status, or the signal that ended it, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Threads


@pytest.mark.parametrize("where", ["memory", "file"])
def test_threads_share_a_store(where: str, path: Path) -> None:
    store = Store(path if where == "file" else None)
    store.save("conversation", "c", {"n": 0})
    threads, rounds = 8, 40

    def work(thread: int) -> None:
        previous = None
        for n in range(rounds):
            id = f"r{thread}-{n}"
            output = [{"id": f"o{thread}-{n}", "image_url": IMAGE}]
            assert store.save(
                "response", id, {"id": id}, parts={"output": output}, previous=previous, conversation="c", append=output
            )
            store.update("conversation", "c", lambda body: {"n": body["n"] + 1})
            assert store.get("response", id) == {"id": id}
            assert len(store.chain(id)) == n + 1
            store.add_events(id, [{"sequence_number": n}])
            assert store.events(id) == [{"sequence_number": n}]
            with pytest.raises(DuplicateError):
                store.append("conversation", "c", output)
            page = store.list("response", after=id, limit=3, descending=False)
            assert all(found["id"] != id for found in page.data)
            if n % 3 == 2 and previous is not None:
                assert store.delete("response", previous) is True
            previous = id

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert store.get("conversation", "c") == {"n": threads * rounds}
    kept = [item["id"] for item in store.items("conversation", "c")]
    for thread in range(threads):  # all of all threads, those of each in order
        assert [id for id in kept if id.startswith(f"o{thread}-")] == [f"o{thread}-{n}" for n in range(rounds)]
    assert len(kept) == threads * rounds
    store.close()


def test_threads_that_close_a_store_leave_the_others_with_an_error(path: Path) -> None:
    store = Store(path)
    barrier = threading.Barrier(5)

    def work(thread: int) -> int:
        barrier.wait()
        for n in range(10_000):
            try:
                store.save("response", f"{thread}-{n}", {})
            except StoreError:
                return n
        raise AssertionError("never closed")

    with ThreadPoolExecutor(4) as pool:
        saved = [pool.submit(work, thread) for thread in range(4)]
        barrier.wait()
        store.close()
        counts = [future.result() for future in saved]
    again = Store(path)
    assert len(again.list("response", after=None, limit=10**6, descending=False).data) == sum(counts)
    again.close()


# Processes


def test_processes_share_a_file(path: Path) -> None:
    Store(path).save("conversation", "c", {"n": 0})

    def work(me: str) -> None:
        store = Store(path)
        for n in range(100):
            item = {"id": f"{me}-{n}", "text": "x" * 5000}
            previous = f"{me}-{n - 1}" if n else None
            parts = {"output": [item]}
            store.save("response", item["id"], {}, parts=parts, previous=previous, conversation="c", append=[item])
            store.update("conversation", "c", lambda body: {"n": body["n"] + 1})
        store.close()

    names = ("a", "b", "c")
    workers = [fork(partial(work, name)) for name in names]
    assert [end(worker) for worker in workers] == [0, 0, 0]
    store = Store(path)
    assert store.get("conversation", "c") == {"n": 300}
    kept = [item["id"] for item in store.items("conversation", "c")]
    for name in names:
        assert [id for id in kept if id.startswith(name)] == [f"{name}-{n}" for n in range(100)]
        assert [item["id"] for item in store.chain(f"{name}-99")] == [f"{name}-{n}" for n in range(100)]
    store.close()


def test_processes_may_open_and_close_a_new_file_all_at_once(path: Path) -> None:
    def work(me: int) -> None:
        for n in range(20):
            store = Store(path)
            store.save("response", f"{me}-{n}", {})
            store.close()

    workers = [fork(partial(work, n)) for n in range(6)]
    assert [end(worker) for worker in workers] == [0] * 6
    store = Store(path)
    assert len(store.list("response", after=None, limit=1000, descending=False).data) == 120
    store.close()


def test_what_a_store_holds_outlives_it(path: Path) -> None:
    store = Store(path)
    store.save("response", "r1", {"b": IMAGE}, parts={"output": [{"id": "o1"}]}, owner="p")
    store.save("response", "r2", {}, previous="r1")
    store.add_events("r1", [{"sequence_number": 0}])
    store.delete("response", "r1")
    store.close()
    again = Store(path)
    assert again.get("response", "r1") is None
    assert again.chain("r2") == [{"id": "o1"}]
    again.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_is_killed_loses_nothing_that_was_acknowledged(path: Path, seed: int) -> None:
    def text(n: int) -> str:
        return f"{n} " + "x" * (n * 37 % 9000)

    out, into = os.pipe()

    def work() -> None:
        store = Store(path)
        for n in range(1000):
            output = [{"id": f"o{n}", "text": text(n)}]
            previous = f"r{n - 1}" if n else None
            store.save("response", f"r{n}", {"id": f"r{n}"}, parts={"output": output}, previous=previous)
            os.write(into, f"r{n}\n".encode())

    process = fork(work)
    os.close(into)
    with os.fdopen(out) as lines:
        at_least = random.Random(seed).randrange(1, 800)
        told = [lines.readline().strip() for _ in range(at_least)]
        os.kill(process, signal.SIGKILL)
        told += lines.read().split()
    assert end(process) == -signal.SIGKILL
    assert told == [f"r{n}" for n in range(len(told))]
    store = Store(path)
    for n, id in enumerate(told):
        assert store.get("response", id) == {"id": id}
        assert store.items("response", id, "output") == [{"id": f"o{n}", "text": text(n)}]
    # It may have been killed before it could tell of the last one.
    assert len(store.list("response", after=None, limit=1001, descending=False).data) - len(told) in (0, 1)
    assert len(store.chain(told[-1])) == len(told)
    store.save("response", "more", {}, previous=told[-1])
    store.close()
    assert sqlite3_check(path) == "ok"


def test_a_process_that_is_killed_in_a_transaction_leaves_nothing_of_it(path: Path) -> None:
    Store(path).save("conversation", "c", {"n": 1})
    out, into = os.pipe()

    def change(body: dict[str, Any]) -> dict[str, Any]:
        os.write(into, b"changing\n")
        signal.pause()
        return {"n": 5}

    process = fork(lambda: Store(path).update("conversation", "c", change))
    os.close(into)
    with os.fdopen(out) as lines:
        assert lines.readline() == "changing\n"
    os.kill(process, signal.SIGKILL)
    assert end(process) == -signal.SIGKILL
    store = Store(path)
    assert store.update("conversation", "c", lambda body: {"n": body["n"] + 1}) == {"n": 2}
    store.close()


def sqlite3_check(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


# Fork


def test_after_fork_parent_and_child_go_on_with_connections_of_their_own(path: Path) -> None:
    store = Store(path)
    store.save("response", "before", {})

    def child() -> None:
        assert store.get("response", "before") == {}
        for n in range(50):
            store.save("response", f"child{n}", {})

    assert end(fork(child)) == 0
    for n in range(50):
        store.save("response", f"parent{n}", {})
    assert len(store.list("response", after=None, limit=1000, descending=False).data) == 101
    store.close()
    assert sqlite3_check(path) == "ok"


def test_what_a_child_saves_after_its_parent_closed_the_store_is_kept(path: Path) -> None:
    """The parent must not take the log away that the child writes to."""
    store = Store(path)
    store.save("response", "before", {})
    ready, closed = os.pipe(), os.pipe()

    def child() -> None:
        store.save("response", "first", {})
        os.write(ready[1], b"x")
        os.read(closed[0], 1)
        store.save("response", "second", {})

    process = fork(child)
    os.read(ready[0], 1)
    assert store.get("response", "first") == {}
    store.close()
    os.write(closed[1], b"x")
    assert end(process) == 0
    for end_of_pipe in (*ready, *closed):
        os.close(end_of_pipe)
    again = Store(path)
    assert len(again.list("response", after=None, limit=9, descending=False).data) == 3
    again.close()


@pytest.mark.parametrize("where", ["memory", "file"])
def test_forks_while_threads_use_the_store_do_not_hang(where: str, path: Path) -> None:
    store = Store(path if where == "file" else None)
    done = threading.Event()

    def work(thread: int) -> int:
        n = 0
        while not done.is_set():
            store.save("response", f"{thread}-{n}", {"text": "x" * 5000})
            n += 1
        return n

    def child() -> None:
        store.save("response", f"child{os.getpid()}", {})
        assert store.get("response", f"child{os.getpid()}") == {}

    with ThreadPoolExecutor(3) as pool:
        counts = [pool.submit(work, thread) for thread in range(3)]
        try:
            for _ in range(10):
                assert end(fork(child)) == 0
        finally:
            done.set()
        saved = sum(count.result() for count in counts)
    found = store.list("response", after=None, limit=10**6, descending=False)
    assert len(found.data) == saved + (10 if where == "file" else 0)
    store.close()


def test_what_is_in_memory_is_copied_with_the_process() -> None:
    store = Store()
    store.save("response", "before", {"b": IMAGE})

    def child() -> None:
        assert store.get("response", "before") == {"b": IMAGE}
        store.delete("response", "before")

    assert end(fork(child)) == 0
    assert store.get("response", "before") == {"b": IMAGE}


def test_a_fork_inside_of_a_callback_leaves_the_child_without_the_store(path: Path) -> None:
    store = Store(path)
    store.save("response", "r1", {"n": 1})

    def child() -> None:
        with pytest.raises(StoreError, match="closed"):
            store.get("response", "r1")

    def change(body: dict[str, Any]) -> dict[str, Any]:
        assert end(fork(child)) == 0
        return {"n": 2}

    assert store.update("response", "r1", change) == {"n": 2}
    assert store.get("response", "r1") == {"n": 2}
    store.close()


# Files


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
    command = [sys.executable, "-W", "error", "-c", code]
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
