"""Greedy tokens of mlx-lm alone, without any code of this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...types import Token

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper


class UpstreamModel:
    """A checkpoint as mlx-lm loads and runs it, on the thread that makes this."""

    def __init__(self, folder: Path) -> None:
        import mlx_lm.utils

        loaded: tuple[nn.Module, TokenizerWrapper] = mlx_lm.utils.load(str(folder))
        self._model, self._tokenizer = loaded

    def greedy(self, prompt: Sequence[int], tokens: int, top_logprobs: int) -> list[Token]:
        """The answer of `mlx_lm.stream_generate` to a prompt."""
        from mlx_lm import stream_generate

        answers = stream_generate(self._model, self._tokenizer, list(prompt), max_tokens=tokens)
        return [_token(int(answer.token), answer.logprobs, top_logprobs) for answer in answers]


def _token(id: int, logprobs: mx.array, top_logprobs: int) -> Token:
    values: Any = logprobs.tolist()
    likeliest = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:top_logprobs]
    return Token(id, values[id], tuple((other, values[other]) for other in likeliest))
