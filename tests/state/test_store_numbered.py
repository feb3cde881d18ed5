"""Numbered items of stored objects, and objects made of others' items: what files and batches are kept as."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim.state.store import Json, MissingError, Store

LARGE = "x" * 10_000


def texts(store: Store, kind: Any, id: str, part: str, after: int = -1, limit: int = 99) -> list[tuple[int, str]]:
    return [(number, item["text"]) for number, item in store.numbered(kind, id, part, after=after, limit=limit)]


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    store = Store(None if request.param == "memory" else path)
    store.save("file", "a", {"id": "a"})
    yield store
    store.close()


def test_items_come_in_the_order_of_their_numbers(store: Store) -> None:
    store.add_numbered("file", "a", "content", [(5, {"text": "five"}), (1, {"text": LARGE})])
    store.add_numbered("file", "a", "content", [(3, {"text": "three"})])
    assert texts(store, "file", "a", "content") == [(1, LARGE), (3, "three"), (5, "five")]
    assert texts(store, "file", "a", "content", after=1, limit=1) == [(3, "three")]
    assert store.numbers("file", "a", "content") == {1, 3, 5}
    assert store.numbers("file", "a", "other") == store.numbers("file", "missing", "content") == set()
    with pytest.raises(MissingError):
        store.add_numbered("file", "missing", "content", [(1, {})])
    with pytest.raises(MissingError):
        store.numbered("file", "missing", "content", after=-1, limit=1)


def test_an_object_made_of_anothers_items_outlives_that(store: Store) -> None:
    store.add_numbered("file", "a", "content", [(0, {"text": LARGE}), (1, {"text": "b"})])
    for _ in range(2):  # again makes the same
        store.save("batch", "b", {"id": "b", "status": "new"}, copies={"input": ("file", "a", "content")}, owner="me")
    store.delete("file", "a")
    assert texts(store, "batch", "b", "input") == [(0, LARGE), (1, "b")]
    assert store.owned("batch") == [("b", "me")] and store.owned() == []
    store.save("batch", "b", {"id": "b"}, parts={"input": ()})
    assert texts(store, "batch", "b", "input") == [] and store.owned("batch") == []
    with pytest.raises(MissingError):
        store.save("batch", "c", {}, copies={"input": ("file", "a", "content")})
    assert store.get("batch", "c") is None


def test_of_two_that_claim_what_others_have_left_one_gets_it(path: Path) -> None:
    first, second = Store(path), Store(path)
    for id, owner in (("a", "gone"), ("b", "working"), ("c", "gone"), ("d", "gone")):
        first.save("batch", id, {"id": id}, owner=owner)
    first.save("batch", "ended", {"id": "ended"})

    def left(owner: str, body: Json) -> bool:
        return owner == "gone" and body["id"] != "d"

    assert first.claim("batch", "first", left) == ["a", "c"]
    assert second.claim("batch", "second", left) == []
    assert second.owned("batch") == [("a", "first"), ("b", "working"), ("c", "first"), ("d", "gone")]
    first.close()
    second.close()
