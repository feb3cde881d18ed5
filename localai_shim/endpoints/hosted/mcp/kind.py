"""Calls of tools of MCP servers: their arguments are a whole object of JSON."""

from __future__ import annotations

from collections.abc import Sequence

from ....prompt.messages import parsed_arguments
from ....types import Json
from ..kind import Calls, Names
from ..partial import Reader

IMAGES = "images"
"""Field of an item with the `data:` URLs of its result's images."""
AUDIO = "audio"
"""Field of an item with the `data:` URLs of its result's audio."""


class _WholeReader:
    """Reads all arguments of a call as they are written."""

    def feed(self, text: str) -> str:
        return text


class McpCalls(Calls):
    """Calls of tools of servers."""

    names = Names("mcp_call", "mcp", "calling")
    argument = "arguments"
    text_events = "response.mcp_call_arguments"
    says_working = False
    says_failed = True

    def pictures(self, item: Json) -> Sequence[str]:
        made: list[str] = item.get(IMAGES, [])
        return made

    def sounds(self, item: Json) -> Sequence[str]:
        made: list[str] = item.get(AUDIO, [])
        return made

    def reader(self) -> Reader:
        return _WholeReader()

    def read_argument(self, arguments: str) -> str | None:
        """The arguments of a call as the model wrote them, if they are an object."""
        return arguments if isinstance(parsed_arguments(arguments or "{}"), dict) else None


MCP = McpCalls()
