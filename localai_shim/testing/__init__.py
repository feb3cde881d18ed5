"""Offline tests of code that calls a model: scripted clients, a pytest plugin, and the engine that plays the scripts.

from localai_shim import testing

with testing.scripted("Hello!") as client:
    assert client.responses.create(model="any", input="Hi").output_text == "Hello!"

With pytest, ask for the fixture `local_openai`; docs/testing.md shows the rest. Importing this imports nothing else,
and no test that is scripted needs MLX, mlx-lm, transformers or NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers import (
        api_error,
        authentication_error,
        connection_error,
        content_filter,
        context_length_exceeded,
        cut,
        embedding,
        hang,
        rate_limit,
        reasoning,
        refusal,
        relevance,
        server_error,
        timed,
        timeout,
        tool_call,
        truncated,
    )
    from .cases import LocalOpenAITestCase
    from .cassettes.engine import play_cassette
    from .checks import Budget, Usage
    from .clients import AsyncScriptedOpenAI, IncompleteScript, ScriptedOpenAI
    from .factory import ClientFactory, LocalOpenAIConfig, scripted
    from .model.clock import Clock
    from .model.engine import ScriptedEngine
    from .model.replies import Decide, Reply, ReplyLike
    from .model.tokenizer import Piece, ScriptedTokenizer
    from .patching import patch_openai
    from .requests import Request
    from .script import UnexpectedRequest

_MODULES = {
    "answers": "api_error authentication_error connection_error content_filter context_length_exceeded cut "
    "embedding hang rate_limit reasoning refusal relevance server_error timed timeout tool_call truncated",
    "cases": "LocalOpenAITestCase",
    "cassettes.engine": "play_cassette",
    "checks": "Budget Usage",
    "clients": "AsyncScriptedOpenAI IncompleteScript ScriptedOpenAI",
    "model.clock": "Clock",
    "model.engine": "ScriptedEngine",
    "factory": "ClientFactory LocalOpenAIConfig scripted",
    "patching": "patch_openai",
    "model.replies": "Decide Reply ReplyLike",
    "requests": "Request",
    "script": "UnexpectedRequest",
    "model.tokenizer": "Piece ScriptedTokenizer",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "AsyncScriptedOpenAI",
    "Budget",
    "ClientFactory",
    "Clock",
    "Decide",
    "IncompleteScript",
    "LocalOpenAIConfig",
    "LocalOpenAITestCase",
    "Piece",
    "Reply",
    "ReplyLike",
    "Request",
    "ScriptedEngine",
    "ScriptedOpenAI",
    "ScriptedTokenizer",
    "UnexpectedRequest",
    "Usage",
    "api_error",
    "authentication_error",
    "connection_error",
    "content_filter",
    "context_length_exceeded",
    "cut",
    "embedding",
    "hang",
    "patch_openai",
    "play_cassette",
    "rate_limit",
    "reasoning",
    "refusal",
    "relevance",
    "scripted",
    "server_error",
    "timed",
    "timeout",
    "tool_call",
    "truncated",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used: the pytest plugin loads this package in suites that do not need it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
