"""The part of the grammar of Responses streams that is about hosted tools, whose items may be open at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.endpoints.responses import legal_mcp

CALLS = {
    "web_search_call": "searching",
    "file_search_call": "searching",
    "code_interpreter_call": "interpreting",
    "image_generation_call": "generating",
    **legal_mcp.WORDS,
}
"""Type of an item -> the word of its event, and its status, while its tool works."""
PREFIXES = {
    "web_search_call": "ws_",
    "file_search_call": "fs_",
    "code_interpreter_call": "ci_",
    "image_generation_call": "ig_",
    **legal_mcp.PREFIXES,
}
_ENDS = ("completed", "failed", "incomplete")
_CODE = "code_interpreter_call_code"


@dataclass(slots=True)
class HostedCall:
    """An item of a hosted tool that was added, and is not done."""

    type: str
    index: int
    heard: list[str]
    """Last words of its events so far, without repeated deltas."""
    code: str = ""
    partial: int = 0
    """Number of unfinished images so far."""


class HostedCalls:
    """All items of hosted tools that are open."""

    def __init__(self) -> None:
        self.open: dict[str, HostedCall] = {}

    def add(self, item: Any, index: int) -> None:
        if item.type in legal_mcp.WORDS:
            legal_mcp.check_added(item)
            self.open[item.id] = HostedCall(item.type, index, [])
            return
        assert item.status == "in_progress", f"has an item with the status {item.status}"
        if item.type == "web_search_call":
            assert item.action.type == "search" and item.action.sources is None, f"has the action {item.action}"
        elif item.type == "image_generation_call":
            assert item.result is None, "has an image before one was generated"
        elif item.type == "file_search_call":
            assert item.queries and item.results is None, f"has the results {item.results}"
        else:
            assert not item.code and item.outputs is None, "has code or outputs before any were streamed"
            assert item.container_id.startswith("cntr"), f"has the container {item.container_id}"
        self.open[item.id] = HostedCall(item.type, index, [])

    def takes(self, event: Any) -> bool:
        """The event is about one of these items, and right."""
        parts = event.type.split(".")
        if parts[1] in legal_mcp.EVENTS:
            legal_mcp.take(self._call(event), event)
            return True
        if len(parts) < 3 or parts[1] not in (*CALLS, _CODE):
            return False
        call, word = self._call(event), ".".join(parts[2:])
        if word == "partial_image":
            return self._takes_partial(call, event)
        if parts[1] == _CODE:
            word = f"code.{word}"
        assert word == "code.delta" or word not in call.heard, f"comes twice for {event.item_id}"
        assert call.heard[-1:] == [word] or call.heard == self._before(call, word), f"comes after {call.heard}"
        if word == "code.delta":
            assert event.delta, "says nothing"
            call.code += event.delta
        if word == "code.done":
            assert event.code == call.code, f"has {event.code!r}, and {call.code!r} was streamed"
        if call.heard[-1:] != [word]:
            call.heard.append(word)
        return True

    @staticmethod
    def _takes_partial(call: HostedCall, event: Any) -> bool:
        assert call.heard[-1:] == ["generating"], f"comes after {call.heard}"
        assert event.partial_image_index == call.partial, f"has the index {event.partial_image_index}"
        assert event.partial_image_b64, "has no image"
        call.partial += 1
        return True

    def _call(self, event: Any) -> HostedCall:
        call = self.open.get(event.item_id)
        assert call is not None, f"is about {event.item_id}, which is not open"
        assert event.output_index == call.index, f"has output_index {event.output_index}, not {call.index}"
        return call

    @staticmethod
    def _before(call: HostedCall, word: str) -> list[str]:
        """The events that must have come before one."""
        code = [each for each in ("code.delta", "code.done") if call.type == "code_interpreter_call"]
        order = ["in_progress", *code, CALLS[call.type], "completed"]
        if word in ("code.done", CALLS[call.type], "completed") and not call.code and "code.delta" in order:
            order.remove("code.delta")
        return order[: order.index(word)]

    def done(self, event: Any) -> None:
        item, call = event.item, self.open.pop(event.item.id)
        assert event.output_index == call.index, f"has output_index {event.output_index}, not {call.index}"
        if item.type in legal_mcp.WORDS:
            legal_mcp.check_done(call, item)
            return
        assert item.status in _ENDS, f"has an item with the status {item.status}"
        assert (item.status == "completed") == ("completed" in call.heard), f"is {item.status} after {call.heard}"
        if item.type == "image_generation_call":
            assert (item.status == "completed") == bool(item.result), f"is {item.status} with the image {item.result}"
        if item.type == "code_interpreter_call":
            assert item.code == call.code, f"has the code {item.code!r}, and {call.code!r} was streamed"
