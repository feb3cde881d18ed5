"""Chat completions that were stored: the handlers alone, without a model or a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionDeleted, ChatCompletionStoreMessage

from localai_shim.endpoints.chat import stored as completions
from localai_shim.endpoints.fields import Fields
from localai_shim.errors import RequestError
from localai_shim.state.store import Store

HELLO = {"role": "user", "content": "Hello"}
URL = "https://example.com/a.png"


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


def completion(name: str, **fields: Any) -> dict[str, Any]:
    """A completion as the endpoint returns it."""
    message = {"role": "assistant", "content": "Hi", "refusal": None, "annotations": []}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        **fields,
    }


def save(store: Store, name: str, messages: list[Any] | None = None, **fields: Any) -> str:
    """The id of a stored completion."""
    made = completion(name, **fields)
    completions.save_completion(store, made, messages or [HELLO])
    return str(made["id"])


def refused(handler: Callable[..., Any], *args: Any) -> tuple[int, str | None, str | None]:
    with pytest.raises(RequestError) as caught:
        handler(*args)
    error = caught.value
    assert error.type == "invalid_request_error" and error.message
    return error.status, error.param, error.code


def ids(store: Store, **query: Any) -> list[str]:
    listed = completions.list_completions(store, Fields({}), query)
    return [body["id"].removeprefix("chatcmpl-") for body in listed["data"]]


def test_a_completion_is_retrieved_as_it_was_returned(store: Store) -> None:
    made = completion("a", metadata={"topic": "demo"})
    completions.save_completion(store, made, [HELLO])
    retrieved = completions.retrieve(store, Fields({}), {}, "chatcmpl-a")
    assert retrieved == made
    assert ChatCompletion.model_validate(retrieved, strict=True).model_dump(exclude_unset=True) == made


@pytest.mark.parametrize("fields", [{}, {"metadata": None}])
def test_a_completion_without_metadata_has_an_empty_object(store: Store, fields: dict[str, Any]) -> None:
    save(store, "a", **fields)
    assert completions.retrieve(store, Fields({}), {}, "chatcmpl-a")["metadata"] == {}


def test_metadata_is_replaced(store: Store) -> None:
    completion_id = save(store, "a", metadata={"a": "1", "b": "2"})
    changed = completions.update(store, Fields({"metadata": {"b": "3"}}), {}, completion_id)
    assert changed == completion("a", metadata={"b": "3"}) == completions.retrieve(store, Fields({}), {}, completion_id)
    assert completions.update(store, Fields({"metadata": None}), {}, completion_id)["metadata"] == {}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"metadata": {"a": 5}}, "metadata.a", "invalid_type"),
        ({"metadata": {}, "choices": []}, "choices", "unknown_parameter"),
    ],
)
def test_nothing_but_metadata_can_be_changed(store: Store, body: dict[str, Any], param: str, code: str) -> None:
    completion_id = save(store, "a")
    assert refused(completions.update, store, Fields(body), {}, completion_id) == (400, param, code)
    assert completions.retrieve(store, Fields({}), {}, completion_id) == completion("a", metadata={})


def test_a_deleted_completion_is_gone(store: Store) -> None:
    completion_id = save(store, "a")
    deleted = completions.delete(store, Fields({}), {}, completion_id)
    assert deleted == {"id": completion_id, "object": "chat.completion.deleted", "deleted": True}
    assert ChatCompletionDeleted.model_validate(deleted, strict=True).model_dump() == deleted
    assert ids(store) == []


HANDLERS = [completions.retrieve, completions.update, completions.delete, completions.list_messages]


@pytest.mark.parametrize("handler", HANDLERS)
def test_an_unknown_or_deleted_completion_is_not_found(store: Store, handler: Callable[..., Any]) -> None:
    completions.delete(store, Fields({}), {}, save(store, "a"))
    for completion_id in ("chatcmpl-a", "conv_1", "x y"):
        expected = (404, "completion_id", "completion_not_found")
        assert refused(handler, store, Fields({}), {}, completion_id) == expected


@pytest.mark.parametrize("handler", [*HANDLERS, completions.list_completions])
def test_unknown_parameters_are_refused(store: Store, handler: Callable[..., Any]) -> None:
    args = () if handler is completions.list_completions else (save(store, "a"),)
    expected = (400, "colour", "unknown_parameter")
    assert refused(handler, store, Fields({"colour": "red"}), {}, *args) == expected
    assert refused(handler, store, Fields({}), {"colour": "red"}, *args) == expected


# -- lists ----------------------------------------------------------------------------------------------------------


def test_completions_are_filtered_by_model_and_metadata(store: Store) -> None:
    save(store, "a", metadata={"k": "1", "l": "1"})
    save(store, "b", metadata={"k": "1"}, model="other")
    save(store, "c", metadata={"k": "2"})
    save(store, "d")
    assert ids(store, model="tiny") == ["a", "c", "d"]
    assert ids(store, metadata={"k": "1"}) == ids(store, **{"metadata[k]": "1"}) == ["a", "b"]
    assert ids(store, **{"metadata[k]": "1", "metadata[l]": "1"}) == ids(store, metadata={"k": "1", "l": "1"}) == ["a"]
    assert ids(store, model="tiny", metadata={"k": "1"}) == ["a"]
    assert ids(store, model="unheard of") == ids(store, **{"metadata[k]": "3"}) == []
    assert len(ids(store, metadata={})) == 4


def test_filters_work_across_pages(store: Store) -> None:
    for i in range(9):
        save(store, str(i), metadata={"odd": str(i % 2)})
    first = completions.list_completions(store, Fields({}), {"metadata[odd]": "1", "limit": 3})
    assert first["has_more"] and first["last_id"] == "chatcmpl-5"
    assert ids(store, **{"metadata[odd]": "1", "after": "chatcmpl-5"}) == ["7"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"model": 5}, (400, "model", "invalid_type")),
        ({"metadata": "k"}, (400, "metadata", "invalid_type")),
        ({"metadata": {"k": 5}}, (400, "metadata[k]", "invalid_type")),
        ({"metadata[k]": 5}, (400, "metadata[k]", "invalid_type")),
    ],
)
def test_a_wrong_list_is_refused(store: Store, query: dict[str, Any], expected: tuple[int, str, str]) -> None:
    assert refused(completions.list_completions, store, Fields({}), query) == expected


# -- messages -------------------------------------------------------------------------------------------------------

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
PICTURE = {"type": "image_url", "image_url": {"url": URL}}

# a message of the request -> what is stored of it, but for the id
MESSAGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (HELLO, {"role": "user", "content": "Hello", "refusal": None, "content_parts": None}),
    (
        {"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE], "name": "Ann"},
        {
            "role": "user",
            "content": None,
            "refusal": None,
            "content_parts": [{"type": "text", "text": "See"}, PICTURE],
            "name": "Ann",
        },
    ),
    (
        {"role": "user", "content": [{"type": "input_text", "text": "See"}]},
        {"role": "user", "content": None, "refusal": None, "content_parts": [{"type": "text", "text": "See"}]},
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": CALLS, "audio": None},
        {"role": "assistant", "content": None, "refusal": None, "content_parts": None, "tool_calls": CALLS},
    ),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None, "refusal": "No.", "content_parts": []},
    ),
    (
        {"role": "assistant", "refusal": "No."},
        {"role": "assistant", "content": None, "refusal": "No.", "content_parts": None},
    ),
    (
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny", "refusal": None, "content_parts": None},
    ),
]


@pytest.mark.parametrize(("message", "stored"), MESSAGES)
def test_a_message_is_stored_with_an_id(store: Store, message: dict[str, Any], stored: dict[str, Any]) -> None:
    completion_id = save(store, "a", [message])
    [found] = completions.list_messages(store, Fields({}), {}, completion_id)["data"]
    assert found == {"id": "chatcmpl-a-0", **stored}
    # The SDK's type knows the role of answers only, and the API returns what was asked.
    typed = ChatCompletionStoreMessage.model_validate({**found, "role": "assistant"}, strict=True)
    assert {**typed.model_dump(exclude_unset=True), "role": found["role"]} == found
