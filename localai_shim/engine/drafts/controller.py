"""Whether drafts are run, whose, and how many: what is expected of them against what steps of several tokens cost.

Steps cost what was measured, by how many rows they have and how many tokens of each. Every source is trusted, per row,
as far as its guesses were right: also those that were not run, as what a row emits tells that for nothing.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, prod

from ...stats import NO_DRAFTS, DraftCounts
from ..costs.step_costs import DRAFT_CAPS, StepCosts
from ..row import MAX_STEP_TOKENS, Row
from .sources import CostlyDrafter, Drafter, ForcedTokens, PredictedText, PromptLookup

log = logging.getLogger("localai_shim")

RATE_WEIGHT = 0.15  # of the latest draft in a source's share of right ones
MIN_GAIN = 1.08  # of expected tokens per second
MAX_COST = 4.0  # ordinary steps that one of several tokens may take: rows without drafts wait as long
STALL_SHARE = 0.5  # of `max_stall` that one may take longer than an ordinary one, where prompts are run between steps
LOW_RATE, MAX_WAIT_TOKENS = 0.3, 16  # below that share a source is asked less often
IDLE_TOKENS = 8  # most between two questions to a source that has no guess
SURE, SURE_IDLE_TOKENS = 0.5, 2  # a source that is trusted so much is asked sooner
REFUSED_STEPS = 4  # in a row with guesses that were not worth running, after which rows are asked less often by a token
TRUST_EVERY, TRUST_AGAIN = 256, 0.7  # refusals of a costly source, after which it gets such a share once more


def own_drafters() -> list[Drafter]:
    """Those that need nothing but the rows, the surest first."""
    return [ForcedTokens(), PredictedText(), PromptLookup()]


@dataclass(slots=True)
class _Trust:
    """What is known of one source's drafts for one row."""

    rate: float
    """The share that was right."""
    resume: float = 0
    """The source is asked again when the row has generated so many tokens."""
    wait: int = 1
    idle: int = 1
    """Tokens until it is asked again if it has no guess."""
    since: int = 0
    """Tokens that the row had generated before `guess`."""
    guess: Sequence[int] = ()

    def learn(self, row: Row) -> None:
        """Compare the last guess with what came."""
        came = row.output_tokens[self.since : self.since + len(self.guess)]
        if not came:
            return
        right = next((i for i, (a, b) in enumerate(zip(self.guess, came, strict=False)) if a != b), len(came))
        self.guess = ()
        self.rate = 1 - (1 - self.rate) * (1 - RATE_WEIGHT) ** right
        if right < len(came):
            self.rate *= 1 - RATE_WEIGHT
        self.wait = 1 if right or self.rate > LOW_RATE else min(2 * self.wait, MAX_WAIT_TOKENS)
        self.resume = row.generated + self.wait - 1

    def expected(self, drafts: int, flying: int = 0) -> float:
        """How many of so many drafts are probably right, behind so many tokens that are guessed, too."""
        rate = min(self.rate, 0.99)
        return rate**flying * rate * (1 - rate**drafts) / (1 - rate)

    def rest(self, row: Row, most: int) -> None:
        """It has no guess: ask again later, and ever later up to so many tokens."""
        self.resume = max(self.resume, row.generated + self.idle)
        self.idle = min(2 * self.idle, most)


@dataclass(slots=True)
class _Guess:
    source: Drafter
    trust: _Trust
    tokens: Sequence[int]


@dataclass(slots=True, eq=False)
class Speculation:
    """Chooses the drafts of each step.

    Attributes:
        drafters: the first that has a guess for a row is the one that counts.
        vocabulary: the model's; a tokenizer may know more tokens, which no draft may have: what is behind a row's last
            token is masked, and what comes of such a token may be no number.
        few_sizes: steps have one of few numbers of tokens: GPUs prepare for each new one.
        counts: by source.
        costly: asked where no other has a better guess, and where that pays.
        max_stall: see `EngineOptions`.
        spent: seconds that it took for the latest drafts, which are no part of what a step costs.
    """

    drafters: Sequence[Drafter]
    few_sizes: bool = False
    vocabulary: int = 2**31
    counts: dict[str, DraftCounts] = field(default_factory=dict)
    costs: StepCosts = field(default_factory=StepCosts)
    costly: CostlyDrafter | None = None
    max_stall: float = inf
    spent: float = 0.0
    _failed: bool = False
    """Choosing drafts has raised: none are run any more."""
    _most_seconds: float = inf
    _refused_costly: int = 0
    _refused: int = 0
    _run: list[_Guess | None] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of what drafters keep of rows on the device."""
        return 0 if self.costly is None else self.costly.nbytes

    def expects(self, rows: Sequence[Row]) -> bool:
        """Whether the step after the one in flight should be one of several tokens: it can't be built ahead then.

        Where nothing repeats this is called at each step, and asks hardly anybody.
        """
        due = [i for i, row in enumerate(rows) if row.asks <= row.generated]
        if self._failed or (not due and self.costly is None):
            return False
        with self._giving_up():
            guesses = self._guess(rows, due)
            return self._choose(rows, guesses, flying=1) > 0 or self._plan(rows, guesses)[1] > 0
        return False

    def drafts(
        self, rows: Sequence[Row], *, wanted: bool = True, beside_prompts: bool = False
    ) -> list[list[int]] | None:
        """The drafts to run, per row; None: an ordinary step.

        Args:
            rows: all that run.
            wanted: False: none are, but there may be tokens to be run once more.
            beside_prompts: prompts are run after this step, for which rows wait as well.
        """
        self._most_seconds = STALL_SHARE * self.max_stall if beside_prompts else inf
        self._run, most = [None] * len(rows), 0
        if wanted and not self._failed:
            with self._giving_up():
                self._run, most = self._decide(rows)
        if not most and not any(row.replay for row in rows):
            return None
        return [[] if guess is None else list(guess.tokens[:most]) for guess in self._run]

    def verified(self, drafts: Sequence[Sequence[int]], accepted: Sequence[int]) -> None:
        """The drafts were run, and so many of each row were right."""
        with self._giving_up():
            for guess, some, right in zip(self._run, drafts, accepted, strict=True):
                if guess is not None and some:
                    name = guess.source.source
                    self.counts[name] = self.counts.get(name, NO_DRAFTS).plus(len(some), right)

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        """Measured: see `StepCosts.note`."""
        with self._giving_up():
            self.costs.note(rows, tokens, seconds)

    def keep(self, rows: Sequence[Row]) -> None:
        """Have the costly source drop what it keeps of rows that have left."""
        if self.costly is not None:
            with self._giving_up():
                self.costly.keep(rows)

    # -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Run no drafts any more where choosing them raises: rows go on without, and their caches are as they were."""
        try:
            yield
        except BaseException:
            log.exception("drafts failed; rows go on without")
            self._failed = True

    def _decide(self, rows: Sequence[Row]) -> tuple[list[_Guess | None], int]:
        """The guesses to run of each row, and the most tokens of one; 0: none are."""
        guesses = self._guess(rows, [i for i, row in enumerate(rows) if row.asks <= row.generated])
        self._ask_costly(rows, guesses)
        most = self._choose(rows, guesses)
        if most and self.few_sizes:
            longest = max(len(guess.tokens) for guess in guesses if guess is not None)
            most = DRAFT_CAPS[bisect_right(DRAFT_CAPS, min(longest, most)) - 1]
        return guesses if most else [None] * len(rows), most

    def _guess(self, rows: Sequence[Row], due: Sequence[int]) -> list[_Guess | None]:
        """Each row's drafts, by the first source that has some; only these rows' sources are asked."""
        out: list[_Guess | None] = [None] * len(rows)
        due = [i for i in due if rows[i].request.speculation]
        room = dict(zip(due, _room([rows[i] for i in due]), strict=True))
        open_rows = [i for i in due if room[i] > 0]
        for drafter in self.drafters:
            asked = []
            for i in open_rows:
                trust = self._trust(rows[i], drafter)
                if trust.guess:
                    trust.learn(rows[i])
                if trust.resume <= rows[i].generated:
                    asked.append(i)
            if not asked:
                continue
            found = self._ask(drafter, [rows[i] for i in asked], [room[i] for i in asked])
            for i, tokens in zip(asked, found, strict=True):
                trust = self._trust(rows[i], drafter)
                if tokens:
                    trust.since, trust.guess, trust.idle = rows[i].generated, tokens, 1
                    out[i] = _Guess(drafter, trust, tokens)
                else:
                    trust.rest(rows[i], SURE_IDLE_TOKENS if drafter.trust > SURE else IDLE_TOKENS)
            open_rows = [i for i in open_rows if out[i] is None]
        for i in due:
            row = rows[i]
            if out[i] is not None:
                row.asks = row.generated + self._wait
            else:
                resume = min((self._trust(row, drafter).resume for drafter in self.drafters), default=inf)
                row.asks = max(resume, row.generated + 1)
        return out

    @property
    def _wait(self) -> int:
        """Tokens until rows are asked again whose guesses were not worth running."""
        return min(self._refused // REFUSED_STEPS, IDLE_TOKENS)

    def _plan(self, rows: Sequence[Row], guesses: Sequence[_Guess | None]) -> tuple[list[int], int]:
        """The rows that the costly source should draft for, and how many tokens of each; 0: it does not pay."""
        if (costly := self.costly) is None:
            return [], 0
        room = _room(rows)
        which: list[tuple[int, _Trust]] = []
        for i, row in enumerate(rows):
            if room[i] > 0 and row.generated and row.request.speculation and costly.takes(row):
                trust, guess = self._trust(row, costly), guesses[i]
                if trust.guess:
                    trust.learn(row)
                if trust.resume <= row.generated and (guess is None or guess.trust.rate < trust.rate):
                    which.append((i, trust))
        best, chosen = MIN_GAIN * len(rows), 0
        step = self.costs.seconds(len(rows)) if which else None
        for cap in sorted({*DRAFT_CAPS, costly.most}) if which else ():
            tokens = max(len(rows[i].replay) + 1 + min(cap, room[i]) for i, _ in which)
            cost = self.costs.relative(len(rows), tokens)
            if cost is None or cap > costly.most:
                break
            cost += costly.cost(len(which), cap, step)
            gain = (len(rows) + sum(trust.expected(min(cap, room[i])) for i, trust in which)) / cost
            if gain > best and self._may_take(cost, len(rows), all_gain=len(which) == len(rows)):
                best, chosen = gain, cap
        if which and not chosen:
            self._refused_costly += 1
            if self._refused_costly % TRUST_EVERY == 0:
                for _, trust in which:
                    trust.rate = max(trust.rate, TRUST_AGAIN)
        return [i for i, _ in which], chosen

    def _ask_costly(self, rows: Sequence[Row], guesses: list[_Guess | None]) -> None:
        """Put the costly source's drafts, where they pay, in the place of other guesses."""
        self.spent = 0.0
        which, most = self._plan(rows, guesses)
        if self.costly is None or not most:
            return
        start, room = time.perf_counter(), _room(rows)
        found = self._ask(self.costly, [rows[i] for i in which], [min(most, room[i]) for i in which])
        for i, tokens in zip(which, found, strict=True):
            if tokens:
                trust = self._trust(rows[i], self.costly)
                trust.since, trust.guess = rows[i].generated, tokens
                guesses[i] = _Guess(self.costly, trust, tokens)
        self.spent = time.perf_counter() - start

    def _may_take(self, cost: float, rows: int, *, all_gain: bool) -> bool:
        """Whether rows can wait for a step that takes so many ordinary ones."""
        return (cost <= MAX_COST or all_gain) and (cost - 1) * (self.costs.seconds(rows) or 0.0) <= self._most_seconds

    def _trust(self, row: Row, drafter: Drafter) -> _Trust:
        key = (self, drafter)
        trust: _Trust | None = row.drafting.get(key)
        if trust is None:
            trust = row.drafting[key] = _Trust(drafter.trust, 0 if drafter.takes(row) else inf)
        return trust

    def _ask(self, drafter: Drafter, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        try:
            found = [tokens[:n] for tokens, n in zip(drafter.draft(rows, most), most, strict=True)]
            return [tokens if max(tokens, default=0) < self.vocabulary else () for tokens in found]
        except BaseException:  # that of a panic in Rust, of a grammar's, is no Exception
            log.exception("drafts by '%s' failed; its rows go on without", drafter.source)
            for row in rows:
                self._trust(row, drafter).resume = float("inf")
            return [()] * len(rows)

    def _choose(self, rows: Sequence[Row], guesses: Sequence[_Guess | None], flying: int = 0) -> int:
        """The most drafts per row that give most tokens per second; 0: none do.

        Args:
            rows: all that run.
            guesses: what is guessed for them, if anything.
            flying: so many of the guessed tokens are in flight. Where none of them is right, one step has not been
                built ahead for nothing.
        """
        some = [
            (guess.trust, len(guess.tokens) - flying, len(row.replay))
            for guess, row in zip(guesses, rows, strict=True)
            if guess is not None
        ]
        if not some:
            return 0
        best, chosen, size = MIN_GAIN * len(rows), 0, 1
        lost = prod(1 - trust.rate for trust, _, _ in some) if flying else 0.0
        longest = max(count for _, count, _ in some)
        for cap in DRAFT_CAPS:
            tokens = 1 + max(replay + min(cap, count) for _, count, replay in some)
            cost = self.costs.relative(len(rows), tokens) if tokens > 1 else None
            if cost is None:
                break
            right = sum(trust.expected(min(cap, count), flying) for trust, count, _ in some)
            gain = (len(rows) + right) / (cost + lost * (self.costs.loose(len(rows)) - cost))
            if gain > best and self._may_take(cost, len(rows), all_gain=len(some) == len(rows)):
                best, chosen, size = gain, cap, tokens
            if longest + flying <= cap:
                break
        self.costs.chose(len(rows), size, steps=1 + self._wait)
        self._refused = 0 if chosen else self._refused + 1
        return chosen


def _room(rows: Sequence[Row]) -> list[int]:
    """Most drafts of each row in the next step."""
    return [min(MAX_STEP_TOKENS - 1 - len(row.replay), row.max_tokens - row.generated - 1) for row in rows]
