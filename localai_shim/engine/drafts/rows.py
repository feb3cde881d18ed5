"""Tokens and hidden states of rows, and the sampler of their drafts, for sources that run passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from ..row import Row
from ..sampling.sampler import Sampler

_async_eval: Callable[..., None] = mx.async_eval


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


def chained(
    sampler: Sampler, logits: mx.array, following: Callable[[mx.array], mx.array], count: int
) -> list[list[int]]:
    """A number of drafts of each row: each pass but the first runs the tokens that were sampled after the one before.

    If the host samples, a pass is built while the one before it runs, and gets its tokens afterwards.

    Args:
        sampler: of the rows.
        logits: after the first pass, `[rows, vocabulary]`, lazy.
        following: the logits of the next pass, from its tokens `[rows]`; it must compute nothing.
        count: at least 1.
    """
    if sampler.queues_ahead:
        queued = [sampler.sample(logits).inputs]
        while len(queued) < count:
            queued.append(sampler.sample(following(queued[-1])).inputs)
        drafts: list[list[int]] = np.array(mx.stack(queued, axis=1)).tolist()
        return drafts
    sampled: list[list[int]] = []
    while True:
        _async_eval(logits)
        behind, tokens = None, mx.array(np.zeros(len(logits), dtype=np.int32))
        if len(sampled) + 1 < count:
            behind = following(tokens)
        sampler.prepare(logits.shape[-1])
        sampled.append(np.maximum(sampler.sample(logits).tokens, 0).tolist())
        if behind is None:
            return [list(its) for its in zip(*sampled, strict=True)]
        # MLX's arrays and views of them share their memory: what is written before the graph runs is its input.
        np.array(tokens, copy=False)[...] = sampled[-1]
        logits = behind


class Piece(NamedTuple):
    """States of consecutive tokens of one row."""

    states: mx.array
    """`[positions, width]`, those of other rows too."""
    first: int
    """Place of the row's first one in it."""
    length: int


class Trail:
    """States of a row's last tokens that have run, without gaps.

    Attributes:
        start: number of the row's tokens before the first one.
        stop: number of its tokens up to the last one.
    """

    __slots__ = ("_pieces", "start", "stop")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self.start = self.stop = 0

    def __len__(self) -> int:
        return self.stop - self.start

    def add(self, at: int, piece: Piece, most: int) -> None:
        """Add states of the tokens from `at` on, and keep the last `most` at least; after a gap only these."""
        if at != self.stop:
            self._pieces.clear()
            self.start = at
        self._pieces.append(piece)
        self.stop = at + piece.length
        while len(self) - self._pieces[0].length >= most:
            self.start += self._pieces.popleft().length

    def lead(self, count: int) -> None:
        """Use the first state for this many tokens before its own as well: theirs are not known."""
        if count:
            self._pieces.extendleft([self._pieces[0]._replace(length=1)] * count)
            self.start -= count

    def take(self, count: int) -> list[Piece]:
        """Remove the first ones, at most `count`."""
        taken: list[Piece] = []
        while count and self._pieces:
            piece = self._pieces.popleft()
            some = min(count, piece.length)
            taken.append(piece._replace(length=some))
            if some < piece.length:
                self._pieces.appendleft(Piece(piece.states, piece.first + some, piece.length - some))
            count -= some
            self.start += some
        return taken


def gather(blocks: Sequence[Sequence[Piece]], k: int) -> mx.array:
    """`[blocks, k, width]`: the states of each block, with padding behind; one at least has some.

    Padding is some state of a row that has a block: those of other rows may hold NaN, which masks do not stop.
    """
    offsets: dict[int, int] = {}
    arrays: list[mx.array] = []
    rows = 0
    for piece in (piece for block in blocks for piece in block):
        if id(piece.states) not in offsets:
            offsets[id(piece.states)] = rows
            arrays.append(piece.states)
            rows += piece.states.shape[0]
    places = [
        [offsets[id(piece.states)] + piece.first + i for piece in block for i in range(piece.length)]
        for block in blocks
    ]
    padding = next(block[0] for block in places if block)
    index = np.array([[*block, *[padding] * (k - len(block))] for block in places], dtype=np.int32)
    states = arrays[0] if len(arrays) == 1 else mx.concatenate(arrays)
    return states[mx.array(index)]
