"""Fetching from the network: only from public addresses, within a number of bytes and a time.

Python's `ipaddress` follows IANA's registries of special-purpose blocks, but which state of them depends on its patch
release: 3.11.7 takes 192.0.0.192, a cloud's metadata service, for public. So the blocks are listed here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from ...errors import BadRequest
from ...threads import deadline as request
from ...threads.panics import is_shortage
from ...threads.workers import Workers
from ...types import VERSION

if TYPE_CHECKING:
    import httpx2 as httpx
else:
    try:
        import httpx2 as httpx
    except ImportError:  # the SDK's 2.x line brings this one
        import httpx

_IPV4 = [
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; a metadata service (Alibaba's)
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata service, in no registry
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; a metadata service (Oracle's)
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is assigned to hosts of the internet
_IPV6 = [
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "3fff::/20",
    )
]
_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO = map(
    ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32")
)
_ISATAP = 0x5EFE  # in front of the embedded IPv4 address; one more bit says whether that is unique
_UNIQUE = 0x0200_0000
_LAST = 0xFFFF_FFFF


def is_public(address: str) -> bool:
    """True if an IP address belongs to a host of the internet: it is not private, local, shared, reserved or
    multicast, does not lead to such an IPv4 address, and is not a cloud's metadata service.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not any(ip in block for block in _IPV4)
    if ip.scope_id is not None:
        return False
    within = _within(ip)
    if within is not None:
        return all(is_public(str(ipaddress.IPv4Address(each & _LAST))) for each in within)
    if int(ip) >> 32 & _LAST & ~_UNIQUE == _ISATAP and not is_public(str(ipaddress.IPv4Address(int(ip) & _LAST))):
        return False
    return ip in _UNICAST and ip.is_global and not any(ip in block for block in _IPV6)


def _within(ip: ipaddress.IPv6Address) -> list[int] | None:
    """The IPv4 addresses that an IPv6 address stands for, each in the last 32 bits of a number; None: it is a host's
    own.
    """
    number = int(ip)
    if ip in _MAPPED or ip in _NAT64:
        return [number]
    if ip in _SIX_TO_FOUR:
        return [number >> 80]
    if ip in _TEREDO:
        return [number >> 64, ~number]  # its server's, and its own with all bits turned
    return None


FETCH_SECONDS = 30.0
"""For one item as a whole: names, redirects and content."""
MAX_REDIRECTS = 5
_POLL_SECONDS = 0.5  # after which a fetch ends at the latest whose request nobody waits for any more
_HEADERS = {"User-Agent": f"localai-shim/{VERSION}", "Accept": "*/*", "Accept-Encoding": "identity"}
_resolving = Workers("resolving")  # has no time limit of its own: who waits leaves
Resolve = Callable[[str, int], list[str]]
Transport = Callable[[], httpx.AsyncBaseTransport]


def resolve_name(host: str, port: int) -> list[str]:
    """Addresses of a host, as the system knows them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def make_transport() -> httpx.AsyncBaseTransport:
    """Connections that check who answers, and take no proxies, which would resolve names again."""
    return httpx.AsyncHTTPTransport(verify=_tls(), trust_env=False)


def fetch(
    url: str,
    path: str,
    limit: int,
    *,
    code: str = "invalid_value",
    seconds: float = FETCH_SECONDS,
    resolve: Resolve = resolve_name,
    transport: Transport = make_transport,
) -> bytes:
    """Content of a http(s) URL, for a thread that runs no event loop.

    Each name is resolved once, all of its addresses must be public, and the connection goes to one of these, so a name
    that resolves to something else a moment later changes nothing.

    Args:
        url: untrusted.
        path: the field that it came from.
        limit: the most bytes that are read.
        code: the error's.
        seconds: the most time that it takes.
        resolve: host and port -> addresses.
        transport: makes what connects to an address, once for each host.

    Raises:
        BadRequest: the URL may not be fetched, or nothing usable came in time.
        Overdue: the request that it is for has less time.
    """
    left = partial(contextvars.copy_context().run, _left, time.monotonic() + seconds)
    work = _follow(url, limit, resolve, transport)
    try:
        # Not in the caller's context, which may say that it is trio.
        return contextvars.Context().run(asyncio.run, _while(left, work))
    except TimeoutError:
        request.check()
        why = f"it took longer than {seconds:g} seconds"
    except (_Refused, OSError, httpx.HTTPError, httpx.InvalidURL) as error:
        if is_shortage(error):
            raise
        why = str(error)[:200] or type(error).__name__
    raise BadRequest.refused(path, f"the URL cannot be fetched: {why}", code)


class _Refused(Exception):
    """Reason why a URL is not fetched."""


async def _while(left: Callable[[], float], work: Coroutine[object, object, bytes]) -> bytes:
    """Result of a coroutine, which is cancelled where no time is left."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=min(left(), _POLL_SECONDS))
    return task.result()


def _left(deadline: float) -> float:
    """Seconds that are left, for a fetch and for the request that it is for."""
    request.check()
    left, of_request = deadline - time.monotonic(), request.left()
    if left <= 0:
        raise TimeoutError
    return left if of_request is None else min(left, of_request)


async def _follow(url: str, limit: int, resolve: Resolve, transport: Transport) -> bytes:
    """Content of a URL, or of the one that it is redirected to."""
    for _ in range(MAX_REDIRECTS + 1):
        target = httpx.URL(url)
        addresses = await _addresses(target, resolve)
        asked = httpx.Request("GET", target, headers=_HEADERS)
        async with (
            transport() as connections,  # of its own: TLS has checked one name
            contextlib.aclosing(await _ask(asked, addresses, connections)) as response,
        ):
            if not response.has_redirect_location:
                return await _content(response, limit)
            url = str(target.join(response.headers["Location"]))
    raise _Refused(f"it is redirected more than {MAX_REDIRECTS} times")


async def _addresses(target: httpx.URL, resolve: Resolve) -> list[str]:
    """Public addresses of a URL's host. Refused as a whole if one of them is not."""
    if target.scheme not in ("http", "https"):
        raise _Refused("only http and https URLs are")
    if not target.host:
        raise _Refused("it names no host")
    if target.userinfo:
        raise _Refused("it holds a name or a password")
    port = target.port or (443 if target.scheme == "https" else 80)
    if port > 65_535:
        raise _Refused(f"there is no port {port}")
    host = target.raw_host.decode("ascii")
    found = await asyncio.wrap_future(_resolving.submit(partial(resolve, host, port)))
    if not found:
        raise _Refused(f"{host!r} has no address")
    if not all(map(is_public, found)):
        raise _Refused(f"{host!r} is not a public host")
    return found


async def _ask(request: httpx.Request, addresses: list[str], connections: httpx.AsyncBaseTransport) -> httpx.Response:
    """Answer of the first address that takes a connection; the URL's own name is what is asked for, and checked."""
    target = request.url
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    for address in addresses:
        pinned = httpx.Request(
            request.method,
            target.copy_with(host=address),
            headers=[(b"Host", target.netloc), *headers],
            stream=request.stream,  # of which nothing is read before there is a connection
            extensions={**request.extensions, "sni_hostname": target.raw_host.decode("ascii")},
        )
        try:
            return await connections.handle_async_request(pinned)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address is addresses[-1]:
                raise
    raise AssertionError("there is an address")


class PublicTransport(httpx.AsyncBaseTransport):
    """Connections of an HTTP client that reach public hosts only, by the same rules as `fetch`, redirects included.

    Args:
        resolve: host and port -> addresses.
        transport: makes what connects to an address.
    """

    def __init__(self, resolve: Resolve = resolve_name, transport: Transport = make_transport) -> None:
        self._resolve, self._transport = resolve, transport
        self._connections: dict[str, httpx.AsyncBaseTransport] = {}
        """By host, as TLS has checked one name."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = request.url
        try:
            addresses = await _addresses(target, self._resolve)
        except (_Refused, OSError) as error:
            raise httpx.ConnectError(f"the URL cannot be used: {error}", request=request) from None
        host = target.netloc.decode("ascii")
        if host not in self._connections:
            self._connections[host] = self._transport()
        return await _ask(request, addresses, self._connections[host])

    async def aclose(self) -> None:
        for connections in self._connections.values():
            await connections.aclose()


async def _content(response: httpx.Response, limit: int) -> bytes:
    if response.status_code != 200:
        raise _Refused(f"the server answered with status {response.status_code}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _Refused("the server sent compressed content, which was not asked for")
    too_long = _Refused(f"it has more than {limit >> 20} MiB")
    if int(response.headers.get("Content-Length", 0)) > limit:
        raise too_long
    data = bytearray()
    try:
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > limit:
                raise too_long
    except httpx.RemoteProtocolError:
        raise _Refused("the server closed the connection before the end") from None
    return bytes(data)


def _tls() -> ssl.SSLContext:
    """Checks who answers. Python's own builds for macOS know no authorities, so certifi's do where there are none."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi

        context.load_verify_locations(certifi.where())
    return context
