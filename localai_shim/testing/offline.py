"""The plugin's part that keeps code under test from reaching out: `patch_openai`, `--block-openai` and cassettes."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import guard

if TYPE_CHECKING:
    import openai

    from ..client import AsyncLocalOpenAI, LocalOpenAI
    from .cassettes.cassette import Cassette
    from .cassettes.engine import CassetteEngine

MARKER = (
    "cassette(name=None): clients of the SDK answer from a file of recorded answers, `cassettes/<module>/<test>.jsonl` "
    "beside the test, or `cassettes/<name>`."
)
_RECORD_MODES = ("none", "once", "new_episodes", "all", "rewrite")
_CASSETTE = pytest.StashKey["Cassette"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    guard.add_options(parser)
    if importlib.util.find_spec("pytest_recording") is None:  # whose option it is otherwise
        text = "what is recorded of the answers in cassettes; none by default"
        group = parser.getgroup("localai_shim")
        group.addoption("--record-mode", choices=_RECORD_MODES, default=None, help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    guard.configure(config)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that is marked has its clients patched, whether or not it names the fixture."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "patch_openai" not in names and item.get_closest_marker("cassette") is not None:
        names.append("patch_openai")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A request that is in no cassette fails the test, also where the code under test swallowed its error."""
    result = yield
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is not None and cassette.misses:
        pytest.fail("\n".join(cassette.misses), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """The placeholders of a patch go also where `monkeypatch` has put them back after it."""
    try:
        return (yield)
    finally:
        patching = sys.modules.get("localai_shim.testing.patching")
        if patching is not None:
            patching.take_placeholders_back()


@pytest.fixture
def patch_openai(request: pytest.FixtureRequest) -> Iterator[LocalOpenAI]:
    """Clients of the SDK that the code under test makes are local: they answer as `local_openai`, which this is.

    In a test that is marked `cassette` they answer from that.

    Example:
        def test_weather(patch_openai):
            patch_openai.script("It rains.")
            assert openai.OpenAI().responses.create(model="gpt-4o", input="Weather?").output_text == "It rains."
    """
    from .patching import patch_openai

    marked = request.node.get_closest_marker("cassette") is not None
    client: LocalOpenAI = request.getfixturevalue("cassette_openai" if marked else "local_openai")
    with patch_openai(client):
        yield client


@pytest.fixture(scope="session")
def cassette_source() -> Iterator[openai.OpenAI]:
    """The client that is asked when cassettes are recorded: the built-in model. Override it with one of yours.

    Example:
        @pytest.fixture(scope="session")
        def cassette_source():
            return LocalOpenAI()  # or openai.OpenAI()
    """
    from ..client import LocalOpenAI

    with LocalOpenAI() as client:
        yield client


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Cassette:
    """This test's cassette.

    Example:
        def test_greeting(cassette, cassette_openai):
            cassette_openai.responses.create(model="gpt-4o", input="Hello!", max_output_tokens=8)
            assert not cassette.misses
    """
    from .cassettes.cassette import Cassette

    mode: Any = request.config.getoption("record_mode", None) or "none"
    path = _path(request.node)
    source: openai.OpenAI | None = None
    if mode != "none" and not (mode == "once" and path.exists()):
        source = request.getfixturevalue("cassette_source")
    request.node.stash[_CASSETTE] = made = Cassette(path, mode, None if source is None else lambda: source)
    return made


def _path(item: pytest.Item) -> Path:
    """Where a test's cassette is."""
    marker = item.get_closest_marker("cassette")
    folder = item.path.parent / "cassettes"
    name = (marker.args or (marker.kwargs.get("name"),))[0] if marker is not None else None
    if name is not None:
        return folder / str(name)
    own = ".".join(part.name for part in item.listchain() if isinstance(part, pytest.Class | pytest.Item))
    return folder / item.path.stem / f"{re.sub(r'[^0-9A-Za-z_.-]+', '-', own)}.jsonl"


@pytest.fixture
def cassette_engine(cassette: Cassette) -> Iterator[CassetteEngine]:
    """What plays this test's cassette."""
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
    from ..client import LocalOpenAI

    return LocalOpenAI(engine=cassette_engine)


@pytest.fixture
def async_cassette_openai(cassette_engine: CassetteEngine) -> AsyncLocalOpenAI:
    """As `cassette_openai`, async.

    Example:
        @pytest.mark.anyio
        async def test_greeting(async_cassette_openai):
            answer = await async_cassette_openai.responses.create(model="gpt-4o", input="Hello!", max_output_tokens=8)
            assert answer.output_text
    """
    from ..client import AsyncLocalOpenAI

    return AsyncLocalOpenAI(engine=cassette_engine)
