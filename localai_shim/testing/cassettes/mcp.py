"""MCP servers in cassettes: their lists and calls are played as they were recorded, and no server is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from ...endpoints.hosted.items import UNSEEN
from ...endpoints.hosted.kind import BadResultError, Outcome
from ...endpoints.hosted.mcp.entry import TYPE, ServerEntry, model_name, shown_entry
from ...endpoints.hosted.mcp.items import CALL, LIST, REQUEST
from ...endpoints.hosted.mcp.results import found_media, told
from ...endpoints.hosted.mcp.servers import Servers
from ...types import Json

TYPES = (LIST, CALL, REQUEST)
"""Types of items that an answer may have."""
_NOT_RECORDED = "this is not in the cassette"


class PlayedServers(Servers):
    """Servers of a client that plays a cassette: every label has one, and none answers."""

    def __init__(self) -> None:
        super().__init__(_EveryLabel(), remote=False)

    def of_request(self, *, waits: bool = True) -> Servers:
        return self

    def __call__(self, entry: ServerEntry) -> NoReturn:
        raise BadResultError(_NOT_RECORDED)


class _EveryLabel(Mapping[str, object]):
    """A mapping that has every label, and lists none."""

    def __getitem__(self, label: str) -> object:
        return self

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def without_secrets(request: Json) -> Json:
    """A request whose servers have no headers and authorization, and only the hosts of their URLs."""
    tools = request.get("tools")
    if not isinstance(tools, list):
        return request
    return {**request, "tools": [_shown(tool) for tool in tools]}


def _shown(tool: object) -> object:
    if not isinstance(tool, dict) or tool.get("type") != TYPE:
        return tool
    shown: Json = {name: value for name, value in tool.items() if name not in ("headers", "authorization")}
    with contextlib.suppress(ValueError):  # of a file in which something else was written
        shown = shown_entry(shown)
    return shown


def deltas(call: int, item: Json, *, is_done: bool) -> Iterator[Json]:
    """Deltas of an item that was added, or is done.

    Args:
        call: position of the item in the output.
    """
    if is_done:
        yield {"call": call, "item": item}
    elif item["type"] != LIST and item.get("approval_request_id") is None:
        yield {"call": call, "name": tool_name(item)}


def tool_name(item: Json) -> str:
    """Name that the model has for the tool of a call, or of a request to approve one."""
    return model_name(item["server_label"], item["name"])


def generated(deltas: Sequence[Json]) -> list[Json]:
    """Deltas that the model wrote: not lists of tools, and not calls that were approved."""
    items = {delta["call"]: delta["item"] for delta in deltas if "item" in delta}
    own = {call for call, item in items.items() if item["type"] == LIST or item.get("approval_request_id")}
    return [delta for delta in deltas if delta.get("call") not in own]


def recorded_list(items: Sequence[Json], label: str) -> tuple[list[Json], str | None]:
    """Tools of a server as they were recorded, and the error if there is one."""
    for item in items:
        if item["type"] == LIST and item["server_label"] == label:
            return item.get("tools") or [], item.get("error")
    return [], _NOT_RECORDED


def outcome(item: Json) -> Outcome:
    """Outcome of a call that was recorded."""
    error = item.get("error")
    if error is not None:
        found = error if isinstance(error, dict) else {"content": [{"type": "text", "text": error}]}
        return Outcome(told(error), [found], failed=True)
    return Outcome(item.get("output") or "", found_media(item), item={UNSEEN: True} if item.get(UNSEEN) else None)
