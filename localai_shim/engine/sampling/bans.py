"""Bans on what some rows of a batch sample: ends before `min_tokens`, all but the allowed tokens, and bad words.

Everything is an array over the rows concerned, so that nothing is done per row and step, and rows without bans cost
nothing. It is the same on the host and on the device, where bad words are matched against tokens that the host has not
seen yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..row import Array, Row
from . import device, host
from .masks import LOGIT_FLOOR

Ints = npt.NDArray[np.int64]

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
    """

    def __init__(self, rows: Sequence[Row], eos: Sequence[int], xp: ModuleType) -> None:
        self._rows, self._xp = rows, xp
        held = [
            (i, token_id, row.min_tokens)
            for i, row in enumerate(rows)
            if row.sampled < row.min_tokens
            for token_id in sorted({*eos, *row.stop_token_ids})
        ]
        self._held = np.array(held, dtype=np.int64).reshape(-1, 3)
        self._allowing = [i for i, row in enumerate(rows) if row.sampling.allowed_token_ids is not None]
        self._fits = False
        self._packed: npt.NDArray[np.uint8] | None = None
        self._recent: Array = None
        """`[rows with bad words, tokens]` what each drew last, the latest at the right."""
        none = np.empty(0, dtype=np.int64)
        self._word_rows, self._word_places, self._last = none, none, none
        """`[words]`: of each its row, that one's place among the rows with bad words, and its last token."""
        self._before: Array = None
        """`[words, tokens]` those before its last one, aligned at the right."""
        self._wording = [i for i, row in enumerate(rows) if row.sampling.bad_words]
        if self._wording:
            self._gather_words()

    def __bool__(self) -> bool:
        """There are any."""
        return bool(len(self._held) or self._allowing or self._wording)

    def apply(self, logits: Array, sampled: npt.NDArray[np.uint64]) -> Array:
        """Ban what the rows may not sample next.

        Args:
            logits: `[rows, vocabulary]`; NumPy's are changed in place.
            sampled: `[rows]` tokens sampled so far.
        """
        xp = self._xp
        if not self._fits:
            self._fit(logits.shape[-1])
        if len(self._held):
            rows, tokens, until = self._held.T
            held = np.flatnonzero(sampled[rows].astype(np.int64) < until)
            if len(held):
                logits[xp.array(rows[held]), xp.array(tokens[held])] = LOGIT_FLOOR
        if self._wording:
            logits = self._ban_words(logits)
        if self._allowing:
            at, keep_only = xp.array(self._allowing), (host if xp is np else device).keep_only
            logits[at] = keep_only(logits[at], self._allowed(logits.shape[-1]))
        return logits

    def note(self, tokens: Array) -> None:
        """Remember what the rows drew, `[rows]`."""
        if self._wording:
            xp = self._xp
            sampled = tokens[xp.array(self._wording)].astype(xp.int32)
            self._recent = xp.concatenate([self._recent[:, 1:], sampled[:, None]], axis=1)

    def retire(self) -> None:
        """Give the rows back what they need to go on in another sampler."""
        for at, i in enumerate(self._wording):
            self._rows[i].recent = self._recent[at]

    # -----------------------------------------------------------------------------------------------------------

    def _fit(self, vocabulary: int) -> None:
        """Leave out tokens that the model's logits do not have: its tokenizer may know more."""
        self._fits = True
        self._held = self._held[self._held[:, 1] < vocabulary]
        if self._wording:
            there = self._last < vocabulary
            self._word_rows, self._word_places = self._word_rows[there], self._word_places[there]
            self._last, self._before = self._last[there], self._xp.array(self._before[there])

    def _allowed(self, vocabulary: int) -> npt.NDArray[np.uint8]:
        """The allowed tokens as packed bits, `[rows concerned, bytes]`."""
        if self._packed is None:
            bits = np.zeros((len(self._allowing), -(-vocabulary // 8) * 8), dtype=bool)
            for at, i in enumerate(self._allowing):
                ids = np.array(self._rows[i].sampling.allowed_token_ids, dtype=np.int64)
                bits[at, ids[ids < vocabulary]] = True
                bits[at] |= not bits[at].any()
            self._packed = np.packbits(bits, axis=1, bitorder="little")
        return self._packed

    def _gather_words(self) -> None:
        """All rows' bad words in arrays, and the last tokens that the rows drew."""
        xp, known = self._xp, [_compiled(self._rows[i].sampling.bad_words) for i in self._wording]
        width = max(before.shape[1] for before, _ in known)
        before = [np.pad(b, ((0, 0), (width - b.shape[1], 0)), constant_values=_ANY_TOKEN) for b, _ in known]
        counts = [len(last) for _, last in known]
        self._word_rows = np.repeat(np.array(self._wording), counts)
        self._word_places = np.repeat(np.arange(len(known)), counts)
        self._last = np.concatenate([last for _, last in known])
        self._before = np.concatenate(before)
        recent = []
        for i in self._wording:
            kept = self._rows[i].recent
            kept = xp.array([], dtype=xp.int32) if kept is None else kept[max(0, len(kept) - width) :]
            recent.append(xp.concatenate([xp.full((width - len(kept),), _NO_TOKEN, dtype=xp.int32), kept]))
        self._recent = xp.stack(recent)

    def _ban_words(self, logits: Array) -> Array:
        """Ban the last tokens of the words of which a row has sampled all others."""
        xp = self._xp
        recent = self._recent[xp.array(self._word_places)]
        completes = xp.all((recent == self._before) | (self._before == _ANY_TOKEN), axis=-1)
        if xp is np:
            words = np.flatnonzero(completes)
            logits[self._word_rows[words], self._last[words]] = LOGIT_FLOOR
            return logits
        limits = mx.where(completes, LOGIT_FLOOR, mx.inf)  # several words of a row may end alike: the lowest counts
        return logits.at[mx.array(self._word_rows), mx.array(self._last)].minimum(limits)


@lru_cache(maxsize=256)
def _compiled(words: tuple[tuple[int, ...], ...]) -> tuple[npt.NDArray[np.int32], Ints]:
    """The tokens before each word's last one, `[words, most of these]` aligned at the right, and the last ones."""
    width = max(1, *(len(word) - 1 for word in words))
    before = np.full((len(words), width), _ANY_TOKEN, dtype=np.int32)
    for at, word in enumerate(words):
        if len(word) > 1:
            before[at, width - len(word) + 1 :] = word[:-1]
    return before, np.array([word[-1] for word in words], dtype=np.int64)
