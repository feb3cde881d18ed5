"""What one request and one streamed chunk cost beside the model."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import mlx_lm
import openai

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.backends.forms import forms

from .bare import BareModel
from .models import Size, make_model
from .workload import GREEDY, Prompts

# Its forward pass takes about as long as what is measured beside it: under a long one that would be lost in noise.
TINY = Size(64, 1, 128, 2, 1, 32, 1_000, 24, 1)
_WARM_UP = 20  # requests of each kind


@dataclass(slots=True)
class Overhead:
    """All in seconds; entry by entry they were measured right after one another, in turns."""

    bare: list[float] = field(default_factory=list)
    """The passes that mlx-lm makes for a prompt and its first token, with nothing around them."""
    sync: list[float] = field(default_factory=list)
    """A whole `create` of one token."""
    asynchronous: list[float] = field(default_factory=list)

    def beside(self, whole: list[float]) -> list[float]:
        """What whole requests took beside the bare passes of their turns."""
        return [one - bare for one, bare in zip(whole, self.bare, strict=True)]


def request_overhead(count: int) -> Overhead:
    """Time `chat.completions.create(max_tokens=1)` beside the bare passes of a one-layer model, in turns.

    Args:
        count: turns.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        path = Path(folder) / "model"
        make_model(path, TINY, TINY.vocabulary)
        model, tokenizer = mlx_lm.load(str(path))[:2]
        forms().prepare(model)
        prompts = Prompts(tokenizer, TINY.prompt_tokens)
        with closing(LocalOpenAI(model=path, keep_alive=0)) as sync:
            asynchronous = AsyncLocalOpenAI(model=path, keep_alive=0)
            return asyncio.run(_request_overhead(BareModel(model), sync, asynchronous, prompts, count))


async def _request_overhead(
    bare: BareModel, sync: openai.OpenAI, asynchronous: openai.AsyncOpenAI, prompts: Prompts, count: int
) -> Overhead:
    out = Overhead()
    async with asynchronous:
        for number in range(count + _WARM_UP):
            first, second, third = prompts.take(3)
            alone = bare.first_token_seconds(first)
            start = time.perf_counter()
            sync.chat.completions.create(model="bench", messages=second.messages, max_tokens=1, **GREEDY.fields())
            between = time.perf_counter()
            await asynchronous.chat.completions.create(
                model="bench", messages=third.messages, max_tokens=1, **GREEDY.fields()
            )
            end = time.perf_counter()
            if number >= _WARM_UP:
                out.bare.append(alone)
                out.sync.append(between - start)
                out.asynchronous.append(end - between)
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
