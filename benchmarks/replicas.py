"""Costs of replicas on Ray beside one process, gains of more of them, and a run in which they are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import openai
import ray

from localai_shim import async_http_client, http_client
from localai_shim.ray import AsyncRayOpenAI, RayOpenAI

from .bench import Bench
from .figures import Figure, Section, print_figures
from .workload import GREEDY, Prompts

STREAMS = 32
FAULT_REQUESTS, QUICK_FAULT_REQUESTS = 10_000, 1_000
FAULT_REPLICAS, FAULT_WORKERS, KILL_SECONDS = 2, 32, 5.0


def measure(bench: Bench) -> Section:
    """Time one token, a streamed chunk, and many streams, with the same model in this process and in replicas."""
    rounds = 20 if bench.quick else 100
    with (
        openai.OpenAI(api_key="unused", http_client=http_client(bench.folder)) as here,
        RayOpenAI(bench.folder, replicas=1) as there,
    ):
        requests = [_in_turns(_request, here, there, bench.prompts, 1) for _ in range(rounds + 3)][3:]
        chunks = [_in_turns(_stream, here, there, bench.prompts, bench.new_tokens) for _ in range(bench.repeats + 1)][
            1:
        ]
        before = [asyncio.run(_many(_async_here(bench.folder), bench)) for _ in range(bench.repeats)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rates = {count: _rates(bench, count, count <= cores) for count in (1, 2)}
    figures = [
        Figure("ray: a request beside one process", [b - a for a, b in requests], None, False, " ms", 1000),
        Figure("ray: a chunk beside one process", [b - a for a, b in chunks], None, False, " ms", 1000, 3),
        Figure(f"ray: {STREAMS} streams, 1 replica / one process", _ratios(rates[1], before), None),
        Figure(f"ray: {STREAMS} streams, 2 replicas on 2 cores / 1 on 1", _ratios(rates[2], rates[1]), None),
    ]
    print(f"Replicas on Ray {ray.__version__}; {cores} cores, of which each replica has one; the driver has all")
    print_figures(figures)
    raw = {"requests": requests, "chunks": chunks, "tokens_per_second": {"here": before, **rates}}
    return Section(figures, raw)


def _ratios(one: list[float], other: list[float]) -> list[float]:
    return [value / median(other) for value in one]


def _in_turns(work: Any, here: Any, there: Any, prompts: Prompts, tokens: int) -> tuple[float, float]:
    return work(here, prompts, tokens), work(there, prompts, tokens)


def _fields(prompts: Prompts, tokens: int) -> dict[str, Any]:
    (prompt,) = prompts.take(1)
    return {"model": "bench", "messages": prompt.messages, "max_tokens": tokens, **GREEDY.fields()}


def _request(client: openai.OpenAI, prompts: Prompts, tokens: int) -> float:
    fields = _fields(prompts, tokens)
    start = time.perf_counter()
    client.chat.completions.create(**fields)
    return time.perf_counter() - start


def _stream(client: openai.OpenAI, prompts: Prompts, tokens: int) -> float:
    """Seconds per chunk behind the first."""
    stream: Any = client.chat.completions.create(**_fields(prompts, tokens), stream=True)
    next(stream)
    start = time.perf_counter()
    return (lambda count: (time.perf_counter() - start) / count)(sum(1 for _ in stream))


def _async_here(folder: Path) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="unused", http_client=async_http_client(folder))


def _rates(bench: Bench, replicas: int, pinned: bool) -> list[float]:
    """Tokens per second of many streams, run by run."""
    with RayOpenAI(bench.folder, replicas=replicas) as owner:
        processes = [ray.get(each.actor.load.remote()) for each in owner._pool._members.values()]
        if pinned and hasattr(os, "sched_setaffinity"):
            for core, process in zip(sorted(os.sched_getaffinity(0)), processes, strict=False):
                for thread in os.listdir(f"/proc/{process}/task"):
                    os.sched_setaffinity(int(thread), {core})
        found = [asyncio.run(_many(_shared(owner), bench)) for _ in range(bench.repeats + 1)]
    return found[1:]


def _shared(owner: RayOpenAI) -> AsyncRayOpenAI:
    from localai_shim.scale.ray.transport import AsyncRayHttpClient

    return AsyncRayOpenAI(http_client=AsyncRayHttpClient(owner._pool, 600))


async def _many(client: openai.AsyncOpenAI, bench: Bench) -> float:
    """Tokens per second of many streams at once."""

    async def one() -> None:
        stream: Any = await client.chat.completions.create(**_fields(bench.prompts, bench.new_tokens), stream=True)
        async for _ in stream:
            pass

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(STREAMS)))
    return STREAMS * bench.new_tokens / (time.perf_counter() - start)


# -- replicas that are killed ----------------------------------------------------------------------------------------


def soak(quick: bool) -> Section:
    """Ask thousands of short questions while every few seconds a replica is killed; count what becomes of them."""
    requests = QUICK_FAULT_REQUESTS if quick else FAULT_REQUESTS
    with RayOpenAI(replicas=FAULT_REPLICAS) as owner:
        owner._pool.wait()
        start = time.perf_counter()
        counts = asyncio.run(_survive(owner, requests))
        seconds = time.perf_counter() - start
    lost = requests - sum(count for outcome, count in counts.items() if outcome != "replicas killed")
    print(f"{requests} requests, {FAULT_WORKERS} at a time, {FAULT_REPLICAS} replicas, {seconds:.0f} s: {dict(counts)}")
    figures = [Figure("ray: requests without an answer or an exception of the SDK", [lost], 0, False, digits=0)]
    print_figures(figures)
    return Section(figures, {"counts": dict(counts), "seconds": seconds})


async def _survive(owner: RayOpenAI, requests: int) -> Counter[str]:
    client, counts, numbers = _shared(owner), Counter[str](), iter(range(requests))

    async def worker() -> None:
        for number in numbers:
            one, other = number % 10, number // 10 % 10
            try:
                answer = await client.responses.create(model="any", input=f"What is {one} + {other}?", temperature=0)
                counts["right" if answer.output_text == f"{one} + {other} = {one + other}." else "wrong"] += 1
            except openai.OpenAIError as error:
                counts[type(error).__name__] += 1

    async def killer() -> None:
        rng = random.Random(0)
        while True:
            await asyncio.sleep(KILL_SECONDS)
            ready = [each for each in owner._pool._members.values() if each.state == "ready"]
            if ready:
                os.kill(await rng.choice(ready).actor.load.remote(), signal.SIGKILL)
                counts["replicas killed"] += 1

    killing = asyncio.create_task(killer())
    await asyncio.gather(*(worker() for _ in range(FAULT_WORKERS)))
    killing.cancel()
    return counts
