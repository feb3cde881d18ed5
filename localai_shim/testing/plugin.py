"""The pytest plugin: fixtures and hooks. It imports nothing that a test has not asked for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .clients import AsyncScriptedOpenAI, AsyncTinyOpenAI, ScriptedOpenAI, TinyOpenAI
    from .factory import ClientFactory, LocalOpenAIConfig
    from .stage import Stage

MARKER = (
    "local_openai(script=[...], model=..., seed=..., clock=..., context_length=..., assert_complete=..., client=...): "
    "the script of local_openai and async_local_openai, and their settings; assert_complete=False lets replies be left."
)
pytest_plugins = ["localai_shim.testing.offline"]
_FACTORIES = pytest.StashKey[list["ClientFactory"]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test whose scripts are not complete has failed, also where the code under test swallowed what it was told."""
    try:
        result = yield
    except BaseException:
        _tell_of_calls(item)
        raise
    problems = [problem for factory in item.stash.get(_FACTORIES, ()) for problem in factory.problems()]
    if problems:
        _tell_of_calls(item)
        pytest.fail("\n".join([f"the script of {item.name} is not complete:", *problems]), pytrace=False)
    return result


def _tell_of_calls(item: pytest.Item) -> None:
    """A section of the report of a test that fails: what was asked."""
    lines = [line for factory in item.stash.get(_FACTORIES, ()) for line in factory.report()]
    if lines:
        item.add_report_section("call", "local_openai", "\n".join(lines))


@pytest.fixture(scope="session")
def local_openai_config() -> LocalOpenAIConfig:
    """Settings of all scripted clients. Override it for a package, module, or class.

    Example:
        @pytest.fixture(scope="session")
        def local_openai_config():
            return {"model": "gpt-4o-2024-08-06", "client": {"max_retries": 0}}


        def test_settings(local_openai):
            assert local_openai.responses.create(model="gpt-4o", input="Hi").model == "gpt-4o-2024-08-06"
    """
    return {}


@pytest.fixture
def local_openai_factory(
    request: pytest.FixtureRequest, local_openai_config: LocalOpenAIConfig
) -> Iterator[ClientFactory]:
    """Factory of scripted clients, each with its own script: `local_openai_factory("Hello!")`, `.make_async(...)`.

    Example:
        def test_two_services(local_openai_factory):
            writer, critic = local_openai_factory("A poem."), local_openai_factory("It is fine.")
            poem = writer.responses.create(model="any", input="Write a poem.").output_text
            assert critic.responses.create(model="any", input=poem).output_text == "It is fine."
    """
    from .factory import ClientFactory

    factory = ClientFactory(local_openai_config)
    request.node.stash.setdefault(_FACTORIES, []).append(factory)
    yield factory
    factory.close()


@pytest.fixture
def local_openai_stage(request: pytest.FixtureRequest, local_openai_factory: ClientFactory) -> Stage:
    """The script of `local_openai` and `async_local_openai`, with what the test's markers say."""
    markers = list(request.node.iter_markers("local_openai"))
    if any(marker.args for marker in markers):
        raise TypeError("the arguments of the marker local_openai have names: local_openai(script=[...])")
    given = dict(ChainMap(*(marker.kwargs for marker in markers)))  # the closest one counts
    script = given.pop("script", ())
    return local_openai_factory.stage(*script, **given)


@pytest.fixture
def local_openai(local_openai_factory: ClientFactory, local_openai_stage: Stage) -> ScriptedOpenAI:
    """A real `LocalOpenAI` that answers from this test's script. Without a script, answers are generated.

    Example:
        def test_greeting(local_openai):
            local_openai.script("Hello!")
            assert local_openai.responses.create(model="any", input="Hi").output_text == "Hello!"
            assert local_openai.last_call.user == "Hi"
    """
    return local_openai_factory.sync_client(local_openai_stage)


@pytest.fixture
def async_local_openai(local_openai_factory: ClientFactory, local_openai_stage: Stage) -> AsyncScriptedOpenAI:
    """Async form of `local_openai`, with the same script; for asyncio and trio.

    Example:
        @pytest.mark.anyio
        async def test_greeting(async_local_openai):
            async_local_openai.script("Hello!")
            assert (await async_local_openai.responses.create(model="any", input="Hi")).output_text == "Hello!"
    """
    return local_openai_factory.async_client(local_openai_stage)


@pytest.fixture(scope="session")
def local_openai_tiny() -> Iterator[TinyOpenAI]:
    """A client of the bundled model on the real engine. Its answers are the same in each run.

    Example:
        def test_name(local_openai_tiny):
            answer = local_openai_tiny.responses.create(model="any", input="What is your name?", temperature=0)
            assert "Shim" in answer.output_text
    """
    from .clients import TinyOpenAI

    with TinyOpenAI(keep_alive=0) as client:
        yield client


@pytest.fixture(scope="session")
def async_local_openai_tiny() -> Iterator[AsyncTinyOpenAI]:
    """Async form of `local_openai_tiny`, for any event loop.

    Example:
        @pytest.mark.anyio
        async def test_name(async_local_openai_tiny):
            answer = await async_local_openai_tiny.responses.create(model="any", input="Your name?", temperature=0)
            assert "Shim" in answer.output_text
    """
    from .clients import AsyncTinyOpenAI

    client = AsyncTinyOpenAI(keep_alive=0)
    yield client
    client._runtime.close()


@pytest.fixture(scope="session")
def local_openai_vision() -> Iterator[TinyOpenAI]:
    """The small checkpoint in the package that sees pictures, on the real engine; needs mlx-vlm and Pillow.

    Example:
        from PIL import Image
        from localai_shim import input_image


        def test_colour(local_openai_vision):
            picture = Image.new("RGB", (128, 128), "red")
            parts = [input_image(picture), {"type": "input_text", "text": "What colour is this?"}]
            answer = local_openai_vision.responses.create(model="any", input=[{"role": "user", "content": parts}])
            assert "red" in answer.output_text.lower()
    """
    from .clients import TinyOpenAI

    with TinyOpenAI("builtin:vision", keep_alive=0) as client:
        yield client


@pytest.fixture(scope="session")
def async_local_openai_vision() -> Iterator[AsyncTinyOpenAI]:
    """Async form of `local_openai_vision`, for any event loop.

    Example:
        @pytest.mark.anyio
        async def test_name(async_local_openai_vision):
            answer = await async_local_openai_vision.responses.create(model="any", input="What is your name?")
            assert "Vision" in answer.output_text
    """
    from .clients import AsyncTinyOpenAI

    client = AsyncTinyOpenAI("builtin:vision", keep_alive=0)
    yield client
    client._runtime.close()
