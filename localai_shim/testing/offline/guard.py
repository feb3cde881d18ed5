"""Fails tests that reach out of this machine: `--block-openai`, or `block_openai = true` in the configuration."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Generator, Iterator

import pytest

from ...replacing.network import NetworkBlockedError, call_site, refusing


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
        self._threads[thread] = f"{self._test} started at {call_site()}"

    def refuse(self, _: str, target: str) -> NetworkBlockedError:
        """Note an attempt; the exception by which it ends."""
        thread = threading.current_thread()
        text = f"{self._test} reached out to {target}, which --block-openai forbids\n  at {call_site()}"
        if thread is not threading.main_thread():
            text += f"\n  on thread {thread.name!r}, which {self._threads.get(thread, 'something else started')}"
        self._attempts.append(text)
        return NetworkBlockedError(text)


@contextlib.contextmanager
def _watching(guard: _Guard) -> Iterator[None]:
    start = threading.Thread.start

    @functools.wraps(start)
    def started(self: threading.Thread) -> None:
        guard.started(self)
        start(self)

    threading.Thread.start = started  # type: ignore[method-assign]
    try:
        with refusing(guard.refuse):
            yield
    finally:
        if threading.Thread.start is started:
            threading.Thread.start = start  # type: ignore[method-assign]
