"""Asking endpoints whose answers have two rounds, in each way."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from openai.types.responses import Response

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.testing import ScriptedEngine
from tests.endpoints.turns.rounds import ANSWERS, ASKS, FOUND
from tests.engine.harness import eventually

ASK: dict[str, Any] = {"model": "m", "input": "What will the weather be?"}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}]}
OUTPUT = ["message", "web_search_call", "message"]
ENDED = ("completed", "failed", "cancelled")


each_way = pytest.mark.parametrize("how", ["whole", "streamed", "async whole", "async streamed"])


class Door:
    """A search that waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.reached.set()
        assert self.opened.wait(60)
        return FOUND


def ask(engine: ScriptedEngine, how: str, *, chat: bool = False, **more: Any) -> list[Any]:
    """The events of an answer, or the whole one, from a sync or an async client."""
    streamed = how.endswith("streamed")

    async def ask_async() -> list[Any]:
        async with AsyncLocalOpenAI(engine=engine) as client:
            create: Any = client.chat.completions.create if chat else client.responses.create
            made = await create(**{**(CHAT if chat else ASK), **more}, stream=streamed)
            return [event async for event in made] if streamed else [made]

    if how.startswith("async"):
        return asyncio.run(ask_async())
    with LocalOpenAI(engine=engine) as client:
        create: Any = client.chat.completions.create if chat else client.responses.create
        made = create(**{**(CHAT if chat else ASK), **more}, stream=streamed)
        return list(made) if streamed else [made]


def final(events: list[Any]) -> Response:
    """The response of the last event."""
    found: Response = getattr(events[-1], "response", events[-1])
    return found


def check(response: Any, submitted: list[list[Any]]) -> None:
    """A response of two rounds: its items, and the tokens of both."""
    assert [item.type for item in response.output] == OUTPUT
    assert response.output_text == ASKS + ANSWERS
    [[first], [second]] = submitted
    assert second.prompt.tokens != first.prompt.tokens
    assert response.usage.input_tokens == len(first.prompt.tokens) + len(second.prompt.tokens)
    assert response.usage.output_tokens == len(first.timings.output) + len(second.timings.output)


def ended(client: LocalOpenAI, id: str) -> Any:
    assert eventually(lambda: client.responses.retrieve(id).status in ENDED)
    return client.responses.retrieve(id)


def lines(*ids: str) -> list[str]:
    return [json.dumps({"custom_id": id, "method": "POST", "url": "/v1/responses", "body": ASK}) for id in ids]
