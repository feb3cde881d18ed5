"""Figures to lines of text and to JSON."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from localai_shim.backends.blas import blas

from .figures import Figure, print_table, ratios, spread
from .grammars import GRAMMAR_STREAMS, GrammarCost
from .overhead import TINY, ChunkCost, Overhead
from .profiler import StackSampler
from .throughput import CLIENT_GREEDY, CLIENT_SAMPLED, Comparison
from .timeline import Run, percentiles
from .values import ValuesCost

GRAMMAR_TARGET = 0.70  # of the same batch without grammars
REQUEST_TARGETS = {"sync": 2.2e-3, "async": 3e-3}  # seconds, of which the SDK's own share is about 1e-3
CHUNK_TARGET = 33e-6  # seconds; waking a task and making one of the SDK's chunks takes 23e-6 to 26e-6
RATIO_TARGETS = {CLIENT_GREEDY: 0.85, CLIENT_SAMPLED: 0.80}  # of the bare greedy step's tokens per second
TARGET_STREAMS = (1, 8, 32)
LARGEST_VOCABULARY = 6_000  # above it the sampled rates are only stated


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def machine_facts(model: Any, config: dict[str, Any]) -> dict[str, str]:
    """What the figures were measured with."""
    arrays = [array for _, array in tree_flatten(model.parameters())]
    shape = " ".join(f"{key}={config.get(key)}" for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
    versions = " ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm", "openai"))
    return {
        "versions": f"{versions} python {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {cores()} cores",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "device": f"{mx.default_device()}, BLAS: {blas() or 'the one that MLX came with'}",
        "model": f"{config.get('model_type')} {shape} {sum(a.size for a in arrays) / 1e6:.1f}M {arrays[-1].dtype}",
    }


def print_overhead(overhead: Overhead) -> None:
    print(
        f"create(max_tokens=1) of a one-layer model, prompts of {TINY.prompt_tokens} tokens, "
        f"{len(overhead.bare)} turns of bare passes, sync and async; milliseconds"
    )
    rows = []
    kinds = {"sync create": overhead.sync, "async create": overhead.asynchronous, "(bare passes)": overhead.bare}
    for name, values in kinds.items():
        p = percentiles(values)
        rows.append([name, *(f"{p[k]:.2f}" for k in ("p50", "p90", "p99"))])
    print_table(["", "p50", "p90", "p99"], rows)


def overhead_figures(overhead: Overhead) -> list[Figure]:
    """Requests minus the bare passes of the same turn."""
    kinds = {"sync": overhead.sync, "async": overhead.asynchronous}
    return [
        Figure(
            f"request overhead, {name}, one-layer model",
            overhead.beside(whole),
            REQUEST_TARGETS[name],
            at_least=False,
            unit=" ms",
            scale=1e3,
        )
        for name, whole in kinds.items()
    ]


def chunk_figures(cost: ChunkCost) -> list[Figure]:
    kinds = {
        "sync, tokens already there": cost.sync_buffered,
        "async, tokens already there": cost.async_buffered,
        "sync, woken by each token": cost.sync_live,
        "async, woken by each token": cost.async_live,
    }
    return [_chunk_figure(f"CPU per chunk: one stream, {name}", values) for name, values in kinds.items()]


def least_figures(costs: Sequence[tuple[float, float]], streams: int) -> list[Figure]:
    """What no client can go below, beside as many rows: (waking a task, and making the SDK's types as well)."""
    names = ("a task woken per bare step", "the same, with a chunk made of the SDK's types")
    return [
        Figure(
            f"CPU per chunk: {streams} streams, no client, {name}", list(values), None, unit=" us", scale=1e6, digits=1
        )
        for name, values in zip(names, zip(*costs, strict=True), strict=True)
    ]


def _chunk_figure(name: str, values: list[float]) -> Figure:
    return Figure(name, values, CHUNK_TARGET, at_least=False, unit=" us", scale=1e6, digits=1)


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    print("Decode: all streams together, steady state; ratio to the bare greedy step run just before and after")
    rows = [
        [
            c.method,
            str(c.streams),
            spread([r.decode_rate for r in c.runs if r.decode_rate], digits=0),
            f"{median(c.bare_rates):.0f}",
            spread(c.ratios),
            spread(c.extra_step_seconds, 1e6, 0),
            f"{median(r.whole_rate for r in c.runs):.0f}",
            _cpu(c),
        ]
        for c in comparisons
    ]
    head = [
        "",
        "streams",
        "decode tok/s",
        "bare tok/s",
        "ratio",
        "extra us per step",
        "whole run tok/s",
        "CPU us/chunk",
    ]
    print_table(head, rows)
    print("Latency, milliseconds")
    rows = []
    for c in comparisons:
        first = percentiles([s for run in c.runs for s in run.first_token_seconds()])
        gaps = percentiles([s for run in c.runs for s in run.gaps()])
        cells = [f"{p[k]:.1f}" for p in (first, gaps) for k in ("p50", "p90", "p99")]
        rows.append([c.method, str(c.streams), *cells])
    head = ["", "streams", "TTFT p50", "p90", "p99", "inter-token p50", "p90", "p99"]
    print_table(head, rows)


def _cpu(comparison: Comparison) -> str:
    values = [run.cpu_per_chunk for run in comparison.runs if run.cpu_per_chunk is not None]
    return f"{median(values) * 1e6:.1f}" if values else ""


def print_engine_cpu(name: str, run: Run, bare: Run) -> None:
    """CPU time of the thread that drives the model, for one step of all streams."""
    ours, limit = (1e6 * len(r.streams) * (r.cpu_per_chunk or 0.0) for r in (run, bare))
    print(
        f"CPU time of the engine's thread per step, {name}: {ours:.0f} us; of the bare step's thread: {limit:.0f} us\n"
    )


def decode_figures(comparisons: Sequence[Comparison], vocabulary: int) -> list[Figure]:
    """Shares of the bare greedy step, and what a chunk of many streams takes."""
    out = []
    for c in comparisons:
        if c.streams not in TARGET_STREAMS or c.method not in RATIO_TARGETS:
            continue
        target: float | None = RATIO_TARGETS[c.method]
        if c.method == CLIENT_SAMPLED and vocabulary > LARGEST_VOCABULARY:
            target = None
        name = f"decode: {c.method}, {c.streams} streams / bare greedy step"
        out.append(Figure(name, c.ratios, target))
    for c in comparisons:
        if c.streams == max(TARGET_STREAMS) and c.method in RATIO_TARGETS:
            cpu = [run.cpu_per_chunk for run in c.runs if run.cpu_per_chunk is not None]
            out.append(_chunk_figure(f"CPU per chunk: {c.method}, {c.streams} streams", cpu))
    return out


def print_values(costs: dict[str, ValuesCost]) -> None:
    print("New sampling values: every stream with a never-used setting of its own, whole runs, first use included")
    rows = [[n, spread(shared), spread(new), spread(ratios(new, shared))] for n, (shared, new) in costs.items()]
    print_table(["", "one shared setting, s", "new settings, s", "ratio"], rows)


def print_profile(sampler: StackSampler, thread: str, window: tuple[float, float], steps: float, top: int = 15) -> None:
    """Shares of a thread's time in a window, also as microseconds per engine step."""
    step = (window[1] - window[0]) / steps * 1e6
    for title, shares in (
        ("ends of the stacks", sampler.innermost(thread, window)),
        ("anywhere on the stack", sampler.inclusive(thread, window)),
    ):
        print(f"{thread}, {title}; a step took {step:.0f} us")
        print_table(["", "share", "us per step"], [[n, f"{s:.1%}", f"{s * step:.0f}"] for n, s in shares[:top]])


def comparison_json(c: Comparison) -> dict[str, Any]:
    """Raw figures of one method at one number of streams; seconds and tokens per second."""
    return {
        "method": c.method,
        "streams": c.streams,
        "decode_tokens_per_second": [r.decode_rate for r in c.runs],
        "whole_run_tokens_per_second": [r.whole_rate for r in c.runs],
        "bare_tokens_per_second": c.bare_rates,
        "ratios": c.ratios,
        "extra_step_seconds": c.extra_step_seconds,
        "first_token_seconds": [r.first_token_seconds() for r in c.runs],
        "inter_token_milliseconds": percentiles([s for r in c.runs for s in r.gaps()]),
        "cpu_seconds_per_chunk": [r.cpu_per_chunk for r in c.runs],
    }


def print_grammars(costs: dict[str, GrammarCost]) -> None:
    half = GRAMMAR_STREAMS // 2
    print(f"{half} streams with a JSON schema each beside {half} free ones, against {GRAMMAR_STREAMS} free: tok/s")
    rows = [
        [name, spread(cost.free, digits=0), spread(cost.guided, digits=0), spread(cost.ratios)]
        for name, cost in costs.items()
    ]
    print_table(["", "free", "guided", "ratio"], rows)


def grammar_figures(costs: dict[str, GrammarCost]) -> list[Figure]:
    return [Figure(f"grammars: half of the rows, {n} / none", c.ratios, GRAMMAR_TARGET) for n, c in costs.items()]
