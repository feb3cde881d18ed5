"""Sources of drafts: guesses of the tokens that follow a row's last one, which a step of several verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from ..row import KnownStates, Row

GRAM_TOKENS = 3  # of a row's end that are looked for in what came before
LONG_GRAM_TOKENS = 16  # that are compared where these stood more than once
MAX_SEARCHED_TOKENS = 16_384  # of a prompt, from its end: a search of so many takes some ten microseconds


class Drafter(Protocol):
    """Guesses what rows sample next. Called on the engine thread, with nothing in flight or one step.

    Its knowledge of a row may be in `row.drafting`, under itself: it is dropped with the row. It must not change
    anything else of it.
    """

    source: str
    """Its name in `stats()`."""
    trust: float
    """The share of its tokens that is taken to be right before a row has shown how many are."""

    def takes(self, row: Row) -> bool:
        """True if it may have drafts for a row, sooner or later; asked once."""

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        """Each row's tokens after its last one, up to its number; none if there is no guess.

        Whatever it raises, these rows are not drafted for by this source any more.
        """


class CostlyDrafter(Drafter, Protocol):
    """A source that runs passes: all rows are asked together, for as many drafts as pay. It keeps caches for rows.

    `takes` is asked before each step. If the source raises, it has forgotten its rows, which may come again.
    """

    most: int
    """Most drafts of a row in one step."""

    @property
    def nbytes(self) -> int:
        """Bytes of its rows' caches."""

    def seconds(self, rows: int, drafts: int, plain: float) -> float:
        """Expected seconds for this number of drafts of each row; `plain`: those of a step of one token."""

    @property
    def reads_hidden(self) -> bool:
        """True if it wants the hidden states of the tokens that run."""

    def ran(self, rows: Sequence[Row], hidden: mx.array, first: Sequence[int], counts: Sequence[int]) -> None:
        """Take the hidden states of tokens that have run and stay, if `reads_hidden`.

        Args:
            rows: whose tokens; the last token of each is still to run.
            hidden: `[positions, width]`, lazy.
            first: of each row, the place of the first one in `hidden`; the others follow it.
            counts: tokens of each row, before its last one.
        """

    def wanted_states(self, rows: Sequence[Row]) -> int:
        """Number of the last tokens of these rows' prompt whose hidden states it wants before they run."""

    def joined(self, rows: Sequence[Row], states: Sequence[KnownStates]) -> None:
        """Take the hidden states of rows' prompt, which run from now on."""

    def keep(self, rows: Sequence[Row]) -> None:
        """Drop what is kept of all other rows."""

    def renew(self) -> None:
        """Forget how often it was right: the model for which it drafts has other weights. It keeps no row."""


class ForcedTokens:
    """Tokens that a row's grammar leaves no choice about."""

    source, trust = "grammar", 0.95

    def takes(self, row: Row) -> bool:
        return row.constraint is not None

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [
            [] if row.constraint is None else row.constraint.forced()[:n] for row, n in zip(rows, most, strict=True)
        ]


class PredictedText:
    """The caller's prediction of the answer, followed by a pointer."""

    source, trust = "prediction", 0.8

    def takes(self, row: Row) -> bool:
        return row.request.prediction is not None

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [self._follow(row, n) for row, n in zip(rows, most, strict=True)]

    def _follow(self, row: Row, most: int) -> Sequence[int]:
        if row.request.prediction is None:
            return ()
        if self not in row.drafting:
            row.drafting[self] = row.request.prediction()
        found: Sequence[int] = row.drafting[self](row.output_tokens, most)
        return found


class PromptLookup:
    """Continuation of the previous occurrence of the row's last tokens, in its prompt or its output."""

    source, trust = "lookup", 0.25

    def takes(self, row: Row) -> bool:
        return True

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [self._look(row, n) for row, n in zip(rows, most, strict=True)]

    def _look(self, row: Row, most: int) -> Sequence[int]:
        seen: _Seen | None = row.drafting.get(self)
        if seen is None:
            seen = row.drafting[self] = _Seen(row.prompt_tokens[-MAX_SEARCHED_TOKENS:])
        return seen.after(row.output_tokens, most)


class _Seen:
    """A row's tokens, to be searched: an index of many would take longer to make than all searches do."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens = np.array(prompt, dtype=np.int32)
        self._length, self._output = len(prompt), 0
        self._at: int | None = None
        """Behind an earlier occurrence: the output continued as that did, up to here."""

    def after(self, output: Sequence[int], most: int) -> Sequence[int]:
        """Continuation of the previous occurrence of the current suffix, at most `most` tokens."""
        came = output[self._output :]
        self._append(came)
        self._output = len(output)
        tokens, length = self._tokens, self._length
        if self._at is not None and tokens[self._at : self._at + len(came)].tolist() == came:
            self._at += len(came)
        else:
            self._at = self._search()
        if self._at is None:
            return ()
        found: list[int] = tokens[self._at : min(self._at + most, length)].tolist()
        while len(found) < most:  # the output repeats itself at once: so it may go on
            found += found[: most - len(found)]
        return found

    def _search(self) -> int | None:
        """The place behind most of the tokens of the present end; of several the latest."""
        tokens, length = self._tokens, self._length
        if length <= GRAM_TOKENS:
            return None
        end = tokens[length - GRAM_TOKENS : length].tolist()
        places = np.flatnonzero(tokens[GRAM_TOKENS - 1 : length - 1] == end[-1]) + GRAM_TOKENS
        for back in range(2, GRAM_TOKENS + 1):
            places = places[tokens[places - back] == end[-back]]
        for back in range(GRAM_TOKENS + 1, LONG_GRAM_TOKENS + 1):
            longer = places[places >= back] if len(places) > 1 else places[:0]
            longer = longer[tokens[longer - back] == tokens[length - back]] if len(longer) else longer
            if not len(longer):
                break
            places = longer
        return int(places[-1]) if len(places) else None

    def _append(self, tokens: Sequence[int]) -> None:
        length = self._length + len(tokens)
        if length > len(self._tokens):
            self._tokens = np.resize(self._tokens, 2 * length)
        self._tokens[self._length : length] = tokens
        self._length = length
