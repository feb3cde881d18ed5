"""On a GPU: several tokens per step with drafts of a known quality, and what such steps take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import Any

import mlx.core as mx

from localai_shim import AsyncLocalOpenAI
from localai_shim.engine import kv
from localai_shim.engine.engine import EngineOptions
from localai_shim.engine.ports import StepInput

from .figures import Figure, Section, ratios, spread
from .speculation import ACCEPTANCE, ORACLE_DRAFTS, Oracle, Pair, drafting, known_answers, run
from .workload import Prompts

STREAMS, TOKENS, ROW_TOKENS = (1, 8, 32), (1, 2, 3, 5, 9, 16), 256
TARGETS = {1: 1.8, 8: 2.2, 32: 1.7}
NEW_TOKENS = {1: 512, 8: 256, 32: 256}  # by streams: rates of few tokens differ too much from run to run
_STEPS = 12

Fields = Sequence[dict[str, Any]]
Clients = Callable[[EngineOptions], AbstractContextManager[AsyncLocalOpenAI]]


def forget_context(model: Any, share: float = 0.0) -> None:
    """Make a model's next token depend on the last one only, at the same cost: what rounds differently in a step of
    several tokens would lead to other texts, which the oracle does not know.

    Args:
        share: of what its layers add that is kept.
    """
    for layer in model.layers:
        for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
            part.weight = part.weight * share
    mx.eval(model.parameters())


def measure(section: Section, label: str, clients: Clients, tokenizer: Any, repeats: int) -> None:
    """Decode rates with and without an oracle's drafts, in turns.

    Args:
        clients: makes one with an engine of its own.
    """
    oracle, with_drafts = Oracle(), EngineOptions(speculation="auto")
    with clients(EngineOptions(speculation="off")) as off, drafting(oracle), clients(with_drafts) as on:
        pair = Pair(off, on)
        for count in STREAMS:
            prompts = Prompts(tokenizer, 128, seed=count).take(count)
            made: list[dict[str, Any]] = [{"messages": prompt.messages} for prompt in prompts]
            new_tokens = NEW_TOKENS[count]
            oracle.known |= known_answers(off, made, new_tokens)
            first = [run(client, made, new_tokens).decode_rate for client in (off, on)]  # all is new to the GPU
            rates = pair.compare([count], partial(_same, made), new_tokens, repeats, close=False)[count]
            name = f"gpu, {label}: oracle, acceptance {ACCEPTANCE}, {ORACLE_DRAFTS} drafts, {count} streams / without"
            note = f"tokens per second {spread(rates[1], digits=0)}, without {spread(rates[0], digits=0)}"
            section.figures.append(Figure(name, ratios(rates[1], rates[0]), TARGETS[count], note=note))
            section.raw[f"{label} drafts {count}"] = {"rates": rates, "first": first}
            print(name, ratios(rates[1], rates[0]), note, f"first runs {first}, {on.stats().drafts}", flush=True)


def _same(made: Fields, count: int) -> Fields:
    return made


def step_seconds(section: Section, label: str, model: Any) -> None:
    """What a step of so many tokens of each row takes, beside one of one token.

    Args:
        model: our adapter's.
    """
    for rows in STREAMS:
        cache = kv.Buckets(model.weight_bytes, max(TOKENS))
        places = cache.join([_row(model) for _ in range(rows)])
        seconds: dict[int, list[float]] = {tokens: [] for tokens in TOKENS}
        first: dict[int, float] = {}
        for number in range(_STEPS):
            for tokens in TOKENS:
                start = time.perf_counter()
                [step] = cache.advance_several(dict.fromkeys(places, tokens))
                inputs = StepInput(mx.zeros((rows, tokens), mx.int32), step.layers, [tokens] * rows)
                mx.eval(mx.argmax(model.forward(inputs).logits, axis=-1))
                cache.settle(dict.fromkeys(places, 1))
                took = time.perf_counter() - start
                if number:
                    seconds[tokens].append(took)
                else:
                    first[tokens] = took
        words = [f"{tokens}: {spread(its, 1e3, 1)}, first {1e3 * first[tokens]:.0f}" for tokens, its in seconds.items()]
        print(f"Steps of {rows} rows, {label}, ms by tokens: {'; '.join(words)}", flush=True)
        section.raw[f"{label} steps of {rows} rows"] = {tokens: median(its) for tokens, its in seconds.items()}


def _row(model: Any) -> list[Any]:
    row: list[Any] = model.new_cache()
    model.prefill(StepInput(mx.zeros((1, ROW_TOKENS), mx.int32), row))
    return row
