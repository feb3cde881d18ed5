"""Prefill speed of one long prompt, against mlx-lm's `generate_step`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step

from .bench import Bench
from .figures import Figure, Section, print_figures, ratios, spread
from .streams import ask
from .workload import Prompt

TOKENS = 2_048
TARGET = 0.95


def measure(bench: Bench) -> Section:
    """Each timed run follows an untimed one of its kind: `generate_step` gives all free buffers to the system."""
    prompts = bench.prompts_of(TOKENS, seed=6)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(bench.repeats):
        for times, run in ((ours, _client), (theirs, _generate_step)):
            run(bench, *prompts.take(1))
            times.append(TOKENS / run(bench, *prompts.take(1)))
    print(
        f"Prefill of {TOKENS} tokens, tok/s: client {spread(ours, digits=0)}, generate_step {spread(theirs, digits=0)}"
    )
    figures = [Figure(f"prefill: {TOKENS} tokens, tok/s / generate_step", ratios(ours, theirs), TARGET)]
    print_figures(figures)
    return Section(figures, {"client": ours, "generate_step": theirs})


def _client(bench: Bench, prompt: Prompt) -> float:
    answer = asyncio.run(ask(bench.ours, prompt.messages, 1))
    if answer.cached_tokens:
        raise RuntimeError("a prompt that should be new was found in the cache")
    return answer.first_token


def _generate_step(bench: Bench, prompt: Prompt) -> float:
    return generate_step_seconds(bench.model, prompt)


def generate_step_seconds(model: Any, prompt: Prompt) -> float:
    """Seconds until mlx-lm's generator has the first greedy token of a prompt, with its own chunk size."""
    start = time.perf_counter()
    steps = generate_step(mx.array(prompt.tokens), model, max_tokens=1)
    next(steps)
    seconds = time.perf_counter() - start
    steps.close()
    mx.synchronize()
    return seconds
