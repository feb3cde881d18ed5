"""/conversations and /conversations/{id}/items.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/conversations) and the SDK's types.
Every handler takes the store, the request's body and the url's parameters, and returns the JSON of the answer.
"""

from __future__ import annotations

from typing import Final

from ...errors import BadRequest, NotFound
from ...prompt.items import Item, duplicate_item
from ...prompt.objects import with_data_urls
from ...state.store import DuplicateError, MissingError, Page, Store
from ..fields import Fields, as_array
from ..paging import Query, check_query, finish, found, list_object, read_paging, stored_page
from ..request_fields import new_id, now, read_metadata
from .resources import item_resources, read_include, shown

_KIND: Final = "conversation"
MAX_NEW_ITEMS = 20


def create(store: Store, fields: Fields, query: Query) -> dict[str, object]:
    """Create a conversation, with or without items."""
    check_query(query)
    metadata = read_metadata(fields) or {}
    items = _read_items(store, fields) if fields.has("items") else []
    fields.finish()
    conversation_id = new_id("conv_", 24)
    body = {"id": conversation_id, "object": _KIND, "created_at": now(), "metadata": metadata}
    store.save(_KIND, conversation_id, body, parts={"items": items})
    return body


def retrieve(store: Store, fields: Fields, query: Query, conversation_id: str) -> dict[str, object]:
    """The conversation."""
    _begin(fields, query, conversation_id)
    return conversation(store, conversation_id)


def update(store: Store, fields: Fields, query: Query, conversation_id: str) -> dict[str, object]:
    """Replace the conversation's metadata; null removes all of it."""
    metadata = read_metadata(fields) or {}
    _begin(fields, query, conversation_id)
    changed = store.update(_KIND, conversation_id, lambda old: {**old, "metadata": metadata})
    return found(changed, unknown_conversation(conversation_id))


def delete(store: Store, fields: Fields, query: Query, conversation_id: str) -> dict[str, object]:
    """Delete the conversation and its items."""
    _begin(fields, query, conversation_id)
    if not store.delete(_KIND, conversation_id):
        raise unknown_conversation(conversation_id)
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


# -- items ----------------------------------------------------------------------------------------------------------


def create_items(store: Store, fields: Fields, query: Query, conversation_id: str) -> dict[str, object]:
    """Append items to the conversation; all or none."""
    include = read_include(query)
    items = _read_items(store, fields)
    if not items:
        raise BadRequest.empty_array("items")
    _begin(fields, query, conversation_id, "include")
    try:
        store.append(_KIND, conversation_id, items)
    except MissingError:
        raise unknown_conversation(conversation_id) from None
    except DuplicateError as error:
        index = [item["id"] for item in items].index(error.id)
        raise duplicate_item(error.id, f"items[{index}].id") from None
    return list_object(Page([shown(item, include) for item in items], has_more=False))


def list_items(store: Store, fields: Fields, query: Query, conversation_id: str) -> dict[str, object]:
    """A page of the conversation's items, newest first unless the caller asks otherwise."""
    include = read_include(query)
    paging = read_paging(query, default_order="desc", others=("include",))
    _begin(fields, {}, conversation_id)
    page = stored_page(store, _KIND, conversation_id, "items", paging, missing=unknown_conversation, item="Item")
    return list_object(Page([shown(item, include) for item in page.data], page.has_more))


def retrieve_item(store: Store, fields: Fields, query: Query, conversation_id: str, item_id: str) -> dict[str, object]:
    """One item."""
    include = read_include(query)
    _begin(fields, query, conversation_id, "include")
    item = store.item(_KIND, conversation_id, item_id)
    if item is None:
        raise _unknown_item(store, conversation_id, item_id)
    return shown(item, include)


def delete_item(store: Store, fields: Fields, query: Query, conversation_id: str, item_id: str) -> dict[str, object]:
    """Remove an item; returns the conversation."""
    _begin(fields, query, conversation_id)
    if not store.remove_item(_KIND, conversation_id, item_id):
        raise _unknown_item(store, conversation_id, item_id)
    return conversation(store, conversation_id)


# -- also for responses that go on from a conversation --------------------------------------------------------------


def conversation(store: Store, conversation_id: str) -> dict[str, object]:
    """The conversation of this id.

    Raises:
        NotFound: there is none.
    """
    return found(store.get(_KIND, conversation_id), unknown_conversation(conversation_id))


def unknown_conversation(conversation_id: str, param: str = "conversation_id") -> NotFound:
    """The error for a conversation that does not exist, or no longer does."""
    return NotFound(f"Conversation with id '{conversation_id}' not found.", param=param, code="conversation_not_found")


# -------------------------------------------------------------------------------------------------------------------


def _begin(fields: Fields, query: Query, conversation_id: str, *known: str) -> None:
    """Check what all requests on a conversation have in common, once the body was read."""
    finish(fields, query, known)
    if not conversation_id.startswith("conv_"):
        text = f"Invalid 'conversation_id': '{conversation_id}'. Expected an ID that begins with 'conv_'."
        raise BadRequest.invalid("conversation_id", text)


def _read_items(store: Store, fields: Fields) -> list[Item]:
    given = as_array("items", fields.require("items"), most=MAX_NEW_ITEMS)
    return [with_data_urls(item, "items") for item in item_resources(given, "items", store.find_item)]


def _unknown_item(store: Store, conversation_id: str, item_id: str) -> NotFound:
    conversation(store, conversation_id)
    return NotFound(
        f"Item with id '{item_id}' not found in conversation '{conversation_id}'.",
        param="item_id",
        code="item_not_found",
    )
