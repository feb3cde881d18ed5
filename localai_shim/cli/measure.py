"""Measurement of a model's speed here: concurrent streams through the client, beside the model's steps alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

    from ..client.local import AsyncLocalOpenAI
    from ..options import LocalOptions

BARE_SHARE, CLIENT_SHARE = 0.15, 0.5  # of the time; what remains is for loading, prompts and warming up
WARM_UP_TOKENS = 2
MIN_TOKENS, MAX_TOKENS = 8, 256  # per stream
MAX_RATIO = 1.1  # to the model's steps alone, which were measured at another time
BUSY = (
    "the machine was busy: streams cannot be faster than the model's steps alone. Close other programs, measure again."
)


@dataclass(frozen=True, slots=True)
class Level:
    """Figures with so many streams at once."""

    streams: int
    first_token_seconds: float
    """The median, from the call to the first text."""
    rate: float
    """Tokens per second of all streams together, while all of them run."""
    bare_rate: float | None
    """Rate that the model's steps alone reach with as many rows; None: that could not be measured."""
    drafted: bool = False
    """Some of the steps had several tokens of a stream."""

    @property
    def ratio(self) -> float | None:
        return None if self.bare_rate is None else self.rate / self.bare_rate

    @property
    def busy(self) -> bool:
        """Something else had the machine meanwhile: streams cannot be faster than the steps that they are made of."""
        return self.ratio is not None and self.ratio > MAX_RATIO and not self.drafted


def measure(
    model: str | None,
    streams: Sequence[int],
    seconds: float,
    options: LocalOptions,
) -> list[Level]:
    """Measure a model at these numbers of streams.

    The model's steps alone are run on the engine's thread right after it was loaded: there is one copy of the weights.

    Args:
        seconds: that all of it may take, about, without loading.

    Raises:
        ModelLoadError: the model could not be loaded.
    """
    import asyncio

    from ..client.local import AsyncLocalOpenAI
    from ..engine.engine import Engine
    from ..models.bare import bare_rate
    from ..models.loading import load_model
    from ..models.text import TextModel
    from ..options import model_options
    from ..runtime.host import connect
    from ..runtime.sources import Source, resolve_path
    from ..types import ModelLoadError

    share = seconds / len(streams)
    source = Source(resolve_path(model), model_options(options))
    bare: dict[int, float | None] = {}

    def load() -> TextModel:
        loaded = load_model(source.path, source.options, source.name)
        if not isinstance(loaded, TextModel):
            raise ModelLoadError(f"the model '{loaded.name}' embeds texts and generates none: there is nothing to time")
        bare.update({count: bare_rate(loaded, count, BARE_SHARE * share) for count in streams})
        return loaded

    async def levels() -> list[Level]:
        async with AsyncLocalOpenAI(engine=engine) as client:
            return [await _level(client, count, bare[count], CLIENT_SHARE * share) for count in streams]

    connect()
    engine = Engine(load, source.options, name=source.name)
    try:
        _ = engine.model  # raises why it could not be loaded
    except BaseException:
        engine.close(wait=False)  # it may load for minutes
        raise
    try:
        return asyncio.run(levels())
    finally:
        engine.close()


async def _level(client: AsyncLocalOpenAI, count: int, bare: float | None, seconds: float) -> Level:
    from statistics import median

    began = time.perf_counter()
    await _streams(client, count, WARM_UP_TOKENS)
    step = (time.perf_counter() - began) / WARM_UP_TOKENS if bare is None else count / bare
    runs = await _streams(client, count, min(MAX_TOKENS, max(MIN_TOKENS, int(seconds / step))))
    drafted = any(counts.accepted for counts in client.stats().drafts.values())
    return Level(count, median(run.first_seconds for run in runs), _rate(runs), bare, drafted)


@dataclass(slots=True)
class _Run:
    """One stream."""

    began: float
    times: list[float]
    """Of its chunks of text."""
    tokens: int = 0

    @property
    def first_seconds(self) -> float:
        return self.times[0] - self.began


async def _streams(client: AsyncLocalOpenAI, count: int, tokens: int) -> list[_Run]:
    import asyncio

    return list(await asyncio.gather(*(_stream(client, index, tokens) for index in range(count))))


async def _stream(client: AsyncLocalOpenAI, index: int, tokens: int) -> _Run:
    run = _Run(time.perf_counter(), [])
    question: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": f"{index}: tell me a long story about {index + 2} foxes."}
    ]
    async for chunk in await greedy_stream(client, question, tokens):
        if chunk.choices and (chunk.choices[0].delta.content or getattr(chunk.choices[0].delta, "reasoning", None)):
            run.times.append(time.perf_counter())
        elif chunk.usage is not None:
            run.tokens = chunk.usage.completion_tokens
    run.times = run.times or [time.perf_counter()]  # a model may say nothing but ends of sequence
    return run


async def greedy_stream(
    client: openai.AsyncOpenAI, messages: list[ChatCompletionMessageParam], tokens: int, **fields: object
) -> openai.AsyncStream[ChatCompletionChunk]:
    """One chat completion of exactly so many tokens, with its usage; `fields` are those beyond OpenAI's."""
    return await client.chat.completions.create(
        model="bench",
        messages=messages,
        max_tokens=tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, **fields},
    )


def _rate(runs: Sequence[_Run]) -> float:
    """Tokens per second while all streams ran; chunks may have several tokens, or end within one."""
    begin, end = max(run.times[0] for run in runs), min(run.times[-1] for run in runs)
    tokens = sum(run.tokens / len(run.times) * sum(begin < at <= end for at in run.times) for run in runs)
    if end > begin and tokens:
        return tokens / (end - begin)
    return sum(run.tokens for run in runs) / (max(run.times[-1] for run in runs) - min(run.began for run in runs))
