"""Input items of the Responses API -> items as they are stored and returned, whole and checked.

Shapes follow the SDK's `ResponseInputItemParam` (what comes in), `ConversationItem` and `ResponseItem` (what goes out).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ...errors import BadRequest, NotFound
from ...prompt.items import Item, duplicate_item
from ..fields import Fields, as_array, as_strings, given
from ..hosted import items as hosted_items
from ..hosted.mcp import items as mcp_items
from ..request_fields import new_id
from . import content as content_parts

PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
    **hosted_items.PREFIXES,
    **mcp_items.PREFIXES,
}
"""Type of an item -> what its id begins with."""

MAX_ID_LENGTH = 64
_ID = re.compile(r"[A-Za-z0-9_-]+")
_ROLES = ("assistant", "system", "developer", "user")
_STATUSES = ("in_progress", "completed", "incomplete")
_PHASES = ("commentary", "final_answer")
_HOSTED = (
    *("file_search_", "web_search_", "computer_", "code_interpreter_", "image_generation_", "tool_search_", "mcp_"),
    *("local_shell_", "shell_", "apply_patch_", "program"),
)
"""Beginnings of the types of what tools that OpenAI hosts make."""
_NOT_ITEMS = {
    "additional_tools": "Pass all tools in the request's 'tools'.",
    "configuration_update": "Pass 'reasoning' and 'text' in the request.",
    "compaction_trigger": "Use responses.compact.",
}

_LOCAL = "this client is local and never uses the network."


def new_item_id(kind: str) -> str:
    """An id for an item of this type, such as `msg_...`."""
    return new_id(f"{PREFIXES[kind]}_", 24)


def user_item(text: str) -> Item:
    """A message of the user's, as it is stored."""
    return {
        "id": new_item_id("message"),
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [content_parts.input_text(text)],
    }


def item_resources(items: object, path: str, find: Callable[[str], Item | None]) -> list[Item]:
    """A list of input items as they are stored; references are replaced by what they stand for.

    Args:
        items: the request's field, untrusted.
        path: its name, for errors.
        find: a stored item by its id.

    Raises:
        BadRequest: an item is wrong, or an id comes twice.
        NotFound: a reference leads nowhere.
    """
    out: list[Item] = []
    known: set[str] = set()
    for i, each in enumerate(as_array(path, items)):
        item = item_resource(each, f"{path}[{i}]")
        if item["type"] == "item_reference":
            item = _referenced(item["id"], f"{path}[{i}].id", find)
        if item["id"] in known:
            raise duplicate_item(item["id"], f"{path}[{i}].id")
        known.add(item["id"])
        out.append(item)
    return out


def item_resource(item: object, path: str) -> Item:
    """An input item as it is stored: with an id, a status and parts. A reference is its type and its id.

    Args:
        item: untrusted.
        path: where it is, such as `input[0]`.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    with Fields(item, path) as fields:
        kind = _kind(fields)
        if kind == "item_reference":
            fields.require("id")
            return {"id": _id(fields), "type": kind}
        return {"id": _id(fields) or new_item_id(kind), "type": kind, **_READERS[kind](fields)}


# ---------------------------------------------------------------------------------------------------------------


def _referenced(item_id: str, path: str, find: Callable[[str], Item | None]) -> Item:
    found = find(item_id)
    if found is None or found.get("type") not in PREFIXES:  # messages of stored chat completions have ids, too
        raise NotFound(f"Item with id '{item_id}' not found.", param=path, code="item_not_found")
    return found


def _kind(fields: Fields) -> str:
    """The type; messages and references may come without."""
    kind, at = fields.string("type"), fields.at("type")
    if kind is None and fields.has("role"):
        return "message"
    if kind is None and fields.has_only("id"):
        return "item_reference"
    if kind is None:
        raise BadRequest.missing(at)
    if kind.startswith(_HOSTED) and kind not in PREFIXES:
        raise _not_supported(at, kind, f": it belongs to a tool that is hosted by OpenAI; {_LOCAL}")
    if kind in _NOT_ITEMS:
        raise _not_supported(at, kind, f". {_NOT_ITEMS[kind]}")
    supported = (*PREFIXES, "item_reference")
    if kind not in supported:
        raise BadRequest.unknown_value(at, kind, supported)
    return kind


def _not_supported(at: str, kind: str, why: str) -> BadRequest:
    return BadRequest.unsupported_value(at, f"Unsupported value: '{at}' does not support '{kind}'{why}")


def _id(fields: Fields) -> str | None:
    """The id, where the caller gives one."""
    value, at = fields.string("id"), fields.at("id")
    if value is None:
        return None
    if not _ID.fullmatch(value):
        expected = "Expected an ID that contains letters, numbers, underscores, or dashes"
        why = f"'{value[:MAX_ID_LENGTH]}'. {expected}, but this value contained additional characters"
        raise BadRequest.refused(at, why)
    if len(value) > MAX_ID_LENGTH:
        raise BadRequest.long_string(at, MAX_ID_LENGTH, len(value))
    return value


def _message(fields: Fields) -> dict[str, object]:
    role = fields.option("role", _ROLES)
    kinds = content_parts.OUTPUT if role == "assistant" else content_parts.INPUT
    is_empty = role == "assistant" and fields.is_null("content")  # as of answers that are only reasoning
    content = "" if is_empty else content_parts.content(fields, "content", kinds)
    if isinstance(content, str):
        content = [(content_parts.output_text if role == "assistant" else content_parts.input_text)(content)]
    phase = fields.choice("phase", _PHASES)
    if role != "assistant":
        phase = None  # "not used for user messages"
    return {"status": _status(fields), "role": role, "content": content, **given(phase=phase)}


def _function_call(fields: Fields) -> dict[str, object]:
    fields.get("parsed_arguments")  # `responses.parse` adds it to the answer
    return _call(fields, "arguments")


def _function_call_output(fields: Fields) -> dict[str, object]:
    return {**_custom_tool_call_output(fields), **given(name=fields.string("name"))}


def _custom_tool_call_output(fields: Fields) -> dict[str, object]:
    return {
        "status": _status(fields),
        "call_id": fields.word("call_id", MAX_ID_LENGTH),
        "output": content_parts.content(fields, "output", content_parts.INPUT),
        **_context(fields),
    }


def _reasoning(fields: Fields) -> dict[str, object]:
    out: dict[str, object] = {"summary": content_parts.parts(fields, "summary", ("summary_text",))}
    if fields.has("content"):
        out["content"] = content_parts.parts(fields, "content", ("reasoning_text",))
    encrypted, status = fields.string("encrypted_content"), fields.choice("status", _STATUSES)
    return {**out, **given(encrypted_content=encrypted, status=status)}


def _compaction(fields: Fields) -> dict[str, object]:
    created_by = fields.string("created_by")
    return {"encrypted_content": fields.text("encrypted_content"), **given(created_by=created_by)}


def _status(fields: Fields) -> str:
    return fields.choice("status", _STATUSES) or "completed"


def _call(fields: Fields, argument: str) -> dict[str, object]:
    """A call, whose argument's field has this name; in the SDK's objects `async` is `async_`."""
    flags = [fields.boolean(name) for name in ("async", "async_")]
    return {
        "status": _status(fields),
        "call_id": fields.word("call_id", MAX_ID_LENGTH),
        "name": fields.word("name"),
        argument: fields.text(argument),
        **given(**{"async": next((flag for flag in flags if flag is not None), None)}),
        **_context(fields),
    }


def _context(fields: Fields) -> dict[str, object]:
    """Optional fields of calls and outputs that say where they come from."""
    out = given(created_by=fields.string("created_by"), namespace=fields.string("namespace"))
    at = fields.at("caller")
    if not fields.has("caller"):
        return out
    with fields.inner("caller") as caller:
        if caller.option("type", ("direct", "program")) == "program":
            raise _not_supported(f"{at}.type", "program", f": programs are hosted by OpenAI; {_LOCAL}")
    return {**out, "caller": {"type": "direct"}}


_READERS: dict[str, Callable[[Fields], dict[str, object]]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "custom_tool_call": partial(_call, argument="input"),
    "custom_tool_call_output": _custom_tool_call_output,
    "reasoning": _reasoning,
    "compaction": _compaction,
    **dict.fromkeys(hosted_items.PREFIXES, hosted_items.read_item),
    **dict.fromkeys(mcp_items.PREFIXES, mcp_items.read_item),
}


LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
# Parts of items that answers have only where the caller asks for them. Urls of images are always included: items
# without them, sent back as input, would be refused.
INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    ENCRYPTED,
    LOGPROBS,
)


def read_include(query: Mapping[str, object]) -> frozenset[str]:
    """The parameter of a url, where it may be one string and be called `include[]`; see `as_include`."""
    value = query.get("include")
    if value is None:
        value = query.get("include[]")
    return as_include([value] if isinstance(value, str) else value)


def as_include(value: object) -> frozenset[str]:
    """The field of a body.

    Raises:
        BadRequest: it is not an array of values that OpenAI documents.
    """
    values = as_strings("include", [] if value is None else value)
    for i, name in enumerate(values):
        if name not in INCLUDABLE:
            raise BadRequest.unknown_value(f"include[{i}]", name, INCLUDABLE)
    return frozenset(values)


def shown(item: Item, include: Collection[str]) -> Item:
    """A copy of a stored item without what was not asked for."""
    if item["type"] == "reasoning" and ENCRYPTED not in include:
        return {key: value for key, value in item.items() if key != "encrypted_content"}
    if item["type"] == "message" and LOGPROBS not in include:
        parts = [{**part, "logprobs": []} if part.get("logprobs") else part for part in item["content"]]
        return {**item, "content": parts}
    return item
