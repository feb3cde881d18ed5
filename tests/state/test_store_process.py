"""Threads, processes, fork and kill."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localai_shim.state.store import DuplicateError, Store, StoreError
from tests.state.forking import end, fork

ROOT = Path(__file__).parents[2]
IMAGE = "data:image/png;base64," + "A" * 20_000


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
            store.add_numbered("response", id, "event", [(n, {"sequence_number": n})])
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
    store.add_numbered("response", "r1", "event", [(0, {"sequence_number": 0})])
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
