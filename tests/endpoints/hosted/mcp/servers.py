"""Small MCP servers that note their calls, and requests that use them."""

from __future__ import annotations

import asyncio
from typing import Any

from localai_shim.sdk import private as sdk
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.hosted.hosting import ask as ask_hosted
from tests.endpoints.hosted.hosting import made

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    "annotations": {"readOnlyHint": True},
}
WIPE = {"name": "wipe", "inputSchema": {"type": "object", "properties": {}}}
SUM = {"a": 2, "b": 3}
CALLS: Any = {"type": "mcp", "server_label": "calc", "require_approval": "never"}
ASKS: Any = {"type": "mcp", "server_label": "calc"}
ADDS = call("calc__add", SUM)
WIPES = call("calc__wipe", {})
ANSWER = "It is 5."


def text(*texts: str, **more: Any) -> Any:
    """A result of texts."""
    return {"content": [{"type": "text", "text": each} for each in texts], **more}


class Server:
    """A server with sync methods. `tools` and `result` may be functions."""

    def __init__(self, tools: Any = (ADD, WIPE), result: Any = None) -> None:
        self.tools, self.result = tools, text("5") if result is None else result
        self.lists = 0
        self.calls: list[Any] = []

    def list_tools(self) -> Any:
        self.lists += 1
        tools = made(self.tools)
        return {"tools": [*tools]} if isinstance(tools, tuple) else tools

    def call_tool(self, name: str, arguments: Any) -> Any:
        self.calls.append((name, arguments))
        return made(self.result)


class AsyncServer(Server):
    """The same with async methods, which note their event loops."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.loops: list[Any] = []

    async def list_tools(self) -> Any:
        self.loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return super().list_tools()

    async def call_tool(self, name: str, arguments: Any) -> Any:
        self.loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return super().call_tool(name, arguments)


def ask(engine: ScriptedEngine, how: str, server: Any, **body: Any) -> tuple[Any, list[Any]]:
    """The response, and its events where it is streamed, of a client with one server: legal ones."""
    servers = server if isinstance(server, dict) else {"calc": server}
    return ask_hosted(engine, how, {"mcp": servers}, **{"tools": [CALLS], **body})


def shown_error(error: Any, told: str) -> Any:
    """An error of a call as the SDK shows it, of the model's text: its 2.x line knows texts only."""
    return told if sdk.SERIES < 3 else error


def kinds(events: list[Any]) -> list[str]:
    """Types of events, without repetitions and without the beginning that all have."""
    found = [event.type.removeprefix("response.") for event in events]
    return [kind for i, kind in enumerate(found) if found[i - 1 : i] != [kind]]
