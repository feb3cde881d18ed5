"""What a streamed chunk costs its reader, in calls of Python functions: a figure that no busy machine changes."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests.engine.harness import eventually

CHUNKS = 40
MOST_CALLS = 26  # twice as many where a token passes through generators and is split as if a marker might be in it
ASKS: dict[str, Any] = {
    "model": "local",
    "messages": [{"role": "user", "content": "Tell me a story"}],
    "max_tokens": CHUNKS + 20,
    "temperature": 0,
    "stream": True,
}


class Calls:
    """Counts the Python functions that this thread enters."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        self.count += event == "call"


def test_a_chunk_that_is_there_takes_few_calls() -> None:
    with LocalOpenAI() as client:
        assert list(client.chat.completions.create(**ASKS))  # what is made for the first answer is there
        stream = client.chat.completions.create(**ASKS)
        chunks = iter(stream)
        for _ in range(3):
            next(chunks)
        assert eventually(lambda: client.stats().running == 0)
        with Calls() as calls:
            for _ in range(CHUNKS):
                next(chunks)
        assert len(list(chunks)) > 0
    assert calls.count / CHUNKS <= MOST_CALLS


def test_a_chunk_that_is_there_takes_few_calls_async() -> None:
    async def main() -> float:
        async with AsyncLocalOpenAI() as client:
            assert [chunk async for chunk in await client.chat.completions.create(**ASKS)]
            stream = await client.chat.completions.create(**ASKS)
            chunks = aiter(stream)
            for _ in range(3):
                await anext(chunks)
            assert eventually(lambda: client.stats().running == 0)
            await asyncio.sleep(0)  # the loop learns what has come
            with Calls() as calls:
                for _ in range(CHUNKS):
                    await anext(chunks)
            assert len([chunk async for chunk in chunks]) > 0
            return calls.count / CHUNKS

    assert asyncio.run(main()) <= MOST_CALLS
