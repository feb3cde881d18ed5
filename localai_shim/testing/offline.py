"""The plugin's part for code under test that makes its own clients, or reaches out: cassettes, `--block-openai`."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import re
import sys
import threading
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..replacing.network import NetworkBlockedError, call_site, refusing

if TYPE_CHECKING:
    import openai

    from ..client.local import AsyncLocalOpenAI, LocalOpenAI
    from .cassettes.cassette import Cassette, RecordMode
    from .cassettes.engine import CassetteEngine
    from .cassettes.matching import Normalize

MARKER = (
    "cassette(name=None, normalize=None): clients of the SDK answer from a file of recorded answers, "
    "`cassettes/<module>/<test>.jsonl` beside the test, or `cassettes/<name>`; normalize: as `cassette_normalize`, "
    "for this test."
)
_RECORD_MODES = ("none", "once", "new_episodes", "all", "rewrite")
_CASSETTE = pytest.StashKey["Cassette"]()
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("localai_shim")
    text = "what cassettes are recorded from: 'openai' (with OPENAI_API_KEY), or a model; the bundled model by default"
    group.addoption("--record-from", metavar="SOURCE", default=None, help=text)
    if importlib.util.find_spec("pytest_recording") is None:  # whose option it is otherwise
        text = "what is recorded of the answers in cassettes; none by default"
        group.addoption("--record-mode", choices=_RECORD_MODES, default=None, help=text)
    text = "fail each test that reaches out of this machine, with the place that did"
    group.addoption("--block-openai", action="store_true", help=text)
    parser.addini("block_openai", text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("block_openai") or config.getini("block_openai"):
        config.pluginmanager.register(_Guard(), "localai_shim_guard")


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that is marked has its clients patched, whether or not it names the fixture."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "patch_openai" not in names and item.get_closest_marker("cassette") is not None:
        names.append("patch_openai")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_PASSED] = False
    return (yield from _watch(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A request that is in no cassette fails the test, also where the code under test swallowed its error."""
    result = yield from _watch(item, "call")
    _save(item)
    item.stash[_PASSED] = True
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """The placeholders of a patch go also where `monkeypatch` has put them back after it."""
    try:
        result = yield from _watch(item, "teardown")
    finally:
        clients = sys.modules.get("localai_shim.replacing.clients")
        if clients is not None:
            clients.forget_placeholders()
    if item.stash[_PASSED]:
        _save(item)
    return result


def _watch(item: pytest.Item, phase: str) -> Generator[None, object, object]:
    """Fail a phase in which something was asked that is in no cassette; one that fails by itself says so, too."""
    try:
        result = yield
    except BaseException as error:
        swallowed = [miss for miss in _take_misses(item) if miss not in str(error)]
        if swallowed:
            item.add_report_section(phase, "cassette", "\n".join(swallowed))
        raise
    misses = _take_misses(item)
    if misses:
        pytest.fail("\n".join(misses), pytrace=False)
    return result


def _take_misses(item: pytest.Item) -> list[str]:
    """Requests that were not found since the phase began."""
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is None:
        return []
    misses, cassette.misses = cassette.misses, []
    return misses


def _save(item: pytest.Item) -> None:
    """Keep what a test recorded that has passed."""
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is not None:
        cassette.save()


@pytest.fixture
def patch_openai(request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    """Clients of the SDK that the code under test makes are local: they answer as `local_openai`, which this is.

    In a test that is marked `cassette` they answer from that.

    Example:
        def test_weather(patch_openai):
            patch_openai.script("It rains.")
            assert openai.OpenAI().responses.create(model="gpt-4o", input="Weather?").output_text == "It rains."
    """
    from .factory import patch_openai

    marked = request.node.get_closest_marker("cassette") is not None
    client: LocalOpenAI = request.getfixturevalue("cassette_openai" if marked else "local_openai")
    with patch_openai(client):
        yield client


@pytest.fixture(scope="session")
def cassette_source(pytestconfig: pytest.Config) -> Iterator[openai.OpenAI]:
    """The client that is asked when cassettes are recorded, as `--record-from` says; the bundled model by default.

    `--record-from=openai` asks the real service with `OPENAI_API_KEY`, also with `--block-openai`. Any other value is a
    model as `LocalOpenAI` takes it. Override the fixture for another client.

    Example:
        @pytest.fixture(scope="session")
        def cassette_source():
            return LocalOpenAI()  # or openai.OpenAI(base_url=...)
    """
    source = pytestconfig.getoption("record_from")
    if source == "openai":
        import openai

        from ..replacing.clients import unpatched

        with unpatched():
            made = openai.OpenAI()
    else:
        from ..client.local import LocalOpenAI

        made = LocalOpenAI(source)
    with made as client:
        yield client


@pytest.fixture(scope="session")
def cassette_normalize() -> Normalize | None:
    """Replacements for what differs from run to run in requests; None: they are taken as they are. Override it.

    A dict of regular expressions and replacements, or a function of a text. It is applied to all texts of a request but
    the model's name, where it is compared and where it is recorded; the request itself is sent as it is.

    Example:
        import datetime

        @pytest.fixture(scope="session")
        def cassette_normalize():
            return {r"\\d{4}-\\d\\d-\\d\\d": "<date>", r"/tmp/[^ ]+": "<path>"}

        def test_today(cassette_openai):  # what was recorded today is played tomorrow
            text = f"Today is {datetime.date.today()}."
            assert cassette_openai.responses.create(model="gpt-4o", input=text, max_output_tokens=8).output_text
    """
    return None


@pytest.fixture
def cassette(request: pytest.FixtureRequest, cassette_normalize: Normalize | None) -> Cassette:
    """This test's cassette.

    Example:
        def test_greeting(cassette, cassette_openai):
            cassette_openai.responses.create(model="gpt-4o", input="Hello!", max_output_tokens=8)
            assert not cassette.misses
    """
    from .cassettes.cassette import Cassette

    mode: RecordMode = request.config.getoption("record_mode", None) or "none"
    name, normalize = _marked(request.node)
    path = _path(request.node, name)
    source: openai.OpenAI | None = None
    if mode != "none" and not (mode == "once" and path.exists()):
        source = request.getfixturevalue("cassette_source")
    made = Cassette(path, mode, source, [cassette_normalize, normalize])
    request.node.stash[_CASSETTE] = made
    return made


def _marked(item: pytest.Item) -> tuple[object, Normalize | None]:
    """Arguments of a test's closest marker: a name and `normalize`."""
    marker = item.get_closest_marker("cassette")
    if marker is None:
        return None, None
    given = {**dict(zip(("name",), marker.args, strict=False)), **marker.kwargs}
    if len(marker.args) > 1 or given.keys() - {"name", "normalize"}:
        raise TypeError(f"the marker cassette takes a name and `normalize`, and not {marker.args} and {marker.kwargs}")
    return given.get("name"), given.get("normalize")


def _path(item: pytest.Item, name: object) -> Path:
    """Path of a test's cassette. A name in which characters were replaced ends in a hash of them."""
    folder = item.path.parent / "cassettes"
    if name is not None:
        return folder / str(name)
    own = ".".join(part.name for part in item.listchain() if isinstance(part, pytest.Class | pytest.Item))
    plain = re.sub(r"[^0-9A-Za-z_.-]+", "-", own)
    if not re.fullmatch(r"[\w.]+(\[[\w.-]*\])?", own, re.ASCII) or len(plain) > _MAX_NAME:
        plain = f"{plain[:_MAX_NAME]}-{hashlib.sha256(own.encode()).hexdigest()[:8]}"
    return folder / item.path.stem / f"{plain}.jsonl"


_MAX_NAME = 150  # characters; file systems have room for 255 bytes


@pytest.fixture
def cassette_engine(cassette: Cassette) -> Iterator[CassetteEngine]:
    """Engine that plays this test's cassette."""
    from .cassettes.engine import CassetteEngine

    engine = CassetteEngine(cassette)
    yield engine
    engine.close()


@pytest.fixture
def cassette_openai(cassette_engine: CassetteEngine) -> LocalOpenAI:
    """A client that answers from this test's cassette.

    Example:
        def test_greeting(cassette_openai):  # `pytest --record-mode=once` records, `pytest` plays
            answer = cassette_openai.responses.create(model="gpt-4o", input="Hello!", max_output_tokens=8)
            assert answer.output_text
    """
    from ..client.local import LocalOpenAI

    return LocalOpenAI(engine=cassette_engine)


@pytest.fixture
def async_cassette_openai(cassette_engine: CassetteEngine) -> AsyncLocalOpenAI:
    """Async form of `cassette_openai`.

    Example:
        @pytest.mark.anyio
        async def test_greeting(async_cassette_openai):
            answer = await async_cassette_openai.responses.create(model="gpt-4o", input="Hello!", max_output_tokens=8)
            assert answer.output_text
    """
    from ..client.local import AsyncLocalOpenAI

    return AsyncLocalOpenAI(engine=cassette_engine)


# -- no way out of this machine ---------------------------------------------------------------------------------------


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
