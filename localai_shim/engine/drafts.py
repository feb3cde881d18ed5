"""Where drafts come from: guesses of the tokens that follow a row's last one, which a step of several verifies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from ..prediction import Follower
from .row import Row

GRAM_TOKENS = 3  # of a row's end that are looked for in what came before
MAX_INDEXED_TOKENS = 16_384  # of a prompt, from its end: an index of so many takes some milliseconds


class Drafter(Protocol):
    """Guesses what rows sample next. Called on the engine thread, with nothing in flight or one step.

    What it knows of a row may stand in `row.drafting`, under itself: it goes when the row does. It must not change
    anything else of it.
    """

    @property
    def source(self) -> str:
        """Its name in `stats()`."""
        ...

    @property
    def trust(self) -> float:
        """The share of its tokens that is taken to be right before a row has shown how many are."""
        ...

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        """Each row's tokens after its last one, at most so many; none where there is no guess.

        Whatever it raises, these rows are not drafted for by this source any more.
        """
        ...


class CostlyDrafter(Drafter, Protocol):
    """One whose guesses take time: it is asked with nothing in flight, and only for what is to be run."""

    @property
    def most(self) -> int:
        """Drafts of a row in one step."""
        ...

    def takes(self, row: Row) -> bool:
        """Whether it may have drafts for a row, sooner or later."""
        ...

    def cost(self, rows: int, drafts: int, step: float | None) -> float:
        """What so many drafts for each of so many rows take, in ordinary steps of so many seconds; None: not known."""
        ...

    def keep(self, rows: Sequence[Row]) -> None:
        """These are running; what it has of others is to be dropped."""
        ...


class ForcedTokens:
    """What a row's grammar leaves no choice about."""

    source, trust = "grammar", 0.95

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [
            [] if row.constraint is None else row.constraint.forced()[:n] for row, n in zip(rows, most, strict=True)
        ]


class PredictedText:
    """The caller's prediction of the answer, followed by a pointer."""

    source, trust = "prediction", 0.8

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [self._follow(row, n) if row.request.prediction else [] for row, n in zip(rows, most, strict=True)]

    def _follow(self, row: Row, most: int) -> Sequence[int]:
        follower: Follower | None = row.drafting.get(self)
        if follower is None:
            follower = row.drafting[self] = Follower(row.request.prediction)
        follower.feed(islice(row.output_tokens, follower.fed, None))
        return follower.next(most)


class PromptLookup:
    """What followed the row's last tokens where they stood before, in its prompt or its output."""

    source, trust = "lookup", 0.25

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        return [self._look(row, n) for row, n in zip(rows, most, strict=True)]

    def _look(self, row: Row, most: int) -> Sequence[int]:
        seen: _Seen | None = row.drafting.get(self)
        if seen is None:
            seen = row.drafting[self] = _Seen(row.prompt_tokens[-MAX_INDEXED_TOKENS:])
        return seen.after(row.output_tokens, most)


class _Seen:
    """A row's tokens, and where each run of `GRAM_TOKENS` of them ended last."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens = list(prompt)
        self._output = 0
        grams = zip(*(islice(prompt, i, None) for i in range(GRAM_TOKENS)), strict=False)
        # The last one has no token behind it yet.
        self._ends = dict(zip(grams, range(GRAM_TOKENS, len(prompt)), strict=False))

    def after(self, output: Sequence[int], most: int) -> Sequence[int]:
        """What stood behind the present end before, at most so many; the output has grown since the last call."""
        tokens, ends = self._tokens, self._ends
        for i in range(self._output, len(output)):
            ends[tuple(tokens[-GRAM_TOKENS:])] = len(tokens)
            tokens.append(output[i])
        self._output = len(output)
        start = ends.get(tuple(tokens[-GRAM_TOKENS:]))
        if start is None:
            return ()
        found = tokens[start : start + most]
        while len(found) < most:  # the output repeats itself at once: so it may go on
            found += found[: most - len(found)]
        return found
