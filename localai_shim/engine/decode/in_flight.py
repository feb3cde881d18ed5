"""A batch's work in flight between two steps, as one value.

`Idle` -> `Queued` | `AwaitingHost` | `Verifying` when a step is launched. To finish one gives what it sampled, and what
is in flight then: the step that was built behind it, or `Idle`. A value is of the batch's present rows, in their order.

`Verifying` is a step of several tokens per row: drafts run behind a row's last token, and those that it would have
sampled stay. Every position is sampled as if the tokens before it had been emitted one by one: with the row's noise for
the position, and after penalties, masks and stop checks have seen them. A row emits the same tokens as without drafts.

Rows whose sampling does not depend on their history are sampled at all positions at once. Others are sampled position
by position, together, as far as their drafts were right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import Failure, RowError
from ..kv import Buckets, BucketStep, BuiltBuckets, Place
from ..pieces import Draft
from ..ports import Model, PassOutput, StepInput
from ..row import Details, Emit, Row, adapters_of, emit_next
from ..sampling import host
from ..sampling.sampler import Sample, Sampler, has_history
from .forward import StepGraph, joined, states_of, these

_async_eval: Callable[..., None] = mx.async_eval


@dataclass(slots=True)
class Idle:
    """Nothing: rows' last tokens are to be run next."""

    joined: bool = False
    """Rows have joined since the last step: they get their first tokens before anything is guessed or built ahead."""
    sizes: Sequence[int] = ()
    """Tokens of each row in the step that has just ended, by bucket, if it was one of several."""
    built: VerifyGraph | None = None
    """A step of as many tokens again."""

    def launch(self) -> None:
        """Queue nothing."""

    def wait(self) -> None:
        """Return at once."""

    def take(self, indices: Sequence[int]) -> Idle:
        """The same."""
        return self


@dataclass(slots=True)
class Queued:
    """A step of one token each whose sample is queued on the device, too, and not read yet."""

    sample: Sample
    hidden: mx.array | None = None
    """`[rows, width]`: hidden states of the tokens that run, if they are wanted."""
    next: Queued | None = None
    """The step after that one, built and not queued yet."""

    def launch(self) -> None:
        _async_eval(*self.sample.arrays())

    def wait(self) -> None:
        mx.eval(*self.sample.arrays())

    def finish(self, sampler: Sampler) -> tuple[Sample, Idle | Queued]:
        """The sample, and what is to be in flight behind it."""
        return self.sample, Idle() if self.next is None else self.next

    def take(self, indices: Sequence[int]) -> Queued:
        """The same for these of the rows."""
        following = None if self.next is None else self.next.take(indices)
        return Queued(self.sample.take(indices), these(self.hidden, indices), following)


@dataclass(slots=True)
class AwaitingHost:
    """A step of one token each from whose logits the host is to sample."""

    logits: mx.array
    hidden: mx.array | None = None
    """`[rows, width]`: hidden states of the tokens that run, if they are wanted."""
    built: StepGraph | None = None
    """The step after these logits."""

    def launch(self) -> None:
        _async_eval(self.logits)

    def wait(self) -> None:
        mx.eval(self.logits)

    def finish(self, sampler: Sampler) -> tuple[Sample, Idle | AwaitingHost]:
        """The sample, and what is to be in flight behind it."""
        sample = sampler.sample(self.logits)
        return sample, Idle() if self.built is None else AwaitingHost(*self.built.run(np.maximum(sample.tokens, 0)))

    def take(self, indices: Sequence[int]) -> AwaitingHost:
        """The same for these of the rows."""
        built = None if self.built is None else self.built.take(indices)
        return AwaitingHost(self.logits[mx.array(list(indices))], these(self.hidden, indices), built)


@dataclass(slots=True)
class VerifyGraph:
    """The graph of a step of several tokens, built before these are known."""

    cache: BuiltBuckets
    tokens: list[npt.NDArray[np.int32]]
    """Views of its inputs, `[slots, tokens]` of each bucket."""
    made: PassOutput[mx.array]
    """Its logits, `[positions, vocabulary]`, and hidden states, not computed yet."""


@dataclass(slots=True)
class Verifying:
    """A step of several tokens in flight, once it has been launched."""

    rows: list[Row]
    """The batch's when it was begun: some may have left since."""
    places: Sequence[Place]
    drafts: Sequence[Draft]
    blocks: Sequence[Sequence[int]]
    """Of each row what it runs once more, its last token, and its drafts."""
    steps: Sequence[BucketStep]
    built: VerifyGraph | None = None
    """Its graph, where that was built before."""
    logits: mx.array | None = None
    """`[positions, vocabulary]`: after each token that runs, those to no purpose included. None: not launched yet."""
    first: list[int] = field(default_factory=list)
    """Of each row, the position after its last token; those after its drafts follow."""
    wants_hidden: bool = False
    hidden: mx.array | None = None
    """`[positions, width]` as the logits, if they are wanted."""
    repeats: bool = False
    """The step before it was of as many tokens of each row, and the one behind it probably is."""
    next: VerifyGraph | None = None
    """The next such step, built while this one runs."""

    @property
    def sizes(self) -> list[int]:
        """Tokens of each row, by bucket."""
        return [step.tokens for step in self.steps]

    def launch(self, model: Model) -> None:
        """Queue the step's graph, built now if it was not before; models may compute some of it meanwhile."""
        at = {place: i for i, place in enumerate(self.places)}
        self.first, start = [0] * len(self.rows), 0
        parts: list[PassOutput[mx.array]] = []
        built, self.built = self.built, None
        for number, (name, step) in enumerate(zip(_names(self.places), self.steps, strict=True)):
            mine = {slot: self.blocks[at[name, slot]] for slot in step.slots}
            padding = [0] * step.tokens
            tokens = [[*mine.get(slot, ()), *padding][: step.tokens] for slot in range(step.width)]
            if built is None:
                counts = [len(mine.get(slot, padding)) for slot in range(step.width)]
                rows = _rows(self.rows, at, name, step)
                inputs = _step(mx.array(tokens, mx.int32), counts, rows, step, self.wants_hidden)
                parts.append(model.forward(inputs))
            else:
                built.tokens[number][...] = tokens
            for slot in step.slots:
                i = at[name, slot]
                self.first[i] = start + slot * step.tokens + len(self.blocks[i]) - len(self.drafts[i].tokens) - 1
            start += step.width * step.tokens
        self.logits, self.hidden = _joined(parts) if built is None else built.made
        _async_eval(self.logits)

    def build(self, cache: Buckets, model: Model) -> None:
        """While it runs, build a step behind it, of as many tokens, if that can be done.

        How many tokens its rows hold is not known yet, nor what these are. Nothing of it may be computed meanwhile.
        """
        names = _names(self.places)
        at = {place: i for i, place in enumerate(self.places)}
        with cache.build(dict(zip(names, self.steps, strict=True))) as made:
            if made is None:
                return
            inputs = [mx.array(np.zeros((step.width, step.tokens), np.int32)) for step in made.steps]
            parts = []
            for name, step, tokens in zip(names, made.steps, inputs, strict=True):
                whole = [step.tokens] * step.width
                rows = _rows(self.rows, at, name, step)
                parts.append(model.forward(_step(tokens, whole, rows, step, self.wants_hidden)))
        # MLX's arrays and views of them share their memory: what is written before the graph runs is its input.
        self.next = VerifyGraph(made, [np.array(tokens, copy=False) for tokens in inputs], _joined(parts))

    def wait(self) -> None:
        if self.logits is not None:
            mx.eval(self.logits)

    def take(self, indices: Sequence[int]) -> Verifying:
        """The same: those of its rows that have left get nothing."""
        return self

    def finish(self, rows: list[Row], cache: Buckets, model: Model, emit: Emit) -> Verifier:
        """Emit what holds, and take the rest out of the caches.

        Args:
            rows: the batch's now; others of the step's get nothing.
            cache: that it was launched on.
            model: as well.
            emit: takes each event.
        """
        assert self.logits is not None
        here = set(rows)
        which = [i for i, row in enumerate(self.rows) if row in here]
        done = Verifier(self, self.logits, model, emit)
        done.verify(which)
        places, left = [self.places[i] for i in which], [self.rows[i] for i in which]
        _take_back(cache, places, left, [done.emitted[i] for i in which])
        return done


def begin_step(
    cache: Buckets,
    places: Sequence[Place],
    rows: list[Row],
    drafts: Sequence[Draft],
    built: VerifyGraph | None = None,
    after: Sequence[int] = (),
    *,
    hidden: bool = False,
) -> Verifying:
    """Begin a step: of each row what is to be run once more, its last token, and its drafts. `launch` comes next.

    Args:
        built: the graph of such a step, which may be for other rows. It should have no other holder.
        after: `sizes` of the step before; none, if it was an ordinary one.
        hidden: hidden states are wanted, too.
    """
    blocks = [[*row.replay, row.last_token, *draft.tokens] for row, draft in zip(rows, drafts, strict=True)]
    counts = {place: len(block) for place, block in zip(places, blocks, strict=True)}
    fits = built is not None and (not hidden or built.made.hidden is not None)
    steps = cache.begin_built(built.cache, counts) if built is not None and fits else None
    if steps is None:
        built, steps = None, cache.advance_several(counts)
    sizes = [step.tokens for step in steps]
    repeats = sizes == list(after) and any(draft.tokens for draft in drafts)
    return Verifying(rows, places, drafts, blocks, steps, built, wants_hidden=hidden, repeats=repeats)


def _names(places: Sequence[Place]) -> list[int]:
    """The buckets of places, in the order of the batch."""
    return list(dict.fromkeys(name for name, _ in places))


def _joined(parts: Sequence[PassOutput[mx.array]]) -> PassOutput[mx.array]:
    """The results of buckets by position."""
    states = [part.hidden.flatten(0, 1) for part in parts if part.hidden is not None]
    return PassOutput(joined([part.logits.flatten(0, 1) for part in parts]), joined(states) if states else None)


def _rows(rows: Sequence[Row], at: Mapping[Place, int], name: int, step: BucketStep) -> list[Row]:
    """The row of each slot; freed ones run on some row's."""
    return [rows[at.get((name, slot), at[name, step.slots[0]])] for slot in range(step.width)]


def _step(tokens: mx.array, counts: Sequence[int], rows: Sequence[Row], step: BucketStep, hidden: bool) -> StepInput:
    adapters, states = adapters_of(rows), states_of(rows)
    return StepInput(tokens, step.layers, counts, states, adapters=adapters, hidden=hidden, starts=step.starts)


def _take_back(cache: Buckets, places: Sequence[Place], rows: Sequence[Row], emitted: Sequence[int]) -> None:
    """Take what was wrong out of the caches; rows know afterwards what they must run once more."""
    kept = [len(row.replay) + max(1, count) for row, count in zip(rows, emitted, strict=True)]
    stayed = cache.settle(dict(zip(places, kept, strict=True)))
    for place, row, count in zip(places, rows, kept, strict=True):
        lost = count - stayed[place]
        row.replay = [*row.prompt_tokens[-1:], *row.output_tokens[-lost - 1 :]][-lost - 1 : -1] if lost else []


class Verifier:
    """Samples after every token of a step, and emits what holds.

    Args:
        step: what ran.
        logits: its.
        model: whose they are.
        emit: takes each event.

    Attributes:
        emitted: tokens that each row emitted; 0 for one that failed at once, or has left.
        accepted: of these, its drafts: all, where a row ended with one, else all but the last.
        ended: rows that did with one of these.
        failed: rows that did.
    """

    def __init__(self, step: Verifying, logits: mx.array, model: Model, emit: Emit) -> None:
        self._rows, self._drafts, self._first, self._logits = step.rows, step.drafts, step.first, logits
        self._model, self._emit, self._eos = model, emit, sorted(model.eos_token_ids)
        self.emitted, self.accepted = [0] * len(step.rows), [0] * len(step.rows)
        self.ended: list[Row] = []
        self.failed: list[Row] = []

    def verify(self, which: Sequence[int]) -> None:
        """Sample and emit for the rows at these places."""
        at_once = [i for i in which if not has_history(self._rows[i])]
        others = [i for i in which if has_history(self._rows[i])]
        if at_once:
            self._sample_at_once(at_once)
        t = 0
        while others:
            others = self._sample_at(others, t)
            t += 1

    def _at(self, positions: list[int]) -> mx.array:
        """The logits at some positions, `[positions, vocabulary]`."""
        return self._logits if positions == list(range(len(self._logits))) else self._logits[mx.array(positions)]

    def _sample_at_once(self, which: Sequence[int]) -> None:
        pairs = [(i, t) for i in which for t in range(1 + len(self._drafts[i].tokens))]
        rows, ahead = [self._rows[i] for i, _ in pairs], [t for _, t in pairs]
        sampler = Sampler(rows, self._eos, on_device=self._model.samples_on_device, ahead=ahead)
        places = [self._first[i] + t for i, t in pairs]
        details: Mapping[int, Details] = {}
        if sampler.queues_ahead and not self._model.samples_on_device:  # NumPy's argmax takes a tenth of MLX's time
            tokens: list[int] = host.likeliest(np.asarray(self._logits))[places].tolist()
        else:
            tokens, details = sampler.sample(self._at(places)).read()
        going = dict.fromkeys(which, True)
        for at, (i, t) in enumerate(pairs):
            going[i] = going[i] and self._take(i, t, tokens[at], details.get(at))
        for i in which:
            self._rows[i].sampled += self.emitted[i]

    def _sample_at(self, which: Sequence[int], t: int) -> list[int]:
        """Sample these rows after their first `t` drafts; returns those that the next draft is right for."""
        which = list(which)
        vocabulary = self._logits.shape[-1]
        while which:
            sampler = Sampler([self._rows[i] for i in which], self._eos, on_device=self._model.samples_on_device)
            failures = sampler.prepare(vocabulary)
            if not failures:
                break
            for at, error in failures.items():
                self._fail(which[at], error)
            which = [i for at, i in enumerate(which) if at not in failures]
        if not which:
            return []
        tokens, details = sampler.sample(self._at([self._first[i] + t for i in which])).read()
        sampler.retire()
        return [i for at, i in enumerate(which) if self._take(i, t, tokens[at], details.get(at))]

    def _take(self, i: int, t: int, token_id: int, details: Details | None) -> bool:
        """Emit a row's token at this position; whether what was sampled behind it counts, too."""
        row, drafts = self._rows[i], self._drafts[i].tokens
        ended = emit_next(row, token_id, details, self._model.eos_token_ids, self._emit)
        if isinstance(ended, RowError):
            self.failed.append(row)
            return False
        right = t < len(drafts) and drafts[t] == token_id
        self.emitted[i] += 1
        self.accepted[i] += right
        if ended:
            self.ended.append(row)
        return right and not ended

    def _fail(self, i: int, error: RowError) -> None:
        self._emit(self._rows[i], Failure(error))
        self.failed.append(self._rows[i])


InFlight: TypeAlias = Idle | Queued | AwaitingHost | Verifying
