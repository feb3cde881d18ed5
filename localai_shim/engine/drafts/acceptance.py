"""Shares of the drafts of each source that were right: of one row, and of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ..row import Row
from .sources import Drafter

ACCEPTANCE_WEIGHT = 0.15  # of the latest draft in the average of a source's right ones
LOW_ACCEPTANCE, SURE_ACCEPTANCE = 0.3, 0.5  # below the one a row is asked ever more rarely, above the other sooner
MAX_WAIT_TOKENS, MAX_SURE_WAIT_TOKENS = 8, 2  # until a row without a good guess is asked again
TRUST_GUESSES, MAX_TRUST_GUESSES = 16, 64  # that a costly source's trust counts as, at first and later


@dataclass(frozen=True, slots=True)
class Guess:
    """Drafts of a source for a row, those that exist or those that it could be asked for."""

    source: Drafter
    acceptance: float
    tokens: Sequence[int] = ()
    planned: int = 0
    """Tokens that a costly source could be asked for; 0: these are there."""
    instead: Guess | None = None
    """Another source's, which it replaces."""

    def expected(self, cap: int, flying: int) -> float:
        """Expected number of right tokens among `cap`, behind `flying` guessed ones that are in flight."""
        rate, drafts = min(self.acceptance, 0.99), min(cap, self.count(flying))
        return rate ** (0 if self.planned else flying) * rate * (1 - rate**drafts) / (1 - rate)

    def count(self, flying: int) -> int:
        """Drafts in the next step."""
        return self.planned or len(self.tokens) - flying


@dataclass(slots=True)
class Trust:
    """The share of a costly source's guesses that are right, of all rows of a kind: it is expected of new ones."""

    share: float
    guesses: int = TRUST_GUESSES

    def learn(self, right: int, wrong: int) -> None:
        """Take the numbers of guesses that were right and wrong into the average."""
        self.guesses = min(self.guesses + right + wrong, MAX_TRUST_GUESSES)
        self.share += (right - (right + wrong) * self.share) / self.guesses


@dataclass(slots=True)
class Record:
    """The sources that a row may have drafts of, and how many of their guesses were right."""

    acceptance: dict[Drafter, float]
    weights: int = 0
    """Number of the weights that the model had."""
    trust: Mapping[Drafter, Trust] = field(default_factory=dict)
    """Of costly sources."""
    guess: Guess | None = None
    since: int = 0
    """Tokens that the row had generated before the guess."""
    wait: int = 0

    def learn(self, row: Row) -> None:
        """Compare the last guess with what came."""
        guess = self.guess
        came = row.output_tokens[self.since : self.since + len(guess.tokens)] if guess is not None else ()
        if guess is None or not came:
            return
        self.guess = None
        right = next((i for i, (a, b) in enumerate(zip(guess.tokens, came, strict=False)) if a != b), len(came))
        if guess.source in self.acceptance:
            rate = 1 - (1 - self.acceptance[guess.source]) * (1 - ACCEPTANCE_WEIGHT) ** right
            self.acceptance[guess.source] = rate * (1 - ACCEPTANCE_WEIGHT * (right < len(came)))
        if guess.source in self.trust:
            self.trust[guess.source].learn(right, right < len(came))

    def ask_later(self, row: Row, guess: Guess | None) -> None:
        """Have the row asked again at once where it has a good guess, else ever later."""
        if guess is not None and guess.acceptance >= LOW_ACCEPTANCE:
            self.wait = 0
        else:
            sure = max(self.acceptance.values(), default=0.0) > SURE_ACCEPTANCE
            self.wait = min(max(1, 2 * self.wait), MAX_SURE_WAIT_TOKENS if sure else MAX_WAIT_TOKENS)
        row.next_draft_at = row.generated + self.wait if self.acceptance else inf
