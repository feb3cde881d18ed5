"""Adjustments of the logits of some rows of a batch before they are sampled from: biases, penalties, bans, and groups.

Everything is an array over the rows concerned, made once for all steps of a sampler, so that nothing is done per row
and step, and other rows cost nothing. It is the same on the host and on the device, where bad words are matched against
tokens that the host has not seen yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from types import ModuleType

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import SamplingParams
from ..row import Array, Row
from . import device, host
from .parameters import LOGIT_FLOOR, Ints


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


_ANY_TOKEN = -1  # stands for any token before a bad word's last one
_NO_TOKEN = -2  # stands for a token that was not sampled yet


class Bans:
    """The bans of a fixed sequence of rows.

    A token that is banned has a logit of `LOGIT_FLOOR`, one that is not allowed -inf: a row whose allowed tokens are
    all banned samples one of these.

    Args:
        rows: in batch order.
        eos: ends of sequence.
        xp: numpy or mlx.core, of which the logits are arrays.
        words: ban bad words, too.
    """

    def __init__(self, rows: Sequence[Row], eos: Sequence[int], xp: ModuleType, *, words: bool = True) -> None:
        self._rows, self._xp, self._vocabulary = rows, xp, 0
        held = [
            (i, token_id, row.request.min_tokens)
            for i, row in enumerate(rows)
            if row.sampled < row.request.min_tokens
            for token_id in sorted({*eos, *row.request.stop_token_ids})
        ]
        self._held = np.array(held, dtype=np.int64).reshape(-1, 3)
        self._allowing = [i for i, row in enumerate(rows) if row.sampling.allowed_token_ids is not None]
        self._packed: npt.NDArray[np.uint8]
        """`[rows with allowed tokens, bytes]` of these, as packed bits."""
        self._wording = np.array([i for i, row in enumerate(rows) if words and row.sampling.bad_words], dtype=np.int64)
        self._words: tuple[Ints, Ints, Array]
        """`[words]` of each its place among the rows with bad words, and its last token; `[words, tokens]` those before
        the last one, aligned at the right."""
        self._recent: Array = None
        """`[rows with bad words, tokens]` what each drew last, the latest at the right."""
        if len(self._wording):
            self._gather_words()

    def __bool__(self) -> bool:
        """There are any."""
        return bool(len(self._held) or self._allowing or len(self._wording))

    def apply(self, logits: Array, sampled: npt.NDArray[np.uint64]) -> Array:
        """Ban what the rows may not sample next.

        Args:
            logits: `[rows, vocabulary]`; NumPy's are changed in place.
            sampled: `[rows]` tokens sampled so far.
        """
        xp = self._xp
        if not self._vocabulary:
            self._fit(logits.shape[-1])
        if len(self._held):
            rows, tokens, until = self._held.T
            held = np.flatnonzero(sampled[rows].astype(np.int64) < until)
            if len(held):
                logits[xp.array(rows[held]), xp.array(tokens[held])] = LOGIT_FLOOR
        if len(self._wording):
            logits = self._ban_words(logits)
        if self._allowing:
            at, keep_only = xp.array(self._allowing), (host if xp is np else device).keep_only
            logits[at] = keep_only(logits[at], self._packed)
        return logits

    def note(self, tokens: Array) -> None:
        """Remember what the rows drew, `[rows]`."""
        if len(self._wording):
            xp = self._xp
            sampled = tokens[xp.array(self._wording)].astype(xp.int32)
            self._recent = xp.concatenate([self._recent[:, 1:], sampled[:, None]], axis=1)

    def retire(self) -> None:
        """Give the rows back what they need to continue in another sampler."""
        for at, i in enumerate(self._wording):
            self._rows[i].recent = self._recent[at]

    # -----------------------------------------------------------------------------------------------------------

    def _fit(self, vocabulary: int) -> None:
        """Leave out tokens that the model's logits do not have: its tokenizer may know more."""
        self._vocabulary = vocabulary
        self._held = self._held[self._held[:, 1] < vocabulary]
        bits = np.zeros((len(self._allowing), -(-vocabulary // 8) * 8), dtype=bool)
        for allowed, i in zip(bits, self._allowing, strict=True):
            ids = np.array(self._rows[i].sampling.allowed_token_ids, dtype=np.int64)
            allowed[ids[ids < vocabulary]] = True
            allowed |= not allowed.any()
        self._packed = np.packbits(bits, axis=1, bitorder="little")
        if len(self._wording):
            there = self._words[1] < vocabulary
            places, last, before = (its[there] for its in self._words)
            self._words = places, last, self._xp.array(before)

    def _gather_words(self) -> None:
        """All rows' bad words in arrays, and the last tokens that the rows drew."""
        xp, known = self._xp, [_compiled(self._rows[i].sampling.bad_words) for i in self._wording]
        width = max(before.shape[1] for before, _ in known)
        before = [np.pad(b, ((0, 0), (width - b.shape[1], 0)), constant_values=_ANY_TOKEN) for b, _ in known]
        counts = [len(last) for _, last in known]
        places, last = np.repeat(np.arange(len(known)), counts), np.concatenate([last for _, last in known])
        self._words = places, last, np.concatenate(before)
        recent = []
        for i in self._wording:
            kept = self._rows[i].recent
            kept = xp.array([], dtype=xp.int32) if kept is None else kept[max(0, len(kept) - width) :]
            recent.append(xp.concatenate([xp.full((width - len(kept),), _NO_TOKEN, dtype=xp.int32), kept]))
        self._recent = xp.stack(recent)

    def _ban_words(self, logits: Array) -> Array:
        """Ban the last tokens of the words of which a row has sampled all others."""
        xp, (places, last, before) = self._xp, self._words
        completes = xp.all((self._recent[xp.array(places)] == before) | (before == _ANY_TOKEN), axis=-1)
        rows = self._wording[places]
        if xp is np:
            words = np.flatnonzero(completes)
            logits[rows[words], last[words]] = LOGIT_FLOOR
            return logits
        limits = mx.where(completes, LOGIT_FLOOR, mx.inf)  # several words of a row may end alike: the lowest counts
        return logits.at[mx.array(rows), mx.array(last)].minimum(limits)


@lru_cache(maxsize=256)
def _compiled(words: tuple[tuple[int, ...], ...]) -> tuple[npt.NDArray[np.int32], Ints]:
    """The tokens before each word's last one, `[words, most of these]` aligned at the right, and the last ones."""
    width = max(1, *(len(word) - 1 for word in words))
    before = np.full((len(words), width), _ANY_TOKEN, dtype=np.int32)
    for at, word in enumerate(words):
        if len(word) > 1:
            before[at, width - len(word) + 1 :] = word[:-1]
    return before, np.array([word[-1] for word in words], dtype=np.int64)


class Groups:
    """The groups of a batch's rows.

    Args:
        rows: of the batch.
        xp: numpy or mlx.core, of which the logits are.
    """

    def __init__(self, rows: Sequence[Row], xp: ModuleType) -> None:
        starts = [row.sampling.group_from for row in rows]
        self._rows = np.array([i for i, start in enumerate(starts) if start is not None], dtype=np.int64)
        self._starts = np.array([start for start in starts if start is not None], dtype=np.int64)
        self._xp = xp

    def __bool__(self) -> bool:
        return bool(len(self._rows))

    def apply(self, logits: Array, masked: Ints | None, *, of_masked: bool = False) -> Array:
        """Rule out the tokens before a row's group where these together are likelier than each one of the others.

        Args:
            logits: `[rows, vocabulary]`, as they are to be sampled from, which may be changed.
            masked: places in the batch of the rows that have a logits mask, ascending; None: no row has one.
            of_masked: the logits are of these rows, and not of all: the masked ones of all stay as they are.
        """
        none = np.zeros(0, np.int64)
        inside = np.isin(self._rows, none if masked is None else masked)
        rows, starts = (each[inside if of_masked else ~inside] for each in (self._rows, self._starts))
        if not len(rows):
            return logits
        at = np.searchsorted(masked, rows) if of_masked and masked is not None else rows
        if self._xp is np:
            host.prefer_group(logits, at, starts)
            return logits
        whole = np.full(len(logits), logits.shape[-1], dtype=np.int64)
        whole[at] = starts
        return device.prefer_group(logits, whole)
