"""Servers that a URL names, through the `mcp` package, which is imported when it is used."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from ....errors import BadRequest
from ....prompt.media.remote import PublicTransport, make_transport
from ....threads.deadline import left
from ....types import Json
from . import results
from .running import run_here

_OLDEST = (2, 1)
_SECONDS = 300.0
"""Limit for one message of a server if the request has no timeout."""


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
    """A server behind a URL. Each list and each call has its own connection.

    Args:
        headers: of its requests.
        public: only servers on public addresses are asked.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, public: bool) -> None:
        self._url, self._headers, self._public = url, headers, public

    def list_tools(self) -> list[Json]:
        async def work(client: Any) -> object:
            return await results.all_tools(client.list_tools, client.list_tools)

        return cast("list[Json]", self._connected(work))

    def call_tool(self, name: str, arguments: Json) -> object:
        async def work(client: Any) -> object:
            return await client.call_tool(name, arguments)

        return self._connected(work)

    def _connected(self, work: Callable[[Any], Awaitable[object]]) -> object:
        """Result of work with a connection."""

        async def connect() -> object:
            mcp, httpx, http = map(import_module, ("mcp", "httpx2", "mcp.client.streamable_http"))
            transport = PublicTransport() if self._public else make_transport()
            timeout = httpx.Timeout(_SECONDS if (seconds := left()) is None else seconds)
            async with (
                httpx.AsyncClient(transport=transport, headers=self._headers, timeout=timeout) as client,
                mcp.Client(http.streamable_http_client(self._url, http_client=client)) as connected,
            ):
                return await work(connected)

        return run_here(connect)
