"""Requests that are held up before they reach an engine."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import openai
import pytest

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.runtime import offload
from localai_shim.threads.workers import Workers

TIMEOUT = 0.4
SOON = 20.0
"""Seconds in which whoever gives up after `TIMEOUT` has returned, however busy the machine; what it waits for takes for
ever."""
BACKENDS = ["asyncio", "trio"]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
WAYS: dict[str, Callable[..., Any]] = {
    "chat": lambda client, **more: client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=2, **more),
    "stream": lambda client, **more: client.chat.completions.create(
        model="m", messages=MESSAGES, max_tokens=2, stream=True, **more
    ),
    "responses": lambda client, **more: client.responses.create(model="m", input="Hello", max_output_tokens=16, **more),
    "completions": lambda client, **more: client.completions.create(model="m", prompt="Hello", max_tokens=2, **more),
    "embeddings": lambda client, **more: client.embeddings.create(model="m", input="Hello", **more),
    "options": lambda client, timeout: WAYS["chat"](client.with_options(timeout=openai.Timeout(60, read=timeout))),
}
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


LONG: Any = [{"role": "user", "content": "why " * 3_000}]


def ask_long(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="m", messages=LONG, max_tokens=2, **more)


def times_out(client: LocalOpenAI, ask: Callable[..., Any], timeout: float = TIMEOUT) -> None:
    """A request ends with its timeout, soon after that is over."""
    began = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        ask(client, timeout=timeout)
    assert time.monotonic() - began < SOON


async def times_out_async(client: AsyncLocalOpenAI, ask: Callable[..., Any], timeout: float = TIMEOUT) -> None:
    """End a task's request with its timeout, soon after that is over."""
    with anyio.fail_after(SOON), pytest.raises(openai.APITimeoutError):
        await ask(client, timeout=timeout)


class Gate:
    """Holds up whoever comes until it is opened."""

    def __init__(self) -> None:
        self.open, self.inside = threading.Event(), 0

    def __call__(self) -> None:
        self.inside += 1
        assert self.open.wait(120)


def nobody_prepares() -> bool:
    """All that was begun for requests has ended."""
    return are_idle(offload._preparing)


def are_idle(workers: Workers) -> bool:
    """Every thread waits for a job, and there is none. Their counts may not say so after a `KeyboardInterrupt`."""
    name, frames = f"localai_shim:{workers._name}", sys._current_frames()
    tops = [frames[thread.ident] for thread in threading.enumerate() if thread.name == name and thread.ident in frames]
    waiting = all(top.f_code in (Workers._run.__code__, threading.Thread.run.__code__) for top in tops)
    return waiting and workers._jobs.empty()
