"""Likelihoods that a model gives a prompt's own tokens: from the logits of all of them, a bounded portion at a time.

Such a prompt is run from its first token on, whatever the prefix cache has of it. Portions are sized like other
chunks, by their own pace, so that running rows wait no longer than for other prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import mlx.core as mx
import numpy as np

from ...types import TokenScore
from ..row import NOT_FINITE, Array
from ..sampling import device, host

_async_eval: Callable[..., None] = mx.async_eval
MAX_LOGITS = 2**24  # at once: 64 MiB of float32, and as much again three or four times while they are looked at
FIRST_PORTION_TOKENS = 64  # tokens of the first portion, when the size of the vocabulary is not known yet


class Scoring:
    """A pass whose logits may still be being computed.

    Args:
        logits: `[rows, tokens, vocabulary]` float32, lazy.
        following: for each row the tokens that follow those that were run; fewer where the rest is padding.
        top: how many likely tokens to report with each.
        on_device: look at them where they are; False does it with NumPy.
        watched: for each row the tokens that are looked at after each of its tokens; (): none.
    """

    def __init__(
        self,
        logits: mx.array,
        following: Sequence[Sequence[int]],
        top: int,
        *,
        on_device: bool,
        watched: Sequence[Sequence[int]] = (),
    ) -> None:
        rows, tokens, vocabulary = logits.shape
        self._lengths = [min(len(row), tokens) for row in following]
        self._targets = [token for row in following for token in row[:tokens]]
        at = [row * tokens + i for row, length in enumerate(self._lengths) for i in range(length)]
        flat = logits.reshape(rows * tokens, vocabulary)
        self._logits = flat if len(at) == rows * tokens else flat[mx.array(at)]
        self._top, self._on_device = top, on_device
        self._watched = watched or [()] * rows
        self._looked_at = sorted({token for its in self._watched for token in its})
        self._found: tuple[Array, ...] = ()
        if on_device:
            self._found = self._look(self._logits, mx.array(self._targets), device)
            _async_eval(*(array for array in self._found if array is not None))
        else:
            _async_eval(self._logits)

    def _look(self, logits: Array, targets: Array, backend: ModuleType) -> tuple[Array, ...]:
        watched = backend.logprobs_of(logits, self._looked_at) if self._looked_at else None
        return (backend.ranks(logits, targets), *backend.logprobs(logits, targets, self._top), watched)

    def read(self) -> list[list[TokenScore]]:
        """The scores of each row's tokens.

        Raises:
            ValueError: some are not numbers.
        """
        if not self._on_device:
            targets = np.array(self._targets, dtype=np.int64)
            self._found = self._look(np.asarray(self._logits), targets, host)
        if np.isnan(np.asarray(self._found[1])).any():
            raise ValueError(NOT_FINITE)
        none: list[list[float]] = [[]] * len(self._targets)
        ranks, logprobs, *more = (none if array is None else array.tolist() for array in self._found)
        scores = [
            TokenScore(logprob, rank, list(zip(some, likely, strict=True)), watched)
            for logprob, rank, some, likely, watched in zip(logprobs, ranks, *more, strict=True)
        ]
        ends = np.cumsum(self._lengths).tolist()
        rows = [scores[end - length : end] for end, length in zip(ends, self._lengths, strict=True)]
        return [self._with_own(row, its) for row, its in zip(rows, self._watched, strict=True)]

    def _with_own(self, scores: list[TokenScore], watched: Sequence[int]) -> list[TokenScore]:
        """One row's scores with the tokens that it watches only, in its order."""
        if list(watched) == self._looked_at:
            return scores
        places = [self._looked_at.index(token) for token in watched]
        return [score._replace(watched=[score.watched[place] for place in places]) for score in scores]
