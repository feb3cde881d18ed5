"""Every method at every number of streams, each run between two runs of the bare step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import openai

from . import batch_generator, streams
from .bare import BareModel
from .timeline import Run
from .workload import GREEDY, Prompt, Prompts, Setting, settings, with_filters

Method = Callable[[Sequence[Prompt], int], Run]

CLIENT_GREEDY, CLIENT_SAMPLED, CLIENT_FILTERED = "client greedy", "client sampled", "client sampled, top_k, min_p"
BATCHER_GREEDY, BATCHER_SAMPLED = "BatchGenerator greedy", "BatchGenerator sampled"
_BATCHER_SETTINGS = 4


@dataclass(slots=True)
class Comparison:
    """One method at one number of streams."""

    method: str
    streams: int
    runs: list[Run] = field(default_factory=list)
    bare_rates: list[float] = field(default_factory=list)
    """Tokens per second of the bare step around each run: the mean of the one before and the one after."""

    @property
    def ratios(self) -> list[float]:
        """Decode rate of each run that had a steady state, as a share of the bare step's."""
        return [rate / bare for rate, bare in self._rates()]

    @property
    def extra_step_seconds(self) -> list[float]:
        """Seconds that a step of all streams takes beyond the bare step."""
        return [self.streams / rate - self.streams / bare for rate, bare in self._rates()]

    def _rates(self) -> list[tuple[float, float]]:
        pairs = zip(self.runs, self.bare_rates, strict=True)
        return [(run.decode_rate, bare) for run, bare in pairs if run.decode_rate]


def client_method(client: openai.AsyncOpenAI, model: str, per_stream: Sequence[Setting] | None) -> Method:
    """Async streams; greedy without settings."""
    return lambda prompts, new_tokens: streams.run(
        client, model, prompts, per_stream or [GREEDY] * len(prompts), new_tokens
    )


def methods(
    count: int, ours: openai.AsyncOpenAI, model: Any, server: tuple[openai.AsyncOpenAI, str] | None
) -> dict[str, Method]:
    """Name -> how to run `count` streams.

    BatchGenerator gets one sampler object per request, but their values are few and are the same on each run, because
    each new value makes MLX compile kernels: what that costs is measured in `values`.
    """
    rng = random.Random(count)
    sampled = settings(count, rng)
    samplers = batch_generator.make_samplers([s for s, _ in zip(_few() * count, range(count), strict=False)])
    out = {
        CLIENT_GREEDY: client_method(ours, "bench", None),
        CLIENT_SAMPLED: client_method(ours, "bench", sampled),
        CLIENT_FILTERED: client_method(ours, "bench", with_filters(sampled, rng)),
        BATCHER_GREEDY: lambda prompts, new: batch_generator.run(model, prompts, new),
        BATCHER_SAMPLED: lambda prompts, new: batch_generator.run(model, prompts, new, list(samplers)),
    }
    if server is not None:
        out["server greedy"] = client_method(*server, None)
        out["server sampled"] = client_method(*server, sampled)
    return out


def _few() -> list[Setting]:
    return settings(_BATCHER_SETTINGS, random.Random(0))


def compare(
    count: int, chosen: dict[str, Method], bare: BareModel, prompts: Prompts, new_tokens: int, repeats: int
) -> Iterator[Comparison]:
    """Run each method `repeats` times at `count` streams, in turn with the bare step."""
    prefilled = bare.prefill(prompts.take(count))
    prefilled.decode(new_tokens)
    for method in chosen.values():
        method(prompts.take(count), 8)
    out = {name: Comparison(name, count) for name in chosen}
    before = prefilled.decode(new_tokens).decode_rate
    for _ in range(repeats):
        for name, method in chosen.items():
            out[name].runs.append(method(prompts.take(count), new_tokens))
            after = prefilled.decode(new_tokens).decode_rate
            out[name].bare_rates.append(mean((before, after)))
            before = after
    yield from out.values()
