"""Fails tests that reach out of this machine: `--block-openai`, or `block_openai = true` in the configuration.

It listens to the interpreter's own audit events, so that it sees every socket and lookup that Python makes, whichever
library and thread they belong to; not those of libraries in C that make their own (pycurl, gRPC, uvloop).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Generator, Iterator

import pytest

_ADDRESSES = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_NAMES = {"socket.getaddrinfo", "socket.gethostbyname"}
_REVERSE = {"socket.gethostbyaddr", "socket.getnameinfo"}
"""Lookups of the names of numbers, which go to a name server."""


class NetworkBlockedError(RuntimeError):
    """Raised in code under test that reaches for the network."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and its counterpart in the configuration."""
    text = "fail each test that reaches out of this machine, with the place that did"
    parser.getgroup("localai_shim").addoption("--block-openai", action="store_true", help=text)
    parser.addini("block_openai", text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Watch over the tests of a session, if it is wanted."""
    if config.getoption("block_openai") or config.getini("block_openai"):
        config.pluginmanager.register(_Guard(), "localai_shim_guard")


class _Guard:
    """Watches while tests run; an attempt goes into the report of the phase in which it was made, or of the next."""

    def __init__(self) -> None:
        self._attempts: list[str] = []
        self._test = ""
        self._threads: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
        """Thread -> the test and the place that started it."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        with _watching(self):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        text = self._take()
        if text and report.failed:
            report.sections.append(("network", text))
        elif text:
            report.outcome, report.longrepr = "failed", text
            report.__dict__.pop("wasxfail", None)  # a test that is expected to fail may not reach out either
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._attempts and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        text = self._take()  # of threads that were left by the last test
        if text:
            terminalreporter.section("network", red=True)
            terminalreporter.line(text)

    def _take(self) -> str:
        taken, self._attempts = self._attempts, []
        return "\n".join(taken)

    def started(self, thread: threading.Thread) -> None:
        """Remember where a thread comes from: it may be one whose own frames say nothing."""
        self._threads[thread] = f"{self._test} started at {_call_site()}"

    def refuse(self, target: str) -> NetworkBlockedError:
        """Note an attempt; the exception by which it ends."""
        thread = threading.current_thread()
        text = f"{self._test} reached out to {target}, which --block-openai forbids\n  at {_call_site()}"
        if thread is not threading.main_thread():
            text += f"\n  on thread {thread.name!r}, which {self._threads.get(thread, 'something else started')}"
        self._attempts.append(text)
        return NetworkBlockedError(text)


# -- what the interpreter tells -------------------------------------------------------------------------------------

_guards: list[_Guard] = []
"""Those whose tests run; the last one counts, since sessions may be nested."""


@contextlib.contextmanager
def _watching(guard: _Guard) -> Iterator[None]:
    _install()
    start = threading.Thread.start

    @functools.wraps(start)
    def started(self: threading.Thread) -> None:
        guard.started(self)
        start(self)

    threading.Thread.start = started  # type: ignore[method-assign]
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)
        if threading.Thread.start is started:
            threading.Thread.start = start  # type: ignore[method-assign]


@functools.cache
def _install() -> None:
    """Once for the process: there is no way to take it away."""
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[object, ...]) -> None:
    if (event not in _ADDRESSES and event not in _NAMES and event not in _REVERSE) or not _guards:
        return
    address = args[1] if event in _ADDRESSES else args[0] if event == "socket.getnameinfo" else args[:2]
    if isinstance(address, tuple) and address and not _is_local(address[0], lookup=event in _NAMES):
        raise _guards[-1].refuse(":".join(str(_text(part)) for part in address[:2] if part is not None))


def _text(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes | bytearray) else value


def _is_local(host: object, *, lookup: bool) -> bool:
    """True if a host is this machine. To look up a number's address sends nothing."""
    import ipaddress
    import socket

    name = str(_text(host)).partition("%")[0].rstrip(".").lower() if host else ""
    if name in ("", "localhost", socket.gethostname().lower()) or name.endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        return False
    number = getattr(number, "ipv4_mapped", None) or number  # of which Python 3.12 would say that it is not loopback
    return lookup or number.is_loopback or number.is_unspecified


# -- where it came from ---------------------------------------------------------------------------------------------


def _call_site() -> str:
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


def _library(file: str) -> str | None:
    """The package that a file belongs to, empty for Python's own and this file; None for code of the project."""
    if file == __file__:
        return ""
    for folder in ("site-packages", "dist-packages"):
        _, found, rest = file.replace("\\", "/").rpartition(f"/{folder}/")
        if found:
            return rest.partition("/")[0].removesuffix(".py")
    return "" if file.startswith((_STANDARD, "<")) else None
