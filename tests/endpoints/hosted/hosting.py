"""Asking scripted models that call hosted tools, in each way, with hooks that note their calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai.types.responses import Response

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.functions import call
from tests.endpoints.responses.legal import check_response, check_stream

URL = "https://almanac.example/paris"
PAGE = {"url": URL, "title": "Almanac", "text": "Rain in Paris."}
SEARCH: Any = {"type": "web_search"}
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SAVE: Any = {"type": "function", "name": "save", "parameters": {"type": "object", "properties": {}}}
ASKS_SEARCH = call("web_search", {"query": "weather Paris"})
ASKS_CODE = call("code_interpreter", {"code": 'print("é\\n")\nx = 1'})
"""Code with escapes."""
RAN = 'print("é\\n")\nx = 1'
ASKS_SAVE = call("save", {})
ANSWER = f"It will rain, says {URL}."
RESULT = "<tool_response>"
"""The beginning of what a prompt says of a tool's result."""

each_way = pytest.mark.parametrize("how", ["whole", "streamed", "async whole", "async streamed"])


@dataclass
class Hooks:
    """Hooks of a client, and their calls."""

    pages: Any = field(default_factory=lambda: [PAGE])
    ran: Any = field(default_factory=lambda: {"logs": "é\n"})
    calls: list[Any] = field(default_factory=list)

    def search(self, query: str, **options: Any) -> Any:
        self.calls.append((query, options))
        return made(self.pages)

    def run(self, code: str, container: str, **options: Any) -> Any:
        self.calls.append((code, container, options))
        return made(self.ran)

    @property
    def all(self) -> dict[str, Any]:
        return {"web_search": self.search, "code_interpreter": self.run}


class Door:
    """A hook that waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(60)
        return [PAGE]


def made(value: Any) -> Any:
    """Result of a hook: the value, or that of a function."""
    return value() if callable(value) else value


def script(*replies: str) -> Callable[..., str]:
    """A model that gives these replies, each when the prompt shows one more round of results."""

    def decide(request: Any, prompt: str, before: int) -> str:
        shown = prompt.rpartition("<|im_start|>user\nWeather")[2]
        rounds = sum(RESULT in part for part in shown.split("<|im_start|>assistant"))
        return replies[min(rounds, len(replies) - 1)]

    return decide


def ask(engine: ScriptedEngine, how: str, hooks: dict[str, Any], **body: Any) -> tuple[Any, list[Any]]:
    """The response, and its events where it is streamed: legal ones."""
    streamed = how.endswith("streamed")
    fields: Any = {"model": "m", "input": "Weather?", "tools": [SEARCH], **body, "stream": streamed}

    async def ask_async() -> Any:
        async with AsyncLocalOpenAI(engine=engine, hosted_tools=hooks) as client:
            found = await client.responses.create(**fields)
            return [event async for event in found] if streamed else found

    if how.startswith("async"):
        found = asyncio.run(ask_async())
    else:
        with LocalOpenAI(engine=engine, hosted_tools=hooks) as client:
            answer: Any = client.responses.create(**fields)
            found = list(answer) if streamed else answer
    if streamed:
        check_stream(found)
    response: Response = found[-1].response if streamed else found
    check_response(response)
    return response, found if streamed else []


def types(response: Any) -> list[str]:
    """Types of the output's items."""
    return [item.type for item in response.output]
