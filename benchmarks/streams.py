"""Concurrent async streams through the SDK: our client, or the stock one against any server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import openai

from .timeline import Run, StreamTimes
from .workload import Prompt, Setting

Clock = Callable[[], float]


class _CpuWindow:
    """CPU time of a thread while all streams run: what requests cost to make does not count."""

    def __init__(self, streams: int, clock: Clock) -> None:
        self._waiting, self._clock = streams, clock
        self.begin: float | None = None
        self.end: float | None = None

    def first_chunk(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.begin = self._clock()

    def last_chunk(self) -> None:
        if self.end is None:
            self.end = self._clock()


def run(
    client: openai.AsyncOpenAI,
    model: str,
    prompts: Sequence[Prompt],
    settings: Sequence[Setting],
    new_tokens: int,
    clock: Clock = time.thread_time,
    *,
    exact: bool = True,
    close: bool = False,
) -> Run:
    """Stream one chat completion per prompt, all at once, on an event loop of its own.

    Args:
        clock: CPU time of the thread that `Run.cpu_per_chunk` is about, in seconds.
        exact: whether streams have to be `new_tokens` long; rates count the tokens that came in any case.
        close: close the client on that loop.

    Raises:
        RuntimeError: a stream was not as long as it has to be, or did not say how long it was.
    """

    async def main() -> Run:
        try:
            return await _run(client, model, prompts, settings, new_tokens, clock)
        finally:
            if close:
                await client.close()

    run = asyncio.run(main())
    for stream in run.streams:
        if not stream.tokens or (exact and stream.tokens != new_tokens):
            raise RuntimeError(
                f"a stream ended after {stream.tokens} tokens instead of {new_tokens}: the server does not know "
                "`ignore_eos` or `stream_options`, or its context is too short"
            )
    return run


@dataclass(slots=True)
class Answer:
    """One streamed answer."""

    first_token: float
    """Seconds from just before `create` to the first chunk with text, reasoning included."""
    content: str
    reasoning: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def prefilled(self) -> int:
        """Prompt tokens that were not found in a cache."""
        return self.prompt_tokens - self.cached_tokens


async def ask(client: openai.AsyncOpenAI, messages: Any, max_tokens: int, **fields: Any) -> Answer:
    """Stream one greedy chat completion of exactly `max_tokens`."""
    start = time.perf_counter()
    first, content, reasoning, usage = 0.0, "", "", None
    stream = await client.chat.completions.create(
        model="bench",
        messages=messages,
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, **fields},
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        if not first and (content or reasoning):
            first = time.perf_counter()
    if usage is None or not first:
        raise RuntimeError("a stream had no text or no usage")
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    return Answer(first - start, content, reasoning, usage.prompt_tokens, cached, usage.completion_tokens)


async def _run(
    client: openai.AsyncOpenAI,
    model: str,
    prompts: Sequence[Prompt],
    settings: Sequence[Setting],
    new_tokens: int,
    clock: Clock,
) -> Run:
    cpu = _CpuWindow(len(prompts), clock)
    work = zip(prompts, settings, strict=True)
    streams = await asyncio.gather(*(_consume(client, model, p, s, new_tokens, cpu) for p, s in work))
    run = Run(list(streams))
    begin, end = run.window
    chunks = sum(begin < t <= end for s in run.streams for t in s.times)
    if chunks and cpu.begin is not None and cpu.end is not None:
        run.cpu_per_chunk = (cpu.end - cpu.begin) / chunks
    return run


async def _consume(
    client: openai.AsyncOpenAI, model: str, prompt: Prompt, setting: Setting, new_tokens: int, cpu: _CpuWindow
) -> StreamTimes:
    out = StreamTimes(time.perf_counter())
    times, now = out.times, time.perf_counter
    stream = await client.chat.completions.create(
        model=model,
        messages=prompt.messages,
        max_tokens=new_tokens,
        stream=True,
        stream_options={"include_usage": True},
        **setting.fields(),
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            times.append(now())
            if len(times) == 1:
                cpu.first_chunk()
        elif chunk.usage is not None:
            out.tokens, out.prompt_tokens = chunk.usage.completion_tokens, chunk.usage.prompt_tokens
    cpu.last_chunk()
    return out
