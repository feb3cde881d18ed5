"""A made-up internet for what is fetched: every name leads to one server on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from localai_shim.errors import BadRequest
from localai_shim.prompt.media import remote
from localai_shim.prompt.media.remote import fetch

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = remote.httpx

PATH = "messages[0].content[0].image_url.url"


class Rerouted(httpx.AsyncHTTPTransport):
    """Connections of a made-up internet, all of which lead to a server here."""

    def __init__(self, net: Net) -> None:
        super().__init__(verify=remote._tls(), trust_env=False)
        self._net = net

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._net.connect(request.url.host)
        request.url = request.url.copy_with(host="127.0.0.1", port=self._net.port)
        return await super().handle_async_request(request)


class Net:
    """A made-up internet: names and their addresses, all of which lead to the server."""

    def __init__(self, port: int, **names: list[str]) -> None:
        self.port = port
        self.names = names
        self.connected: list[str] = []

    def resolve(self, host: str, _port: int) -> list[str]:
        return self.names.get(host.partition(".")[0], [host])

    def connect(self, address: str) -> None:
        self.connected.append(address)

    def transport(self) -> Rerouted:
        return Rerouted(self)

    def get(self, url: str, limit: int = 1 << 20, seconds: float = 20.0) -> bytes:
        return fetch(url, PATH, limit, seconds=seconds, resolve=self.resolve, transport=self.transport)

    def refusal(self, url: str, limit: int = 1 << 20, seconds: float = 20.0) -> str:
        with pytest.raises(BadRequest) as caught:
            self.get(url, limit, seconds)
        assert caught.value.param == PATH
        return caught.value.message
