"""Whether drafts are run, whose, and how many: what is expected of them against what steps of several tokens cost.

Steps cost what was measured, by how many rows they have and how many tokens of each. Every source is trusted, per row,
as far as its guesses were right: also those that were not run, as what a row emits tells that for nothing.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod

from ..stats import NO_DRAFTS, DraftCounts
from .drafts import CostlyDrafter, Drafter, ForcedTokens, PredictedText, PromptLookup
from .row import Row
from .verify import MAX_STEP_TOKENS

log = logging.getLogger("localai_shim")

DRAFT_CAPS = (1, 2, 4, 8, MAX_STEP_TOKENS - 1)  # drafts per row that are weighed against each other
RATE_WEIGHT = 0.15  # of the latest draft in a source's share of right ones
BASE_STEPS, SEVERAL_STEPS = 15, 7  # that are kept
MIN_STEPS = 4  # that have to be run before they count
STALE_STEPS = 256  # with drafts, after which ordinary ones are measured again: the first ones may have been slow ones
NEAR_ROWS = 1.25  # times as many rows, up to which steps are taken to cost the same
FIRST_TOKEN_COST = 0.05  # of a step, that another token per row is taken to cost before it was measured
FURTHER_SHARE = 0.25  # of what the first drafts cost, that as many more are taken to cost: some is for any number
FURTHEST_SIZE = 2  # of `DRAFT_CAPS`, behind the largest that was measured, which may be tried
MIN_GAIN = 1.08  # of expected tokens per second
MAX_COST = 4.0  # ordinary steps that one of several tokens may take: rows without drafts wait as long
STALL_SHARE = 0.5  # of `max_stall` that one may take longer than an ordinary one, where prompts are run between steps
LOOSE_COST = 1.15  # ordinary steps, that one is taken to cost which could not be built ahead, before that was measured
FORGET_EVERY, MAX_FORGET_EVERY = 16, 256  # refusals of drafts, after which a measurement against them is dropped
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


class StepCosts:
    """What steps take, from the beginning of one to that of the next.

    Some take far longer than others for reasons of their own: what a good one of the last takes is what counts.
    """

    def __init__(self) -> None:
        self._base: dict[int, deque[float]] = {}
        """By rows: seconds of ordinary steps."""
        self._known: dict[int, float] = {}
        """By rows: what such a step takes."""
        self._several: dict[tuple[int, int], deque[float]] = {}
        """By `_group` and `_size`: steps of several tokens, in ordinary steps of as many rows. Size -1: one token, not
        built ahead."""
        self._seen: set[tuple[int, int]] = set()
        self._since: dict[int, int] = {}
        """By rows: steps with drafts since an ordinary one was measured."""
        self._refused: dict[int, tuple[int, int]] = {}
        """By `_group`: refusals since the last that had a measurement dropped, and how many the next one takes."""

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        """Measured: a step of so many tokens per row; 0: of one that was not built ahead.

        The first of its kind does not count: GPUs prepare for what is new to them.
        """
        base, size = self._base.setdefault(rows, deque(maxlen=BASE_STEPS)), _size(tokens) if tokens else -1
        if tokens == 1:
            base.append(seconds)
            if len(base) >= MIN_STEPS:
                self._known[rows], self._since[rows] = _good(base), 0
            return
        if tokens:
            self._since[rows] = self._since.get(rows, 0) + 1
            if self._since[rows] == STALE_STEPS:
                base.clear()
        if (rows, size) not in self._seen:
            self._seen.add((rows, size))
        elif usual := _good(base) if base else self.seconds(rows):
            measured = self._several.setdefault((_group(rows), size), deque(maxlen=SEVERAL_STEPS))
            measured.append(seconds / usual)

    def loose(self, rows: int) -> float:
        """What a step takes that could not be built ahead, in ordinary ones."""
        measured = self._several.get((_group(rows), -1), ())
        return max(1.0, _good(measured)) if len(measured) >= MIN_STEPS - 1 else LOOSE_COST

    def seconds(self, rows: int) -> float | None:
        """What an ordinary step takes; None: it is to be measured.

        Rows end one by one: numbers of rows between two that are known, or near one, are not measured each.
        """
        known = self._known
        if rows in known:
            return known[rows]
        below = max((n for n in known if n < rows), default=None)
        above = min((n for n in known if n > rows), default=None)
        if below is not None and above is not None:
            return known[below] + (known[above] - known[below]) * (rows - below) / (above - below)
        near = below if above is None else above
        return known[near] if near is not None and max(near, rows) <= NEAR_ROWS * min(near, rows) else None

    def relative(self, rows: int, tokens: int) -> float | None:
        """What a step of so many tokens per row takes, in ordinary ones; None: smaller ones are to be measured first.

        A few steps make a measurement. What nobody has measured is told by a line through the nearest that were. Where
        there is one only, some of what it costs is taken to be the same for any number of tokens.
        """
        if self._is_stale(rows) or self.seconds(rows) is None:
            return None
        group, size = _group(rows), _size(tokens)
        known = [
            (DRAFT_CAPS[other], _good(measured))
            for other in range(len(DRAFT_CAPS))
            if len(measured := self._several.get((group, other), ())) >= MIN_STEPS - 1
        ]
        if not known:
            return 1 + FIRST_TOKEN_COST if size == 0 else None
        if size > _size(known[-1][0] + 1) + FURTHEST_SIZE:
            return None
        return _cost_at(DRAFT_CAPS[size], known)

    def refuse(self, rows: int) -> None:
        """Take note that drafts were not worth their cost: that is measured anew, soon at first and then ever later."""
        if self._is_stale(rows):
            return
        refused, most = self._refused.get(_group(rows), (0, FORGET_EVERY))
        if refused + 1 >= most:
            refused, most = -1, min(2 * most, MAX_FORGET_EVERY)
            for (group, size), measured in self._several.items():
                if group == _group(rows) and size >= 0 and measured:
                    measured.popleft()
        self._refused[_group(rows)] = refused + 1, most

    def _is_stale(self, rows: int) -> bool:
        return self._since.get(rows, 0) >= STALE_STEPS


def _cost_at(drafts: int, known: Sequence[tuple[int, float]]) -> float:
    """What a step of so many drafts takes, by those that are known, ascending: (drafts, cost)."""
    (first, cost), *others = known
    if drafts <= first or not others:
        more = drafts / first - 1
        return cost + (cost - 1) * more * (FURTHER_SHARE if more > 0 else 0.5)
    at = next((i for i, (count, _) in enumerate(known) if count >= drafts), len(known) - 1)
    (below, less), (above, more) = known[at - 1 : at + 1]
    return more + max(0.0, more - less) * (drafts - above) / (above - below)


def _good(measured: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(measured)[len(measured) // 4]


def _group(rows: int) -> int:
    """Numbers of rows that are measured together: 1, 2, 3 to 4, 5 to 8, ..."""
    return (rows - 1).bit_length()


def _size(tokens: int) -> int:
    """The smallest of `DRAFT_CAPS` that a step of so many tokens per row fits into."""
    return bisect_left(DRAFT_CAPS, min(tokens - 1, DRAFT_CAPS[-1]))


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
        if not due and self.costly is None:
            return False
        guesses = self._guess(rows, due)
        return self._choose(rows, guesses, flying=1) > 0 or self._plan(rows, guesses)[1] > 0

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
        most, guesses = 0, self._guess(rows, [i for i, row in enumerate(rows) if wanted and row.asks <= row.generated])
        if wanted:
            self._ask_costly(rows, guesses)
            most = self._choose(rows, guesses)
        if not most and not any(row.replay for row in rows):
            return None
        if most and self.few_sizes:
            longest = max(len(guess.tokens) for guess in guesses if guess is not None)
            most = DRAFT_CAPS[bisect_right(DRAFT_CAPS, min(longest, most)) - 1]
        self._run = [None if guess is None or not most else guess for guess in guesses]
        return [[] if guess is None else list(guess.tokens[:most]) for guess in self._run]

    def verified(self, drafts: Sequence[Sequence[int]], accepted: Sequence[int]) -> None:
        """The drafts were run, and so many of each row were right."""
        for guess, some, right in zip(self._run, drafts, accepted, strict=True):
            if guess is not None and some:
                name = guess.source.source
                self.counts[name] = self.counts.get(name, NO_DRAFTS).plus(len(some), right)

    # -----------------------------------------------------------------------------------------------------------

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
        wait = min(self._refused // REFUSED_STEPS, IDLE_TOKENS)
        for i in due:
            row = rows[i]
            if out[i] is not None:
                row.asks = row.generated + wait
            else:
                resume = min((self._trust(row, drafter).resume for drafter in self.drafters), default=inf)
                row.asks = max(resume, row.generated + 1)
        return out

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
        except Exception:
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
        some = [(guess, len(row.replay)) for guess, row in zip(guesses, rows, strict=True) if guess is not None]
        if not some:
            return 0
        best, chosen = MIN_GAIN * len(rows), 0
        lost = prod(1 - guess.trust.rate for guess, _ in some) if flying else 0.0
        for cap in DRAFT_CAPS:
            counts = [min(cap, len(guess.tokens) - flying) for guess, _ in some]
            tokens = max(replay + 1 + count for (_, replay), count in zip(some, counts, strict=True))
            cost = self.costs.relative(len(rows), tokens) if tokens > 1 else None
            if cost is None:
                break
            right = sum(guess.trust.expected(n, flying) for (guess, _), n in zip(some, counts, strict=True))
            gain = (len(rows) + right) / (cost + lost * (self.costs.loose(len(rows)) - cost))
            if gain > best and self._may_take(cost, len(rows), all_gain=len(some) == len(rows)):
                best, chosen = gain, cap
            if all(len(guess.tokens) <= cap for guess, _ in some):
                break
        self._refused = 0 if chosen else self._refused + 1
        if not chosen:
            self.costs.refuse(len(rows))
        return chosen


def _room(rows: Sequence[Row]) -> list[int]:
    """Most drafts of each row in the next step."""
    return [min(MAX_STEP_TOKENS - 1 - len(row.replay), row.max_tokens - row.generated - 1) for row in rows]
