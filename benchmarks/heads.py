"""Tokens per second of the bundled model with its head and without, for long answers and for first requests."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from localai_shim import AsyncLocalOpenAI
from localai_shim.builtin import CHECKPOINT
from tests.builtin.tries import items, needs_eyes

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .speculation import in_turns

HEAD = "mtp.safetensors"
TARGETS = {1: 1.35, 8: 1.1, 32: 0.97}  # by streams
TEMPERATURES = (0.0, 0.8)
REQUESTS = {1: 6, 8: 16, 32: 32}  # of a run, by streams
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Anna bought twelve apples and sold seven of them in the market.",
    "The library opens at nine and closes at six in the evening.",
    "It was a bright cold day, and nobody was on the street.",
    "My brother plays the piano, and my sister paints small boats.",
    "A train leaves the station every morning at half past seven.",
    "We found an old map under the floor of the kitchen.",
)
MOST_TOKENS = 400
LONG = "long answers"
SHORTER = 5  # other answers are this many times shorter: more are asked for


def measure(bench: Bench) -> Section:
    """Answers as long as they are: tokens per second of the whole run."""
    section = Section()
    with TemporaryDirectory() as folder:
        without = Path(folder) / "model"
        shutil.copytree(CHECKPOINT, without, ignore=shutil.ignore_patterns(HEAD))
        clients = [AsyncLocalOpenAI(model=path, keep_alive=0) for path in (without, CHECKPOINT)]
        try:
            for name, asked in ((LONG, _long()), ("first requests", _first())):
                for streams in (count for count in bench.streams if count in TARGETS):
                    for temperature in TEMPERATURES:
                        its = asked[: REQUESTS[streams] * (1 if name == LONG else SHORTER)]
                        _compare(section, name, clients, its, streams, temperature, bench.repeats)
        finally:
            for client in clients:
                asyncio.run(client.close())
    print_figures(section.figures)
    return section


def _long() -> list[dict[str, Any]]:
    """Requests whose answers are mostly longer than a hundred tokens."""
    made = []
    for i in range(REQUESTS[32] // 2):
        made.append(f"Count from {i + 1} to {i + 40}.")
        made.append(
            f"Repeat this text: {' '.join(SENTENCES[(i + k * (1 + i % 3)) % len(SENTENCES)] for k in range(4))}"
        )
    return [{"messages": [{"role": "user", "content": text}]} for text in made]


def _first() -> list[dict[str, Any]]:
    """Newcomers' first requests, a fifth of them with a schema; their answers have 25 tokens on average."""
    asked = [
        {key: item[key] for key in ("messages", "tools", "response_format") if key in item}
        for items_of_kind in items().values()
        for item in items_of_kind
        if not needs_eyes(item)
    ]
    random.Random(1).shuffle(asked)
    return asked


def _compare(
    section: Section,
    name: str,
    clients: Sequence[AsyncLocalOpenAI],
    asked: Sequence[dict[str, Any]],
    streams: int,
    temperature: float,
    repeats: int,
) -> None:
    rates: tuple[list[float], list[float]] = ([], [])
    pairs = list(zip(clients, rates, strict=True))
    for number in range(repeats + 1):
        for client, its in in_turns(pairs, number):
            rate = asyncio.run(_rate(client, asked, streams, temperature))
            if number:  # the first ones warm up, and costs are learned
                its.append(rate)
    off, on = rates
    name = f"head, {name}, {streams} streams, temperature {temperature:g}: tokens per second / without"
    note = f"tokens per second {spread(on, digits=0)}, without {spread(off, digits=0)}"
    section.figures.append(Figure(name, ratios(on, off), TARGETS[streams], note=note))
    section.raw[name] = rates


async def _rate(client: AsyncLocalOpenAI, asked: Sequence[dict[str, Any]], streams: int, temperature: float) -> float:
    """Tokens per second of a run with a number of concurrent streams."""
    waiting, tokens = list(enumerate(asked)), 0

    async def stream() -> None:
        nonlocal tokens
        while waiting:
            seed, each = waiting.pop()
            made: Any = await client.chat.completions.create(
                model="bench", max_tokens=MOST_TOKENS, temperature=temperature, seed=seed, **each
            )
            tokens += made.usage.completion_tokens

    began = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(streams)))
    return tokens / (time.perf_counter() - began)
