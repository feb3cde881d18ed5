"""A model's steps with nothing around them: what a batch could reach at most."""

from __future__ import annotations

import time
from collections.abc import Callable

import mlx.core as mx

from ..engine.cache_contents import RowCache
from ..engine.ports import StepInput
from .text import TextModel

TEXT = "The quick brown fox jumps over the lazy dog, and two or three others watch it from behind the old fence."
PROMPT_TOKENS = 8
_async_eval: Callable[..., None] = mx.async_eval
WARM_UP_STEPS, MAX_STEPS = 4, 256


def bare_rate(model: TextModel, rows: int, seconds: float) -> float | None:
    """Tokens per second that so many rows together decode greedily, each step launched before the last is read.

    Runs on the thread that loaded the model. None where upstream's caches of this model cannot be made one batch's.

    Args:
        seconds: that it may take, about.
    """
    try:
        tokens, cache = _prefill(model, rows)
    except AttributeError:  # a cache without `merge`
        return None
    tokens, took = _decode(model, tokens, cache, WARM_UP_STEPS)
    steps = min(MAX_STEPS, max(WARM_UP_STEPS, int(seconds * WARM_UP_STEPS / took)))
    return rows * steps / _decode(model, tokens, cache, steps)[1]


def _prefill(model: TextModel, rows: int) -> tuple[mx.array, RowCache]:
    """The last token of each row's prompt, and the caches in which the others are; no two prompts are alike."""
    ids = model.text.encode(TEXT)
    prompts = [[ids[(row + i) % len(ids)] for i in range(PROMPT_TOKENS)] for row in range(rows)]
    caches = []
    for prompt in prompts:
        caches.append(model.new_cache())
        model.prefill(StepInput(mx.array([prompt[:-1]]), caches[-1]))
    together = [type(layers[0]).merge(list(layers)) for layers in zip(*caches, strict=True)] if rows > 1 else caches[0]
    return mx.array([prompt[-1] for prompt in prompts]), together


def _decode(model: TextModel, tokens: mx.array, cache: RowCache, steps: int) -> tuple[mx.array, float]:
    """The tokens after so many steps, and the seconds that these took."""
    mx.eval(tokens)
    began = time.perf_counter()
    following = _step(model, tokens, cache)
    for _ in range(steps - 1):
        tokens, following = following, _step(model, following, cache)
        mx.eval(tokens)
    mx.eval(following)
    return following, time.perf_counter() - began


def _step(model: TextModel, tokens: mx.array, cache: RowCache) -> mx.array:
    following = mx.argmax(model.forward(StepInput(tokens[:, None], cache))[:, -1, :], axis=-1)
    _async_eval(following)
    return following
