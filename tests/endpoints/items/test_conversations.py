"""Conversations and their items, by the handlers alone: no model, no client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.types.conversations import (
    Conversation,
    ConversationDeletedResource,
    ConversationItem,
    ConversationItemList,
)
from pydantic import TypeAdapter

from localai_shim.endpoints.fields import Fields
from localai_shim.endpoints.items import conversations
from localai_shim.endpoints.items.resources import ENCRYPTED, LOGPROBS
from localai_shim.errors import RequestError
from localai_shim.state.store import Store

ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
HELLO = {"role": "user", "content": "Hello"}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "secret"}
LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
SAID = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": [LOGPROB]}
ANSWER = {"id": "msg_a", "role": "assistant", "content": [SAID]}


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


class Calls:
    """The handlers, with the body as keywords and the url's parameters as `query`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, handler: Callable[..., Any], *ids: str, query: dict[str, Any] | None = None, **body: Any) -> Any:
        return handler(self.store, Fields(body), query or {}, *ids)

    def new(self, *items: Any, **body: Any) -> str:
        """The id of a new conversation."""
        made: str = self(conversations.create, items=list(items), **body)["id"]
        return made

    def listed(self, conversation_id: str, **query: Any) -> Any:
        return self(conversations.list_items, conversation_id, query=query)

    def ids(self, conversation_id: str, **query: Any) -> list[str]:
        return [item["id"] for item in self.listed(conversation_id, **query)["data"]]


@pytest.fixture
def call(store: Store) -> Calls:
    return Calls(store)


def same(cls: type[openai.BaseModel], made: dict[str, Any]) -> None:
    """The JSON is what the SDK's type demands, and nothing else."""
    assert cls.model_validate(made, strict=True).model_dump(exclude_unset=True) == made
    assert set(made) <= set(cls.model_fields)


def numbered(count: int) -> list[dict[str, Any]]:
    return [{**HELLO, "id": f"msg_{i}"} for i in range(count)]


def refused(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[int, str | None, str | None, str]:
    with pytest.raises(RequestError) as caught:
        call(*args, **options)
    error = caught.value
    assert error.type == "invalid_request_error"
    return error.status, error.param, error.code, error.message


# -- conversations --------------------------------------------------------------------------------------------------


def test_a_conversation_is_created_with_items_and_metadata(call: Calls) -> None:
    made = call(conversations.create, items=[HELLO, ANSWER], metadata={"topic": "demo"})
    same(Conversation, made)
    assert made["id"].startswith("conv_") and made["object"] == "conversation" and made["created_at"] > 1_600_000_000
    assert made["metadata"] == {"topic": "demo"}
    assert [item["role"] for item in call.listed(made["id"], order="asc")["data"]] == ["user", "assistant"]


@pytest.mark.parametrize("body", [{}, {"items": None, "metadata": None}, {"items": [], "metadata": {}}])
def test_a_conversation_may_be_empty(call: Calls, body: dict[str, Any]) -> None:
    made = call(conversations.create, **body)
    same(Conversation, made)
    assert made["metadata"] == {}
    assert call.ids(made["id"]) == []


def test_every_conversation_has_an_id_of_its_own(call: Calls) -> None:
    assert len({call.new() for _ in range(50)}) == 50


def test_a_conversation_is_retrieved_as_it_was_made(call: Calls) -> None:
    made = call(conversations.create, metadata={"a": "b"})
    assert call(conversations.retrieve, made["id"]) == made


def test_metadata_is_replaced_and_not_merged(call: Calls) -> None:
    made = call(conversations.create, items=[HELLO], metadata={"a": "1", "b": "2"})
    changed = call(conversations.update, made["id"], metadata={"b": "3"})
    same(Conversation, changed)
    assert changed == {**made, "metadata": {"b": "3"}} == call(conversations.retrieve, made["id"])
    assert len(call.ids(made["id"])) == 1


def test_metadata_that_is_null_is_removed(call: Calls) -> None:
    conversation_id = call.new(metadata={"a": "1"})
    assert call(conversations.update, conversation_id, metadata=None)["metadata"] == {}


def test_a_deleted_conversation_is_gone_and_others_stay(call: Calls) -> None:
    gone, kept = call.new(HELLO), call.new(HELLO)
    deleted = call(conversations.delete, gone)
    same(ConversationDeletedResource, deleted)
    assert deleted == {"id": gone, "object": "conversation.deleted", "deleted": True}
    assert len(call.ids(kept)) == 1
    assert refused(call, conversations.retrieve, gone)[0] == 404


HANDLERS: list[tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]] = [
    (conversations.retrieve, (), {}),
    (conversations.update, (), {"metadata": {}}),
    (conversations.delete, (), {}),
    (conversations.create_items, (), {"items": [HELLO]}),
    (conversations.list_items, (), {}),
    (conversations.retrieve_item, ("msg_1",), {}),
    (conversations.delete_item, ("msg_1",), {}),
]


@pytest.mark.parametrize(("handler", "rest", "body"), HANDLERS)
def test_an_unknown_or_deleted_conversation_is_not_found(
    call: Calls, handler: Callable[..., Any], rest: tuple[str, ...], body: dict[str, Any]
) -> None:
    deleted = call.new(*numbered(3))
    call(conversations.delete, deleted)
    for conversation_id in ("conv_nowhere", deleted):
        message = f"Conversation with id '{conversation_id}' not found."
        expected = (404, "conversation_id", "conversation_not_found", message)
        assert refused(call, handler, conversation_id, *rest, **body) == expected


@pytest.mark.parametrize(("handler", "rest", "body"), HANDLERS)
def test_what_is_no_id_of_a_conversation_is_refused(
    call: Calls, handler: Callable[..., Any], rest: tuple[str, ...], body: dict[str, Any]
) -> None:
    message = "Invalid 'conversation_id': 'resp_1'. Expected an ID that begins with 'conv_'."
    expected = (400, "conversation_id", "invalid_value", message)
    assert refused(call, handler, "resp_1", *rest, **body) == expected


@pytest.mark.parametrize(("handler", "rest", "body"), [(conversations.create, None, {}), *HANDLERS])
def test_unknown_parameters_are_refused(
    call: Calls, handler: Callable[..., Any], rest: tuple[str, ...] | None, body: dict[str, Any]
) -> None:
    ids = () if rest is None else (call.new(*numbered(2)), *rest)
    for where in ({"colour": "red", **body}, {"query": {"colour": "red"}, **body}):
        assert refused(call, handler, *ids, **where)[:3] == (400, "colour", "unknown_parameter")
    call(handler, *ids, **body)


# body -> param and code of the error
BAD_BODIES: list[tuple[dict[str, Any], str, str]] = [
    ({"metadata": "x"}, "metadata", "invalid_type"),
    ({"metadata": {"a": 5}}, "metadata.a", "invalid_type"),
    ({"metadata": {"a": "x" * 513}}, "metadata", "string_above_max_length"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata", "object_above_max_properties"),
    ({"items": "Hello"}, "items", "invalid_type"),
    ({"items": ["Hello"]}, "items[0]", "invalid_type"),
    ({"items": [HELLO, {"role": "user"}]}, "items[1].content", "missing_required_parameter"),
    ({"items": [HELLO] * 21}, "items", "array_above_max_length"),
    ({"items": [*numbered(2), *numbered(1)]}, "items[2].id", "duplicate_item"),
    ({"items": [{"type": "shell_call"}]}, "items[0].type", "unsupported_value"),
]


@pytest.mark.parametrize(("body", "param", "code"), BAD_BODIES)
def test_a_conversation_with_a_wrong_field_is_not_made(
    call: Calls, body: dict[str, Any], param: str, code: str
) -> None:
    assert refused(call, conversations.create, **body)[:3] == (400, param, code)
    assert call.store.list("conversation", after=None, limit=5, descending=False).data == []


@pytest.mark.parametrize(("body", "param", "code"), [case for case in BAD_BODIES if "metadata" in case[0]])
def test_metadata_that_is_wrong_changes_nothing(call: Calls, body: dict[str, Any], param: str, code: str) -> None:
    conversation_id = call.new(metadata={"a": "b"})
    assert refused(call, conversations.update, conversation_id, **body)[:3] == (400, param, code)
    assert call(conversations.retrieve, conversation_id)["metadata"] == {"a": "b"}


# -- items ----------------------------------------------------------------------------------------------------------


def test_items_go_to_the_end_and_come_back_as_a_list(call: Calls) -> None:
    conversation_id = call.new(HELLO)
    made = call(
        conversations.create_items, conversation_id, items=[*numbered(2), REASONING], query={"include": ENCRYPTED}
    )
    same(ConversationItemList, made)
    assert (made["first_id"], made["last_id"], made["has_more"]) == ("msg_0", "rs_1", False)
    assert made["data"][2] == REASONING
    again = call(conversations.create_items, call.new(), items=[REASONING])
    assert "encrypted_content" not in again["data"][0], "not without being asked for"
    assert call.ids(conversation_id, order="asc")[1:] == ["msg_0", "msg_1", "rs_1"]


def test_twenty_items_at_a_time_and_no_more(call: Calls) -> None:
    conversation_id = call.new(*[HELLO] * 20)
    assert len(call(conversations.create_items, conversation_id, items=[HELLO] * 20)["data"]) == 20
    status, param, code, message = refused(call, conversations.create_items, conversation_id, items=[HELLO] * 21)
    assert (status, param, code) == (400, "items", "array_above_max_length")
    assert "maximum length 20, but got an array with length 21" in message
    assert len(call.ids(conversation_id, limit=100)) == 40


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "items", "missing_required_parameter"),
        ({"items": []}, "items", "empty_array"),
        *[case for case in BAD_BODIES if "items" in case[0]],
    ],
)
def test_wrong_items_change_nothing(call: Calls, body: dict[str, Any], param: str, code: str) -> None:
    conversation_id = call.new(HELLO)
    assert refused(call, conversations.create_items, conversation_id, **body)[:3] == (400, param, code)
    assert len(call.ids(conversation_id)) == 1


def test_an_id_that_the_conversation_has_is_refused_with_its_place(call: Calls) -> None:
    conversation_id = call.new(*numbered(2))
    new = [{**HELLO, "id": "msg_new"}, *numbered(1)]
    assert refused(call, conversations.create_items, conversation_id, items=new)[:3] == (
        400,
        "items[1].id",
        "duplicate_item",
    )
    assert call.ids(conversation_id, order="asc") == ["msg_0", "msg_1"]


def test_a_reference_copies_an_item_into_another_conversation(call: Calls) -> None:
    source, target = call.new(*numbered(1)), call.new()
    call(conversations.create_items, target, items=[{"type": "item_reference", "id": "msg_0"}])
    call(conversations.delete, source)
    [copied] = call.listed(target)["data"]
    assert (copied["id"], copied["content"][0]["text"]) == ("msg_0", "Hello")
    assert refused(call, conversations.create_items, target, items=[{"id": "msg_9"}])[:3] == (
        404,
        "items[0].id",
        "item_not_found",
    )


def test_every_stored_item_is_what_the_sdk_calls_one(call: Calls) -> None:
    conversation_id = call.new(
        HELLO,
        ANSWER,
        REASONING,
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "compaction", "encrypted_content": "x"},
    )
    listed = call.listed(conversation_id, order="asc", include=[ENCRYPTED, LOGPROBS])
    same(ConversationItemList, listed)
    for item in listed["data"]:
        retrieved = call(
            conversations.retrieve_item, conversation_id, item["id"], query={"include": [ENCRYPTED, LOGPROBS]}
        )
        assert ITEM.dump_python(ITEM.validate_python(retrieved, strict=True), exclude_unset=True) == retrieved == item


def test_a_list_with_a_wrong_include_is_refused(call: Calls) -> None:
    refusal = refused(call, conversations.list_items, call.new(HELLO), query={"include": ["logprobs"]})
    assert refusal[:3] == (400, "include[0]", "invalid_value")


def test_logprobs_and_encrypted_reasoning_are_shown_where_they_are_included(call: Calls) -> None:
    conversation_id = call.new(ANSWER, REASONING)
    bare = call(conversations.retrieve_item, conversation_id, "msg_a")
    assert bare["content"] == [{**SAID, "logprobs": []}]
    assert "encrypted_content" not in call(conversations.retrieve_item, conversation_id, "rs_1")
    reasoning, answer = call.listed(conversation_id, **{"include[]": [LOGPROBS, ENCRYPTED]})["data"]
    assert (reasoning["encrypted_content"], answer["content"]) == ("secret", [SAID])


@pytest.mark.parametrize("handler", [conversations.retrieve_item, conversations.delete_item])
def test_an_item_that_is_not_in_the_conversation_is_not_found(call: Calls, handler: Callable[..., Any]) -> None:
    conversation_id = call.new(HELLO)
    call.new(*numbered(1))  # of which msg_0 is
    assert refused(call, handler, conversation_id, "msg_0") == (
        404,
        "item_id",
        "item_not_found",
        f"Item with id 'msg_0' not found in conversation '{conversation_id}'.",
    )


def test_deleting_an_item_returns_the_conversation(call: Calls) -> None:
    made = call(conversations.create, items=numbered(3), metadata={"a": "b"})
    assert call(conversations.delete_item, made["id"], "msg_1") == made
    assert call.ids(made["id"], order="asc") == ["msg_0", "msg_2"]
    assert refused(call, conversations.delete_item, made["id"], "msg_1")[0] == 404


def test_an_id_may_come_again_once_its_item_is_gone(call: Calls) -> None:
    conversation_id = call.new(*numbered(1))
    call(conversations.delete_item, conversation_id, "msg_0")
    call(conversations.create_items, conversation_id, items=numbered(1))
    assert call.ids(conversation_id) == ["msg_0"]
