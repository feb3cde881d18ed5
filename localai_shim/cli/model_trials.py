"""Trials of a machine with a model that is made on the spot, for `doctor --report`."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ..engine.sinks import SyncSink
from ..types import EngineLike, Event, Failure, GenerationRequest, Prompt, SamplingParams, Token
from .shared import Fact, open_client

if TYPE_CHECKING:
    from ..backends.self_test import Check
    from ..client.local import LocalOpenAI

HEAD_DIMS = (64, 80, 96, 192, 256)  # with other kernels than the model's
VOCABULARY, KV_BITS = 4_096, 8
LENGTHS = (20, 1_500, 20, 1_500)  # of the prompts that run together; the first two also run alone
TOKENS = 48
TOP_LOGPROBS = 20
ROWS, STEPS = (1, 2, 4, 8), 64
CHUNKS = (16, 32, 64, 128, 256, 512, 1_024, 2_048)
RUNS, ENOUGH_SECONDS = 4, 2.0  # of each size; not repeated once this time has passed
LIMITS = {"32 MB": 32 * 2**20, "1 GB": 2**30}
PREFILL_TOKENS, PREFILL_CHUNK = 2_048, 512


def make_model(folder: Path, tokenizer: Path) -> Iterator[Fact]:
    """Make the model that the other trials use."""
    from ..backends.machine import require_backend
    from ..models.reference import BITS, HEAD_DIM, fitting_shape, save_random_model

    require_backend()
    shape = fitting_shape()
    save_random_model(folder, tokenizer, shape)
    layers = f"{shape.layers} layers of {shape.hidden}, {shape.heads} heads ({shape.kv_heads} of keys) of {HEAD_DIM}"
    yield "random weights", f"Qwen3, {layers}, {BITS} bits"


def self_test() -> Iterator[Fact]:
    """Errors of MLX's operations: all for the model's head dim, and the largest of attention for others."""
    from ..backends.machine import has_gpu
    from ..backends.self_test import Shape, run
    from ..backends.self_test.attention import check_attention, fused
    from ..models.reference import BITS, GROUP, HEAD_DIM, fitting_shape

    model = fitting_shape()
    shape = Shape(
        head_dim=HEAD_DIM,
        heads=model.heads,
        kv_heads=model.kv_heads,
        dtype="bfloat16" if has_gpu() else "float32",
        vocabulary=VOCABULARY,
        bits=BITS,
        group_size=GROUP,
        kv_bits=KV_BITS,
    )
    for check in run(shape):
        yield _error(check), f"{check.operation}, {check.case}"
    for head_dim in HEAD_DIMS:
        attended = check_attention(replace(shape, head_dim=head_dim), fused).values()
        wrong = [check for check in attended if not check.passed]
        for check in wrong or [max(attended, key=lambda check: check.error)]:
            yield _error(check), f"attention, head dim {head_dim}, {'' if wrong else 'largest: '}{check.case}"


def _error(check: Check) -> str:
    return f"{'' if check.passed else 'FAILED: '}{check.error:.2g} of {check.allowed:.2g}"


# -- tokens ----------------------------------------------------------------------------------------------------------


def tokens(folder: Path) -> Iterator[Fact]:
    """Compare greedy tokens: alone, in a batch of four, and mlx-lm's own."""
    from ..models.reference import UpstreamModel

    prompts = [_prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    with _client(folder) as client:
        engine = client._runtime.engine_of("")
        alone = [_run(engine, [prompt], TOKENS).tokens[0] for prompt in prompts[:2]]
        together = _run(engine, prompts, TOKENS)
    yield "rows that ran together", str(together.most_rows())
    for length, own, shared in zip(LENGTHS, alone, together.tokens, strict=False):
        yield f"prompt of {length}: alone, in four", difference(own, shared)
    upstream = UpstreamModel(folder)
    for prompt, own in zip(prompts, alone, strict=False):
        yield f"prompt of {len(prompt)}: alone, mlx_lm", difference(own, upstream.greedy(prompt, TOKENS, TOP_LOGPROBS))


def difference(one: Sequence[Token], other: Sequence[Token]) -> str:
    """Say where two answers part, and what each run made of both tokens there."""
    pairs = list(zip(one, other, strict=False))
    same = list(itertools.takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
    apart = max((abs((a.logprob or 0.0) - (b.logprob or 0.0)) for a, b in same), default=0.0)
    within = f"{len(same)} tokens are equal, their logprobs within {apart:.2g}"
    if len(same) == len(one) == len(other):
        return within
    if len(same) == len(pairs):
        return f"{within}, but there are {len(one)} and {len(other)}"
    a, b = pairs[len(same)]
    return f"{within}; then {_choice(a, b.id)} and {_choice(b, a.id)}"


def _choice(token: Token, other: int) -> str:
    found = dict(token.top).get(other)
    other_logprob = f"not among the {len(token.top)} likeliest" if found is None else f"{found:.4f}"
    return f"token {token.id} ({token.logprob or 0.0:.4f}; {other}: {other_logprob})"


# -- times -----------------------------------------------------------------------------------------------------------


def steps(folder: Path) -> Iterator[Fact]:
    """Time decode steps."""
    with _client(folder) as client:
        engine = client._runtime.engine_of("")
        for rows in ROWS:
            run = _run(engine, [_prompt(LENGTHS[0], seed) for seed in range(rows)], STEPS, None)
            seconds = run.step_seconds()
            yield f"{rows} row{'s' * (rows > 1)}", f"{_ms(seconds)} per step, {rows / seconds:,.0f} tok/s"


def chunks(folder: Path) -> Iterator[Fact]:
    """Time the chunks of a prompt, each at its beginning."""
    model = _Prefill(folder)
    for size in CHUNKS:
        seconds = _least(partial(model.seconds, size, size))
        yield f"{size} tokens", f"{_ms(seconds)}, {size / seconds:,.0f} tok/s"


def free_buffers(folder: Path) -> Iterator[Fact]:
    """Time a prompt's prefill with different limits of MLX's free buffers."""
    import mlx.core as mx

    model = _Prefill(folder)
    for name, limit in LIMITS.items():
        before = mx.set_cache_limit(limit)
        try:
            mx.clear_cache()
            seconds = _least(partial(model.seconds, PREFILL_TOKENS, PREFILL_CHUNK))
        finally:
            mx.set_cache_limit(before)
        yield f"at most {name}", f"{_ms(seconds)} for {PREFILL_TOKENS} tokens in chunks of {PREFILL_CHUNK}"


class _Prefill:
    """The model on this thread, without an engine."""

    def __init__(self, folder: Path) -> None:
        from ..models.loading import load_model
        from ..models.text import TextModel

        model = load_model(str(folder), {}, progress=False)
        assert isinstance(model, TextModel)
        self._model = model

    def seconds(self, tokens: int, chunk: int) -> float:
        import mlx.core as mx

        from ..engine.ports import StepInput

        prompt, cache = mx.array([_prompt(tokens, 0)], mx.int32), self._model.new_cache()
        mx.eval(prompt)
        began = time.perf_counter()
        for at in range(0, tokens, chunk):
            self._model.prefill(StepInput(prompt[:, at : at + chunk], cache))
        return time.perf_counter() - began


def _least(seconds: Callable[[], float]) -> float:
    """The shortest of some runs; the first one also warms up."""
    began, found = time.perf_counter(), [seconds()]
    while len(found) < RUNS and time.perf_counter() - began < ENOUGH_SECONDS:
        found.append(seconds())
    return min(found)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


# -- the engine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """Tokens of requests that were submitted together, and when they came."""

    tokens: list[list[Token]]
    times: list[list[float]]

    def most_rows(self) -> int:
        """Most rows that were decoding at a time."""
        return max(sum(times[0] <= at <= times[-1] for times in self.times) for at in (row[0] for row in self.times))

    def step_seconds(self) -> float:
        """The median time from one token to the next, once all rows have begun."""
        begun = max(times[0] for times in self.times)
        return median(b - a for times in self.times for a, b in itertools.pairwise(times) if a >= begun)


class _TimedSink(SyncSink):
    """Notes when each event came, on the engine thread."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[int, list[float]] = {}

    def put(self, index: int, event: Event) -> None:
        self.times.setdefault(index, []).append(time.perf_counter())
        super().put(index, event)


def _client(folder: Path) -> LocalOpenAI:
    """A client of the model; nothing is reused between prompts, and each step gives each row one token."""
    return open_client("doctor", str(folder), {"progress": False, "prefix_cache_bytes": 0, "speculation": "off"})


def _run(
    engine: EngineLike, prompts: Sequence[Sequence[int]], tokens: int, top_logprobs: int | None = TOP_LOGPROBS
) -> _Run:
    """Run prompts together, to answers of this length."""
    sampling = SamplingParams(temperature=0.0, top_logprobs=top_logprobs)
    requests = [GenerationRequest(Prompt(prompt), sampling, tokens, ignore_eos=True) for prompt in prompts]
    sink, found = _TimedSink(), [list[Token]() for _ in prompts]
    engine.submit(requests, sink)
    running = len(prompts)
    while running:
        index, event = sink.get(None)
        if isinstance(event, Failure):
            raise event.error
        found[index].append(event)
        running -= event.finish_reason is not None
    return _Run(found, [sink.times[index] for index in range(len(prompts))])


def _prompt(length: int, seed: int) -> list[int]:
    """Tokens that every vocabulary of some size has."""
    draw = random.Random(seed)
    return [draw.randrange(300, 4_000) for _ in range(length)]
