"""Lists of tools, results of calls, and errors of servers, as types of the `mcp` package or as dictionaries."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import get_args

from openai.types.responses.response_output_item import McpCall

from ....formats.values import nests_too_deeply
from ....types import Json, log
from ..images import is_readable
from ..kind import BadResultError, Outcome, as_list, text_of, value_of, written
from .kind import AUDIO, IMAGES
from .sounds import is_sound_url

MAX_PAGES = 100
INTERNAL_ERROR, INVALID_PARAMS = -32603, -32602  # codes of JSON-RPC
_ERRORS_ARE_TEXTS = str in get_args(McpCall.model_fields["error"].annotation)
_NOTHING = "The tool has returned nothing."
_EMPTY: Json = {"type": "object", "properties": {}}


# -- lists of tools -------------------------------------------------------------------------------------------------


async def all_tools(list_tools: Callable[..., Awaitable[object]], method: object) -> list[Json]:
    """Tools of all pages of a server's list, in the form that items have.

    Args:
        list_tools: calls the server's method.
        method: that method.

    Raises:
        BadResultError: the server returns something else, or its pages do not end.
    """
    found: list[Json] = []
    arguments: dict[str, object] = {}
    for _ in range(MAX_PAGES):
        page = await list_tools(**arguments)
        found += _read_page(page)
        cursor = _either(page, "nextCursor", "next_cursor")
        if not isinstance(cursor, str):
            return _with_own_names(found)
        arguments = _page_arguments(method, cursor)
    raise BadResultError(f"its list of tools has more than {MAX_PAGES} pages")


def _page_arguments(method: object, cursor: str) -> dict[str, object]:
    """Arguments of `list_tools` for the next page: sessions of the mcp package take an object since version 2."""
    assert callable(method)
    names = inspect.signature(method).parameters
    if "cursor" in names:
        return {"cursor": cursor}
    if "params" in names:
        return {"params": import_module("mcp.types").PaginatedRequestParams(cursor=cursor)}
    raise BadResultError("its list of tools has several pages, and 'list_tools' takes no cursor")


def _read_page(page: object) -> list[Json]:
    tools = value_of(page, "tools") if not isinstance(page, list | tuple) else page
    if tools is None:
        raise BadResultError("'list_tools' must return a list of tools, or an object with 'tools'")
    return [_read_tool(each) for each in as_list(tools, "the tools")]


def _read_tool(tool: object) -> Json:
    name = text_of(tool, "name", "a tool")
    if not name:
        raise BadResultError("a tool has an empty name")
    schema = _either(tool, "inputSchema", "input_schema")
    return {
        "name": name,
        "description": text_of(tool, "description", f"the tool {name!r}", otherwise="") or None,
        "input_schema": usable_schema(_EMPTY if schema is None else schema, name),
        "annotations": plain(value_of(tool, "annotations")),
    }


def usable_schema(schema: object, name: str) -> Json:
    """A schema that templates and grammars can read. If it is none, any arguments are allowed, and the log says so."""
    if not nests_too_deeply(schema):
        made = plain(schema)
        if isinstance(made, dict) and made.get("type", "object") == "object":
            properties = made.get("properties", {})
            if isinstance(properties, dict) and all(isinstance(each, dict | bool) for each in properties.values()):
                return made
    log.warning("the MCP tool %r has a schema that is no schema of an object: any arguments are allowed", name)
    return dict(_EMPTY)


def _with_own_names(tools: list[Json]) -> list[Json]:
    names: set[str] = set()
    for tool in tools:
        if tool["name"] in names:
            raise BadResultError(f"it has more than one tool named {tool['name']!r}")
        names.add(tool["name"])
    return tools


# -- results of calls -----------------------------------------------------------------------------------------------


def read_result(returned: object) -> Outcome:
    """Result of a call.

    Raises:
        BadResultError: it is none.
    """
    if isinstance(returned, str):
        return Outcome(returned.encode(errors="replace").decode())
    content = returned if isinstance(returned, list | tuple) else value_of(returned, "content")
    structured = (
        None if isinstance(returned, list | tuple) else _either(returned, "structuredContent", "structured_content")
    )
    if content is None and structured is None:
        raise BadResultError("'call_tool' must return a string, content, or an object with 'content'")
    blocks = [_block(each) for each in as_list(content or (), "the content of a result")]
    if not blocks and structured is not None:
        blocks = [{"type": "text", "text": written(plain(structured))}]
    if _either(returned, "isError", "is_error") is True:
        return failure({"type": "mcp_tool_execution_error", "content": blocks})
    return Outcome(_text(blocks) or _NOTHING, [found for block in blocks if (found := _media(block)) is not None])


def _media(block: Json) -> Json | None:
    """`data:` URL of a block with an image or audio that models can read; None: it has none."""
    url = f"data:{_kind(block)};base64,{block.get('data')}"
    if block["type"] == "image" and is_readable(url):
        return {"image_url": url}
    return {"audio_url": url} if block["type"] == "audio" and is_sound_url(url) else None


def media_fields(found: Sequence[Json]) -> Json:
    """Fields of an item with the images and the audio of a result."""
    images = [each["image_url"] for each in found if "image_url" in each]
    sounds = [each["audio_url"] for each in found if "audio_url" in each]
    return {name: urls for name, urls in ((IMAGES, images), (AUDIO, sounds)) if urls}


def found_media(item: Json) -> list[Json]:
    """Images and audio of an item, as outcomes have them."""
    images: list[Json] = [{"image_url": url} for url in item.get(IMAGES) or ()]
    return [*images, *({"audio_url": url} for url in item.get(AUDIO) or ())]


def _block(block: object) -> Json:
    if isinstance(block, str):
        return {"type": "text", "text": block.encode(errors="replace").decode()}
    made = plain(block)
    if not isinstance(made, dict) or not isinstance(made.get("type"), str):
        raise BadResultError(f"a result's content must be blocks with a 'type', not {type(block).__name__}")
    return made


def _text(blocks: Sequence[object]) -> str:
    """Content as the model reads it: texts, and names of everything else."""
    return "\n".join(_shown(each) for each in blocks)


def _shown(block: object) -> str:
    if not isinstance(block, Mapping):
        return str(block)
    if isinstance(block.get("text"), str):
        return str(block["text"])
    inner = block.get("resource")
    if isinstance(inner, Mapping):
        text = inner.get("text")
        return text if isinstance(text, str) else f"[{_kind(inner)} {inner.get('uri')}, which is not text]"
    if block.get("type") == "resource_link":
        return f"[{block.get('name')}: {block.get('uri')}]"
    return f"[{block.get('type')} of type {_kind(block)}]"


def _kind(block: Mapping[str, object]) -> object:
    return block.get("mimeType") or block.get("mime_type") or "data"


# -- errors ---------------------------------------------------------------------------------------------------------


def failure(error: Json) -> Outcome:
    """Outcome of a call with an error, in the form that items have."""
    return Outcome(told(error), [error], failed=True)


def told(error: object) -> str:
    """An error of an item as the model reads it."""
    if not isinstance(error, Mapping):
        return str(error)
    content = error.get("content")
    if isinstance(content, list):
        return _text(content) or "Error: the tool has failed."
    return f"Error: {error.get('message')}"


def shown_error(error: Json | str) -> Json | str:
    """An error as items have it: the SDK's 2.x line knows texts only."""
    if isinstance(error, Mapping):
        return told(error) if _ERRORS_ARE_TEXTS else error
    return error if _ERRORS_ARE_TEXTS else {"type": "mcp_protocol_error", "code": INTERNAL_ERROR, "message": error}


def error_of(error: BaseException) -> Json:
    """Exception of a server, or of its connection, in the form that items have."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    status = value_of(value_of(error, "response"), "status_code")
    if isinstance(status, int):
        return {"type": "http_error", "code": status, "message": _message(error)}
    code = value_of(value_of(error, "error"), "code")
    said = value_of(value_of(error, "error"), "message")
    if isinstance(code, int) and isinstance(said, str):  # of the mcp package
        return {"type": "mcp_protocol_error", "code": code, "message": said.encode(errors="replace").decode()}
    return {"type": "mcp_protocol_error", "code": INTERNAL_ERROR, "message": _message(error)}


def _message(error: BaseException) -> str:
    text = str(error) if isinstance(error, BadResultError) else f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()


# -------------------------------------------------------------------------------------------------------------------


def _either(owner: object, name: str, other: str) -> object:
    """A value under its name in JSON, or in Python."""
    found = value_of(owner, name)
    return value_of(owner, other) if found is None else found


def plain(value: object) -> Json | None:
    """JSON of a value, such as an object of pydantic. Lone surrogates become question marks.

    Raises:
        BadResultError: it is none.
    """
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump(mode="json", by_alias=True, exclude_none=True)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        made: Json | None = json.loads(text.encode(errors="replace"))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResultError(f"something that it returned is no JSON: {error}") from None
    return made
