"""Refuses connections that leave this machine, and names the line of the program that wanted one.

It listens to the interpreter's own audit events, so that it sees every socket and lookup that Python makes, whichever
library and thread they belong to. It does not see libraries in C that make their own sockets (pycurl, gRPC, uvloop),
nor other processes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar

OPENAI = ("openai.com", "openai.azure.com")
"""Domains of OpenAI's services."""
Refuse = Callable[[str, str], Exception | None]
"""Gets a host and the whole target; returns the exception for the program, or None to let it pass."""

_ADDRESSES = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_NAMES = {"socket.getaddrinfo", "socket.gethostbyname"}
_REVERSE = {"socket.gethostbyaddr", "socket.getnameinfo"}
"""Lookups of the names of numbers, which go to a name server."""


class NetworkBlockedError(RuntimeError):
    """Raised in code that reaches for the network while that is blocked."""


class NetworkUnreachableError(OSError):
    """Raised as without a network: programs often do without what they cannot fetch then."""


def refuse_all(_: str, target: str) -> Exception:
    """Refuse everything outside this machine: `localai-shim run --block-network`."""
    return NetworkUnreachableError(
        f"The program reached out to {target}, which --block-network forbids\n  at {call_site()}"
    )


def refuse_openai(host: str, target: str) -> Exception | None:
    """Refuse OpenAI's own hosts to what does not go through the SDK's clients."""
    if not any(host == domain or host.endswith(f".{domain}") for domain in OPENAI):
        return None
    return NetworkBlockedError(
        f"The program reached out to {target}, but OpenAI is replaced by a local model here. Only requests of the "
        f"OpenAI SDK's clients can be answered: use openai.OpenAI() for this one\n  at {call_site()}"
    )


# -- what the interpreter tells -------------------------------------------------------------------------------------

passes: ContextVar[bool] = ContextVar("localai_shim.passes", default=False)
"""True on a thread that may reach out, whatever is replaced or blocked."""
_refusing: list[Refuse] = []
"""The last one that returns an exception counts: sessions of pytest may be nested."""


@contextlib.contextmanager
def refusing(refuse: Refuse) -> Iterator[None]:
    """Ask a function about every connection and lookup, on every thread, as long as the context lasts."""
    begin(refuse)
    try:
        yield
    finally:
        end(refuse)


def begin(refuse: Refuse, *, first: bool = False) -> None:
    """Ask a function about every connection and lookup until `end`.

    Args:
        first: ask the others before this one, so that they hear of what it would refuse.
    """
    _install()
    _refusing.insert(0 if first else len(_refusing), refuse)


def end(refuse: Refuse) -> None:
    """Ask this function no more."""
    _refusing.remove(refuse)


@functools.cache
def _install() -> None:
    """Add the hook, once for the process: nothing can take it away."""
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[object, ...]) -> None:
    if (event not in _ADDRESSES and event not in _NAMES and event not in _REVERSE) or not _refusing or passes.get():
        return
    address = args[1] if event in _ADDRESSES else args[0] if event == "socket.getnameinfo" else args[:2]
    if not isinstance(address, tuple) or not address or _is_local(address[0], lookup=event in _NAMES):
        return
    target = ":".join(str(_text(part)) for part in address[:2] if part is not None)
    for refuse in reversed(tuple(_refusing)):
        error = refuse(_host(address[0]), target)
        if error is not None:
            raise error


def _text(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes | bytearray) else value


def _host(value: object) -> str:
    return str(_text(value)).partition("%")[0].rstrip(".").lower() if value else ""


def _is_local(host: object, *, lookup: bool) -> bool:
    """True if a host is this machine. To look up a number's address sends nothing."""
    import ipaddress
    import socket

    name = _host(host)
    if name in ("", "localhost", socket.gethostname().lower()) or name.endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        return False
    number = getattr(number, "ipv4_mapped", None) or number  # of which Python 3.12 would say that it is not loopback
    return lookup or number.is_loopback or number.is_unspecified


# -- where it came from ---------------------------------------------------------------------------------------------


def call_site() -> str:
    """The innermost line that is neither a library's nor this package's, and the libraries that it went through."""
    libraries: dict[str, None] = {}
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        library = _library(frame.f_code.co_filename)
        if library is None:
            through = f", through {', '.join(reversed(libraries))}" if libraries else ""
            return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}{through}"
        if library:
            libraries[library] = None
    return f"a place unknown, through {', '.join(reversed(libraries)) or 'the standard library'}"


_STANDARD = os.path.dirname(os.__file__) + os.sep
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of this package."""


def _library(file: str) -> str | None:
    """The package that a file belongs to, empty for Python's own and this package; None for code of the program."""
    if file.startswith(PACKAGE):
        return ""
    for folder in ("site-packages", "dist-packages"):
        _, found, rest = file.replace("\\", "/").rpartition(f"/{folder}/")
        if found:
            return rest.partition("/")[0].removesuffix(".py")
    return "" if file.startswith((_STANDARD, "<")) else None
