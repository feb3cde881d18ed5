"""Items of MCP servers: as callers send them back, as prompts have them, and what they say for the next response."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ....errors import BadRequest
from ....media import MediaKind
from ....types import Json
from ...fields import Fields, as_strings, given
from ..images import is_readable
from ..items import MORE, UNSEEN, Shown, with_media
from ..kind import BadResultError, written
from . import results
from .entry import ServerEntry, model_name
from .kind import AUDIO, IMAGES, MCP
from .sounds import is_sound_url

LIST, CALL, REQUEST, RESPONSE = "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"
PREFIXES = {LIST: "mcpl", CALL: "mcp", REQUEST: "mcpr", RESPONSE: "mcpa"}
"""Type of an item -> what its id begins with."""
MAX_TOLD_CHARACTERS = 200
"""Maximum length of the error of a list that the model reads."""
_STATUSES = ("in_progress", "calling", "completed", "incomplete", "failed")
_DENIED = "Error: the user has denied this call."
_UNANSWERED = "Error: the user has not approved this call."
_LOST = "Error: the result of this call is not available any more."


# -- as callers send them back --------------------------------------------------------------------------------------


def read_item(fields: Fields) -> Json:
    """An item that a caller sends back, as it is stored, without its id and type.

    Raises:
        BadRequest: with the path of what is wrong.
    """
    return {LIST: _read_list, CALL: _read_call, REQUEST: _read_request, RESPONSE: _read_response}[
        str(fields.get("type"))
    ](fields)


def _read_list(fields: Fields) -> Json:
    tools = []
    for i, value in enumerate(fields.array("tools")):
        with Fields(value, f"{fields.at('tools')}[{i}]") as inner:
            name = inner.word("name")
            tool: Json = {"name": name, "description": inner.string("description")}
            try:
                tool["input_schema"] = results.usable_schema(inner.require("input_schema"), name)
                tool["annotations"] = results.plain(inner.mapping("annotations"))
            except BadResultError:
                raise BadRequest.refused(inner.path, "it cannot be written as JSON") from None
        tools.append(tool)
    error = given(error=fields.get("error") and fields.string("error"))
    return {"server_label": fields.word("server_label"), "tools": tools, **error}


def _read_call(fields: Fields) -> Json:
    error: Json | str | None = None
    if isinstance(fields.get("error"), str):  # of older versions of the API
        error = fields.string("error")
    elif fields.has("error"):
        with fields.inner("error") as inner:
            kind = inner.option("type", ("mcp_protocol_error", "mcp_tool_execution_error", "http_error"))
            if kind == "mcp_tool_execution_error":
                error = {"type": kind, "content": _plain(inner.get("content"), inner.at("content"))}
            else:
                error = {"type": kind, "code": inner.integer("code"), "message": inner.text("message")}
    return {
        "status": fields.choice("status", _STATUSES) or ("completed" if error is None else "failed"),
        **_read_called(fields),
        "output": fields.string("output"),
        "error": error and results.shown_error(error),
        **given(
            approval_request_id=fields.string("approval_request_id"),
            **{MORE: fields.boolean(MORE), UNSEEN: fields.boolean(UNSEEN)},
            **{IMAGES: _read_media(fields, IMAGES, is_readable, "an image")},
            **{AUDIO: _read_media(fields, AUDIO, is_sound_url, "WAV, MP3, or FLAC audio")},
        ),
    }


def _read_media(fields: Fields, name: str, is_usable: Callable[[str], bool], what: str) -> list[str] | None:
    """`data:` URLs of a field; None: it is not there."""
    value = fields.get(name)
    if value is None:
        return None
    urls = as_strings(fields.at(name), value)
    for i, url in enumerate(urls):
        if not is_usable(url):
            raise BadRequest.refused(f"{fields.at(name)}[{i}]", f"it is no `data:` URL of {what}")
    return urls


def _read_request(fields: Fields) -> Json:
    return _read_called(fields)


def _read_called(fields: Fields) -> Json:
    return {
        "server_label": fields.word("server_label"),
        "name": fields.word("name"),
        "arguments": fields.text("arguments"),
    }


def _read_response(fields: Fields) -> Json:
    approve = fields.boolean("approve")
    if approve is None:
        raise BadRequest.missing(fields.at("approve"))
    found: Json = {"approval_request_id": fields.word("approval_request_id"), "approve": approve}
    return {**found, **given(reason=fields.string("reason"))}


def _plain(value: object, path: str) -> object:
    try:
        return results.plain(value)
    except BadResultError:
        raise BadRequest.refused(path, "it cannot be written as JSON") from None


# -- as prompts have them -------------------------------------------------------------------------------------------


class Answers:
    """Answers to requests for an approval, and the calls that they led to, among all items of a conversation.

    Args:
        items: all of them.
        reads: media that the model reads.
    """

    types: Collection[str] = tuple(PREFIXES)

    def __init__(self, items: Sequence[Json], reads: Collection[MediaKind] = ()) -> None:
        self._reads = reads
        self._requests = {item["id"] for item in items if item["type"] == REQUEST}
        self._responses = {item["approval_request_id"]: item for item in items if item["type"] == RESPONSE}
        self._calls = {
            item["approval_request_id"]: item
            for item in items
            if item.get("approval_request_id") and item["type"] == CALL
        }

    def shown(self, item: Json) -> Shown | None:
        """An item as a call of a function; None: it is none, or an earlier item shows it."""
        if item["type"] == REQUEST:
            return _function(item, self._output(item["id"]))
        if item["type"] != CALL or item.get("approval_request_id") in self._requests:
            return None
        return _function(item, self._output_of(item))

    def _output_of(self, call: Json) -> str | list[Json]:
        return with_media(_text_of(call), MCP, call, self._reads)

    def _output(self, request: str) -> str | list[Json]:
        """Output of a call that waited."""
        if request in self._calls:
            return self._output_of(self._calls[request])
        response = self._responses.get(request)
        if response is None or response["approve"]:
            return _UNANSWERED
        return f"{_DENIED} Reason: {response['reason']}" if response.get("reason") else _DENIED


def _function(item: Json, output: str | list[Json]) -> Shown:
    call = {"type": "function_call", "id": item["id"], "call_id": item["id"], "arguments": item["arguments"]}
    return Shown(
        {**call, "name": model_name(item["server_label"], item["name"])},
        {"type": "function_call_output", "call_id": item["id"], "output": output},
        ends=item["type"] == CALL,
    )


def _text_of(call: Json) -> str:
    if call.get("error") is not None:
        return results.told(call["error"])
    return _LOST if call.get("output") is None else str(call["output"])


# -- what they say for the next response ----------------------------------------------------------------------------


def known_tools(entry: ServerEntry, items: Sequence[Json]) -> list[Json] | None:
    """Tools of a server by the last list among these items; None: there is none, or it lacks one that is named."""
    lists = [item for item in items if item["type"] == LIST and item["server_label"] == entry.label]
    if not lists or lists[-1].get("error") is not None:
        return None
    tools: list[Json] = lists[-1]["tools"]
    return None if (entry.allowed.names or frozenset()) - {tool["name"] for tool in tools} else tools


def failed_lists(items: Sequence[Json]) -> dict[str, str]:
    """Errors of servers that could not list their tools, by label."""
    return {item["server_label"]: str(item["error"]) for item in items if item["type"] == LIST and item.get("error")}


def told_failures(failed: Mapping[str, str]) -> str | None:
    """Text that says which tools are missing and why; None: none are. Errors are quoted: they are data of others."""
    lines = []
    for label, error in failed.items():
        short = error if len(error) <= MAX_TOLD_CHARACTERS else f"{error[:MAX_TOLD_CHARACTERS]}…"
        lines.append(f"The tools of the MCP server '{label}' are not available now. Its error: {written(short)}")
    return "\n".join(lines) or None


def has_answers(items: Sequence[Json]) -> bool:
    """True if requests are answered by these items."""
    return any(item["type"] == RESPONSE for item in items)


def approved_calls(items: Sequence[Json], paths: Mapping[str, str], labels: Collection[str]) -> list[Json]:
    """Requests among these items that were approved and were not called yet.

    Args:
        paths: id of an item of the request -> its path. Other items are stored: what is wrong with them is past.
        labels: of the request's servers.

    Raises:
        BadRequest: a response answers no request, answers one twice, or needs a server that is not there.
    """
    requests = {item["id"]: item for item in items if item["type"] == REQUEST}
    called = {item.get("approval_request_id") for item in items if item["type"] == CALL}
    answered: set[str] = set()
    found = []
    for item in items:
        if item["type"] != RESPONSE:
            continue
        request = item["approval_request_id"]
        label = requests[request]["server_label"] if request in requests else None
        is_due = item["approve"] and request not in called
        why = None
        if label is None:
            why = f"there is no approval request with id '{request}'"
        elif request in answered:
            why = f"the approval request '{request}' has been answered already"
        elif is_due and label not in labels:
            why = f"the approved call needs the MCP server '{label}': pass it in 'tools'"
        elif is_due:
            found.append(requests[request])
        if why is not None and item["id"] in paths:
            raise BadRequest.refused(f"{paths[item['id']]}.approval_request_id", why)
        answered.add(request)
    return found
