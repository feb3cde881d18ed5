"""Memory of a process that serves thousands of requests, of which many are cancelled at random points."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import subprocess
import tempfile
from contextlib import aclosing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine.engine import Engine, EngineOptions
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions

from .figures import Figure, Section, print_figures
from .models import SIZES, make_model

REQUESTS, EARLY = 10_000, 1_000
QUICK_REQUESTS, QUICK_EARLY = 600, 200
TARGET = 1.02
CONCURRENT = 24
CANCELLED = 0.3  # of the requests
PREFIX_CACHE = 8 << 20  # bytes: small enough to be full early on, so that it does not count as growth
_PATIENCE = 0.03  # seconds, mean, after which a request is cancelled
_SIZE = replace(SIZES["small"], hidden=64, layers=2, intermediate=128, head_dim=16)
_VOCABULARY = 1_000
# Tokenizers remember the words that they have seen, some ten thousand of them: few enough to be known early on.
_WORDS = ["".join(letters) for letters in product("bdgklmnprt", "aeiou", "bdgklmnprt")]


def measure(quick: bool) -> Section:
    """RSS when the early requests are done against RSS at the end; both while nothing runs."""
    requests, early = (QUICK_REQUESTS, QUICK_EARLY) if quick else (REQUESTS, EARLY)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as root:
        folder = Path(root) / "model"
        make_model(folder, _SIZE, _VOCABULARY)
        engine = Engine(lambda: load_model(str(folder), LoadOptions()), EngineOptions(prefix_cache_bytes=PREFIX_CACHE))
        try:
            sizes, counts = asyncio.run(_run(engine, requests, early))
        finally:
            engine.close()
    listed = ", ".join(f"{count}: {size / 2**20:.1f}" for count, size in sizes.items())
    print(f"{requests} requests, {CONCURRENT} at a time, of which {counts['cancelled']} were cancelled; RSS in MiB")
    print(f"after {listed}\n")
    name = f"soak: RSS after {requests} requests / after {early}"
    figures = [Figure(name, [sizes[requests] / sizes[early]], TARGET, at_least=False, digits=3)]
    print_figures(figures)
    return Section(figures, {"rss_bytes": {str(k): v for k, v in sizes.items()}, **counts})


async def _run(engine: Any, requests: int, early: int) -> tuple[dict[int, int], dict[str, int]]:
    """({requests done: RSS}, counts of what became of them)."""
    rng = random.Random(3)
    counts = {"finished": 0, "cancelled": 0}
    sizes: dict[int, int] = {}
    async with AsyncLocalOpenAI(engine=engine) as client:
        await _serve(client, rng, CONCURRENT, counts)
        counts.update(finished=0, cancelled=0)
        for _ in range(requests // early):
            await _serve(client, rng, early, counts)
            sizes[counts["finished"] + counts["cancelled"]] = await _rss(engine)
    return sizes, counts


async def _serve(client: AsyncLocalOpenAI, rng: random.Random, requests: int, counts: dict[str, int]) -> None:
    numbers = iter(range(requests))

    async def worker() -> None:
        for _ in numbers:
            task = asyncio.create_task(_request(client, rng))
            if rng.random() < CANCELLED:
                await asyncio.wait([task], timeout=rng.expovariate(1 / _PATIENCE))
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            counts["cancelled" if task.cancelled() else "finished"] += 1

    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))


async def _request(client: AsyncLocalOpenAI, rng: random.Random) -> None:
    """Streamed or whole, greedy or sampled, with a prompt of its own."""
    text = " ".join(rng.choices(_WORDS, k=rng.randint(4, 16)))
    fields: dict[str, Any] = {
        "model": "soak",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": rng.randint(1, 24),
        "temperature": rng.choice((0.0, round(rng.uniform(0.5, 1.2), 3))),
        "extra_body": {"ignore_eos": True},
    }
    if rng.random() < 0.25:
        fields |= {"logprobs": True, "top_logprobs": 3, "presence_penalty": 0.5}
    if rng.random() < 0.5:
        await client.chat.completions.create(**fields)
        return
    stream: Any = await client.chat.completions.create(**fields, stream=True)
    async with aclosing(stream):
        async for _ in stream:
            pass


async def _rss(engine: Any) -> int:
    """Bytes in memory, once the engine has nothing left to do."""
    while (stats := engine.stats()).running or stats.waiting:  # noqa: ASYNC110  # engines tell nobody
        await asyncio.sleep(0.01)
    gc.collect()
    mx.clear_cache()  # free buffers that MLX keeps: now few, now many
    return _resident()


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], stdout=subprocess.PIPE, check=True)
        return int(done.stdout) * 1024
