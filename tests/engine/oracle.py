"""What mlx-lm generates for one prompt by itself: the oracle for greedy tokens."""

from __future__ import annotations

import functools

from tests.tiny import tiny


@functools.cache
def alone(kind: str, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    """What mlx-lm generates for one prompt by itself."""
    import mlx_lm

    model, tokenizer = _load(str(tiny(kind)))
    return [r.token for r in mlx_lm.stream_generate(model, tokenizer, list(prompt), max_tokens=max_tokens)]


@functools.cache
def _load(path: str):
    import mlx_lm

    return mlx_lm.load(path)
