"""A soak from its models to its figures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..figures import Section
from . import meters, report
from .bad import BAD
from .callers import Churn, Load, run_all
from .checks import Outcomes, run_alone
from .requests import Item, draw, make_pool
from .setting import Setting, make_setting, opened

REQUESTS, QUICK_REQUESTS = 20_000, 1_000
POOL, QUICK_POOL = 600, 240
PHASES = (0.1, 0.5, 1.0)  # of the requests, after which resources are looked at


def measure(quick: bool, requests: int | None = None, seed: int = 0) -> Section:
    """Send many mixed requests at once, and see that each ends as it has to and that nothing grows.

    Args:
        quick: a short run.
        requests: how many; None: 20,000, or 1,000 of a short run.
        seed: what draws them.
    """
    requests = requests or (QUICK_REQUESTS if quick else REQUESTS)
    spans, complaints = meters.trace_all(), meters.listen()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        root = Path(folder)
        with meters.temporary_files(root / "made"):
            setting, pool = make_setting(root), make_pool(seed, QUICK_POOL if quick else POOL)
        with (
            meters.temporary_files(root / "temporary"),
            meters.short_beginnings_shared() as sharing,
            opened(setting.alone) as alone,
        ):
            began = time.monotonic()
            expected = run_alone(alone, pool)
            print(f"{len(pool)} requests alone in {time.monotonic() - began:.0f} s", flush=True)
            outcomes = Outcomes(pool, BAD, expected, alone)
            soak = replace(_run(setting, pool, expected, outcomes, requests, seed), sharing=len(sharing))
            outcomes.shown += complaints.texts
    figures = report.figures(soak, outcomes, spans, requests, len(complaints.texts))
    report.print_outcomes(soak, outcomes, requests)
    return Section(figures, report.raw(soak, outcomes, spans, requests, seed))


def _run(
    setting: Setting, pool: Sequence[Item], expected: Sequence[Any], outcomes: Outcomes, requests: int, seed: int
) -> report.Soak:
    clocks, began = meters.Clocks(), time.monotonic()
    shared = {name: options for name, options in setting.shared.items() if name != "churned"}
    readings: dict[int, meters.Reading] = {}
    with opened(shared) as pairs:
        churn = Churn(setting.shared["churned"], pairs["text"].sync, setting.spare)
        load = Load(pairs, churn, pool, BAD, expected, outcomes, clocks)
        draws = partial(draw, seed, pool=list(pool), bad=len(BAD))
        ends = [0, *(round(share * requests) for share in PHASES)]
        for start, end in pairwise(ends):
            with churn:
                whole = run_all(load, lambda number: draws(number=number), range(start, end))
            readings[end] = meters.read({**pairs, "churned": churn.pair})
            print(f"{end} requests after {time.monotonic() - began:.0f} s: {readings[end]}", flush=True)
            if not whole:
                report.print_stacks()
                break
        stats = {name: pair.sync.stats() for name, pair in pairs.items()}
        churn.close()
    return report.Soak(readings, stats, clocks, churn.loads, time.monotonic() - began)
