"""What the client's options cost and bring, for the plots of docs/performance.md: a few minutes for all of it."""

from __future__ import annotations

import asyncio
import datetime
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from localai_shim import AsyncLocalOpenAI

from . import lanes, servers, speculation, stalls, streams, swarm, throughput
from .bench import Bench
from .report import cores
from .workload import GREEDY

Rates = dict[str, dict[str, list[float]]]
"""By method and number of streams, or by option and what it was tried with: a number for each run."""
METHODS = (
    throughput.CLIENT_GREEDY,
    throughput.BATCHER_GREEDY,
    throughput.CLIENT_SAMPLED,
    throughput.BATCHER_SAMPLED,
)
TURN_LENGTHS = (250, 1_000, 3_000)  # tokens before the turn
AGENTS, SHARED = 8, 1_000
ROWS, ROW_LENGTH = 8, 500  # of the trial of `kv_bits`
LONG = 2_000
STALLS = (0.01, 0.05, 0.2)  # seconds
SWARMS = (4, 8, 16)  # agents
DRAFT_STREAMS = (1, 8)
DRAFTS = tuple(name for name in speculation.TARGETS if not name.startswith("oracle"))


def machine() -> str:
    """What was measured on, in a few words."""
    if mx.default_device() == mx.Device(mx.gpu):
        return str(mx.device_info().get("device_name", "a GPU"))
    return f"{cores()}-core {platform.system()} CPU"


def measure(bench: Bench, chosen: Sequence[str], note: str, path: Path, facts: dict[str, str]) -> None:
    """Measure some of `PARTS`, and write each into a file as soon as it is there; what the file has of others stays.

    Args:
        note: said below the plots.
        facts: what it was measured with.
    """
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    about = {"machine": machine(), "date": datetime.date.today().isoformat(), "note": note, **facts}
    for name in chosen:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        found[name] = {"about": about, "measured": PARTS[name](bench)}
        print(f"== {name} took {time.perf_counter() - began:.0f} s\n", flush=True)
        path.write_text(f"{json.dumps(found, indent=1)}\n")


def by_streams(bench: Bench) -> Rates:
    """Tokens per second of all streams together."""
    found: Rates = {method: {} for method in ("bare greedy step", *METHODS)}
    for count in bench.streams:
        all_methods = throughput.methods(count, bench.ours, bench.model, None)
        chosen = {name: all_methods[name] for name in METHODS}
        bare: list[float] = []
        for c in throughput.compare(count, chosen, bench.bare, bench.prompts, bench.new_tokens, bench.repeats):
            found[c.method][str(count)] = _rounded(run.decode_rate or run.whole_rate for run in c.runs)
            bare += c.bare_rates
        found["bare greedy step"][str(count)] = _rounded(bare)
    return found


def prefix_cache(bench: Bench) -> dict[str, Rates]:
    """Seconds to the first token, where the prompt's beginning is kept and where nothing is."""
    clients = {
        "prefix cache": AsyncLocalOpenAI(model=bench.folder, keep_alive=0),
        "prefix_cache_bytes=0": AsyncLocalOpenAI(model=bench.folder, keep_alive=0, prefix_cache_bytes=0),
    }
    turns: Rates = {name: {str(length): [] for length in TURN_LENGTHS} for name in clients}
    agents: Rates = {name: {str(AGENTS): []} for name in clients}
    _warm_up(bench, *clients.values())
    for number in range(bench.repeats):
        for length in TURN_LENGTHS:
            prompts = bench.prompts_of(length, seed=100 * number + 1)
            (prompt,), question = prompts.take(1), prompts.words(40)
            for name, client in clients.items():
                turns[name][str(length)] += _rounded([asyncio.run(_turn(client, prompt.messages, question))])
        rules = bench.prompts_of(SHARED, seed=100 * number + 2)
        (prompt,), questions = rules.take(1), [rules.words(12) for _ in range(AGENTS)]
        for name, client in clients.items():
            agents[name][str(AGENTS)] += _rounded([asyncio.run(_agents(client, prompt.text, questions))])
    for client in clients.values():
        asyncio.run(client.close())
    return {"turns": turns, "agents": agents}


async def _turn(client: AsyncLocalOpenAI, messages: Any, question: str) -> float:
    answer = await streams.ask(client, messages, 8)
    turn = [*messages, {"role": "assistant", "content": answer.content}, {"role": "user", "content": question}]
    return (await streams.ask(client, turn, 2)).first_token


async def _agents(client: AsyncLocalOpenAI, rules: str, questions: Sequence[str]) -> float:
    system = {"role": "system", "content": rules}
    asked = [streams.ask(client, [system, {"role": "user", "content": question}], 2) for question in questions]
    return median(answer.first_token for answer in await asyncio.gather(*asked))


def kv_bits(bench: Bench) -> dict[str, Any]:
    """Bytes per token, and tokens per second of rows with long prompts."""
    clients = {
        str(bits): AsyncLocalOpenAI(model=bench.folder, keep_alive=0, kv_bits=bits, speculation="off")
        for bits in (None, 8, 4)
    }
    rates: dict[str, list[float]] = {name: [] for name in clients}
    prompts = bench.prompts_of(ROW_LENGTH, seed=3)
    _warm_up(bench, *clients.values())
    for _ in range(bench.repeats):
        for name, client in clients.items():
            run = streams.run(client, "bench", prompts.take(ROWS), [GREEDY] * ROWS, bench.new_tokens)
            rates[name] += _rounded([run.decode_rate or run.whole_rate])
    sizes = {name: client.stats().kv_bytes_per_token for name, client in clients.items()}
    for client in clients.values():
        asyncio.run(client.close())
    return {"tokens_per_second": rates, "bytes_per_token": sizes}


def max_stalls(bench: Bench) -> dict[str, dict[str, list[float]]]:
    """What running streams wait for at most, and the first token of the long prompt that they wait for."""
    gaps: dict[str, list[float]] = {str(value): [] for value in STALLS}
    firsts: dict[str, list[float]] = {str(value): [] for value in STALLS}
    long = bench.prompts_of(LONG, seed=7)
    for value in STALLS:
        client = AsyncLocalOpenAI(model=bench.folder, keep_alive=0, max_stall=value)
        _warm_up(bench, client)
        for _ in range(bench.repeats):
            joining = [long.take(1)[0].messages]
            found = asyncio.run(stalls.gaps_beside(client, bench.prompts.take(stalls.STREAMS), joining))
            gaps[str(value)] += _rounded(found.joining[:1])
            firsts[str(value)] += _rounded([found.first_token])
        asyncio.run(client.close())
    return {"longest_gap_seconds": gaps, "first_token_seconds": firsts}


def drafts(bench: Bench) -> dict[str, Any]:
    """Tokens per second without drafts and with them, by what is said and the number of streams."""
    found = speculation.measure(replace(bench, streams=list(DRAFT_STREAMS)), DRAFTS).raw
    return {
        name: {count: [_rounded(rates) for rates in pair] for count, pair in each.items()}
        for name, each in found.items()
    }


def beside_servers(bench: Bench) -> dict[str, Any]:
    """Tokens per second of whole runs, in turns with each server."""
    return servers.measure(bench).raw


def shared_prompts(bench: Bench) -> dict[str, Any]:
    """Bytes of keys and values, and tokens per second, of agents that share a prompt or hold copies of it."""
    return {
        str(count): {
            kind: {
                "kv_bytes": _rounded(run.kv_bytes for run in runs),
                "tokens_per_second": _rounded(run.rate for run in runs),
            }
            for kind, runs in swarm.compare(bench, count).items()
        }
        for count in SWARMS
    }


def _warm_up(bench: Bench, *clients: AsyncLocalOpenAI) -> None:
    """A model is loaded, and runs several rows for the first time, before anything is timed."""
    for client in clients:
        streams.run(client, "bench", bench.prompts.take(ROWS), [GREEDY] * ROWS, 8)


PARTS: dict[str, Callable[[Bench], Any]] = {
    "streams": by_streams,
    "prefix_cache": prefix_cache,
    "kv_bits": kv_bits,
    "max_stall": max_stalls,
    "speculation": drafts,
    "servers": beside_servers,
    "swarm": shared_prompts,
    "agents": lanes.measure,
}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
