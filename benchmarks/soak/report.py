"""The figures of a soak, and what is printed beside them."""

from __future__ import annotations

import faulthandler
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localai_shim.stats import EngineStats

from ..figures import Figure
from .checks import Outcomes
from .meters import Clocks, Reading, Spans

GROWTH = {"rss": 1.1, "active": 1.1}
"""By which these may grow between half of the requests and all of them."""
MORE = {"threads": 4, "descriptors": 8, "temporary": 4}
"""Of which so many more may be there then: idle worker threads, and what they hold, come and go."""


@dataclass(frozen=True, slots=True)
class Soak:
    """Findings beside the outcomes."""

    readings: Mapping[int, Reading]
    """By the number of requests that had been sent."""
    stats: Mapping[str, EngineStats]
    clocks: Clocks
    loads: int
    """Times that the model that comes and goes was loaded."""
    seconds: float
    sharing: int = 0
    """Rows that shared their first tokens with others."""


def figures(soak: Soak, outcomes: Outcomes, spans: Spans, requests: int, complaints: int) -> list[Figure]:
    """All of it; those with a target fail the soak."""
    counts, text = outcomes.counts(), soak.stats["text"]
    none = [
        _none("requests lost", requests - counts.total()),
        _none("answers that are wrong", counts["wrong"]),
        _none("unexpected failures", sum(n for what, n in counts.items() if what.startswith("unexpected"))),
        _none("warnings, and exceptions that nobody takes", complaints),
    ]
    some = {
        "answered as alone": counts["answered"],
        "ties": counts["tie"],
        "rows preempted": text.preempted,
        "requests that waited for a place": spans.waited,
        "loads of the model that comes and goes": soak.loads,
        "rows that shared their first tokens": soak.sharing,
    }
    named = [_stated(f"soak: {name}", value) for name, value in some.items()]
    waits = {f"longest gap of a stream, priority {each}": gap for each, gap in sorted(soak.clocks.gaps.items())}
    waits |= {f"longest wait of a heartbeat, {name}": late for name, late in sorted(soak.clocks.beats.items())}
    waited = [Figure(f"soak: {name}", [seconds], None, unit=" s") for name, seconds in waits.items()]
    return [*none, *named, *waited, *_flat(soak)]


def _none(name: str, count: int) -> Figure:
    return Figure(f"soak: {name}", [float(count)], 0.0, at_least=False, digits=0)


def _stated(name: str, count: int) -> Figure:
    return Figure(name, [float(count)], None, digits=0)


def _flat(soak: Soak) -> list[Figure]:
    """Resources that the process holds at the end, beside what it held half-way."""
    if len(soak.readings) < 3:
        return []
    _, half, whole = soak.readings.values()
    ratios = [
        Figure(f"soak: {name} at the end / half-way", [getattr(whole, name) / getattr(half, name)], limit, False)
        for name, limit in GROWTH.items()
    ]
    return ratios + [
        Figure(
            f"soak: {name}, more at the end than half-way",
            [float(getattr(whole, name) - getattr(half, name))],
            float(limit),
            False,
            digits=0,
        )
        for name, limit in MORE.items()
    ]


def print_outcomes(soak: Soak, outcomes: Outcomes, requests: int) -> None:
    """A line for each outcome and for each reading."""
    print(f"\n{requests} requests in {soak.seconds:.0f} s")
    for what, number in sorted(outcomes.counts().items()):
        print(f"  {what}: {number}")
    print(f"compared by kind: {_listed(outcomes.kinds)}")
    print(f"drawn: {_listed(outcomes.mishaps)}")
    drafts = {name: f"{each.accepted} of {each.drafted} right" for name, each in soak.stats["text"].drafts.items()}
    print(f"drafts: {', '.join(f'{name} {text}' for name, text in drafts.items())}")
    for number, reading in soak.readings.items():
        sizes = ", ".join(f"{name} {getattr(reading, name) / 2**20:.1f} MiB" for name in ("rss", "active", "cache"))
        rest = f"{reading.threads} threads, {reading.descriptors} descriptors, {reading.temporary} temporary files"
        print(f"after {number}: {sizes}, {rest}")
    for text in outcomes.shown:
        print(text)
    print(flush=True)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def print_stacks() -> None:
    """Show where all threads are: some request has had no outcome for long."""
    faulthandler.dump_traceback(file=sys.stderr)


def raw(soak: Soak, outcomes: Outcomes, spans: Spans, requests: int, seed: int) -> dict[str, Any]:
    """All of it, for `--json`."""
    return {
        "requests": requests,
        "seed": seed,
        "seconds": soak.seconds,
        "outcomes": dict(outcomes.counts()),
        "kinds": dict(outcomes.kinds),
        "mishaps": dict(outcomes.mishaps),
        "readings": {str(number): reading.json() for number, reading in soak.readings.items()},
        "drafts": {name: [each.drafted, each.accepted] for name, each in soak.stats["text"].drafts.items()},
        "stats": {name: {**each.to_dict(), "plans": []} for name, each in soak.stats.items()},
        "spans": spans.ended,
        "shown": outcomes.shown,
    }
