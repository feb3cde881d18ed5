"""Biases and penalties: what is added to or taken from the logits of some rows of a batch before they are sampled from.

Like `Bans`, they are made for the rows concerned only, once for all steps of a sampler, and work on the host and on
the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType

import numpy as np
import numpy.typing as npt

from ...types import SamplingParams
from ..row import Array, Row
from . import device, host


def has_penalty(p: SamplingParams) -> bool:
    """True if what a row has sampled changes its logits."""
    return p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0


class Bias:
    """The logit biases of a fixed sequence of rows.

    Args:
        rows: in batch order.
        xp: numpy or mlx.core, of which the logits are arrays.
    """

    def __init__(self, rows: Sequence[Row], xp: ModuleType) -> None:
        self._xp, biases = xp, [row.sampling.logit_bias for row in rows]
        places = [(i, token) for i, its in enumerate(biases) for token in its]
        self._places = np.array(places, dtype=np.int64).reshape(-1, 2)
        self._bias = np.array([bias for its in biases for bias in its.values()], dtype=np.float32)

    def __bool__(self) -> bool:
        """There are any."""
        return bool(len(self._bias))

    def apply(self, logits: Array, sampled: npt.NDArray[np.uint64]) -> Array:
        """Add them; see `Bans.apply`."""
        known = self._places[:, 1] < logits.shape[-1]  # a tokenizer may know more tokens than the model
        rows, ids = (self._xp.array(places) for places in self._places[known].T)
        logits[rows, ids] = logits[rows, ids] + self._xp.array(self._bias[known])
        return logits

    def note(self, tokens: Array) -> None:
        """Nothing that was sampled matters."""

    def retire(self) -> None:
        """Rows keep nothing of it."""


class Penalties:
    """The repetition, presence and frequency penalties of a fixed sequence of rows, and their counts of tokens.

    Args:
        rows: in batch order.
        xp: numpy or mlx.core, of which the logits are arrays.
    """

    def __init__(self, rows: Sequence[Row], xp: ModuleType) -> None:
        which = [i for i, row in enumerate(rows) if has_penalty(row.sampling)]
        self._rows, self._xp = [rows[i] for i in which], xp
        self._places = np.array(which, dtype=np.int64)
        self._counts: Array = None
        """`[rows concerned, vocabulary]`: see `Row.counts`. None before the first step."""
        self._seen: Array = None
        """`[rows concerned, vocabulary]`: tokens of prompts of rows with a repetition penalty; None: no row has one."""

    def __bool__(self) -> bool:
        """There are any."""
        return bool(self._rows)

    def apply(self, logits: Array, sampled: npt.NDArray[np.uint64]) -> Array:
        """Penalise tokens; see `Bans.apply`."""
        xp = self._xp
        if self._counts is None:
            self._load(logits.shape[-1])
        penalise = partial((host if xp is np else device).penalise, counts=self._counts, seen=self._seen)
        if len(self._places) == len(logits):
            return penalise(logits, *self._factors)
        at = xp.array(self._places)
        logits[at] = penalise(logits[at], *self._factors)
        return logits

    def note(self, tokens: Array) -> None:
        """Count what the rows sampled, `[rows]`."""
        sampled = tokens if len(self._places) == len(tokens) else tokens[self._xp.array(self._places)]
        if self._xp is np:
            self._counts[self._numbers, sampled] += 1
        else:
            self._counts = self._counts.at[self._numbers, sampled].add(1)

    def retire(self) -> None:
        """Give the rows back what they need to continue in another sampler."""
        if self._counts is not None:
            for row, counts in zip(self._rows, self._counts, strict=True):
                row.counts = counts

    def _load(self, vocabulary: int) -> None:
        """Gather the rows' counts into one matrix, of which each row keeps a view."""
        xp, params = self._xp, [row.sampling for row in self._rows]
        factors = [(p.repetition_penalty, p.presence_penalty, p.frequency_penalty) for p in params]
        columns = np.array(factors, dtype=np.float32).T
        self._factors = [self._factor(*each) for each in zip(columns, (1, 0, 0), strict=True)]
        if self._factors[0] is not None:
            seen = np.zeros((len(self._rows), vocabulary), dtype=bool)
            for its, row in zip(seen, self._rows, strict=True):
                if row.sampling.repetition_penalty != 1.0:
                    its[list(row.prompt_tokens)] = True
            self._seen = xp.array(seen)
        self._numbers = xp.arange(len(self._rows))
        empty = xp.zeros(vocabulary, dtype=xp.float32)
        self._counts = xp.stack([empty if row.counts is None else row.counts for row in self._rows])

    def _factor(self, column: npt.NDArray[np.float32], neutral: int) -> Array | None:
        """One penalty of each row, `[rows, 1]`; None: it changes no row."""
        return None if (column == neutral).all() else self._xp.array(column)[:, None]
