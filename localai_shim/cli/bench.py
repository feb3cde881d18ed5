"""Measure the speed of a model on this machine, in about half a minute."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .shared import add_model, given_options, make_console, open_client, print_table, write

if TYPE_CHECKING:
    import openai

    from ..client.local import LocalOpenAI

MEASURED_SHARE = 0.7  # of the time; what remains is for warming up and the trial that says how many tokens fit
WARM_UP_TOKENS, TRIAL_TOKENS, MAX_TOKENS = 2, 8, 256  # per stream


@dataclass(frozen=True, slots=True)
class Level:
    """Speed of a number of concurrent streams."""

    streams: int
    first_token_seconds: float
    """The median, from the call to the first text."""
    rate: float
    """Tokens per second of all streams together, while all of them run."""


@dataclass(slots=True)
class Run:
    """One stream: when it began, when its chunks of text came, and how many tokens these were."""

    began: float = field(default_factory=time.perf_counter)
    times: list[float] = field(default_factory=list)
    tokens: int = 0


def measure(client: LocalOpenAI, streams: Sequence[int], seconds: float) -> list[Level]:
    """Measure a client's model at these numbers of streams.

    Args:
        seconds: that all of it may take, about.

    Raises:
        ValueError: the model generates no text.
    """
    import asyncio

    import openai

    from ..client.local import AsyncLocalOpenAI

    async def levels() -> list[Level]:
        async with AsyncLocalOpenAI(engine=client._runtime.engine_of("")) as streaming:
            return [await _level(streaming, count, seconds / len(streams)) for count in streams]

    try:
        return asyncio.run(levels())
    except openai.APIStatusError as error:
        raise ValueError(error.body["message"] if isinstance(error.body, dict) else error.message) from None


async def _level(client: openai.AsyncOpenAI, count: int, seconds: float) -> Level:
    from statistics import median

    await _run(client, count, WARM_UP_TOKENS)
    fitting = seconds * MEASURED_SHARE * rate(await _run(client, count, TRIAL_TOKENS)) / count
    runs = await _run(client, count, min(MAX_TOKENS, max(TRIAL_TOKENS, int(fitting))))
    return Level(count, median(run.times[0] - run.began for run in runs), rate(runs))


async def _run(client: openai.AsyncOpenAI, count: int, tokens: int) -> list[Run]:
    import asyncio

    return list(await asyncio.gather(*(_stream(client, index, tokens) for index in range(count))))


async def _stream(client: openai.AsyncOpenAI, index: int, tokens: int) -> Run:
    run = Run()
    stream = await client.chat.completions.create(
        model="bench",
        messages=[{"role": "user", "content": f"{index}: tell me a long story about {index + 2} foxes."}],
        max_tokens=tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    async for chunk in stream:
        if chunk.choices and (chunk.choices[0].delta.content or getattr(chunk.choices[0].delta, "reasoning", None)):
            run.times.append(time.perf_counter())
        elif chunk.usage is not None:
            run.tokens = chunk.usage.completion_tokens
    run.times = run.times or [time.perf_counter()]  # a model may say nothing but ends of sequence
    return run


def rate(runs: Sequence[Run]) -> float:
    """Tokens per second while all streams ran; chunks may have several tokens, or end within one."""
    begin, end = max(run.times[0] for run in runs), min(run.times[-1] for run in runs)
    tokens = sum(run.tokens / len(run.times) * sum(begin < at <= end for at in run.times) for run in runs)
    if end > begin and tokens:
        return tokens / (end - begin)
    return sum(run.tokens for run in runs) / (max(run.times[-1] for run in runs) - min(run.began for run in runs))


STREAMS = (1, 8, 32)
SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="approximate duration (30)")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print the table."""
    if not arguments.seconds > 0:
        raise ValueError(f"--seconds must be > 0, got {arguments.seconds:g}")
    console = make_console()
    if console.is_terminal:
        write(console, f"Measuring for about {arguments.seconds:g} seconds.\n", "dim")
    with open_client("bench", arguments.model, given_options(arguments)) as client:
        levels = measure(client, STREAMS, arguments.seconds)
    rows = [
        (
            str(level.streams),
            f"{level.first_token_seconds * 1000:.0f} ms",
            f"{level.rate:,.0f}",
            f"{level.rate / level.streams:,.0f}",
        )
        for level in levels
    ]
    print_table(console, (">streams", ">TTFT", ">tok/s", ">per stream"), rows)
    return 0
