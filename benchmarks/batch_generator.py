"""mlx-lm's own continuous batcher, driven directly on the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from mlx_lm.generate import BatchGenerator
from mlx_lm.sample_utils import make_sampler

from .timeline import Run, StreamTimes
from .workload import Prompt, Setting


def make_samplers(settings: Sequence[Setting]) -> list[Callable[[Any], Any]]:
    """One sampler object per request; they know no seed."""
    return [make_sampler(s.temperature, s.top_p, s.min_p, top_k=s.top_k) for s in settings]


def run(
    model: Any, prompts: Sequence[Prompt], new_tokens: int, samplers: list[Callable[[Any], Any]] | None = None
) -> Run:
    """Generate `new_tokens` for all prompts at once; greedy without samplers. Ends of sequence are ignored."""
    generator = BatchGenerator(model, completion_batch_size=max(32, len(prompts)))
    started = time.perf_counter()
    uids = generator.insert([list(p.tokens) for p in prompts], [new_tokens] * len(prompts), samplers=samplers)
    streams = {uid: StreamTimes(started) for uid in uids}
    open_streams = len(uids)
    while open_streams:
        _, responses = generator.next()
        now = time.perf_counter()
        for response in responses:
            stream = streams[response.uid]
            stream.times.append(now)
            stream.tokens += 1
            open_streams -= response.finish_reason is not None
    generator.close()
    return Run(list(streams.values()))
