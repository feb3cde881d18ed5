"""`python -m benchmarks.plots FILE.json ...`: the plots of docs/performance.md, beside what was measured for them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .charts import Chart, Lanes, draw_charts

Measured = Mapping[str, Any]
OURS = "localai_shim"
BARE = "bare greedy step"


def by_streams(measured: Measured) -> list[Chart]:
    def chart(kind: str) -> Chart:
        rates = {
            OURS: measured[f"client {kind}"],
            "the model's greedy steps alone": measured[BARE],
            "mlx-lm's BatchGenerator": measured[f"BatchGenerator {kind}"],
        }
        counts = list(measured[BARE])
        groups = [f"{count} stream{'s' * (count != '1')}" for count in counts]
        return Chart(
            f"tokens per second, {kind}",
            groups,
            {name: [_middle(each[count]) for count in counts] for name, each in rates.items()},
        )

    return [chart("greedy"), chart("sampled")]


def prefix_cache(measured: Measured) -> list[Chart]:
    def chart(title: str, name: str, groups: Callable[[str], str]) -> Chart:
        trials = measured[name]
        keys = list(next(iter(trials.values())))
        series = {which: [1e3 * (_middle(each[key]) or 0.0) for key in keys] for which, each in trials.items()}
        return Chart(title, list(map(groups, keys)), series)

    return [
        chart("ms to the first token of a turn", "turns", lambda length: f"after {int(length):,} tokens"),
        chart("ms to the first token, one system prompt", "agents", lambda count: f"{count} agents at once"),
    ]


def kv_bits(measured: Measured) -> list[Chart]:
    names = {"None": "as they are", "8": "kv_bits=8", "4": "kv_bits=4"}
    groups = [names[bits] for bits in measured["bytes_per_token"]]
    rates = [_middle(each) for each in measured["tokens_per_second"].values()]
    return [
        Chart("bytes per token of context", groups, {"keys and values": list(measured["bytes_per_token"].values())}),
        Chart("tokens per second, 8 streams of long prompts", groups, {OURS: rates}),
    ]


def max_stall(measured: Measured) -> list[Chart]:
    gaps, firsts = measured["longest_gap_seconds"], measured["first_token_seconds"]
    groups = [f"max_stall={value}" for value in gaps]
    waits = [1e3 * (_middle(each) or 0.0) for each in gaps.values()]
    return [
        Chart("longest gap of running streams, ms", groups, {"8 streams while a long prompt joins": waits}),
        Chart("seconds to the first token", groups, {"of the long prompt": [*map(_middle, firsts.values())]}),
    ]


def speculation(measured: Measured) -> list[Chart]:
    def chart(count: str) -> Chart:
        trials = {_broken(name): each[count] for name, each in measured.items() if count in each}
        series = {
            'speculation="auto"': [_middle(auto) for _, auto in trials.values()],
            'speculation="off"': [_middle(off) for off, _ in trials.values()],
        }
        return Chart(f"tokens per second, {count} stream{'s' * (count != '1')}", list(trials), series)

    return [chart(count) for count in ("1", "8")]


def servers(measured: Measured) -> list[Chart]:
    names = [name for name in ("mlx_lm", "mlx_vlm") if f"{name}.server" in measured]
    groups = [f"in turns with\n{name}.server" for name in names]
    series = {
        OURS: [_middle(measured[f"client against {name}"]["whole"]) for name in names],
        "the server, over HTTP": [_middle(measured[f"{name}.server"]["whole"]) for name in names],
    }
    return [Chart("tokens per second, 32 sampled streams, prompts included", groups, series)]


def swarm(measured: Measured) -> list[Chart]:
    names = {"copies": "a copy for each request", "shared": "shared"}
    groups = [f"{count} agents" for count in measured]

    def chart(title: str, of: str, scale: float = 1.0) -> Chart:
        series = {
            name: [scale * (_middle(runs[kind][of]) or 0.0) for runs in measured.values()]
            for kind, name in names.items()
        }
        return Chart(title, groups, series)

    return [
        chart("MB of keys and values, 2,000 shared tokens and 228 own ones", "kv_bytes", 1e-6),
        chart("tokens per second, all agents together", "tokens_per_second"),
    ]


def agents(measured: Measured) -> list[Lanes]:
    titles = {"copies": "20 agents, a copy of the prompt for each", "shared": "20 agents that share the prompt"}
    end = max(end for spans in measured.values() for *_, end in spans)
    return [
        Lanes(titles[kind], ["waits", "its tool runs", "prefill", "decode"], [(*span,) for span in spans], end)
        for kind, spans in measured.items()
    ]


PLOTS: dict[str, Callable[[Measured], Sequence[Chart | Lanes]]] = {
    "streams": by_streams,
    "servers": servers,
    "prefix_cache": prefix_cache,
    "kv_bits": kv_bits,
    "max_stall": max_stall,
    "speculation": speculation,
    "swarm": swarm,
    "agents": agents,
}
"""By the part of the measurements that each shows."""


def draw_all(path: Path, folder: Path) -> list[Path]:
    """Draw what one file has measured; returns the pictures, which say which data they show."""
    data = path.read_bytes()
    content = json.loads(data)
    drawn = []
    for name, part in content.items():
        caption = ", ".join(filter(None, (part["about"][each] for each in ("machine", "date", "note"))))
        drawn.append(folder / f"{path.stem}-{name}.png")
        draw_charts(PLOTS[name](part["measured"]), str(drawn[-1]), caption, digest(data))
    return drawn


def digest(data: bytes) -> str:
    """Which data a picture shows."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _broken(name: str) -> str:
    """A name in two lines."""
    words = name.split()
    half = (len(words) + 1) // 2
    return f"{' '.join(words[:half])}\n{' '.join(words[half:])}"


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]):
        print(*draw_all(each, each.parent), sep="\n")
