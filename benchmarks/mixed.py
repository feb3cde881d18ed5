"""A batch in which every third stream is greedy, every third sampled and seeded, and every third asks for more."""

from __future__ import annotations

import random
from dataclasses import replace

from . import throughput
from .bench import Bench
from .figures import Figure, Section, print_figures, spread
from .workload import GREEDY, Setting, settings

STREAMS = 16
TARGET = 0.80


def measure(bench: Bench) -> Section:
    chosen = {"client, mixed": throughput.client_method(bench.ours, "bench", _mixture())}
    (got,) = throughput.compare(STREAMS, chosen, bench.bare, bench.prompts, max(64, bench.new_tokens), bench.repeats)
    rate = spread([run.decode_rate for run in got.runs if run.decode_rate], digits=0)
    print(f"{STREAMS} mixed streams: {rate} tok/s, bare greedy step {spread(got.bare_rates, digits=0)}")
    figures = [Figure(f"mixed: {STREAMS} streams, a third each / bare greedy step", got.ratios, TARGET)]
    print_figures(figures)
    return Section(figures, {"decode_rates": [r.decode_rate for r in got.runs], "bare_rates": got.bare_rates})


def _mixture() -> list[Setting]:
    rng = random.Random(STREAMS)
    sampled = settings(STREAMS, rng)
    more = [
        replace(
            s,
            seed=None,
            top_logprobs=5,
            presence_penalty=round(rng.uniform(0.1, 1.0), 6),
            frequency_penalty=round(rng.uniform(0.1, 1.0), 6),
        )
        for s in sampled
    ]
    return [(GREEDY, sampled[i], more[i])[i % 3] for i in range(STREAMS)]
