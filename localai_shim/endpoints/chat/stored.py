"""Chat completions that were made with `store=True`: GET, POST and DELETE /chat/completions/{id}, and their messages.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/chat) and the SDK's types.
Every handler takes the store, the request's body and the url's parameters, and returns the JSON of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ...errors import BadRequest, NotFound
from ...state.store import Json, Store
from ..fields import Fields
from ..paging import Query, finish, found, list_object, read_paging, stored_list, stored_page
from ..request_fields import read_metadata

_KIND: Final = "chat.completion"
_METADATA_KEY = re.compile(r"metadata\[(.*)\]", re.DOTALL)
_PARTS = {"text", "input_text", "output_text"}
_MESSAGE_FIELDS = ("name", "tool_calls", "tool_call_id", "function_call")


def save_completion(store: Store, completion: Mapping[str, object], request_messages: Sequence[Json]) -> None:
    """Store a completion with what was asked.

    Args:
        store: where.
        completion: its JSON, with `metadata` where the request has some.
        request_messages: the request's `messages`, which have been found valid.
    """
    body: Json = {**completion, "metadata": completion.get("metadata") or {}}
    messages = [_message(message, f"{body['id']}-{i}") for i, message in enumerate(request_messages)]
    store.save(_KIND, body["id"], body, parts={"messages": messages})


def retrieve(store: Store, fields: Fields, query: Query, completion_id: str) -> Json:
    """The completion as it was returned."""
    finish(fields, query)
    return found(store.get(_KIND, completion_id), _unknown(completion_id))


def update(store: Store, fields: Fields, query: Query, completion_id: str) -> Json:
    """The completion with other metadata; null removes them all."""
    metadata = read_metadata(fields) or {}
    finish(fields, query)
    changed = store.update(_KIND, completion_id, lambda old: {**old, "metadata": metadata})
    return found(changed, _unknown(completion_id))


def delete(store: Store, fields: Fields, query: Query, completion_id: str) -> Json:
    """The completion goes, and its messages with it."""
    finish(fields, query)
    if not store.delete(_KIND, completion_id):
        raise _unknown(completion_id)
    return {"id": completion_id, "object": "chat.completion.deleted", "deleted": True}


def list_completions(store: Store, fields: Fields, query: Query) -> dict[str, object]:
    """A page of the stored completions, oldest first unless the caller asks otherwise."""
    fields.finish()
    model, metadata = Fields(query).string("model"), _read_metadata_filter(query)
    paging = read_paging(query, default_order="asc", others=("model", *_metadata_names(query)))

    def wanted(body: Json) -> bool:
        return model in (None, body["model"]) and metadata.items() <= body["metadata"].items()

    return list_object(stored_list(store, _KIND, paging, item="Chat completion", where=wanted))


def list_messages(store: Store, fields: Fields, query: Query, completion_id: str) -> dict[str, object]:
    """A page of the messages that a completion answered, in their order unless the caller asks otherwise."""
    fields.finish()
    paging = read_paging(query, default_order="asc")
    return list_object(stored_page(store, _KIND, completion_id, "messages", paging, missing=_unknown, item="Message"))


# -------------------------------------------------------------------------------------------------------------------


def _unknown(completion_id: str) -> NotFound:
    return NotFound(
        f"Chat completion with id '{completion_id}' not found: only those that were made with store=True are stored.",
        param="completion_id",
        code="completion_not_found",
    )


def _metadata_names(query: Query) -> list[str]:
    """The parameters that filter by metadata: a mapping, or one `metadata[key]` for each."""
    return ["metadata", *(name for name in query if _METADATA_KEY.fullmatch(name))]


def _read_metadata_filter(query: Query) -> dict[str, str]:
    wanted: dict[str, object] = {}
    for name in _metadata_names(query):
        if match := _METADATA_KEY.fullmatch(name):
            wanted[match[1]] = query[name]
        else:
            wanted.update(Fields(query).mapping(name) or {})
    read: dict[str, str] = {}
    for key, value in wanted.items():
        if not isinstance(value, str):
            raise BadRequest.wrong_type(f"metadata[{key}]", "a string", value)
        read[key] = value
    return read


def _message(message: Json, message_id: str) -> Json:
    """A message of the request as the SDK's `ChatCompletionStoreMessage`, with whatever role it has."""
    content, refusal = message.get("content"), message.get("refusal")
    parts = None
    if isinstance(content, list | tuple):
        refusals = [part["refusal"] for part in content if part["type"] == "refusal"]
        parts = [_part(part) for part in content if part["type"] != "refusal"]
        content, refusal = None, "".join(refusals) if refusals else refusal
    rest = {name: message[name] for name in _MESSAGE_FIELDS if message.get(name) is not None}
    return {
        "id": message_id,
        "role": message["role"],
        "content": content,
        "refusal": refusal,
        "content_parts": parts,
        **rest,
    }


def _part(part: Json) -> Json:
    """Parts under the names that stored messages have for them."""
    if part["type"] == "input_image":  # as in the Responses API
        detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    return {"type": "text", "text": part["text"]} if part["type"] in _PARTS else dict(part)
