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

if TYPE_CHECKING:  # names that stand for themselves are exported, as type checkers see it
    from .answers import (  # noqa: I001 - one name below the other
        api_error as api_error,
        authentication_error as authentication_error,
        connection_error as connection_error,
        content_filter as content_filter,
        context_length_exceeded as context_length_exceeded,
        cut as cut,
        embedding as embedding,
        hang as hang,
        rate_limit as rate_limit,
        reasoning as reasoning,
        refusal as refusal,
        relevance as relevance,
        server_error as server_error,
        timed as timed,
        timeout as timeout,
        tool_call as tool_call,
        truncated as truncated,
    )
    from .audio.replies import speech as speech, transcription as transcription
    from .cassettes.engine import play_cassette as play_cassette
    from .checks import Budget as Budget, Usage as Usage
    from .clients import (
        AsyncScriptedOpenAI as AsyncScriptedOpenAI,
        IncompleteScript as IncompleteScript,
        ScriptedOpenAI as ScriptedOpenAI,
    )
    from .factory import (
        ClientFactory as ClientFactory,
        LocalOpenAIConfig as LocalOpenAIConfig,
        LocalOpenAITestCase as LocalOpenAITestCase,
        patch_openai as patch_openai,
        scripted as scripted,
    )
    from .model.clock import Clock as Clock
    from .model.engine import ScriptedEngine as ScriptedEngine
    from .model.replies import Decide as Decide, Reply as Reply, ReplyLike as ReplyLike
    from .model.tokenizer import Piece as Piece, ScriptedTokenizer as ScriptedTokenizer
    from .requests import Request as Request
    from .script import UnexpectedRequest as UnexpectedRequest

_MODULES = {
    "answers": "api_error authentication_error connection_error content_filter context_length_exceeded cut "
    "embedding hang rate_limit reasoning refusal relevance server_error timed timeout tool_call truncated",
    "audio.replies": "speech transcription",
    "cassettes.engine": "play_cassette",
    "checks": "Budget Usage",
    "clients": "AsyncScriptedOpenAI IncompleteScript ScriptedOpenAI",
    "model.clock": "Clock",
    "model.engine": "ScriptedEngine",
    "factory": "ClientFactory LocalOpenAIConfig LocalOpenAITestCase patch_openai scripted",
    "model.replies": "Decide Reply ReplyLike",
    "requests": "Request",
    "script": "UnexpectedRequest",
    "model.tokenizer": "Piece ScriptedTokenizer",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    """Import a name when it is first used: the pytest plugin loads this package in suites that do not need it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
