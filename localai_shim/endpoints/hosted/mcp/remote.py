"""Servers that a URL names, through the `mcp` package, which is imported when it is used."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from ....errors import BadRequest
from ....prompt.media.remote import PublicTransport, make_transport
from ....types import Json
from . import results
from .connections import Address, Connections

_OLDEST = (2, 1)
_SECONDS, _CONNECT_SECONDS = 300.0, 30.0
"""Limits for one message of a server, and for a connection to it; the timeout of a request may be shorter."""


def check_package(path: str) -> None:
    """Refuse a request that needs the package if it is not installed.

    Raises:
        BadRequest: it says how to install it.
    """
    try:
        found = version("mcp")
    except PackageNotFoundError:
        found = ""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
        has = f"this environment has {found}" if found else "it is not installed"
        raise BadRequest.unsupported_value(
            path,
            f"MCP servers behind a URL need the package 'mcp' 2.1 or newer, and {has}: run `pip install "
            "'localai-shim[mcp]'`. Servers of your program, as hosted_tools={'mcp': {label: server}}, do not need it.",
        )


class UrlServer:
    """A server behind a URL.

    Args:
        connections: the client's.
        headers: of its requests.
        public: only servers on public addresses are asked.
    """

    def __init__(self, connections: Connections, url: str, headers: Mapping[str, str], *, public: bool) -> None:
        self._connections = connections
        self._address = Address(url, tuple(sorted(headers.items())), public)

    def list_tools(self) -> list[Json]:
        async def work(client: Any) -> object:
            return await results.all_tools(client.list_tools, client.list_tools)

        return cast("list[Json]", self._connections.call(self._address, work, repeats=True))

    def call_tool(self, name: str, arguments: Json) -> object:
        async def work(client: Any) -> object:
            return await client.call_tool(name, arguments)

        return self._connections.call(self._address, work, repeats=False)


@contextlib.asynccontextmanager
async def connect(address: Address) -> AsyncIterator[object]:
    """A client of the package that is connected to a server."""
    mcp, httpx, http = map(import_module, ("mcp", "httpx2", "mcp.client.streamable_http"))
    transport = PublicTransport() if address.public else make_transport()
    timeout = httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS)
    async with (
        httpx.AsyncClient(transport=transport, headers=dict(address.headers), timeout=timeout) as client,
        mcp.Client(http.streamable_http_client(address.url, http_client=client), cache=None) as connected,
    ):
        yield connected
