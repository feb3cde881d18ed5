"""Chooses the drafts of each step: as many as give most tokens per second, by measured costs and acceptance.

One formula decides, for all sources: the tokens that a step is expected to give, over the seconds that it and its
drafts take, against the same of a plain step. The worth of a source's drafts is known per row, also from drafts
that were not run: the row's output tells it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

import mlx.core as mx

from ...options import DRAFT_TOKENS, SPECULATION, EngineOptions
from ...stats import NO_DRAFTS, DraftCounts
from ..costs.cost_model import MAX_STEP_TOKENS, CostModel
from ..pieces import Draft
from ..ports import Model
from ..prefix.cache import PrefixCache
from ..probes import agreement, takes_several
from ..row import KnownStates, Row
from .acceptance import Guess, Record, Trust
from .draft_model import DraftModel
from .head import HeadDrafter
from .past import Past
from .ports import DraftHead, Drafting
from .sources import CostlyDrafter, Drafter, ForcedTokens, PredictedText, PromptLookup

log = logging.getLogger("localai_shim")

MIN_GAIN = 1.08  # of expected tokens per second
REPEAT_GAIN = 1.15  # of a step of as many tokens as the one before, on a GPU: it was built while that one ran
MAX_STEP_COST = 4.0  # plain steps that one with drafts may take: rows without drafts wait as long
STALL_SHARE = 0.5  # of `max_stall` that one may take longer than a plain one, where prompts are run between steps
MAX_FAILURES = 8  # of choosing drafts, before an engine runs none any more
RECOVERY = 1 / 512  # of what a row trusted a costly source with, that it regains for each step without its drafts
NEW_ROWS_RECOVERY = RECOVERY / 4  # the same for new rows; slower, because each new row asks the source again


def own_drafters() -> list[Drafter]:
    """Those that need nothing but the rows, the surest first."""
    return [ForcedTokens(), PredictedText(), PromptLookup()]


@dataclass(slots=True, eq=False)
class Speculation:
    """Chooses the drafts of each step.

    Attributes:
        drafters: of each row, the one that was right most often is asked first.
        vocabulary: the model's; a tokenizer may know more tokens, which no draft may have: what is behind a row's last
            token is masked, and what comes of such a token may be no number.
        few_sizes: steps have one of few numbers of tokens, and rather that of the step before: GPUs prepare for each
            new one, and the next step is built ahead.
        counts: by source.
        costly: asked where no other has a better guess, and where that pays.
        max_stall: see `EngineOptions`.
        spent: seconds that it took for the latest drafts, which are no part of what a step costs.
    """

    drafters: Sequence[Drafter]
    few_sizes: bool = False
    vocabulary: int = 2**31
    counts: dict[str, DraftCounts] = field(default_factory=dict)
    costs: CostModel = field(default_factory=CostModel)
    costly: CostlyDrafter | None = None
    max_stall: float = inf
    spent: float = 0.0
    _last: int = 0
    """Most drafts of a row in the step before."""
    _failures: int = 0
    """Number of times that choosing drafts raised."""
    _weights: int = 0
    """Number of times that the model has got other weights."""
    _trust: dict[bool, dict[Drafter, Trust]] = field(default_factory=dict)
    """Of the costly source, for rows with a grammar and for others: it knows of no grammar."""

    @property
    def nbytes(self) -> int:
        """Bytes of what drafters keep of rows on the device."""
        return 0 if self.costly is None else self.costly.nbytes

    def expects(self, rows: Sequence[Row]) -> bool:
        """Tell if the step after the one in flight should be one of several tokens: it can't be built ahead then.

        Where nothing repeats this is called at each step, and asks hardly anybody.
        """
        if self._is_off or (self.costly is None and all(row.next_draft_at > row.generated for row in rows)):
            return False
        with self._giving_up(rows):
            guesses, most = self._decide(rows, flying=1)
            for row, guess in zip(rows, guesses, strict=True):
                if most and guess is not None:
                    row.next_draft_at = row.generated
            return most > 0
        return False

    def drafts(
        self, rows: Sequence[Row], *, wanted: bool = True, beside_prompts: bool = False
    ) -> tuple[Draft, ...] | None:
        """The drafts to run, per row; None: an ordinary step.

        Args:
            rows: all that run.
            wanted: False: none are, but there may be tokens to be run once more.
            beside_prompts: prompts are run after this step, for which rows wait as well.
        """
        guesses: list[Guess | None] = [None] * len(rows)
        most, self.spent = 0, 0.0
        with self._giving_up(rows):
            if wanted and not self._is_off:
                guesses, most = self._chosen(rows, STALL_SHARE * self.max_stall if beside_prompts else inf)
        self._last = most
        if not most and not any(row.replay for row in rows):
            return None
        return tuple(
            Draft(tuple(guess.tokens[:most]), guess.source.source) if guess is not None and most else Draft()
            for guess in guesses
        )

    def verified(self, rows: Sequence[Row], drafts: Sequence[Draft], accepted: Sequence[int]) -> None:
        """Count drafts that were run, and those of each row that were right."""
        for row, draft, right in zip(rows, drafts, accepted, strict=True):
            if draft.tokens:
                timings = row.request.timings
                timings.drafts = timings.drafts.plus(len(draft.tokens), right)
                self.counts[draft.source] = self.counts.get(draft.source, NO_DRAFTS).plus(len(draft.tokens), right)

    @property
    def reads_hidden(self) -> bool:
        """Passes should give hidden states."""
        return self.costly is not None and self.costly.reads_hidden and not self._is_off

    def ran(self, rows: Sequence[Row], hidden: mx.array, first: Sequence[int], counts: Sequence[int]) -> None:
        """Have the costly source take hidden states: see `CostlyDrafter.ran`."""
        if self.costly is not None:
            with self._giving_up():
                self.costly.ran(rows, hidden, first, counts)

    def wanted_states(self, rows: Sequence[Row]) -> int:
        """Number of a prompt's last tokens whose hidden states are wanted."""
        return self.costly.wanted_states(rows) if self.costly is not None and self.reads_hidden else 0

    def joined(self, rows: Sequence[Row], states: Sequence[KnownStates]) -> None:
        """Have the costly source take the hidden states of a prompt: see `CostlyDrafter.joined`."""
        if self.costly is not None and states:
            with self._giving_up():
                self.costly.joined(rows, states)

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        """Note the seconds of a step, by its tokens per row."""
        with self._giving_up():
            self.costs.note("step", (rows, tokens), seconds)

    def keep(self, rows: Sequence[Row]) -> None:
        """Have the costly source drop what it keeps of rows that have left."""
        if self.costly is not None:
            with self._giving_up():
                self.costly.keep(rows)

    def renew(self) -> None:
        """Forget how often drafts were right: the model has other weights."""
        self._weights += 1
        self._trust.clear()
        if self.costly is not None:
            self.costly.renew()

    # -----------------------------------------------------------------------------------------------------------

    @property
    def _caps(self) -> Sequence[int]:
        """Drafts per row that are weighed against each other."""
        return [tokens - 1 for tokens in self.costs.sizes[1:]]

    @property
    def _is_off(self) -> bool:
        return self._failures >= MAX_FAILURES

    @contextmanager
    def _giving_up(self, rows: Sequence[Row] = ()) -> Iterator[None]:
        """Take drafts from these rows if choosing them raises. Their caches are as they were."""
        try:
            yield
        except BaseException:
            self._failures += 1
            off = "; too many failures: this engine runs no more drafts" if self._is_off else ""
            log.exception("drafts failed; rows continue without them%s", off)
            for row in rows:
                row.drafting[self], row.next_draft_at = Record({}, self._weights), inf

    def _chosen(self, rows: Sequence[Row], longest: float) -> tuple[list[Guess | None], int]:
        """The guesses to be run, with those of the costly source, and the most tokens of one."""
        guesses, most = self._decide(rows, longest=longest)
        if any(guess is not None and guess.planned for guess in guesses):
            guesses, most = self._ask_costly(rows, guesses, most, longest)
        if most and self.few_sizes:
            most = min(most, max(len(guess.tokens) for guess in guesses if guess is not None))
            most = self._caps[bisect_right(self._caps, most) - 1]
        return guesses, most

    def _decide(self, rows: Sequence[Row], flying: int = 0, longest: float = inf) -> tuple[list[Guess | None], int]:
        """The guesses of each row, and the most tokens of one to be run; 0: none are.

        Args:
            rows: all that run.
            flying: guessed tokens that are in flight.
            longest: seconds that a step may take longer than a plain one.
        """
        guesses = [self._guess(row) if row.next_draft_at <= row.generated else None for row in rows]
        planned = self._plan(rows, guesses)
        gain, most = self._best(rows, guesses, flying, longest)
        if planned is not None:
            more, cap = self._best(rows, planned, flying, longest)
            if more > gain:
                most, guesses = cap, planned
            else:
                self._regain(rows)
        if any(planned or guesses) and not (flying and most):  # else the step is chosen once its first draft has come
            self.costs.choose()
        return guesses, most

    def _regain(self, rows: Sequence[Row]) -> None:
        """Trust the costly source, which is not asked for these rows, a little more."""
        costly = self.costly
        assert costly is not None
        for kind in self._trust.values():
            kind[costly].share += (costly.trust - kind[costly].share) * NEW_ROWS_RECOVERY
        for record in map(self._record, rows):
            if costly in record.acceptance:
                record.acceptance[costly] += (record.trust[costly].share - record.acceptance[costly]) * RECOVERY

    def _best(
        self, rows: Sequence[Row], guesses: Sequence[Guess | None], flying: int = 0, longest: float = inf
    ) -> tuple[float, int]:
        """The most tokens per second, relative to plain steps, and the drafts per row that give them; 0: none do."""
        some = [(guess, len(row.replay)) for guess, row in zip(guesses, rows, strict=True) if guess is not None]
        plain = self.costs.seconds("step", (len(rows), 1)) if some else None
        if plain is None:
            return MIN_GAIN, 0
        best, chosen, costly = MIN_GAIN, 0, sum(guess.planned > 0 for guess, _ in some)
        counts = [guess.count(flying) for guess, _ in some]
        for cap in self._caps if max(counts) > 0 else ():
            if self.few_sizes and cap > max(counts):
                break  # fewer would be run
            tokens = 1 + max(replay + min(cap, count) for (_, replay), count in zip(some, counts, strict=True))
            seconds = self.costs.seconds("step", (len(rows), tokens))
            if seconds is None:
                break
            if costly and self.costly is not None:
                seconds += self.costly.seconds(costly, min(cap, self.costly.most), plain)
            right = sum(guess.expected(cap, flying) for guess, _ in some)
            gain = (len(rows) + right) / len(rows) * plain / seconds
            gain *= REPEAT_GAIN if self.few_sizes and cap == self._last else 1.0
            waits = seconds > MAX_STEP_COST * plain and len(some) < len(rows)
            if gain > best and not waits and seconds - plain <= longest:
                best, chosen = gain, cap
            if cap >= max(counts):
                break
        return best, chosen

    def _guess(self, row: Row) -> Guess | None:
        """A row's drafts, by the source that was right most often among those that have some."""
        most = _most_drafts(row)
        if not row.request.speculation or most <= 0:
            return None
        record = self._record(row)
        record.learn(row)
        found = None
        for drafter, acceptance in sorted(record.acceptance.items(), key=lambda each: -each[1]):
            if drafter is not self.costly and (tokens := self._ask(drafter, [row], [most])[0]):
                found = Guess(drafter, acceptance, tokens)
                break
        record.guess, record.since = found, row.generated
        record.ask_later(row, found)
        return found

    def _plan(self, rows: Sequence[Row], guesses: Sequence[Guess | None]) -> list[Guess | None] | None:
        """The guesses with those of the costly source that could replace worse ones; None: it has none."""
        costly = self.costly
        if costly is None:
            return None
        out = list(guesses)
        for i, (row, guess) in enumerate(zip(rows, guesses, strict=True)):
            if not row.generated or not row.request.speculation or (most := _most_drafts(row)) <= 0:
                continue
            record = self._record(row)
            record.learn(row)
            rate = record.acceptance.get(costly, 0.0)
            if rate > (0.0 if guess is None else guess.acceptance) and costly.takes(row):
                out[i] = Guess(costly, rate, planned=min(costly.most, most), instead=guess)
        return out if any(guess is not None and guess.planned for guess in out) else None

    def _ask_costly(
        self, rows: Sequence[Row], planned: Sequence[Guess | None], most: int, longest: float
    ) -> tuple[list[Guess | None], int]:
        """Get the drafts that were planned; those that exist decide what is run."""
        assert self.costly is not None
        watch, out = self.costs.start(), list(planned)
        which = [(i, guess) for i, guess in enumerate(planned) if guess is not None and guess.planned]
        found = self._ask(self.costly, [rows[i] for i, _ in which], [min(most, guess.planned) for _, guess in which])
        for (i, guess), tokens in zip(which, found, strict=True):
            out[i] = guess.instead
            if tokens:
                record = self._record(rows[i])
                out[i] = record.guess = Guess(self.costly, guess.acceptance, tokens)
                record.since = rows[i].generated
        self.spent = watch.seconds
        return out, self._best(rows, out, longest=longest)[1]

    def _record(self, row: Row) -> Record:
        record: Record | None = row.drafting.get(self)
        if record is None or record.weights != self._weights:
            every = [*self.drafters, *([] if self.costly is None else [self.costly])]
            if record is not None:
                every = [each for each in every if each in record.acceptance]  # others have failed, or have no drafts
            takes = {each: each.trust for each in every if each is self.costly or each.takes(row)}
            costly, trust = self.costly, dict[Drafter, Trust]()
            if costly is not None and costly in takes:
                trust = self._trust.setdefault(row.constraint is not None, {costly: Trust(costly.trust)})
                takes[costly] = trust[costly].share
            record = row.drafting[self] = Record(takes, self._weights, trust)
        return record

    def _ask(self, drafter: Drafter, rows: Sequence[Row], most: Sequence[int]) -> Sequence[Sequence[int]]:
        """A source's drafts; rows for which it raises are not drafted for by it any more."""
        try:
            found = [tokens[:n] for tokens, n in zip(drafter.draft(rows, most), most, strict=True)]
            return [tokens if max(tokens, default=0) < self.vocabulary else () for tokens in found]
        except BaseException:  # that of a panic in Rust, of a grammar's, is no Exception
            log.exception("drafts by '%s' failed; its requests continue without drafts", drafter.source)
            for row in rows:
                self._record(row).acceptance.pop(drafter, None)
            return [()] * len(rows)


def speculation_for(
    model: Model,
    draft: Drafting | None,
    options: EngineOptions,
    max_stall: float,
    costs: CostModel,
    prefixes: PrefixCache | None,
) -> Speculation | None:
    """Chooser of the drafts of a model's rows; None: it has none.

    Args:
        model: the one that rows run on.
        draft: drafts for it, if there is one.
        options: the engine's.
        max_stall: as in these, or its default.
        costs: the engine's.
        prefixes: what is kept of its rows; None: nothing is.

    Raises:
        ValueError: `draft` cannot draft for it; says why.
    """
    mode = options.get("speculation", SPECULATION if draft is None else "auto")
    vocabulary = takes_several(model) if mode != "off" and agreement(model).together else 0
    if not vocabulary:
        if draft is not None and (options.get("draft_model") is not None or not isinstance(draft, DraftHead)):
            raise ValueError(f"draft_model: '{model.name}' takes one token per step: drafts cannot be run")
        if draft is not None:
            log.info("'%s' takes one token per step: its MTP head is not used", model.name)
        return None
    costly: CostlyDrafter | None = None
    most = options.get("draft_tokens") or DRAFT_TOKENS
    if isinstance(draft, DraftHead):
        past = None if prefixes is None else Past(prefixes.companion(draft.new_cache()))
        costly = HeadDrafter(draft, most, model, max_stall, costs, past)
    elif draft is not None:
        costly = DraftModel(draft, most, model, max_stall, costs)
    return Speculation(
        own_drafters(),
        few_sizes=model.samples_on_device,
        vocabulary=vocabulary,
        costs=costs,
        costly=costly,
        max_stall=max_stall,
    )


def _most_drafts(row: Row) -> int:
    """Most drafts of a row in the next step."""
    return min(MAX_STEP_TOKENS - 1 - len(row.replay), row.max_tokens - row.generated - 1)
