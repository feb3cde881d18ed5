"""The limit: mlx-lm's model called with nothing around it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from .timeline import Run, StreamTimes
from .workload import Prompt

_async_eval: Callable[..., None] = mx.async_eval


class BareModel:
    """A model that the calling thread drives itself.

    Args:
        model: mlx-lm's, loaded on this thread.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def first_token_seconds(self, prompt: Prompt) -> float:
        """Seconds from a prompt's tokens to its first greedy token in mlx-lm's way: all tokens but the last are run
        without logits, then that one. The engine needs the second pass only beside running rows and for long prompts.
        """
        start = time.perf_counter()
        self._finish(prompt.tokens, make_prompt_cache(self._model))
        return time.perf_counter() - start

    def prefix(self, tokens: Sequence[int]) -> list[Any]:
        """A prompt cache in which these tokens are."""
        cache: list[Any] = make_prompt_cache(self._model)
        self._model(mx.array([list(tokens)]), cache=cache)
        mx.eval([layer.state for layer in cache])
        return cache

    def continue_seconds(self, prefix: list[Any], tokens: Sequence[int]) -> float:
        """Seconds from more tokens to the first greedy token, on a copy of a prompt cache; copying is not timed."""
        cache = copy.deepcopy(prefix)
        mx.eval([layer.state for layer in cache])
        start = time.perf_counter()
        self._finish(tokens, cache)
        return time.perf_counter() - start

    def _finish(self, tokens: Sequence[int], cache: list[Any]) -> None:
        if len(tokens) > 1:
            self._model(mx.array([list(tokens[:-1])]), cache=cache)
        mx.argmax(self._model(mx.array([list(tokens[-1:])]), cache=cache)[:, -1, :], axis=-1).item()

    def prefill(self, prompts: Sequence[Prompt]) -> PrefilledBatch:
        """Run all but the last token of each prompt."""
        rows = [self.prefix(prompt.tokens[:-1]) for prompt in prompts]
        return PrefilledBatch(self._model, rows, [prompt.tokens[-1] for prompt in prompts])


class PrefilledBatch:
    """Rows that can be decoded any number of times, from the same state each time."""

    def __init__(self, model: Any, rows: list[list[Any]], last: list[int]) -> None:
        self._model, self._rows, self._last = model, rows, last

    def decode(self, steps: int, step_done: Callable[[], None] = lambda: None) -> Run:
        """Greedy steps of the whole batch, each launched before the one before it is waited for.

        `step_done` is called after each.

        `Run.cpu_per_chunk` is the calling thread's: what building and launching the graphs takes.
        """
        cache = [type(layers[0]).merge(list(layers)) for layers in zip(*self._rows, strict=True)]
        mx.eval([layer.state for layer in cache])
        times: list[float] = []
        started, cpu_started = time.perf_counter(), time.thread_time()
        tokens = self._step(mx.array(self._last), cache)
        for _ in range(steps - 1):
            following = self._step(tokens, cache)
            mx.eval(tokens)
            times.append(time.perf_counter())
            step_done()
            tokens = following
        mx.eval(tokens)
        times.append(time.perf_counter())
        step_done()
        cpu = (time.thread_time() - cpu_started) / (steps * len(self._rows))
        return Run([StreamTimes(started, times, steps) for _ in self._rows], cpu)

    def _step(self, tokens: Any, cache: list[Any]) -> Any:
        following = mx.argmax(self._model(tokens[:, None], cache=cache)[:, -1, :], axis=-1)
        _async_eval(following)
        return following
