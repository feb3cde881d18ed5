"""`python -m benchmarks`: prints what the client costs beside the bare model step."""

# ruff: noqa: E402
from __future__ import annotations

from localai_shim.adapters.backend import require_backend

require_backend()  # before anything imports MLX: it chooses the BLAS

import argparse
import json
import os
import random
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx_lm
import openai

from localai_shim import AsyncLocalOpenAI, LocalOpenAI

from . import blas, grammars, overhead, report, streams, throughput, values
from .bare import BareModel
from .models import SIZES, make_model
from .profiler import StackSampler, cpu_clock, engine_thread
from .workload import GREEDY, Prompts, settings


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--size", choices=SIZES, default="small", help="of the random model (default small)")
    add("--vocabulary", type=int, help="tokens of the random model's vocabulary")
    add("--model", type=Path, help="use the model in this folder; a random one is made there if it does not exist")
    add("--prompt-tokens", type=int, help="length of each prompt")
    add("--new-tokens", type=int, help="tokens that each stream generates")
    add("--streams", help="numbers of concurrent streams (default 1,4,8,16,32)")
    add("--repeats", type=int, help="runs of each method (default 3)")
    add("--quick", action="store_true", help="fewer streams, tokens and runs: about a minute on two cores")
    add("--profile", action="store_true", help="only show where 32 streams spend their time")
    add("--blas", action="store_true", help="only show what the BLAS that was found is worth (Linux, CPU)")
    add("--base-url", help="compare with this OpenAI-compatible server, too; OPENAI_API_KEY is its key")
    add("--base-model", default="default", help="model name to send to that server")
    add("--json", type=Path, help="write the raw figures to this file")
    options = parser.parse_args(arguments)
    size = SIZES[options.size]
    options.vocabulary = options.vocabulary or size.vocabulary
    options.prompt_tokens = options.prompt_tokens or size.prompt_tokens
    options.new_tokens = options.new_tokens or (min(64, size.new_tokens) if options.quick else size.new_tokens)
    options.streams = [int(n) for n in (options.streams or ("1,32" if options.quick else "1,4,8,16,32")).split(",")]
    options.repeats = options.repeats or (2 if options.quick else 3)
    return options


def main() -> None:
    options = parse()
    if options.blas:
        blas.show(blas.measure())
        return
    with ExitStack() as stack:
        folder = options.model or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-"))) / "model"
        if not (folder / "config.json").exists():
            make_model(folder, SIZES[options.size], options.vocabulary)
        model, tokenizer = mlx_lm.load(str(folder))[:2]
        config = json.loads((folder / "config.json").read_text())
        facts = report.machine_facts(model, config)
        for key, value in facts.items():
            print(f"{key}: {value}")
        print(f"work: prompts of {options.prompt_tokens} tokens, {options.new_tokens} new tokens\n", flush=True)
        sync = stack.enter_context(closing(LocalOpenAI(model=folder, keep_alive=0)))
        ours = AsyncLocalOpenAI(model=folder, keep_alive=0)
        prompts = Prompts(tokenizer, options.prompt_tokens)
        if options.profile:
            profile(BareModel(model), ours, prompts, options.new_tokens)
            return
        figures = measure(options, model, sync, ours, prompts)
        if options.json:
            options.json.write_text(json.dumps({"facts": facts, "work": work(options), **figures}, indent=1))


def work(options: argparse.Namespace) -> dict[str, int]:
    return {key: getattr(options, key) for key in ("prompt_tokens", "new_tokens", "repeats")}


def measure(
    options: argparse.Namespace, model: Any, sync: LocalOpenAI, ours: AsyncLocalOpenAI, prompts: Prompts
) -> dict[str, Any]:
    """Measure and print everything; returns the raw figures."""
    bare, quick = BareModel(model), options.quick
    requests = overhead.request_overhead(bare, sync, ours, prompts, 20 if quick else 100)
    report.print_overhead(requests)
    chunks = overhead.chunk_cost(sync, ours, prompts, options.new_tokens, 2 if quick else 6)
    report.print_chunks(chunks)
    server = None
    if options.base_url:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        server = (openai.AsyncOpenAI(base_url=options.base_url, api_key=key, max_retries=0), options.base_model)
    comparisons: list[throughput.Comparison] = []
    for count in options.streams:
        chosen = throughput.methods(count, ours, model, server)
        comparisons += throughput.compare(count, chosen, bare, prompts, options.new_tokens, options.repeats)
    report.print_comparisons(comparisons)
    costs = {"client, 32 streams": values.client_cost(ours, prompts, options.new_tokens, 32, 1 if quick else 2)}
    report.print_headlines(comparisons)
    if not quick:
        costs["BatchGenerator, 8 streams"] = values.batcher_cost(model, prompts, options.new_tokens, 8, 1)
    report.print_values(costs)
    guided = grammars.measure(ours, prompts, options.new_tokens, options.repeats)
    report.print_grammars(guided)
    return {
        "request_overhead_seconds": asdict(requests),
        "chunk_seconds": asdict(chunks),
        "decode": [report.comparison_json(c) for c in comparisons],
        "new_values_seconds": {name: asdict(cost) for name, cost in costs.items()},
        "grammars_tokens_per_second": {name: asdict(rates) for name, rates in guided.items()},
    }


def profile(bare: BareModel, ours: AsyncLocalOpenAI, prompts: Prompts, new_tokens: int, count: int = 32) -> None:
    """Print what the threads do in the steady state of a greedy and of a sampled run."""
    limit = bare.prefill(prompts.take(count)).decode(new_tokens)
    for name, chosen in (("greedy", [GREEDY] * count), ("sampled", settings(count, random.Random(count)))):
        print(f"== {count} streams, {name}\n")
        streams.run(ours, "bench", prompts.take(count), chosen, 8)
        clock = cpu_clock(engine_thread())
        if clock is not None:
            run = streams.run(ours, "bench", prompts.take(count), chosen, new_tokens, clock)
            report.print_engine_cpu(name, run, limit)
        with StackSampler({"engine": engine_thread(), "consumer": threading.get_ident()}) as sampler:
            run = streams.run(ours, "bench", prompts.take(count), chosen, new_tokens)
        for thread in ("engine", "consumer"):
            report.print_profile(sampler, thread, run.window, run.tokens_in_window() / count)


if __name__ == "__main__":
    main()
