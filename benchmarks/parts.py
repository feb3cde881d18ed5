"""The parts of the benchmarks that share a model, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from . import (
    adapters,
    agents,
    embeddings,
    grammars,
    heads,
    joins,
    mixed,
    overhead,
    packed,
    parallel,
    peers,
    prefill,
    report,
    scripted,
    speculation,
    stalls,
    swarm,
    throughput,
    turns,
    values,
    vision,
    wakeups,
    windows,
)
from .bench import Bench
from .figures import Section, print_figures

Part = Callable[[Bench], Section]


def requests(bench: Bench) -> Section:
    """What a request costs beside the model."""
    cost = overhead.request_overhead(60 if bench.quick else 300)
    report.print_overhead(cost)
    figures = report.overhead_figures(cost)
    print_figures(figures)
    return Section(figures, asdict(cost))


def chunks(bench: Bench) -> Section:
    """What a streamed chunk costs its reader."""
    cost = overhead.chunk_cost(bench.sync, bench.ours, bench.prompts, bench.new_tokens, 2 if bench.quick else 6)
    print("One stream: CPU time of the consuming thread per chunk")
    figures = report.chunk_figures(cost)
    least = [
        wakeups.least_cost(bench.bare, bench.prompts, 32, bench.new_tokens) for _ in range(1 if bench.quick else 3)
    ]
    figures += report.least_figures(least, 32)
    print_figures(figures)
    return Section(figures, {**asdict(cost), "least": least})


def decode(bench: Bench) -> Section:
    """Every method at every number of streams."""
    comparisons: list[throughput.Comparison] = []
    for count in bench.streams:
        chosen = throughput.methods(count, bench.ours, bench.model, bench.server)
        comparisons += throughput.compare(count, chosen, bench.bare, bench.prompts, bench.new_tokens, bench.repeats)
    report.print_comparisons(comparisons)
    figures = report.decode_figures(comparisons, bench.vocabulary)
    print_figures(figures)
    return Section(figures, {"runs": [report.comparison_json(c) for c in comparisons]})


def new_values(bench: Bench) -> Section:
    """What never-used sampling values cost."""
    new_tokens = bench.new_tokens
    costs = {"client, 32 streams": values.client_cost(bench.ours, bench.prompts, new_tokens, 32, min(2, bench.repeats))}
    if not bench.quick:
        costs["BatchGenerator, 8 streams"] = values.batcher_cost(bench.model, bench.prompts, new_tokens, 8, 1)
    report.print_values(costs)
    return Section([], {name: asdict(cost) for name, cost in costs.items()})


def guided(bench: Bench) -> Section:
    """What grammars cost."""
    costs = grammars.measure(bench.ours, bench.prompts, bench.new_tokens, bench.repeats)
    report.print_grammars(costs)
    figures = report.grammar_figures(costs)
    print_figures(figures)
    return Section(figures, {name: asdict(cost) for name, cost in costs.items()})


def replicated(bench: Bench) -> Section:
    """Costs and gains of replicas on Ray."""
    from . import replicas  # which needs the extra

    return replicas.measure(bench)


PARTS: dict[str, Part] = {
    "overhead": requests,
    "chunks": chunks,
    "decode": decode,
    "mixed": mixed.measure,
    "values": new_values,
    "grammars": guided,
    "prefill": prefill.measure,
    "turn": turns.warm_turn,
    "shared": turns.shared_prompt,
    "stall": stalls.measure,
    "agents": agents.measure,
    "joins": joins.measure,
    "embeddings": embeddings.measure,
    "windows": windows.measure,
    "adapters": adapters.measure,
    "packed": packed.measure,
    "swarm": swarm.measure,
    "speculation": speculation.measure,
    "heads": heads.measure,
    "vision": vision.measure,
    "testing": scripted.measure,
    "parallel": parallel.measure,
    "peers": peers.measure,
    "ray": replicated,
}
ON_REQUEST = ("parallel", "peers", "ray")
"""Run only where they are named: they start servers, or other processes."""
