"""One model in two processes against one process: decoding and prefill."""

from __future__ import annotations

import asyncio
import time

from localai_shim import AsyncLocalOpenAI

from . import streams
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .streams import ask
from .workload import GREEDY

PROCESSES = 2
PREFILL_TOKENS = 1_024


def measure(bench: Bench) -> Section:
    """In turns, run by run. Give each process as many BLAS threads as there are cores for it."""
    raw: dict[str, list[float]] = {}
    several = AsyncLocalOpenAI(model=bench.folder, tensor_parallel=PROCESSES, keep_alive=0)
    clients = {"one process": bench.ours, f"{PROCESSES} processes": several}
    try:
        for client in clients.values():
            streams.run(client, "bench", bench.prompts.take(2), [GREEDY] * 2, 8)
        for count in bench.streams:
            for _ in range(bench.repeats):
                for name, client in clients.items():
                    some = bench.prompts.take(count)
                    start = time.perf_counter()
                    streams.run(client, "bench", some, [GREEDY] * count, bench.new_tokens)
                    rate = count * bench.new_tokens / (time.perf_counter() - start)
                    raw.setdefault(f"decode, {count} streams, {name}", []).append(rate)
        prompts = bench.prompts_of(PREFILL_TOKENS, seed=9)
        for _ in range(bench.repeats):
            for name, client in clients.items():
                answer = asyncio.run(ask(client, prompts.take(1)[0].messages, 1))
                raw.setdefault(f"prefill, {name}", []).append(PREFILL_TOKENS / answer.first_token)
    finally:
        asyncio.run(several.close())
    for what, rates in raw.items():
        print(f"{what}: {spread(rates, digits=0)} tok/s")
    figures = []
    for what in [*(f"decode, {count} streams" for count in bench.streams), "prefill"]:
        one, more = (raw[f"{what}, {name}"] for name in clients)
        figures.append(Figure(f"parallel: {what}, {PROCESSES} processes / one", ratios(more, one), None))
    print_figures(figures)
    return Section(figures, dict(raw))
