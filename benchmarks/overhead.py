"""What one request and one streamed chunk cost beside the model."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import openai

from .bare import BareModel
from .workload import GREEDY, Prompts


@dataclass(slots=True)
class Overhead:
    """All in seconds."""

    bare: list[float] = field(default_factory=list)
    """Bare forward of a prompt."""
    sync: list[float] = field(default_factory=list)
    """A whole `create` of one token, minus the bare forward of the same prompt."""
    asynchronous: list[float] = field(default_factory=list)


def request_overhead(
    bare: BareModel, sync: openai.OpenAI, asynchronous: openai.AsyncOpenAI, prompts: Prompts, count: int
) -> Overhead:
    """Time `chat.completions.create(max_tokens=1)` beside the bare forward of the same prompt, in turn."""
    return asyncio.run(_request_overhead(bare, sync, asynchronous, prompts, count))


async def _request_overhead(
    bare: BareModel, sync: openai.OpenAI, asynchronous: openai.AsyncOpenAI, prompts: Prompts, count: int
) -> Overhead:
    out = Overhead()
    warm_up = 3
    for number, (first, second) in enumerate(zip(*[iter(prompts.take(2 * (count + warm_up)))] * 2, strict=True)):
        bare_first = bare.first_token_seconds(first)
        start = time.perf_counter()
        sync.chat.completions.create(model="bench", messages=first.messages, max_tokens=1, **GREEDY.fields())
        sync_seconds = time.perf_counter() - start
        bare_second = bare.first_token_seconds(second)
        start = time.perf_counter()
        await asynchronous.chat.completions.create(
            model="bench", messages=second.messages, max_tokens=1, **GREEDY.fields()
        )
        async_seconds = time.perf_counter() - start
        if number >= warm_up:
            out.bare += [bare_first, bare_second]
            out.sync.append(sync_seconds - bare_first)
            out.asynchronous.append(async_seconds - bare_second)
    return out


@dataclass(slots=True)
class ChunkCost:
    """CPU seconds of the consuming thread per chunk, one entry per stream of its own."""

    sync_live: list[float] = field(default_factory=list)
    """Chunks arrive one by one; each wakes the thread."""
    sync_buffered: list[float] = field(default_factory=list)
    """All tokens are there before the first is read: nothing but making chunks."""
    async_live: list[float] = field(default_factory=list)
    async_buffered: list[float] = field(default_factory=list)


def chunk_cost(
    sync: openai.OpenAI, asynchronous: openai.AsyncOpenAI, prompts: Prompts, new_tokens: int, count: int
) -> ChunkCost:
    """Stream alone, `count` times in each way."""
    out = ChunkCost()
    start = time.perf_counter()
    _sync_stream(sync, prompts, new_tokens, 0.0)
    pause = 0.05 + 1.5 * (time.perf_counter() - start)
    asyncio.run(_async_stream(asynchronous, prompts, new_tokens, 0.0))
    for _ in range(count):
        out.sync_live.append(_sync_stream(sync, prompts, new_tokens, 0.0))
        out.sync_buffered.append(_sync_stream(sync, prompts, new_tokens, pause))
        out.async_live.append(asyncio.run(_async_stream(asynchronous, prompts, new_tokens, 0.0)))
        out.async_buffered.append(asyncio.run(_async_stream(asynchronous, prompts, new_tokens, pause)))
    return out


def _sync_stream(client: openai.OpenAI, prompts: Prompts, new_tokens: int, pause: float) -> float:
    (prompt,) = prompts.take(1)
    stream = client.chat.completions.create(
        model="bench", messages=prompt.messages, max_tokens=new_tokens, stream=True, **GREEDY.fields()
    )
    time.sleep(pause)
    next(stream)
    start, chunks = time.thread_time(), 0
    for _ in stream:
        chunks += 1
    return (time.thread_time() - start) / chunks


async def _async_stream(client: openai.AsyncOpenAI, prompts: Prompts, new_tokens: int, pause: float) -> float:
    (prompt,) = prompts.take(1)
    stream = await client.chat.completions.create(
        model="bench", messages=prompt.messages, max_tokens=new_tokens, stream=True, **GREEDY.fields()
    )
    await asyncio.sleep(pause)
    await anext(stream)
    start, chunks = time.thread_time(), 0
    async for _ in stream:
        chunks += 1
    return (time.thread_time() - start) / chunks
