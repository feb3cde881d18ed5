"""What never-before-used sampling values cost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import batch_generator
from .throughput import Method, client_method
from .workload import Prompts, Setting, settings, with_filters

ValuesCost = tuple[list[float], list[float]]
"""Seconds of whole runs, first use of the values included: where all streams share one setting, which was used before,
and where each has a setting that nobody has used before.
"""


def client_cost(client: Any, prompts: Prompts, new_tokens: int, count: int, repeats: int) -> ValuesCost:
    """Our client, `count` streams."""

    def run(chosen: Sequence[Setting]) -> Method:
        return client_method(client, "bench", chosen)

    return _cost(run, prompts, new_tokens, count, repeats)


def batcher_cost(model: Any, prompts: Prompts, new_tokens: int, count: int, repeats: int) -> ValuesCost:
    """BatchGenerator with one sampler object per request."""

    def run(chosen: Sequence[Setting]) -> Method:
        return lambda taken, new: batch_generator.run(model, taken, new, batch_generator.make_samplers(chosen))

    return _cost(run, prompts, new_tokens, count, repeats)


def _cost(method: Any, prompts: Prompts, new_tokens: int, count: int, repeats: int) -> ValuesCost:
    fresh = random.Random()  # from the system: a run of this program uses no value of another
    (one,) = with_filters(settings(1, random.Random(0)), random.Random(0))
    shared = [replace(one, seed=seed) for seed in range(count)]
    method(shared)(prompts.take(count), 8)
    out: ValuesCost = ([], [])
    for _ in range(repeats):
        out[0].append(method(shared)(prompts.take(count), new_tokens).seconds)
        out[1].append(method(with_filters(settings(count, fresh), fresh))(prompts.take(count), new_tokens).seconds)
    return out
