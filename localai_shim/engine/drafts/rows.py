"""Tokens of rows, and the sampler of their drafts, for sources that run passes."""

from __future__ import annotations

from collections.abc import Sequence

from ..row import Row
from ..sampling.sampler import Sampler


def length_of(row: Row) -> int:
    """Tokens of a row, prompt and output."""
    return len(row.prompt_tokens) + row.generated


def tokens_of(row: Row, start: int, stop: int) -> Sequence[int]:
    """Some of a row's tokens, prompt and output."""
    prompt = len(row.prompt_tokens)
    if start >= prompt:
        return row.output_tokens[start - prompt : stop - prompt]
    return [*row.prompt_tokens[start:stop], *row.output_tokens[: max(0, stop - prompt)]]


def sampler_of(rows: Sequence[Row], eos: Sequence[int], *, on_device: bool) -> Sampler:
    """A sampler of rows' drafts, one position after the other: with the rows' own parameters and noise, so that two
    models that agree sample the same. Only what `has_history` tells of, such as penalties and grammars, is left out.

    Args:
        rows: that are drafted for.
        eos: ids of the tokens that end answers.
        on_device: tokens are sampled where the logits are.
    """
    # What a row has sampled is told to it when its sampler is retired, which may be later.
    ahead = [row.generated - row.sampled for row in rows]
    return Sampler(rows, eos, on_device=on_device, ahead=ahead)
