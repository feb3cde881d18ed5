"""The part of the grammar of Responses streams that is about MCP servers.

A list of tools is added without tools, and says that it is in progress before it has completed or failed. A call says
so, too, and its arguments come in deltas before it is made. A request for an approval is added whole.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

WORDS = {"mcp_call": "calling", "mcp_list_tools": "", "mcp_approval_request": ""}
PREFIXES = {"mcp_call": "mcp_", "mcp_list_tools": "mcpl_", "mcp_approval_request": "mcpr_"}
WITHOUT_STATUS = ("mcp_list_tools", "mcp_approval_request")
EVENTS = ("mcp_call", "mcp_call_arguments", "mcp_list_tools")
_ORDER = {
    "mcp_call": ["in_progress", "arguments.delta", "arguments.done", "completed"],
    "mcp_list_tools": ["in_progress", "completed"],
}


class Open(Protocol):
    """An item that was added, and is not done; see `HostedCall`."""

    type: str
    heard: list[str]
    code: str


def check_added(item: Any) -> None:
    """An item is as it is when it is added."""
    if item.type == "mcp_call":
        assert (item.status, item.arguments, item.output, item.error) == ("in_progress", "", None, None), f"is {item}"
    elif item.type == "mcp_list_tools":
        assert not item.tools and item.error is None, "has tools or an error before the server was asked"
    else:
        assert isinstance(json.loads(item.arguments), dict), f"asks to approve {item.arguments!r}"


def take(item: Open, event: Any) -> None:
    """An event about an item is right, and comes where it may."""
    _, kind, word = event.type.split(".")
    if kind == "mcp_call_arguments":
        kind, word = "mcp_call", f"arguments.{word}"
    assert kind == item.type, f"is about a {item.type}"
    last = item.heard[-1:]
    if word == "arguments.delta":
        assert event.delta, "says nothing"
        item.code += event.delta
        if last == [word]:
            return
    if word == "arguments.done":
        assert event.arguments == item.code, f"has {event.arguments!r}, and {item.code!r} was streamed"
    order = [each for each in _ORDER[kind] if each != "arguments.delta" or item.code]
    before = order[: order.index("completed" if word == "failed" else word)]
    assert item.heard == before, f"comes after {item.heard}"
    item.heard.append(word)


def check_done(item: Open, done: Any) -> None:
    """An item is what its events have said."""
    if done.type == "mcp_approval_request":
        assert not item.heard, f"comes after {item.heard}"
        return
    failed = done.error is not None
    if done.type == "mcp_call":
        assert done.arguments == item.code, f"has {done.arguments!r}, and {item.code!r} was streamed"
        assert (done.status == "completed") == (done.output is not None), f"is {done.status} with {done.output!r}"
        assert (done.status == "completed") == ("completed" in item.heard), f"is {done.status} after {item.heard}"
        assert not failed or "failed" in item.heard, f"has the error {done.error} after {item.heard}"
        return
    assert item.heard[-1] == ("failed" if failed else "completed"), f"has the error {done.error} after {item.heard}"
