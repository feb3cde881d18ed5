"""Responses that go on from others, and large strings, which are stored once."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim.state.store import MissingError, Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    made = Store(path if request.param == "file" else None)
    yield made
    made.close()


def turn(store: Store, n: int, previous: int | None, **fields: Any) -> None:
    """Save the response rN with one item of input and one of output."""
    store.save(
        "response",
        f"r{n}",
        {"id": f"r{n}"},
        parts={"output": [{"id": f"o{n}", **fields}], "input": [{"id": f"i{n}"}], "other": [{"id": f"x{n}"}]},
        previous=None if previous is None else f"r{previous}",
    )


def chain(store: Store, n: int) -> list[str]:
    return [item["id"] for item in store.chain(f"r{n}")]


def test_a_chain_is_input_and_output_of_each_response_oldest_first(store: Store) -> None:
    for n in range(50):
        turn(store, n, n - 1 if n else None)
    turn(store, 50, 1)
    assert chain(store, 49) == [f"{part}{n}" for n in range(50) for part in "io"]
    assert chain(store, 50) == ["i0", "o0", "i1", "o1", "i50", "o50"]
    assert chain(store, 0) == ["i0", "o0"]
    with pytest.raises(MissingError) as caught:
        store.chain("r51")
    assert (caught.value.kind, caught.value.id) == ("response", "r51")


def test_saving_again_without_a_previous_response_keeps_the_chain(store: Store) -> None:
    turn(store, 0, None)
    turn(store, 1, 0)
    turn(store, 1, None)
    turn(store, 0, None)
    assert chain(store, 1) == ["i0", "o0", "i1", "o1"]


def test_a_deleted_response_is_there_for_those_that_go_on_from_it_only(store: Store) -> None:
    for n in range(4):
        turn(store, n, n - 1 if n else None)
    assert store.delete("response", "r1") is True
    assert store.delete("response", "r1") is False
    assert chain(store, 3) == ["i0", "o0", "i1", "o1", "i2", "o2", "i3", "o3"]
    assert store.get("response", "r1") is store.find_item("o1") is store.item("response", "r1", "o1") is None
    assert store.update("response", "r1", dict) is None
    page = store.list("response", after=None, limit=9, descending=False)
    assert [body["id"] for body in page.data] == ["r0", "r2", "r3"]
    with pytest.raises(MissingError):
        store.chain("r1")
    with pytest.raises(MissingError):
        store.items("response", "r1", "input")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_when_all_of_a_chain_are_deleted_nothing_is_left(path: Path, order: tuple[int, ...]) -> None:
    store = Store(path)
    for n in range(4):
        turn(store, n, n - 1 if n else None, text=str(n) * 5000)
        store.add_numbered("response", f"r{n}", "event", [(0, {"sequence_number": 0, "text": "e" * 5000})])
    for n in order:
        assert store.delete("response", f"r{n}") is True
    store.close()
    assert rows(path) == dict.fromkeys(("objects", "pieces", "texts", "uses"), 0)


def test_what_a_deleted_response_leaves_is_what_others_need(path: Path) -> None:
    store = Store(path)
    for n in range(3):
        turn(store, n, n - 1 if n else None)
        store.add_numbered("response", f"r{n}", "event", [(0, {"sequence_number": 0})])
    store.delete("response", "r0")
    store.delete("response", "r2")
    store.close()
    assert rows(path, "part", "pieces") == {"": 1, "event": 1, "input": 2, "other": 1, "output": 2}


def test_branches_keep_what_they_share_until_the_last_is_gone(store: Store) -> None:
    turn(store, 0, None)
    turn(store, 1, 0)
    turn(store, 2, 0)
    store.delete("response", "r0")
    store.delete("response", "r1")
    assert chain(store, 2) == ["i0", "o0", "i2", "o2"]
    store.delete("response", "r2")
    turn(store, 3, 0)
    with pytest.raises(MissingError) as caught:
        store.chain("r3")
    assert (caught.value.kind, caught.value.id) == ("response", "r0")


def test_a_response_saved_before_the_one_that_it_goes_on_from_finds_it_later(store: Store) -> None:
    turn(store, 1, 0)
    turn(store, 0, None)
    assert chain(store, 1) == ["i0", "o0", "i1", "o1"]
    store.delete("response", "r0")
    assert chain(store, 1) == ["i0", "o0", "i1", "o1"]


def test_responses_that_go_on_from_each_other_do_not_hang(store: Store) -> None:
    turn(store, 0, 1)
    turn(store, 1, 0)
    turn(store, 2, 2)
    assert chain(store, 0) == ["i1", "o1", "i0", "o0"]
    assert chain(store, 2) == ["i2", "o2"]


def test_very_long_chains_can_be_read_and_deleted(path: Path) -> None:
    store = Store(path)
    for n in range(1500):
        store.save("response", f"r{n}", {}, parts={"input": [{"id": f"i{n}"}]}, previous=f"r{n - 1}" if n else None)
    assert chain(store, 1499) == [f"i{n}" for n in range(1500)]
    for n in range(1500):
        store.delete("response", f"r{n}")
    store.close()
    assert rows(path)["objects"] == 0


# Large strings


def rows(path: Path, by: str | None = None, table: str = "") -> dict[str, int]:
    """Rows per table; or of one table, per value of a column."""
    connection = sqlite3.connect(path)
    try:
        if by is not None:
            return dict(connection.execute(f"SELECT {by}, count(*) FROM {table} GROUP BY {by}").fetchall())
        tables = ("objects", "pieces", "texts", "uses")
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    finally:
        connection.close()


IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 100_000


def test_a_large_string_is_stored_once_however_often_it_is_used(path: Path) -> None:
    store = Store(path)
    item = {"id": "i", "content": [{"type": "input_image", "image_url": IMAGE}, {"image_url": IMAGE}]}
    for n in range(5):
        store.save("response", f"r{n}", {"instructions": IMAGE}, parts={"input": [item, {**item, "text": "a" * 4096}]})
        store.add_numbered("response", f"r{n}", "event", [(0, {"sequence_number": 0, "item": item})])
    store.save("conversation", "c", {}, parts={"items": [item]})
    assert store.items("response", "r3", "input")[0] == store.find_item("i") == item
    assert store.get("response", "r3") == {"instructions": IMAGE}
    store.close()
    assert rows(path)["texts"] == 2
    assert path.stat().st_size < 1.3 * len(IMAGE)


def test_strings_are_large_from_4096_characters_on(path: Path) -> None:
    store = Store(path)
    store.save("response", "r1", {"short": "a" * 4095, "large": "é" * 4096, "k" * 5000: "key"})
    assert store.get("response", "r1") == {"short": "a" * 4095, "large": "é" * 4096, "k" * 5000: "key"}
    connection = sqlite3.connect(path)
    (kept,) = connection.execute("SELECT hash, content FROM texts").fetchall()
    connection.close()
    content = ("é" * 4096).encode()
    assert kept == (hashlib.sha256(content).digest(), content)


def test_a_large_string_goes_with_the_last_that_uses_it(path: Path) -> None:
    store = Store(path)
    item = {"id": "m1", "image_url": IMAGE}
    store.save("response", "r1", {"b": IMAGE}, parts={"input": [item, item]})
    store.save("response", "r2", {}, parts={"input": [item]}, previous="r1")
    store.save("conversation", "c1", {}, parts={"items": [item]})
    store.add_numbered("response", "r2", "event", [(0, {"sequence_number": 0, "item": item})])

    def kept() -> bool:
        return rows(path)["texts"] == 1

    store.remove_item("conversation", "c1", "m1")
    assert kept()
    store.update("response", "r1", lambda body: {})
    assert kept()
    store.delete("response", "r1")  # r2 goes on from it
    assert kept()
    store.save("response", "r2", {}, parts={"input": []})
    assert store.chain("r2") == [item, item]
    store.delete("response", "r2")
    store.close()
    assert rows(path) == {"objects": 1, "pieces": 1, "texts": 0, "uses": 0}


def test_replacing_a_body_by_one_with_the_same_large_string_keeps_it(store: Store) -> None:
    store.save("response", "r1", {"status": "queued", "b": IMAGE})
    store.save("response", "r1", {"status": "completed", "b": IMAGE}, parts={"input": [{"b": IMAGE}]})
    store.save("response", "r1", {"status": "completed", "b": IMAGE}, parts={"input": []})
    assert store.get("response", "r1") == {"status": "completed", "b": IMAGE}
    store.save("response", "r1", {"b": "small"})
    store.save("response", "r2", {"b": IMAGE})
    assert store.get("response", "r2") == {"b": IMAGE}
