"""One model in two processes against one process: decoding and prefill."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from localai_shim import AsyncLocalOpenAI

from . import streams
from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .streams import ask
from .workload import GREEDY, Prompts

PROCESSES = 2
PREFILL_TOKENS = 1_024

Rates = dict[str, dict[str, list[float]]]
"""Tokens per second, by what was measured and by client."""


def measure(bench: Bench) -> Section:
    """In turns, run by run. Give each process as many BLAS threads as there are cores for it."""
    several = AsyncLocalOpenAI(model=bench.folder, tensor_parallel=PROCESSES, keep_alive=0)
    rates: Rates = {}
    prompts = bench.prompts, bench.prompts_of(PREFILL_TOKENS, seed=9)
    try:
        for _ in range(bench.repeats):
            for name, client in {"one process": bench.ours, f"{PROCESSES} processes": several}.items():
                run(rates, name, client, *prompts, bench.streams, bench.new_tokens)
    finally:
        asyncio.run(several.close())
    section = Section(report(rates, "parallel"), dict(rates))
    print_figures(section.figures)
    return section


def run(
    rates: Rates,
    name: str,
    client: AsyncLocalOpenAI,
    prompts: Prompts,
    long: Prompts,
    counts: Sequence[int],
    new_tokens: int,
) -> None:
    """Add a client's rates of decoding at several numbers of streams, and of the prefill of a long prompt."""
    for some in (prompts.take(2), long.take(1)):  # warms up
        streams.run(client, "bench", some, [GREEDY] * len(some), 8)
    for count in counts:
        made = streams.run(client, "bench", prompts.take(count), [GREEDY] * count, new_tokens)
        rates.setdefault(f"decode, {count} streams", {}).setdefault(name, []).append(made.decode_rate)
    [prompt] = long.take(1)
    answer = asyncio.run(ask(client, prompt.messages, 1))
    rates.setdefault("prefill", {}).setdefault(name, []).append(len(prompt.tokens) / answer.first_token)


def report(rates: Rates, label: str) -> list[Figure]:
    """Print all rates; figures of the second client beside the first."""
    figures = []
    for what, each in rates.items():
        for name, values in each.items():
            print(f"{label}, {what}, {name}: {spread(values, digits=0)} tok/s", flush=True)
        if len(each) > 1:
            one, more = each.values()
            figures.append(Figure(f"{label}: {what}, {' / '.join(reversed(each))}", ratios(more, one), None))
    return figures
