"""Makes scripted clients, checks and closes them, and lets them answer for clients that code under test makes."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict, Unpack

from ..replacing.clients import AnyLocalOpenAI, ReplacedClients
from .answers import ScriptedReply
from .clients import AsyncScriptedOpenAI, IncompleteScript, ScriptedOpenAI
from .model.clock import ClockMode
from .stage import Stage


class LocalOpenAIConfig(TypedDict, total=False):
    """Settings of scripted clients: the fixture `local_openai_config`, and of the marker, in addition to its `script`.

    Example:
        >>> from localai_shim.testing import scripted
        >>> with scripted("Hello!", model="gpt-4o-2024-08-06", client={"max_retries": 0}) as client:
        ...     client.responses.create(model="gpt-4o", input="Hi").model
        'gpt-4o-2024-08-06'
    """

    model: str
    """Name for `response.model`; "scripted" by default."""
    seed: int
    """Seed of generated answers, which are used if nothing is scripted."""
    clock: ClockMode
    """`instant` (by default), `manual` or `real`; see `Clock`."""
    context_length: int | None
    """Maximum number of prompt and output tokens."""
    assert_complete: bool
    """Fail a test if replies are left or a request had no reply. Defaults to True."""
    client: Mapping[str, Any]
    """Arguments of the client, such as `max_retries` or `default_headers`."""


_STAGE = ("model", "seed", "clock", "context_length")


def check_config(config: Mapping[str, object]) -> None:
    """Refuse names that do not exist.

    Raises:
        TypeError: names those that do.
    """
    for name in config:
        if name not in LocalOpenAIConfig.__annotations__:
            raise TypeError(
                f"'{name}' is not a setting; the settings are {', '.join(LocalOpenAIConfig.__annotations__)}"
            )


class ClientFactory:
    """Factory of scripted clients that share a configuration; it also closes them. The fixture `local_openai_factory`.

    Args:
        config: Defaults of the clients.

    Example:
        >>> from localai_shim.testing import ClientFactory
        >>> make = ClientFactory({"model": "gpt-4o"})
        >>> one, other = make("Hello!"), make("Good day!")
        >>> one.responses.create(model="any", input="Hi").output_text
        'Hello!'
        >>> make.problems()
        ["1 of 1 replies were not played: 'Good day!'"]
        >>> make.close()
    """

    def __init__(self, config: LocalOpenAIConfig) -> None:
        check_config(config)
        self._config = config
        self._stages: dict[Stage, LocalOpenAIConfig] = {}
        self._clients: list[ScriptedOpenAI | AsyncScriptedOpenAI] = []

    def __call__(self, *script: ScriptedReply, **config: Unpack[LocalOpenAIConfig]) -> ScriptedOpenAI:
        """A client with its own script."""
        return self.sync_client(self.stage(*script, **config))

    def make_async(self, *script: ScriptedReply, **config: Unpack[LocalOpenAIConfig]) -> AsyncScriptedOpenAI:
        """Create an async client with its own script."""
        return self.async_client(self.stage(*script, **config))

    def stage(self, *script: ScriptedReply, **config: Unpack[LocalOpenAIConfig]) -> Stage:
        """Create a script that clients can share."""
        check_config(config)
        given: LocalOpenAIConfig = {**self._config, **config}
        given["client"] = {**self._config.get("client", {}), **config.get("client", {})}
        own: Any = {name: value for name, value in given.items() if name in _STAGE}
        stage = Stage(**own)
        stage.script.ordered.extend(script)
        self._stages[stage] = given
        return stage

    def sync_client(self, stage: Stage) -> ScriptedOpenAI:
        """Create a client for a script."""
        made = ScriptedOpenAI(engine=stage, **self._stages[stage].get("client", {}))
        self._clients.append(made)
        return made

    def async_client(self, stage: Stage) -> AsyncScriptedOpenAI:
        """Create an async client for a script."""
        made = AsyncScriptedOpenAI(engine=stage, **self._stages[stage].get("client", {}))
        self._clients.append(made)
        return made

    def problems(self) -> list[str]:
        """Reasons why scripts are incomplete that should be complete."""
        checked = [stage for stage, config in self._stages.items() if config.get("assert_complete", True)]
        return [problem for stage in checked for problem in stage.problems()]

    def report(self) -> list[str]:
        """List all requests, one per line."""
        return [line for stage in self._stages for line in stage.report()]

    def close(self) -> None:
        """Close all clients; running requests fail."""
        for client in self._clients:
            client._runtime.close()
        for stage in self._stages:
            stage.close()


class scripted:  # it is used as a function
    """A scripted client without pytest: `with scripted("Hello!") as client`, or `async with` for an async one.

    Args:
        *script: replies, in order.
        **config: see `LocalOpenAIConfig`.

    Raises:
        IncompleteScript: at the end of the block, where the script is not complete.

    Example:
        >>> from localai_shim.testing import scripted
        >>> with scripted("Hello!") as client:
        ...     client.responses.create(model="any", input="Hi").output_text
        'Hello!'
    """

    def __init__(self, *script: ScriptedReply, **config: Unpack[LocalOpenAIConfig]) -> None:
        self._script, self._factory = script, ClientFactory(config)

    def __enter__(self) -> ScriptedOpenAI:
        return self._factory(*self._script)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._factory.close()
        problems = self._factory.problems()
        if problems and error is None:
            raise IncompleteScript("\n".join(problems))

    async def __aenter__(self) -> AsyncScriptedOpenAI:
        return self._factory.make_async(*self._script)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)


class LocalOpenAITestCase(unittest.TestCase):
    """A test case with `self.local_openai` and `self.async_local_openai`, which share a script for each test.

    Can be combined with `unittest.IsolatedAsyncioTestCase`. A test fails if replies are left or a request had no reply.

    Example:
        >>> from localai_shim.testing import LocalOpenAITestCase
        >>> class TestGreeting(LocalOpenAITestCase):
        ...     def test_greeting(self):
        ...         self.local_openai.script("Hello!")
        ...         answer = self.local_openai.responses.create(model="any", input="Hi")
        ...         self.assertEqual(answer.output_text, "Hello!")
        >>> TestGreeting("test_greeting").run().wasSuccessful()
        True
    """

    local_openai_config: ClassVar[LocalOpenAIConfig] = {}

    @functools.cached_property
    def local_openai_factory(self) -> ClientFactory:
        """Factory of more clients, each with its own script."""
        factory = ClientFactory(self.local_openai_config)
        self.addCleanup(self._check_scripts)
        self.addCleanup(factory.close)
        return factory

    @functools.cached_property
    def _stage(self) -> Stage:
        return self.local_openai_factory.stage()

    @functools.cached_property
    def local_openai(self) -> ScriptedOpenAI:
        """This test's client."""
        return self.local_openai_factory.sync_client(self._stage)

    @functools.cached_property
    def async_local_openai(self) -> AsyncScriptedOpenAI:
        """This test's async client."""
        return self.local_openai_factory.async_client(self._stage)

    def _check_scripts(self) -> None:
        problems = self.local_openai_factory.problems()
        if problems and not self._has_failed():
            raise IncompleteScript("\n".join(problems))

    def _has_failed(self) -> bool:
        """True if the test has failed or was skipped: that is told already, and what is left of its script is a
        consequence.
        """
        result = getattr(getattr(self, "_outcome", None), "result", None)
        told = [entry for name in ("failures", "errors", "skipped") for entry in getattr(result, name, ())]
        return any(test is self for test, _ in told) or bool(getattr(result, "_excinfo", None))  # pytest's own list


class patch_openai:
    """Answer requests of all clients of the SDK as `client` does, inside the context.

    This covers clients that the code under test creates with `openai.OpenAI()`, `openai.AsyncOpenAI()`, and their
    subclasses, such as `AzureOpenAI`, under any imported name; the client of `openai.chat.completions.create(...)`; and
    clients that were made before. They keep their classes, with the SDK's retries, types and settings. No
    credentials are needed, none is sent, functions that fetch some are not called, and no websocket is opened.
    Frameworks ask the environment for a key themselves: without one, `OPENAI_API_KEY` is a placeholder, and traces of
    openai-agents are off (`OPENAI_AGENTS_DISABLE_TRACING`, unless that is set).

    Contexts may be nested and may overlap: the last one that was entered counts. Outside tests, `replace_openai`
    replaces OpenAI in a whole program.

    Example:
        >>> import openai
        >>> from localai_shim.testing import patch_openai, scripted
        >>> with scripted("It rains.") as client, patch_openai(client):
        ...     openai.OpenAI().responses.create(model="gpt-4o", input="Weather?").output_text  # code under test
        'It rains.'
    """

    def __init__(self, client: AnyLocalOpenAI) -> None:
        self._client = client
        self._replaced: list[ReplacedClients] = []

    def __enter__(self) -> AnyLocalOpenAI:
        self._replaced.append(ReplacedClients(self._client))
        return self._client

    def __exit__(self, *_: object) -> None:
        self._replaced.pop().undo()
