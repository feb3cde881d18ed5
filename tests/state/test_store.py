"""What the store's methods do, in memory and in a file alike."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localai_shim.state.store import DuplicateError, Json, MissingError, Page, Store, StoreError
from localai_shim.threads.deadline import Deadline, Overdue, until


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "state.db" if request.param == "file" else None)
    yield made
    made.close()


def items(*ids: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": id, **fields} for id in ids]


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in found]


# Objects


def test_what_was_saved_is_found_under_its_kind_and_id_only(store: Store) -> None:
    body = {"id": "r1", "status": "completed", "nested": {"list": [1, 2.5, None, True, "text"]}}
    assert store.save("response", "r1", body) is True
    assert store.get("response", "r1") == body
    assert store.get("response", "r2") is None
    assert store.get("conversation", "r1") is None


def test_what_is_returned_is_a_copy(store: Store) -> None:
    body = {"list": [1]}
    store.save("response", "r1", body)
    body["list"].append(2)
    found = store.get("response", "r1")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert store.get("response", "r1") == {"list": [1]}


def test_saving_again_replaces_the_body_and_the_given_parts_and_leaves_the_others(store: Store) -> None:
    store.save("response", "r1", {"n": 1}, parts={"input": items("i1"), "output": items("o1", "o2")})
    store.save("response", "r1", {"n": 2}, parts={"output": items("o3")})
    assert store.get("response", "r1") == {"n": 2}
    assert store.items("response", "r1", "input") == items("i1")
    assert store.items("response", "r1", "output") == items("o3")
    store.save("response", "r1", {"n": 3}, parts={"output": []})
    assert store.items("response", "r1", "output") == []
    assert store.chain("r1") == items("i1")


def test_unless_leaves_an_object_as_it_is_that_has_one_of_these_states(store: Store) -> None:
    store.save("conversation", "c1", {})
    store.save("response", "r1", {"status": "in_progress"}, unless=("cancelled",))
    assert store.save("response", "r1", {"status": "cancelled"}, parts={"output": []}, unless=["cancelled", "failed"])
    changed = store.save(
        "response",
        "r1",
        {"status": "completed"},
        parts={"output": items("o1")},
        conversation="c1",
        append=items("o1"),
        owner="p",
        unless=["cancelled", "failed"],
    )
    assert changed is False
    assert store.get("response", "r1") == {"status": "cancelled"}
    assert store.items("response", "r1", "output") == store.items("conversation", "c1") == store.owned() == []
    assert store.save("response", "r1", {"status": "completed"}) is True


def test_update_reads_and_writes_as_one(store: Store) -> None:
    store.save("conversation", "c1", {"metadata": {"a": "1"}, "n": 1}, parts={"items": items("m1")})
    assert store.update("conversation", "c1", lambda body: {**body, "n": 2}) == {"metadata": {"a": "1"}, "n": 2}
    assert store.get("conversation", "c1") == {"metadata": {"a": "1"}, "n": 2}
    assert store.items("conversation", "c1") == items("m1")
    assert store.update("conversation", "c2", lambda body: pytest.fail("it is not there")) is None


def test_an_update_that_raises_changes_nothing(store: Store) -> None:
    store.save("response", "r1", {"n": 1})

    def change(body: dict[str, Any]) -> dict[str, Any]:
        body["n"] = 2
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.update("response", "r1", change)
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.update("response", "r1", lambda body: {"n": object()})
    assert store.get("response", "r1") == {"n": 1}


def test_a_callback_that_uses_the_store_is_told_so_and_nothing_is_changed(store: Store) -> None:
    store.save("response", "r1", {"n": 1})

    def change(body: dict[str, Any]) -> dict[str, Any]:
        store.save("response", "r2", {})
        return {"n": 2}

    with pytest.raises(RuntimeError, match="callbacks"):
        store.update("response", "r1", change)
    with pytest.raises(RuntimeError, match="callbacks"):
        store.list("response", after=None, limit=9, descending=False, where=lambda body: bool(store.owned()))
    assert store.get("response", "r1") == {"n": 1}
    assert store.get("response", "r2") is None


def test_delete_says_whether_it_was_there_and_takes_everything_along(store: Store) -> None:
    store.save("response", "r1", {}, parts={"output": items("o1")}, owner="p")
    store.add_numbered("response", "r1", "event", [(0, {"sequence_number": 0})])
    assert store.delete("conversation", "r1") is False
    assert store.delete("response", "r1") is True
    assert store.delete("response", "r1") is False
    assert store.get("response", "r1") is store.find_item("o1") is store.item("response", "r1", "o1") is None
    assert store.update("response", "r1", dict) is None
    assert store.owned() == []
    for ask in (store.events, store.chain, lambda id: store.items("response", id, "output")):
        with pytest.raises(MissingError) as caught:
            ask("r1")
        assert (caught.value.kind, caught.value.id) == ("response", "r1")


def test_an_object_without_anything_is_all_that_is_needed(store: Store) -> None:
    store.save("conversation", "c1", {})
    assert store.get("conversation", "c1") == {}
    assert store.items("conversation", "c1") == []


# Lists


@pytest.fixture
def listed(store: Store) -> Store:
    for n in range(7):
        store.save("chat.completion", f"k{n}", {"id": f"k{n}", "even": n % 2 == 0})
        store.save("response", f"r{n}", {"id": f"r{n}"})
    store.save("chat.completion", "k1", {"id": "k1", "even": False, "again": True})
    return store


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 10**30])
def test_pages_of_objects_follow_each_other_in_the_order_of_creation(
    listed: Store, descending: bool, limit: int
) -> None:
    found: list[str] = []
    after, more = None, True
    while more:
        page = listed.list("chat.completion", after=after, limit=limit, descending=descending)
        assert len(page.data) == min(limit, 7 - len(found))
        found += ids(page.data)
        after, more = found[-1], page.has_more
    expected = [f"k{n}" for n in range(7)]
    assert found == (expected[::-1] if descending else expected)


def test_a_list_can_be_narrowed(listed: Store) -> None:
    def even(body: dict[str, Any]) -> bool:
        return bool(body["even"])

    page = listed.list("chat.completion", after="k1", limit=2, descending=False, where=even)
    assert (ids(page.data), page.has_more) == (["k2", "k4"], True)
    page = listed.list("chat.completion", after="k4", limit=2, descending=False, where=even)
    assert (ids(page.data), page.has_more) == (["k6"], False)


def test_a_list_goes_on_after_objects_that_are_there_only(listed: Store) -> None:
    listed.delete("chat.completion", "k3")
    for unknown in ("k3", "r1", "k9"):
        with pytest.raises(MissingError) as caught:
            listed.list("chat.completion", after=unknown, limit=2, descending=False)
        assert (caught.value.kind, caught.value.id) == ("chat.completion", unknown)
    assert ids(listed.list("chat.completion", after="k2", limit=1, descending=False).data) == ["k4"]
    assert listed.list("conversation", after=None, limit=1, descending=False) == Page([], False)


# Items


def test_items_keep_their_order(store: Store) -> None:
    store.save("conversation", "c1", {}, parts={"items": items("m9", "m1")})
    store.append("conversation", "c1", items("m5", "m0"))
    store.append("conversation", "c1", [])
    assert ids(store.items("conversation", "c1")) == ["m9", "m1", "m5", "m0"]
    assert store.items("conversation", "c1", "messages") == []


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 10**30])
def test_pages_of_items_follow_each_other(store: Store, descending: bool, limit: int) -> None:
    expected = [f"m{n}" for n in range(7)]
    store.save("conversation", "c1", {}, parts={"items": items(*expected), "messages": items("other")})
    store.save("conversation", "c2", {}, parts={"items": items(*expected)})
    found: list[str] = []
    after, more = None, True
    while more:
        page = store.page("conversation", "c1", "items", after=after, limit=limit, descending=descending)
        found += ids(page.data)
        after, more = found[-1], page.has_more
    assert found == (expected[::-1] if descending else expected)
    assert store.page("conversation", "c1", "items", after=after, limit=limit, descending=descending) == Page([], False)


def test_a_page_of_something_that_is_not_there_says_what_is_missing(store: Store) -> None:
    store.save("response", "r1", {}, parts={"input": items("i1"), "output": items("o1")})
    with pytest.raises(MissingError) as caught:
        store.page("response", "r2", "input", after="i1", limit=1, descending=False)
    assert (caught.value.kind, caught.value.id) == ("response", "r2")
    for part, unknown in (("input", "o1"), ("input", "nothing"), ("other", "i1")):
        with pytest.raises(MissingError) as caught:
            store.page("response", "r1", part, after=unknown, limit=1, descending=False)
        assert (caught.value.kind, caught.value.id) == ("item", unknown)


@pytest.mark.parametrize("descending", [False, True])
def test_pages_come_to_an_end_also_where_ids_repeat(store: Store, descending: bool) -> None:
    store.save("response", "r1", {}, parts={"input": items("a", "b", "a", "c", "a")})
    seen = 0
    page = store.page("response", "r1", "input", after=None, limit=1, descending=descending)
    while page.has_more:
        seen += 1
        assert seen <= 5
        page = store.page("response", "r1", "input", after=page.data[-1]["id"], limit=1, descending=descending)


def test_an_item_is_found_in_its_object(store: Store) -> None:
    store.save("response", "r1", {"id": "r1"}, parts={"input": items("i1"), "output": items("o1", text="a")})
    store.save("response", "r2", {"id": "r2"}, parts={"output": items("o1", text="b")})
    assert store.item("response", "r1", "o1") == {"id": "o1", "text": "a"}
    assert store.item("response", "r2", "o1") == {"id": "o1", "text": "b"}
    for kind, id, item in (("response", "r2", "i1"), ("response", "r1", "r1"), ("conversation", "r1", "i1")):
        assert store.item(kind, id, item) is None  # type: ignore[arg-type]


def test_an_item_reference_finds_the_newest_item_of_all_objects(store: Store) -> None:
    store.save("response", "r1", {"id": "r1"}, parts={"output": items("o1", text="a")})
    store.save("conversation", "c1", {}, parts={"items": items("o1", text="b")})
    assert store.find_item("o1") == {"id": "o1", "text": "b"}
    store.delete("conversation", "c1")
    assert store.find_item("o1") == {"id": "o1", "text": "a"}
    assert store.find_item("r1") is None


def test_items_are_removed_from_their_object_only(store: Store) -> None:
    store.save("conversation", "c1", {}, parts={"items": items("m1", "m2", "m3")})
    store.save("conversation", "c2", {}, parts={"items": items("m1", "m2", "m3")})
    assert store.remove_item("conversation", "c1", "m2") is True
    assert store.remove_item("conversation", "c1", "m2") is False
    assert store.remove_item("conversation", "nothing", "m1") is False
    assert ids(store.items("conversation", "c1")) == ["m1", "m3"]
    assert ids(store.items("conversation", "c2")) == ["m1", "m2", "m3"]
    store.append("conversation", "c1", items("m2"))
    assert ids(store.items("conversation", "c1")) == ["m1", "m3", "m2"]


def test_items_are_appended_all_or_none(store: Store) -> None:
    store.save("conversation", "c1", {}, parts={"items": items("m1")})
    for twice in (items("m2", "m1"), items("m2", "m2")):
        with pytest.raises(DuplicateError) as caught:
            store.append("conversation", "c1", twice)
        assert caught.value.id == twice[1]["id"]
    for nameless in ([*items("m2"), {"type": "message"}], [*items("m2"), {"id": 5}]):
        with pytest.raises(ValueError, match="need an id"):
            store.append("conversation", "c1", nameless)
    with pytest.raises(MissingError) as missing:
        store.append("conversation", "c2", items("m2"))
    assert (missing.value.kind, missing.value.id) == ("conversation", "c2")
    assert store.items("conversation", "c1") == items("m1")
    assert store.get("conversation", "c2") is None


def test_in_other_parts_ids_may_repeat_and_be_absent(store: Store) -> None:
    nameless = [{"type": "message"}, {"type": "message", "id": None}, *items("i1", "i1")]
    store.save("response", "r1", {}, parts={"input": nameless})
    assert store.items("response", "r1", "input") == nameless


def test_a_response_and_its_items_in_the_conversation_are_saved_together_or_not_at_all(store: Store) -> None:
    store.save("conversation", "c1", {}, parts={"items": items("m1")})
    assert store.save("response", "r1", {}, conversation="c1", append=items("m2", "m3"))
    assert ids(store.items("conversation", "c1")) == ["m1", "m2", "m3"]
    with pytest.raises(DuplicateError) as caught:
        store.save("response", "r2", {}, conversation="c1", append=items("m4", "m3"))
    assert caught.value.id == "m3"
    assert ids(store.items("conversation", "c1")) == ["m1", "m2", "m3"]
    store.delete("conversation", "c1")
    for append in (items("m4"), []):
        with pytest.raises(MissingError) as missing:
            store.save("response", "r2", {"n": 1}, parts={"output": items("m4")}, conversation="c1", append=append)
        assert (missing.value.kind, missing.value.id) == ("conversation", "c1")
        with pytest.raises(MissingError):
            store.save("response", "r1", {"n": 1}, conversation="c1", append=append)
    assert store.get("response", "r1") == {}
    assert store.get("response", "r2") is store.find_item("m4") is None


# Events and processes


def test_events_come_back_in_order(store: Store) -> None:
    store.save("response", "r1", {})
    assert store.events("r1") == []
    told = [{"sequence_number": n, "type": "e", "delta": str(n)} for n in range(12)]
    store.add_numbered("response", "r1", "event", [(each["sequence_number"], each) for each in told[6:]])
    store.add_numbered("response", "r1", "event", [(each["sequence_number"], each) for each in told[:6]])
    assert store.events("r1") == told
    store.save("response", "r1", {"status": "completed"}, parts={"output": items("o1")})
    assert store.events("r1") == told
    with pytest.raises(MissingError):
        store.add_numbered("response", "r2", "event", [(each["sequence_number"], each) for each in told])


def test_responses_that_are_worked_on_have_an_owner_until_one_without_is_saved(store: Store) -> None:
    store.save("response", "r1", {}, owner="one")
    store.save("response", "r2", {}, owner="two")
    store.save("response", "r3", {})
    store.update("response", "r1", lambda body: {"n": 1})
    assert store.owned() == [("r1", "one"), ("r2", "two")]
    store.save("response", "r1", {}, owner="three")
    store.save("response", "r2", {})
    assert store.owned() == [("r1", "three")]


# What strings may hold

STRINGS = {
    "other scripts": "Zażółć 你好 🙂 e\u0301",
    "a lone surrogate": "half \ud83d of a pair",
    "NUL": "\0",
    "like a reference": "\0#" + "00" * 32,
    "like an escaped one": "\0=\0#x",
    "like JSON escapes": '\\u0000# "quotes" \\',
    "nothing": "",
}


@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize("length", [1, 5000])
def test_strings_come_back_as_they_were_wherever_they_are(store: Store, name: str, length: int) -> None:
    text = STRINGS[name] * length
    deep = {"a": [text, {"b": {text[:20]: [[text]]}}], "n": text + "x"}
    store.save("response", "r1", deep, parts={"input": [{"id": "i1", **deep}]})
    store.add_numbered("response", "r1", "event", [(0, {"sequence_number": 0, **deep})])
    assert store.get("response", "r1") == deep
    assert store.list("response", after=None, limit=1, descending=True, where=lambda b: b["n"] == text + "x") == Page(
        [deep], False
    )
    assert store.items("response", "r1", "input") == store.chain("r1") == [{"id": "i1", **deep}]
    assert store.find_item("i1") == store.item("response", "r1", "i1") == {"id": "i1", **deep}
    assert store.events("r1") == [{"sequence_number": 0, **deep}]
    assert store.update("response", "r1", lambda body: {"again": body}) == {"again": deep}
    assert store.get("response", "r1") == {"again": deep}


@pytest.mark.parametrize("id", STRINGS.values(), ids=STRINGS)
def test_ids_may_hold_anything(store: Store, id: str) -> None:
    assert store.get("response", id) is None
    store.save("response", id, {"id": id}, parts={"output": items(id)}, owner=None)
    store.save("response", "next", {}, previous=id, parts={"output": items("o1")})
    store.save("conversation", id, {}, parts={"items": items(id)})
    assert store.get("response", id) == {"id": id}
    assert ids(store.chain("next")) == [id, "o1"]
    assert store.page("conversation", id, "items", after=id, limit=1, descending=False) == Page([], False)
    with pytest.raises(DuplicateError) as caught:
        store.append("conversation", id, items(id))
    assert caught.value.id == id
    assert store.remove_item("conversation", id, id) is True
    store.save("response", id, {}, owner="p")
    assert store.owned() == [(id, "p")]


def test_numbers_come_back_as_they_were(store: Store) -> None:
    body = {"n": [0, -1, 10**30, 0.1, -1e-300, float("-inf")]}
    store.save("response", "r1", body)
    assert store.get("response", "r1") == body


def test_a_value_that_is_no_json_is_refused_and_nothing_is_changed(store: Store) -> None:
    store.save("response", "r1", {"n": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.save("response", "r1", {"n": 2}, parts={"output": [{"id": "o1", "bytes": b""}]})
    assert store.get("response", "r1") == {"n": 1}


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get("response", "r1")
    with pytest.raises(StoreError, match="closed"):
        store.save("response", "r1", {})


def test_nothing_is_read_or_written_after_the_deadline(store: Store) -> None:
    with until(Deadline(0)):
        with pytest.raises(Overdue):
            store.save("response", "late", {})
        with pytest.raises(Overdue):
            store.get("response", "late")
    assert store.get("response", "late") is None


def test_a_transaction_that_ends_after_the_deadline_changes_nothing(store: Store) -> None:
    store.save("response", "a", {"status": "queued"})
    deadline = Deadline()

    def change(body: Json) -> Json:
        deadline.abandon()
        return {**body, "status": "completed"}

    with until(deadline), pytest.raises(Overdue):
        store.update("response", "a", change)
    assert store.get("response", "a") == {"status": "queued"}


def test_a_thread_that_waits_for_another_one_gives_up_at_its_deadline(store: Store) -> None:
    store.save("response", "a", {})
    overdue = list[BaseException]()

    def wait() -> None:
        try:
            with until(Deadline(0.05)):
                store.get("response", "a")
        except Overdue as error:
            overdue.append(error)

    def change(body: Json) -> Json:
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join()
        return body

    store.update("response", "a", change)
    assert overdue
