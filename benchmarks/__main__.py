"""`python -m benchmarks`: prints what the client costs beside the bare model step."""

# ruff: noqa: E402
from __future__ import annotations

from localai_shim.backends.machine import require_backend

require_backend()  # before anything imports MLX: it chooses the BLAS

import argparse
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import mlx_lm
import openai

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from localai_shim.backends.forms import forms
from localai_shim.runtime.host import connect

from . import adapters, blas, gpu, gpu_parallel, gpu_vision, report, servers, streams, swarm, tuning, vision_models
from .bare import BareModel
from .bench import Bench
from .figures import Section, print_summary
from .models import SIZES, make_model
from .parts import ON_REQUEST, PARTS
from .profiler import StackSampler, cpu_clock, engine_thread
from .workload import GREEDY, Prompts, settings

GPU_PARTS: dict[str, Callable[[str, int, bool], Section]] = {
    "decode": gpu.measure,
    "speculation": gpu.measure_drafts,
    "heads": gpu.measure_heads,
    "vision": gpu_vision.measure,
    "parallel": gpu_parallel.measure,
    "adapters": adapters.measure_gpu,
    "swarm": swarm.measure_gpu,
}
"""Functions of a shape, repeats, and whether to be quick. `decode` runs if none is named."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", help=f"run these parts only, separated by commas: {', '.join(PARTS)}")
    add("--quick", action="store_true", help="fewer streams, tokens and runs: seconds for each part")
    add("--size", choices=SIZES, default="small", help="of the random model (default small)")
    add("--vocabulary", type=int, help="tokens of the random model's vocabulary")
    add("--vision-size", choices=vision_models.SIZES, default="small", help="of the model that sees (default small)")
    add("--model", type=Path, help="use the model in this folder; a random one is made there if it does not exist")
    add("--prompt-tokens", type=int, help="length of each prompt")
    add("--new-tokens", type=int, help="tokens that each stream generates")
    add("--streams", help="numbers of concurrent streams (default 1,8,32)")
    add("--repeats", type=int, help="runs of each method (default 3)")
    add("--servers", action="store_true", help="instead: compare with mlx_lm.server and mlx_vlm.server over HTTP")
    add(
        "--soak",
        action="store_true",
        help="instead: 20,000 mixed requests, each compared with itself alone; with --only ray, replicas are killed",
    )
    add("--requests", type=int, help="how many for --soak (default 20,000, or 1,000 with --quick)")
    add("--seed", type=int, default=0, help="which requests --soak draws")
    add(
        "--gpu",
        action="store_true",
        help=f"instead: an 8B-shaped model, on a GPU; --only one of {', '.join(GPU_PARTS)}",
    )
    add("--gpu-size", choices=gpu.SIZES, default="8b", help="another shape for --gpu, which then runs on a CPU, too")
    add(
        "--figures",
        action="store_true",
        help="instead: measure what the documentation's plots show",
    )
    add("--note", default="", help="said below these plots")
    add("--profile", action="store_true", help="instead: show where 32 streams spend their time")
    add("--blas", action="store_true", help="instead: show what the BLAS that was found is worth (Linux, CPU)")
    add("--base-url", help="compare decoding with this OpenAI-compatible server, too; OPENAI_API_KEY is its key")
    add("--base-model", default="default", help="model name to send to that server")
    add("--json", type=Path, help="write the raw figures to this file")
    options = parser.parse_args(arguments)
    size = SIZES[options.size]
    options.vocabulary = options.vocabulary or size.vocabulary
    options.prompt_tokens = options.prompt_tokens or size.prompt_tokens
    options.new_tokens = options.new_tokens or (min(64, size.new_tokens) if options.quick else size.new_tokens)
    few = options.quick and not options.figures
    options.streams = [int(n) for n in (options.streams or ("1,32" if few else "1,8,32")).split(",")]
    options.repeats = options.repeats or (2 if options.quick else 3)
    parts: Collection[str] = GPU_PARTS if options.gpu else tuning.PARTS if options.figures else PARTS
    every = ["decode"] if options.gpu else [name for name in parts if name not in ON_REQUEST]
    options.only = options.only.split(",") if options.only else every
    unknown = [name for name in options.only if name not in parts]
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    return options


def main() -> None:
    options = parse()
    connect()  # some parts load a model without a client
    if options.blas:
        blas.show(blas.measure())
    elif options.soak and options.only == ["ray"]:
        from . import replicas  # which needs the extra

        finish(options, {"soak": replicas.soak(options.quick)}, {})
    elif options.soak:
        from . import soak  # which needs OpenTelemetry's SDK and trio

        section = soak.measure(options.quick, options.requests, options.seed)
        finish(options, {"soak": section}, {})
        sys.exit(any(figure.verdict == "MISS" for figure in section.figures))
    elif options.gpu:
        given = options.gpu_size, options.repeats, options.quick
        finish(options, {name: GPU_PARTS[name](*given) for name in options.only}, {})
    else:
        with ExitStack() as stack:
            run_parts(options, stack)


def run_parts(options: argparse.Namespace, stack: ExitStack) -> None:
    """Make the model and run what was asked for."""
    folder = options.model or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-"))) / "model"
    if not (folder / "config.json").exists():
        make_model(folder, SIZES[options.size], options.vocabulary)
    model, tokenizer = mlx_lm.load(str(folder))[:2]
    forms().prepare(model)  # the limit is that of the forms that the client's model computes in
    config = json.loads((folder / "config.json").read_text())
    facts = report.machine_facts(model, config)
    for key, value in facts.items():
        print(f"{key}: {value}")
    print(f"work: prompts of {options.prompt_tokens} tokens, {options.new_tokens} new tokens\n", flush=True)
    steps: Any = {"speculation": "off"}  # they are compared with steps of one token
    bench = Bench(
        folder=folder,
        config=config,
        model=model,
        tokenizer=tokenizer,
        bare=BareModel(model),
        sync=stack.enter_context(closing(LocalOpenAI(model=folder, keep_alive=0, **steps))),
        ours=AsyncLocalOpenAI(model=folder, keep_alive=0, **steps),
        prompts=Prompts(tokenizer, options.prompt_tokens),
        new_tokens=options.new_tokens,
        streams=options.streams,
        repeats=options.repeats,
        quick=options.quick,
        vocabulary=config["vocab_size"],
        vision_size=options.vision_size,
        server=server(options),
    )
    if options.profile:
        profile(bench.bare, bench.ours, bench.prompts, options.new_tokens)
        return
    if options.figures:
        tuning.measure(bench, options.only, options.note, options.json or Path("figures.json"), facts)
        return
    parts = {"servers": servers.measure} if options.servers else {name: PARTS[name] for name in options.only}
    finish(options, {name: part(bench) for name, part in parts.items()}, facts)


def server(options: argparse.Namespace) -> tuple[openai.AsyncOpenAI, str] | None:
    """The server that decoding is compared with, too."""
    if not options.base_url:
        return None
    key = os.environ.get("OPENAI_API_KEY") or "none"
    return openai.AsyncOpenAI(base_url=options.base_url, api_key=key, max_retries=0), options.base_model


def finish(options: argparse.Namespace, sections: dict[str, Section], facts: dict[str, str]) -> None:
    """Print the summary, and write the raw figures if they are wanted."""
    figures = [figure for section in sections.values() for figure in section.figures]
    print_summary(figures)
    if options.json:
        work: dict[str, Any] = {key: getattr(options, key) for key in ("prompt_tokens", "new_tokens", "repeats")}
        raw = {name: section.raw for name, section in sections.items()}
        content = {"facts": facts, "work": work, "figures": [figure.json() for figure in figures], **raw}
        options.json.write_text(json.dumps(content, indent=1))


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
