"""What a store in memory removes to stay within its limit."""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import pytest

from localai_shim.state.store import MissingError, Store

KB = 1024


def body(n: int, size: int = 50 * KB) -> dict[str, Any]:
    """A body that takes about `size` bytes, unlike those with another n."""
    return {"text": f"{n:<10}" + "x" * size}


def response(store: Store, n: int, previous: int | None = None, size: int = 50 * KB, **more: Any) -> None:
    back = None if previous is None else f"r{previous}"
    store.save("response", f"r{n}", body(n, size), parts={"input": [{"id": f"i{n}"}]}, previous=back, **more)


def responses(store: Store, numbers: Iterable[int]) -> None:
    for n in numbers:
        response(store, n)


def present(store: Store) -> set[int]:
    """Which are there, found in a way that is no use."""
    page = store.list("response", after=None, limit=10**6, descending=False)
    return {int(found["text"][:10]) for found in page.data}


def test_a_store_within_its_limit_removes_nothing() -> None:
    store = Store(limit=550 * KB)
    responses(store, range(10))
    assert present(store) == set(range(10))


def test_a_store_may_fill_its_limit_to_the_last_byte() -> None:
    def keeps_both(limit: int) -> bool:
        store = Store(limit=limit)
        responses(store, range(2))
        return present(store) == {0, 1}

    least = bisect_left(range(200 * KB), True, key=keeps_both)
    assert least > 100 * KB
    assert least % sqlite_page() == 0, "a store takes whole pages, and needs no byte more"


def sqlite_page() -> int:
    """The size of a new database's pages, in bytes."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


def test_what_was_used_least_recently_goes_first() -> None:
    store = Store(limit=550 * KB)
    responses(store, range(10))
    store.get("response", "r0")
    store.items("response", "r1", "input")
    store.chain("r2")
    store.update("response", "r3", lambda body: body)
    store.item("response", "r4", "i4")
    store.page("response", "r5", "input", after=None, limit=1, descending=False)
    store.append("response", "r6", [{"id": "i"}])
    store.add_numbered("response", "r7", "event", [(0, {"sequence_number": 0})])
    response(store, 10)
    assert present(store) == {0, 1, 2, 3, 4, 5, 6, 7, 9, 10}
    response(store, 11)
    assert present(store) == {0, 1, 2, 3, 4, 5, 6, 7, 10, 11}
    response(store, 12)
    assert present(store) == {1, 2, 3, 4, 5, 6, 7, 10, 11, 12}


def test_lists_and_failed_calls_are_no_use() -> None:
    store = Store(limit=550 * KB)
    responses(store, range(10))
    store.list("response", after="r0", limit=1, descending=True)
    store.find_item("i0")
    store.get("conversation", "r0")
    with pytest.raises(MissingError):
        store.save("response", "r0", {}, conversation="nothing")
    response(store, 10)
    assert present(store) == set(range(1, 11))


def test_many_small_objects_stay_within_the_limit_and_use_most_of_it() -> None:
    limit = 2 * 2**20
    store = Store(limit=limit)
    for n in range(3000):
        response(store, n, size=1500)
    kept = present(store)
    assert kept == set(range(3000 - len(kept), 3000))
    assert 0.6 * limit < sum(1500 for _ in kept) < limit


def test_every_kind_makes_room() -> None:
    store = Store(limit=300 * KB)
    store.save("conversation", "c1", {}, parts={"items": [{"id": "m1", "text": "a" * 100 * KB}]})
    store.save("chat.completion", "k1", body(0, 100 * KB))
    store.get("conversation", "c1")
    store.append("conversation", "c1", [{"id": "m2", "text": "b" * 150 * KB}])
    assert store.get("chat.completion", "k1") is None
    assert [item["id"] for item in store.items("conversation", "c1")] == ["m1", "m2"]


def test_no_response_goes_before_those_that_go_on_from_it() -> None:
    store = Store(limit=550 * KB)
    for n in range(4):
        response(store, n, previous=n - 1 if n else None)
    responses(store, range(10, 16))
    store.get("response", "r3")  # and with it 0, 1 and 2
    responses(store, range(16, 22))
    assert present(store) == {0, 1, 2, 3, *range(16, 22)}
    response(store, 4, previous=3)
    responses(store, range(22, 27))
    assert present(store) == {0, 1, 2, 3, 4, *range(22, 27)}
    assert [item["id"] for item in store.chain("r4")] == ["i0", "i1", "i2", "i3", "i4"]
    responses(store, range(27, 36))
    assert present(store) == {0, *range(27, 36)}  # the chain's end went first
    response(store, 36)
    assert present(store) == set(range(27, 37))


def test_of_branches_the_unused_one_goes_and_the_trunk_stays() -> None:
    store = Store(limit=550 * KB)
    response(store, 0)
    response(store, 1, previous=0)
    response(store, 2, previous=0)
    responses(store, range(10, 17))
    store.chain("r1")
    response(store, 17)
    assert present(store) == {0, 1, *range(10, 18)}


def test_a_deleted_response_goes_with_the_last_that_goes_on_from_it() -> None:
    store = Store(limit=550 * KB)
    for n in range(3):
        response(store, n, previous=n - 1 if n else None)
        store.save("response", f"r{n}", body(n, 10), parts={"input": [{"id": f"i{n}", "text": f"{n}" * 150 * KB}]})
    store.delete("response", "r0")
    store.delete("response", "r1")
    assert [item["id"] for item in store.chain("r2")] == ["i0", "i1", "i2"]
    responses(store, range(10, 13))  # r2 has to go, and all that was kept for it
    responses(store, range(13, 20))
    assert present(store) == set(range(10, 20))


def test_deleting_the_end_of_a_chain_leaves_the_rest_as_recently_used() -> None:
    store = Store(limit=550 * KB)
    response(store, 0)
    responses(store, range(1, 9))
    response(store, 9, previous=0)
    store.delete("response", "r9")
    responses(store, range(10, 13))
    assert present(store) == {0, *range(3, 9), *range(10, 13)}


def test_what_a_process_works_on_stays() -> None:
    store = Store(limit=550 * KB)
    response(store, 0)
    response(store, 1, previous=0, owner="p")
    responses(store, range(10, 30))
    assert {0, 1} < present(store)
    response(store, 1, owner=None)
    responses(store, range(30, 40))
    assert present(store) == set(range(30, 40))


def test_an_object_that_is_too_large_stays_until_the_next_one_comes() -> None:
    store = Store(limit=100 * KB)
    response(store, 0)
    response(store, 1, size=500 * KB)
    assert present(store) == {1}
    assert store.get("response", "r1") == body(1, 500 * KB)
    response(store, 2)
    assert present(store) == {2}


def test_a_response_and_the_conversation_that_it_belongs_to_come_together() -> None:
    store = Store(limit=100 * KB)
    store.save("conversation", "c1", {})
    response(store, 0, conversation="c1", append=[{"id": "m1", "text": "a" * 200 * KB}])
    assert present(store) == {0}
    assert [item["id"] for item in store.items("conversation", "c1")] == ["m1"]


def test_a_string_that_many_use_counts_once() -> None:
    store = Store(limit=300 * KB)
    image = "data:" + "x" * 200 * KB
    for n in range(20):
        store.save("response", f"r{n}", {"text": f"{n:<10}"}, parts={"input": [{"id": "i", "image_url": image}]})
    assert present(store) == set(range(20))


def test_a_file_has_no_limit(tmp_path: Any) -> None:
    store = Store(tmp_path / "state.db", limit=1)
    responses(store, range(5))
    assert present(store) == set(range(5))
    store.close()


def test_a_chain_in_use_is_kept_whole_past_the_limit_and_goes_once_it_is_not() -> None:
    store = Store(limit=550 * KB)
    response(store, 100)
    for n in range(40):  # four times the limit: its next response reads all of it, as OpenAI's would
        response(store, n, previous=n - 1 if n else None)
    assert present(store) == set(range(40)), "the others went first"
    assert len(store.chain("r39")) == 40
    responses(store, range(200, 215))
    assert len(present(store)) < 12
