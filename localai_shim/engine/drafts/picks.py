"""Tokens of rows, and the choice of their drafts, for sources that run passes."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..row import Row
from ..sampling.sampler import Sampler, has_history


def length_of(row: Row) -> int:
    """Tokens of a row, prompt and output."""
    return len(row.prompt_tokens) + row.generated


def tokens_of(row: Row, start: int, stop: int) -> Sequence[int]:
    """Some of a row's tokens, prompt and output."""
    prompt = len(row.prompt_tokens)
    if start >= prompt:
        return row.output_tokens[start - prompt : stop - prompt]
    return [*row.prompt_tokens[start:stop], *row.output_tokens[: max(0, stop - prompt)]]


class Picks:
    """Draws rows' drafts, one position after the other.

    Rows whose sampling does not depend on their history are drafted for with their own sampler and uniforms, so that
    two models that agree sample the same; all others get the likeliest tokens.

    Args:
        rows: that are drafted for.
        eos: ids of the tokens that end answers.
        on_device: tokens are sampled where the logits are.
    """

    def __init__(self, rows: Sequence[Row], eos: Sequence[int], on_device: bool) -> None:
        which = [i for i, row in enumerate(rows) if not has_history(row)]
        mine = [rows[i] for i in which]
        # What a row has sampled is told to it when its sampler is retired, which may be later.
        ahead = [row.generated - row.sampled for row in mine]
        self._sampler = Sampler(mine, eos, on_device=on_device, ahead=ahead) if mine else None
        self._at = None if len(mine) == len(rows) else mx.array(which)

    def pick(self, logits: mx.array) -> mx.array:
        """`[rows]` int32: the next token of each."""
        if self._sampler is not None and self._at is None:
            return self._sampler.sample(logits).inputs
        tokens = mx.argmax(logits, axis=-1).astype(mx.int32)
        if self._sampler is not None and self._at is not None:
            tokens[self._at] = self._sampler.sample(logits[self._at]).inputs
        return tokens
