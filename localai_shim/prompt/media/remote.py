"""Fetching from the network: only from public addresses, within a number of bytes and a time."""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import queue
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from ...errors import BadRequest
from ...threads import deadline as request
from ...types import VERSION

FETCH_SECONDS = 30.0
"""For one item as a whole: names, redirects and content."""
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.5  # after which a wait for bytes ends at the latest whose request nobody waits for any more
_PATH_CHARACTERS = "/%:=&?~+!$,;'@()*[]"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]
Connect = Callable[[tuple[str, int], float], socket.socket]


def fetch(
    url: str,
    path: str,
    limit: int,
    *,
    code: str = "invalid_value",
    seconds: float = FETCH_SECONDS,
    resolve: Resolve | None = None,
    connect: Connect | None = None,
) -> bytes:
    """Fetch the body of a http(s) URL.

    Each name is resolved once, all of its addresses must be public, and the connection goes to one of these, so a name
    that resolves to something else a moment later changes nothing. Proxies, which would resolve it again, are not used.

    Args:
        url: untrusted.
        path: the field that it came from.
        limit: the most bytes that are read.
        code: the error's.
        seconds: the most time that it takes.
        resolve: host and port -> addresses.
        connect: address, port and the seconds left -> a connection.

    Raises:
        BadRequest: the URL may not be fetched, or nothing usable came in time.
        Overdue: the request that it is for has less time.
    """
    deadline = time.monotonic() + seconds
    try:
        for _ in range(MAX_REDIRECTS + 1):
            target = _Target(url)
            addresses = _addresses(target, deadline, resolve or _resolve)
            sock = _connected(target, addresses, deadline, connect or socket.create_connection)
            try:
                answer = _answer(target, sock, deadline, limit)
            finally:
                sock.close()
            if isinstance(answer, bytes):
                return answer
            url = urllib.parse.urljoin(url, answer)
        raise _Refused(f"it is redirected more than {MAX_REDIRECTS} times")
    except _Refused as error:
        why = str(error)
    except TimeoutError:
        request.check()
        why = f"it took longer than {seconds:g} seconds"
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = str(error)[:200] or type(error).__name__
    raise BadRequest(f"Invalid '{path}': the URL cannot be fetched: {why}.", param=path, code=code)


class _Refused(Exception):
    """Reason why a URL is not fetched."""


class _Target:
    """The parts of a URL that may be fetched."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise _Refused("only http and https URLs are")
        if not parts.hostname:
            raise _Refused("it names no host")
        if parts.username is not None or parts.password is not None:
            raise _Refused("it holds a name or a password")
        self.secure = parts.scheme == "https"
        self.host = _ascii_host(parts.hostname)
        self.port = parts.port or (443 if self.secure else 80)
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.header = name if parts.port is None else f"{name}:{self.port}"
        self.request = urllib.parse.quote(parts.path or "/", safe=_PATH_CHARACTERS)
        if parts.query:
            self.request += "?" + urllib.parse.quote(parts.query, safe=_PATH_CHARACTERS)


def _ascii_host(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise _Refused("its host is not a name") from None


def _addresses(target: _Target, deadline: float, resolve: Resolve) -> list[str]:
    """Public addresses of a host. Refused as a whole if one of them is not."""
    found = _in_time(lambda: resolve(target.host, target.port), deadline)
    if not found:
        raise _Refused(f"{target.host!r} has no address")
    if not all(is_public(address) for address in found):
        raise _Refused(f"{target.host!r} is not a public host")
    return found


def is_public(address: str) -> bool:
    """True if an IP address is one of the internet's: not private, local, shared, reserved, or for many."""
    try:
        ip: _Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    inner = _inner(ip)
    if inner:
        return all(is_public(str(each)) for each in inner)
    if isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local:
        return False
    local = ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_unspecified
    return ip.is_global and not (local or ip.is_multicast or ip.is_reserved)


def _inner(ip: _Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses to which an IPv6 address leads."""
    if isinstance(ip, ipaddress.IPv4Address):
        return []
    if ip in _NAT64:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)]
    found = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    return [each for each in found if each is not None]


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _in_time(work: Callable[[], list[str]], deadline: float) -> list[str]:
    """Resolve a name in a thread, which is abandoned at the deadline: resolving has no time limit of its own."""
    done: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(work())
        except Exception as error:
            done.put(error)

    threading.Thread(target=run, name="localai-resolve", daemon=True).start()
    try:
        result = done.get(timeout=_left(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(result, Exception):
        raise _Refused(f"its host cannot be resolved: {result}")
    return result


def _connected(target: _Target, addresses: list[str], deadline: float, connect: Connect) -> socket.socket:
    """A connection to the first address that takes one."""
    failed: OSError | None = None
    for address in addresses:
        try:
            sock = connect((address, target.port), _left(deadline))
        except TimeoutError:
            raise
        except OSError as error:
            failed = error
            continue
        if not target.secure:
            return sock
        try:
            sock.settimeout(_left(deadline))
            return _tls().wrap_socket(sock, server_hostname=target.host)
        except BaseException:
            sock.close()
            raise
    raise failed or _Refused("nothing takes a connection")


def _tls() -> ssl.SSLContext:
    """Checks who answers. Python's own builds for macOS know no authorities, so certifi's do where there are none."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        with contextlib.suppress(ImportError):
            import certifi

            context.load_verify_locations(certifi.where())
    return context


def _answer(target: _Target, sock: socket.socket, deadline: float, limit: int) -> bytes | str:
    """The content, or where the answer points to."""
    connection = http.client.HTTPConnection(target.host, target.port)
    wire: Any = _Wire(sock, deadline)
    connection.sock = wire
    headers = {"Host": target.header, "User-Agent": f"localai-shim/{VERSION}", "Accept": "*/*"}
    connection.request("GET", target.request, headers={**headers, "Accept-Encoding": "identity"})
    response = connection.getresponse()
    if response.status in _REDIRECTS and (location := response.getheader("Location")):
        return location
    if response.status != 200:
        raise _Refused(f"the server answered with status {response.status}")
    if response.getheader("Content-Encoding", "identity") != "identity":
        raise _Refused("the server sent compressed content, which was not asked for")
    too_long = _Refused(f"it has more than {limit >> 20} MiB")
    if (response.length or 0) > limit:
        raise too_long
    data = bytearray()
    while chunk := response.read(_READ_BYTES):
        data += chunk
        if len(data) > limit:
            raise too_long
    if response.length:
        raise _Refused("the server closed the connection before the end")
    return bytes(data)


class _Wire:
    """Socket as http.client needs it; no call on it outlasts the deadline, however slowly bytes come."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._deadline))

    def close(self) -> None:
        """`fetch` closes the socket."""


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            self._sock.settimeout(min(_left(self._deadline), _POLL_SECONDS))
            with contextlib.suppress(TimeoutError):
                return self._sock.recv_into(buffer)


def _left(deadline: float) -> float:
    """Seconds that are left, for a fetch and for the request that it is for."""
    request.check()
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    of_request = request.left()
    return left if of_request is None else min(left, of_request)
