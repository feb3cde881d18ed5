"""Scripted clients for unittest."""

from __future__ import annotations

import functools
import unittest
from typing import ClassVar

from .clients import AsyncScriptedOpenAI, IncompleteScript, ScriptedOpenAI
from .factory import ClientFactory, LocalOpenAIConfig
from .stage import Stage


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
