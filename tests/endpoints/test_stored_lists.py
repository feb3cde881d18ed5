"""Lists of what is stored: their order, their pages, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from localai_shim.endpoints import files
from localai_shim.endpoints.batches import stored as batches
from localai_shim.endpoints.chat import stored as completions
from localai_shim.endpoints.fields import Fields
from localai_shim.endpoints.items import conversations
from localai_shim.endpoints.responses import stored as responses
from localai_shim.errors import RequestError
from localai_shim.state.store import Kind, Store

NOTHING: Any = None  # of what runs: a list asks nothing of it


class Listed(NamedTuple):
    list: Callable[..., Any]
    kind: Kind
    part: str | None
    """Of one object, of which the list has items; None: the list has objects."""
    order: str
    """Unless the caller says otherwise."""
    code: str
    """Of the error for an unknown `after`."""
    rest: tuple[Any, ...] = ()
    """Arguments behind the store."""


LISTS = {
    "chat completions": Listed(completions.list_completions, "chat.completion", None, "asc", "completion_not_found"),
    "messages of a chat completion": Listed(
        completions.list_messages, "chat.completion", "messages", "asc", "message_not_found"
    ),
    "input of a response": Listed(responses.input_items, "response", "input", "desc", "item_not_found", (NOTHING,)),
    "items of a conversation": Listed(conversations.list_items, "conversation", "items", "desc", "item_not_found"),
    "batches": Listed(batches.list_batches, "batch", None, "desc", "batch_not_found", (NOTHING,)),
    "files": Listed(files.list_files, "file", None, "desc", "file_not_found"),
}
lists = pytest.mark.parametrize("listed", LISTS.values(), ids=list(LISTS))


class Asked:
    """A list of a store that holds this many."""

    def __init__(self, store: Store, listed: Listed, count: int) -> None:
        self.store, self.listed = store, listed
        self.ids = [f"id_{i}" for i in range(count)]
        more: dict[str, Any] = {
            "type": "message",
            "role": "user",
            "content": [],
            "purpose": "batch",
            "expires_at": None,
        }
        bodies: list[Any] = [{"id": id, "model": "m", "metadata": {}, **more} for id in self.ids]
        if listed.part is None:
            for body in bodies:
                store.save(listed.kind, body["id"], body)
        else:
            store.save(listed.kind, "conv_1", {"id": "conv_1"}, parts={listed.part: bodies})

    def __call__(self, **query: Any) -> dict[str, Any]:
        owner = () if self.listed.part is None else ("conv_1",)
        page: dict[str, Any] = self.listed.list(self.store, *self.listed.rest, Fields({}), query, *owner)
        return page


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


@lists
def test_pages_follow_one_another_in_both_orders(store: Store, listed: Listed) -> None:
    asked = Asked(store, listed, 5)
    orders = {"asc": asked.ids, "desc": asked.ids[::-1]}
    for order, expected in orders.items():
        found: list[str] = []
        more = True
        while more:
            page = asked(order=order, limit="2", after=found[-1] if found else None)
            assert page["object"] == "list"
            found += (ids := [each["id"] for each in page["data"]])
            assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
            more = page["has_more"]
        assert found == expected
        last: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
        assert asked(order=order, after=found[-1]) == last
    assert [each["id"] for each in asked()["data"]] == orders[listed.order]
    assert asked(limit=5)["has_more"] is False


@lists
def test_a_page_has_as_many_as_the_caller_says(store: Store, listed: Listed) -> None:
    asked = Asked(store, listed, 25)
    page = asked()
    assert (len(page["data"]), page["has_more"]) == ((25, False) if listed.kind == "file" else (20, True))
    assert len(asked(limit="25")["data"]) == 25


@lists
def test_a_wrong_page_is_refused(store: Store, listed: Listed) -> None:
    asked = Asked(store, listed, 1)
    for query, expected in (
        ({"after": "id_9"}, (404, "after", listed.code)),
        ({"limit": "0"}, (400, "limit", "integer_below_min_value")),
        ({"limit": 10_001 if listed.kind == "file" else 101}, (400, "limit", "integer_above_max_value")),
        ({"order": "up"}, (400, "order", "invalid_value")),
        ({"color": "red"}, (400, "color", "unknown_parameter")),
    ):
        with pytest.raises(RequestError) as caught:
            asked(**query)
        assert (caught.value.status, caught.value.param, caught.value.code) == expected
