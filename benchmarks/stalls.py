"""How long running streams wait for a token while a long prompt joins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from localai_shim import AsyncLocalOpenAI

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .speculation import Oracle, drafting, known_answers
from .streams import ask
from .workload import GREEDY, Prompt

STREAMS, LONG = 8, 8_000
MAX_STALL = 0.05  # seconds
TARGET = 2.0  # times (max_stall + step)
_ALONE = 48  # tokens of each stream before the long prompt comes
_AFTER = 4  # tokens of each stream after it has joined
_ENDLESS = 20_000
_DRAFTED = 600  # tokens of each stream that drafts are there for
_TOGETHER = 1e-3  # seconds between tokens of one step, at most


def measure(bench: Bench) -> Section:
    """`STREAMS` streams run alone, then a prompt of `LONG` tokens joins them: without drafts, and with some."""
    # A client of its own says max_stall aloud; it has an engine of its own, too.
    plain = AsyncLocalOpenAI(model=bench.folder, keep_alive=0, max_stall=MAX_STALL)
    section = _measure(bench, plain, f"stall: longest gap of {STREAMS} streams, {LONG} tokens join")
    oracle, prompts = Oracle(), bench.prompts.take(STREAMS)
    oracle.known |= known_answers(bench.ours, [{"messages": prompt.messages} for prompt in prompts], _DRAFTED)
    with drafting(oracle):
        drafted = AsyncLocalOpenAI(model=bench.folder, keep_alive=0, max_stall=MAX_STALL, speculation="auto")
        asyncio.run(ask(drafted, prompts[0].messages, 4))
    name = f"stall: longest gap of {STREAMS} streams with drafts, {LONG} tokens join"
    more = _measure(bench, drafted, name, prompts)
    print_figures(section.figures + more.figures)
    return Section(section.figures + more.figures, {**section.raw, "with drafts": more.raw})


def _measure(bench: Bench, client: AsyncLocalOpenAI, name: str, prompts: Sequence[Prompt] | None = None) -> Section:
    """The client is closed.

    Args:
        prompts: of the streams, each time; None: new ones.
    """
    longest: list[float] = []
    typical: list[float] = []
    steps: list[float] = []
    joined: list[float] = []
    long_prompts = bench.prompts_of(LONG, seed=7)
    for number in range(bench.repeats + 1):
        long = [prompt.messages for prompt in long_prompts.take(1)]
        gaps = asyncio.run(gaps_beside(client, prompts or bench.prompts.take(STREAMS), long))
        if number:
            longest.append(gaps.joining[0])
            typical.append(median(gaps.joining))
            steps.append(gaps.step)
            joined.append(gaps.first_token)
    drafts = client.stats().drafts
    asyncio.run(client.close())
    waits = f"longest gap {spread(longest, 1e3, 0)} ms, median gap {spread(typical, 1e3, 0)} ms"
    print(
        f"{name}: {waits}, median step before {spread(steps, 1e3, 1)} ms, TTFT of the long prompt "
        f"{spread(joined, 1, 1)} s; drafts {drafts or 'none'}"
    )
    limits = [MAX_STALL + step for step in steps]
    figure = Figure(f"{name} / (max_stall + step)", ratios(longest, limits), TARGET, at_least=False)
    return Section(
        [figure],
        {
            "longest_gap_seconds": longest,
            "median_gap_seconds": typical,
            "step_seconds": steps,
            "long_ttft_seconds": joined,
        },
    )


class Gaps(NamedTuple):
    """Seconds between tokens of running streams."""

    joining: list[float]
    """While others joined, the longest first."""
    step: float
    """The median before, of tokens that did not come together."""
    first_token: float
    """Of the last one that joined, its time to first token."""


async def gaps_beside(client: AsyncLocalOpenAI, prompts: Sequence[Prompt], joining: Sequence[Any]) -> Gaps:
    """Streams run alone, and then conversations join them, all at once."""
    times: list[list[float]] = [[] for _ in prompts]
    streams = [asyncio.create_task(endless(client, p, t)) for p, t in zip(prompts, times, strict=True)]
    await until(streams, times, [_ALONE] * len(prompts))
    begin = time.perf_counter()
    start = max(t[0] for t in times)
    alone = [b - a for t in times for a, b in pairwise(t) if a >= start and b - a > _TOGETHER]
    answers = await asyncio.gather(*(ask(client, messages, 2) for messages in joining))
    await until(streams, times, [len(t) + _AFTER for t in times])
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    gaps = sorted((b - a for t in times for a, b in pairwise(t) if b > begin), reverse=True)
    return Gaps(gaps, median(alone), max(answer.first_token for answer in answers))


async def endless(client: AsyncLocalOpenAI, prompt: Prompt, times: list[float], model: str = "bench") -> None:
    """A stream that notes when its tokens come, until it is cancelled."""
    stream: Any = await client.chat.completions.create(
        model=model, messages=prompt.messages, max_tokens=_ENDLESS, stream=True, **GREEDY.fields()
    )
    async with aclosing(stream):
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                times.append(time.perf_counter())


async def until(streams: list[asyncio.Task[None]], times: list[list[float]], counts: list[int]) -> None:
    """Wait for so many tokens of each stream."""
    while any(len(t) < count for t, count in zip(times, counts, strict=True)):
        done, _ = await asyncio.wait(streams, timeout=0.005, return_when=asyncio.FIRST_COMPLETED)
        for stream in done:
            stream.result()
            raise RuntimeError("a stream ended before the long prompt had joined")
