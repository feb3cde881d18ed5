"""Connections of an HTTP client that reach public hosts only. The names are made up; the server is a real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar

import pytest

from localai_shim.prompt.media import remote
from localai_shim.prompt.media.remote import PublicTransport
from tests.prompt.media.net import Net

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = remote.httpx

PUBLIC = "93.184.216.34"


class Handler(BaseHTTPRequestHandler):
    """Answers with what it was sent, or with a redirection."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_POST(self) -> None:
        self.seen.append((self.path, self.headers["Host"]))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/to/"):
            self.send_response(307)
            self.send_header("Location", self.path.removeprefix("/to/"))
            body = b""
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def net() -> Iterator[Net]:
    Handler.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Net(server.server_port, public=[PUBLIC], two=["2606:2800:220:1::1", PUBLIC], mixed=[PUBLIC, "10.0.0.1"])
    server.shutdown()
    server.server_close()
    thread.join()


def post(net: Net, *urls: str) -> str:
    """The last answer."""

    async def main() -> str:
        transport = PublicTransport(net.resolve, net.transport)
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
            for url in urls:
                answer = await client.post(url, content=b"body")
        return answer.text

    return asyncio.run(main())


def test_a_request_reaches_the_address_with_its_name_and_its_body(net: Net) -> None:
    assert post(net, "http://public.test:8080/mcp?a=b", "http://public.test/again") == "body"
    assert Handler.seen == [("/mcp?a=b", "public.test:8080"), ("/again", "public.test")]
    assert net.connected == [PUBLIC] * 2


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://mixed.test/"])
@pytest.mark.parametrize("before", ["", "http://public.test/to/"])
def test_a_host_that_is_not_public_is_refused_also_behind_a_redirection(before: str, url: str, net: Net) -> None:
    with pytest.raises(httpx.ConnectError, match="is not a public host"):
        post(net, before + url)
    assert len(net.connected) == len(Handler.seen) == bool(before)


def test_the_next_address_is_tried_with_the_same_body(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = net.connect

    def refuse_first(address: str) -> None:
        connect(address)
        if address != PUBLIC:
            raise httpx.ConnectError("no route")

    monkeypatch.setattr(net, "connect", refuse_first)
    assert post(net, "http://two.test/") == "body"
    assert net.connected == ["2606:2800:220:1::1", PUBLIC]


def test_a_name_that_is_not_known_is_an_error_of_the_connection(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    monkeypatch.setattr(net, "resolve", unknown)
    with pytest.raises(httpx.ConnectError, match="no such name"):
        post(net, "http://public.test/")
