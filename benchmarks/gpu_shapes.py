"""On a GPU: prompts whose lengths nobody has sent before, and decoding rows of different lengths."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median
from typing import Any

import mlx.core as mx

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine import kv
from localai_shim.engine.ports import StepInput

from .figures import Figure, Section, spread
from .streams import ask
from .workload import Prompts

PROMPTS, SHORTEST, LONGEST = 40, 100, 1_000
NEW_LENGTH_TARGET = 1.3
ROWS, FEWEST, MOST = 32, 2_048, 4_096
UNEVEN_TARGET = 1.4
_PREFIX_EVERY = 3  # of so many prompts, one goes on with what was asked before
_STEPS = 24

_async_eval: Any = mx.async_eval


def new_lengths(section: Section, label: str, client: AsyncLocalOpenAI, tokenizer: Any) -> None:
    """Time to the first token of prompts of lengths that are all new, and of other prompts of the same lengths."""
    rng = random.Random(3)
    lengths = rng.sample(range(SHORTEST, LONGEST), PROMPTS)
    first: list[float] = []
    again: list[float] = []
    for number, length in enumerate(lengths):
        words = Prompts(tokenizer, LONGEST, seed=number)
        before: list[dict[str, str]] = []
        if number % _PREFIX_EVERY == 0:
            question = words.words(rng.randrange(SHORTEST // 2, LONGEST - SHORTEST))
            answer = asyncio.run(ask(client, [{"role": "user", "content": question}], 4))
            before = [{"role": "user", "content": question}, {"role": "assistant", "content": answer.content}]
            length = max(SHORTEST // 2, length // 4)
        for seconds in (first, again):
            messages = [*before, {"role": "user", "content": words.words(length)}]
            seconds.append(asyncio.run(ask(client, messages, 1)).first_token)
    print(f"First token, {label}, ms: {PROMPTS} prompts of new lengths {spread(first, 1e3, 1)}, ", end="")
    print(f"others of the same lengths {spread(again, 1e3, 1)}\n", flush=True)
    values = [median(first) / median(again)]
    name = f"gpu, {label}: first token, {PROMPTS} new lengths / the same lengths again (medians)"
    section.figures.append(Figure(name, values, NEW_LENGTH_TARGET, at_least=False))
    section.raw[f"{label} new lengths"] = {"lengths": lengths, "first": first, "again": again}


def uneven_rows(section: Section, label: str, model: Any, repeats: int) -> None:
    """A decode step of rows of different lengths, against rows that all have the mean length, or the greatest.

    Args:
        model: our adapter's.
    """
    lengths = [FEWEST + (MOST - FEWEST) * i // (ROWS - 1) for i in range(ROWS)]
    cases = {
        "different lengths": lengths,
        "the mean length": [sum(lengths) // ROWS] * ROWS,
        "the greatest": [MOST] * ROWS,
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for name, its in cases.items():
        cache, _ = kv.join(None, [_row(model, length) for length in its])
        for _ in range(repeats + 1):
            seconds[name].append(_step_seconds(model, cache))
        del cache
        mx.clear_cache()
        seconds[name] = seconds[name][1:]  # the first one warms up
    steps = "; ".join(f"{name} {spread(values, 1e3, 1)}" for name, values in seconds.items())
    print(f"Decode step of {ROWS} rows, {label}, ms: {steps}\n", flush=True)
    uneven = seconds["different lengths"]
    for other, target in (("the mean length", UNEVEN_TARGET), ("the greatest", None)):
        name = f"gpu, {label}: step of {ROWS} rows of {FEWEST} to {MOST} tokens / of {other}"
        values = [value / median(seconds[other]) for value in uneven]
        section.figures.append(Figure(name, values, target, at_least=False))
    section.raw[f"{label} uneven rows"] = seconds


def _row(model: Any, tokens: int) -> list[Any]:
    """A row's cache with random keys and values, as prefilling leaves it."""
    row: list[Any] = model.new_cache()
    model.prefill(StepInput(mx.array([[0]]), row))
    for layer in row:
        shape, dtype = layer.keys.shape, layer.keys.dtype
        layer.trim(1)
        layer.update_and_fetch(*(mx.random.normal((*shape[:2], tokens, shape[3])).astype(dtype) for _ in range(2)))
        mx.eval(layer.keys, layer.values)
    return row


def _step_seconds(model: Any, cache: kv.BatchCache) -> float:
    """Seconds of one greedy step, each launched before the one before it is waited for."""
    tokens = mx.zeros((ROWS,), mx.int32)
    start = time.perf_counter()
    for _ in range(_STEPS):
        following = mx.argmax(model.forward(StepInput(tokens[:, None], cache.advance())).logits[:, -1], axis=-1)
        _async_eval(following)
        mx.eval(tokens)
        tokens = following
    mx.eval(tokens)
    return (time.perf_counter() - start) / _STEPS
