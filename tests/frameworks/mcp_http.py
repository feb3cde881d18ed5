"""A real MCP server over HTTP on loopback, which notes what reaches it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.frameworks.kit import framework

HANDSHAKES = ("initialize", "server/discover")


@dataclass
class Seen:
    """Requests that have reached a server."""

    headers: list[dict[str, str]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    """Methods of JSON-RPC."""

    @property
    def sessions(self) -> int:
        """Number of sessions that were begun."""
        begun = [method for method in self.methods if method in HANDSHAKES]
        pairs = zip(["", *begun], begun, strict=False)
        return sum((before, method) != HANDSHAKES[::-1] for before, method in pairs)


@contextmanager
def serving(seen: Seen, port: int = 0, *, legacy: bool = False) -> Iterator[str]:
    """URL of a server, which runs in the context.

    Args:
        port: that it listens on; 0: any.
        legacy: the server knows only the older protocol, in which clients have sessions.
    """
    framework("mcp")
    import uvicorn

    from tests.frameworks.mcp_server import MCPServer, add, divide

    server = MCPServer("calc")  # whose app runs once
    for function in (add, divide):
        server.tool()(function)
    app: Any = server.streamable_http_app()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        seen.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        first = [await receive()]
        method = json.loads(first[0].get("body") or b"{}").get("method", "")
        seen.methods.append(method)

        async def received() -> Any:
            return first.pop() if first else await receive()

        if legacy and method == "server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, received, send)

    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()  # before the server runs: connections wait for it
        config = uvicorn.Config(noting, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join(60)
