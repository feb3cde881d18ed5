"""What is fetched, and above all what is not. The names and addresses are made up; the server is a real one."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from localai_shim.errors import BadRequest
from localai_shim.media import MediaRules
from localai_shim.prompt.media import remote, sources
from localai_shim.prompt.media.remote import fetch
from localai_shim.threads.deadline import Deadline, Overdue, until
from tests.prompt.media.files import DATA
from tests.prompt.media.net import PATH, Net

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    httpx = remote.httpx

PUBLIC = "93.184.216.34"


class Handler(BaseHTTPRequestHandler):
    """Answers by the path."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["Host"]))
        name, _, rest = self.path.partition("?")[0][1:].partition("/")
        getattr(self, f"do_{name}", self.do_missing)(rest)

    def log_message(self, *_: object) -> None:
        pass

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for key, value in {"Connection": "close", **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()

    def do_picture(self, _: str) -> None:
        self.head(200, Content_Length=len(DATA))
        self.wfile.write(DATA)

    def do_chunked(self, _: str) -> None:
        self.head(200, Transfer_Encoding="chunked")
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA))

    def do_missing(self, _: str) -> None:
        self.head(404, Content_Length=0)

    def do_to(self, target: str) -> None:
        self.head(302, Location=target, Content_Length=0)

    def do_again(self, rest: str) -> None:
        count = int(rest)
        self.head(301, Location=f"/again/{count - 1}" if count else "/picture", Content_Length=0)

    def do_endless(self, _: str) -> None:
        self.head(200)
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(65_536))

    def do_long(self, _: str) -> None:
        self.head(200, Content_Length=10**12)

    def do_short(self, _: str) -> None:
        self.head(200, Content_Length=len(DATA) + 10)
        self.wfile.write(DATA)

    def do_drip(self, _: str) -> None:
        with contextlib.suppress(OSError):
            for _i in range(1_000):
                self.wfile.write(b"H")
                time.sleep(0.01)

    def do_slow(self, _: str) -> None:
        self.head(200)
        with contextlib.suppress(OSError):
            for _i in range(1_000):
                self.wfile.write(b"x")
                time.sleep(0.01)

    def do_packed(self, _: str) -> None:
        self.head(200, Content_Encoding="gzip", Content_Length=0)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def net(port: int) -> Net:
    Handler.seen.clear()
    return Net(port, public=[PUBLIC], two=["2606:2800:220:1::1", PUBLIC])


@pytest.mark.parametrize("path", ["/picture", "/chunked", "/again/4", "/to//picture", "/to/http://two.test/picture"])
def test_a_picture_is_fetched(path: str, net: Net) -> None:
    assert net.get(f"http://public.test{path}") == DATA


def test_the_server_sees_the_name_and_the_connection_goes_to_the_address(net: Net) -> None:
    net.get("http://public.test:8080/picture?a=b c#there")
    net.get("http://PUBLIC.test/picture")
    assert Handler.seen == [("/picture?a=b%20c", "public.test:8080"), ("/picture", "public.test")]
    assert net.connected == [PUBLIC] * 2


LOCAL = ["127.0.0.1", "169.254.169.254", "192.0.0.192", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "localhost", ""]


@pytest.mark.parametrize("address", LOCAL)
def test_a_host_with_an_address_that_is_not_public_is_refused(address: str, net: Net) -> None:
    net.names["evil"] = [address]
    assert "public host" in net.refusal("http://evil.test/picture")
    net.names["evil"] = [PUBLIC, address]
    assert "public host" in net.refusal("http://evil.test/picture")
    assert "public host" in net.refusal("http://public.test/to/http://evil.test/picture")
    assert net.connected == [PUBLIC]


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "017700000001", "[::1]", "[::ffff:127.0.0.1]", "0"],
)
def test_the_real_resolver_and_connection_never_reach_loopback(host: str, port: int) -> None:
    Handler.seen.clear()
    with pytest.raises(BadRequest):
        fetch(f"http://{host}:{port}/picture", PATH, 1 << 20)
    assert Handler.seen == []


def test_a_name_that_resolves_to_something_else_later_changes_nothing(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    monkeypatch.setattr(net, "resolve", lambda *_: next(answers))
    assert net.get("http://rebinding.test/picture") == DATA
    assert net.connected == [PUBLIC]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://public.test/again/5", "redirected more than 5 times"),
        ("http://public.test/to/file:///etc/passwd", "only http and https"),
        ("http://public.test/to/ftp://public.test/a", "only http and https"),
        ("http://public.test/to/http://10.0.0.1/", "public host"),
        ("http://public.test/to/http://u:p@public.test/", "a name or a password"),
        ("http://u:p@public.test/picture", "a name or a password"),
        ("http:///picture", "no host"),
        ("http://public.test:99999/", "ort"),
        ("http://[::1/", "nvalid"),
        ("http://public.test/nothing", "status 404"),
        ("http://public.test/packed", "compressed"),
        ("http://public.test/short", "before the end"),
        ("http://public.test/long", "more than 1 MiB"),
        ("http://public.test/endless", "more than 1 MiB"),
        (f"http://{'ä' * 70}.test/", "host"),
    ],
)
def test_what_is_refused_is_said(url: str, says: str, net: Net) -> None:
    assert says in net.refusal(url)


@pytest.mark.parametrize("path", ["drip", "slow"])
def test_the_time_is_that_of_the_whole(path: str, net: Net) -> None:
    """Each byte comes soon; all of them would take ten seconds."""
    begin = time.monotonic()
    assert "took longer" in net.refusal(f"http://public.test/{path}", seconds=0.3)
    assert time.monotonic() - begin < 8


@pytest.mark.parametrize("path", ["drip", "slow"])
def test_the_deadline_of_the_request_ends_a_fetch(path: str, net: Net) -> None:
    begin = time.monotonic()
    with until(Deadline(0.3)), pytest.raises(Overdue):
        net.get(f"http://public.test/{path}")
    assert time.monotonic() - begin < 8


def test_a_resolver_that_hangs(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(net, "resolve", lambda *_: release.wait(60) and [PUBLIC])
    assert "took longer" in net.refusal("http://public.test/picture", seconds=0.1)
    release.set()


def test_a_name_without_an_address(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(net, "resolve", resolve)
    assert "Name or service not known" in net.refusal("http://public.test/picture")


def test_the_next_address_is_tried(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(address: str) -> None:
        if ":" in address:
            raise httpx.ConnectError("Network is unreachable")
        net.connected.append(address)

    monkeypatch.setattr(net, "connect", picky)
    assert net.get("http://two.test/picture") == DATA
    assert net.connected == [PUBLIC]
    monkeypatch.setattr(net, "names", {"two": ["2606:2800:220:1::1"]})
    assert "unreachable" in net.refusal("http://two.test/picture")


def test_tls_asks_for_the_name_and_not_for_the_address() -> None:
    """The server reads what a client says first, and leaves."""
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            taken, _ = listener.accept()
            with taken:
                said.append(taken.recv(65_536))

        thread = threading.Thread(target=serve)
        thread.start()
        net = Net(listener.getsockname()[1], public=[PUBLIC])
        net.refusal("https://public.test/picture")
        thread.join()
    assert b"public.test" in said[0] and PUBLIC.encode() not in said[0] and b"GET" not in said[0]


def test_https_checks_who_answers(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server speaks no TLS; what matters is what would be checked, and that nothing is sent without."""
    asked: list[Any] = []
    make = ssl.create_default_context

    def spied() -> ssl.SSLContext:
        context = make()
        wrap = context.wrap_bio

        def wrap_bio(*arguments: Any, server_hostname: bytes, **more: Any) -> ssl.SSLObject:
            asked.append((server_hostname.decode(), context.verify_mode, context.check_hostname))
            return wrap(*arguments, server_hostname=server_hostname, **more)

        monkeypatch.setattr(context, "wrap_bio", wrap_bio)
        return context

    monkeypatch.setattr(ssl, "create_default_context", spied)
    assert "SSL" in net.refusal("https://public.test/picture")
    assert asked == [("public.test", ssl.CERT_REQUIRED, True)]
    assert not Handler.seen


def test_where_the_system_knows_no_authorities_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context = remote._tls()
    assert context.cert_store_stats()["x509_ca"] > 0
    assert context.check_hostname


def test_only_clients_that_allow_it_fetch(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "fetch", functools.partial(fetch, resolve=net.resolve, transport=net.transport))
    url = "http://public.test/picture"
    assert sources.read_source(url, PATH, "image", MediaRules(remote=True)) == DATA
    with pytest.raises(BadRequest, match="allow_remote_images") as caught:
        sources.read_source(url, PATH, "image", MediaRules())
    assert caught.value.code == "invalid_image_url"
    assert remote.FETCH_SECONDS <= 60
