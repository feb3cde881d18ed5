"""Running prompts into rows' caches: a chunk of one, or several short ones in one pass."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx

from ..types import Prompt, TokenScore, common_length
from .kv import RowCache, copied
from .kv.segments import stack, takes_padding, unstack
from .meter import Meter
from .model import Model, StepInput
from .prefix.cache import PrefixCache
from .row import Row
from .scores import Scorer, Scoring

_SHORT = 128  # tokens; prompts up to here are run together: 8 of 32 tokens in 0.57 of the time, of 128 in 0.79 (CPU)
_SHARED = 64  # tokens that two waiting prompts begin with alike, for which one is made to wait for the other
_MOMENT = 0.0002  # seconds; who waits for longer has waited for a step that was in flight
_CLOSE = 16  # tokens before the end of a prompt; a snapshot that near is as good as one at the end


class PrefillJob:
    """Rows that share one prompt, and the cache that it is being prefilled into.

    Args:
        rows: what joins the batch then; more may be added before it is queued.
        prompt: theirs.
        arrival: smaller for those that came earlier.
        said: what a row that was preempted has generated already, and the prompt goes on with; None for new ones.
    """

    __slots__ = (
        "alone",
        "arrival",
        "begun",
        "cache",
        "dependents",
        "done",
        "kept",
        "keys",
        "priority",
        "prompt",
        "resumed",
        "rows",
        "scores",
        "stops",
        "tokens",
    )

    def __init__(self, rows: list[Row], prompt: Prompt, arrival: int, said: Sequence[int] | None = None) -> None:
        self.rows, self.prompt, self.arrival = rows, prompt, arrival
        self.priority = rows[0].request.priority
        self.tokens = [*prompt.tokens, *said] if said else prompt.tokens
        self.keys = self.tokens if prompt.keys is prompt.tokens else [*prompt.keys, *(said or ())]
        self.resumed = said is not None
        self.cache: RowCache | None = None
        self.done = 0
        """Tokens that have been prefilled; before it has begun, how many of them need not be."""
        self.begun = False
        self.scores: list[TokenScore] | None = None if said or not _wants_scores(prompt) else []
        """How likely its tokens are, as far as is known; None: nobody wants to know. Where somebody does, all of the
        prompt is run, whatever the prefix cache has of it."""
        self.alone = False
        """Running it together with others has failed."""
        self.stops: list[int] = []
        """Lengths at which the cache is kept, ascending."""
        self.kept = True
        """Its end is not left to be kept by the batch."""
        self.dependents: list[tuple[int, PrefillJob]] = []
        """(length, job): jobs that begin when this one has run so many tokens."""

    @property
    def left(self) -> int:
        """Tokens to prefill; the prompt's last one runs with the decode batch."""
        return len(self.tokens) - 1 - self.done

    @property
    def opening(self) -> tuple[str | None, tuple[int, ...]] | None:
        """What two jobs have in common that begin alike; None where the prompt is too short to be waited for."""
        return (self.prompt.salt, tuple(self.keys[:_SHARED])) if len(self.keys) > _SHARED else None


def _wants_scores(prompt: Prompt) -> bool:
    return prompt.top_logprobs is not None and prompt.scores is None


class Prefiller:
    """Runs prompts, starting from what the prefix cache has of them, and leaves them there.

    Args:
        model: what runs them.
        meter: what counts.
        prefixes: None: nothing is kept.
        wait_for_step: returns when the decode step that is in flight has run.
    """

    def __init__(
        self, model: Model, meter: Meter, prefixes: PrefixCache | None, wait_for_step: Callable[[], None]
    ) -> None:
        self._model, self._meter, self._prefixes = model, meter, prefixes
        self._wait_for_step = wait_for_step
        self._scorer = Scorer(model)
        self._padding: int | None = None

    def foresee(self, job: PrefillJob) -> None:
        """Say how far a prompt that waits will be when it begins, as far as that is known now."""
        if self._prefixes is not None and not job.begun and job.scores is None:
            job.done = self._prefixes.match_prefix(job.prompt.salt, job.keys[:-1])

    def begin(self, job: PrefillJob) -> None:
        """Start from what is known of the prompt, and say where on the way to keep it."""
        if job.begun:
            return
        job.begun = True
        prefixes, prompt = self._prefixes, job.prompt
        if prompt.scores is not None:  # another job with this prompt has found them meanwhile
            job.scores = None
        found = prefixes.start(prompt.salt, job.keys) if prefixes is not None and job.scores is None else None
        job.cache, job.done = found or (self._model.new_cache(), 0)
        self._tell_scores(job)
        if prefixes is None:
            return
        if prompt.cached_tokens is None:
            prompt.cached_tokens = job.done
        end = len(job.tokens) - 1
        stops = {*job.stops} if prefixes.cuts_anywhere else {*prompt.boundaries, *job.stops}
        if not any(end - _CLOSE <= stop <= end for stop in stops):
            stops.add(end)
        job.stops = sorted(stop for stop in stops if job.done < stop <= end)

    def run(self, job: PrefillJob, most: int, *, wait: bool, last: bool) -> tuple[int, float | None]:
        """Run the next tokens of a prompt, at most so many: how many, and the seconds that it took, if waited for.

        Args:
            job: whose prompt.
            most: tokens.
            wait: for them to have run; otherwise only those before the last chunk of the prompt are waited for.
            last: no other prompt waits for what this one leaves.
        """
        cache = job.cache
        assert cache is not None
        size = min(job.left, most, job.stops[0] - job.done if job.stops else job.left)
        step = StepInput(mx.array([job.tokens[job.done : job.done + size]]), cache)
        seconds = None
        if job.scores is not None:
            seconds = self._run_scored([job], step)
        elif wait or size < job.left:
            seconds = self._timed(lambda: self._model.prefill(step, wait=False), cache)
        else:
            self._model.prefill(step, wait=False)
        job.done += size
        self._tell_scores(job)
        self._meter.prefilled_tokens += size
        if last and not job.left and self._prefixes is not None and self._prefixes.cuts_anywhere and job.stops:
            job.kept = False  # copying it would keep its first token waiting, and it can be cut off the row later
        else:
            self._keep(job)
        return size, seconds

    def most(self, job: PrefillJob, most: int) -> int:
        """Tokens that one pass may run of a job: their logits, where they are wanted, are only so large."""
        return most if job.scores is None else min(most, self._scorer.portion)

    def _run_scored(self, jobs: Sequence[PrefillJob], step: StepInput) -> float:
        """Run tokens of several jobs and score those that follow them; returns the seconds that it took."""
        following = [job.tokens[job.done + 1 :] for job in jobs]
        top = max(job.prompt.top_logprobs or 0 for job in jobs)
        launched: list[Scoring] = []
        seconds = self._timed(lambda: launched.append(self._scorer.launch(step, following, top)), step.layers)
        start = time.monotonic()
        for job, scores in zip(jobs, launched[0].read(), strict=True):
            assert job.scores is not None
            job.scores += scores
        return seconds + time.monotonic() - start

    def _tell_scores(self, job: PrefillJob) -> None:
        if job.scores is not None and not job.left:
            job.prompt.scores = job.scores

    def _timed(self, launch: Callable[[], None], cache: RowCache) -> float:
        """Run a pass and wait for it: its seconds, without what was left of the step that is in flight before it."""
        start = time.monotonic()
        launch()
        launched = time.monotonic()
        self._wait_for_step()
        if time.monotonic() - launched > _MOMENT:
            start = time.monotonic()
        mx.eval(cache[-1].state)  # all other layers come before
        return time.monotonic() - start

    def depends(self, job: PrefillJob, other: PrefillJob) -> bool:
        """Whether a job should wait for the prefix that it shares with another; makes it a dependent of that if so."""
        prefixes = self._prefixes
        if prefixes is None or job.resumed or job.priority < other.priority:
            return False
        if job.scores is not None and job.prompt is not other.prompt:
            return False
        at = min(common_length(other.keys, job.keys), len(job.keys) - 1, len(other.keys) - 1)
        if at - prefixes.match_prefix(job.prompt.salt, job.keys[:at]) < _SHARED:
            return False
        if other.begun and other.done >= at:
            if prefixes.cuts_anywhere and other.cache is not None:
                prefixes.insert(other.prompt.salt, other.keys[: other.done], partial(copied, other.cache))
            return False
        if at not in other.stops:
            bisect.insort(other.stops, at)
        other.dependents.append((at, job))
        return True

    # -- several in one pass ------------------------------------------------------------------------------------

    def is_short(self, job: PrefillJob, most: int) -> bool:
        """Whether a prompt is better run with others."""
        if job.alone or not 0 < job.left <= min(_SHORT, most) or (job.stops and job.stops[0] < len(job.tokens) - 1):
            return False
        if self._padding is None:
            self._padding = takes_padding(self._model.new_cache())
        return len(job.tokens) <= self._padding

    def together(self, job: PrefillJob, others: Sequence[PrefillJob], most: int) -> list[PrefillJob]:
        """Those of the others that are run in one pass with a short prompt, that one first."""
        jobs = [job]
        for other in sorted(others, key=lambda other: other.left, reverse=True):
            fits = other.done == job.done and self.is_short(other, most) and self.has_place(jobs, other.left, most)
            if fits and other is not job and (other.scores is None) == (job.scores is None):
                jobs.append(other)
        return jobs

    def has_place(self, jobs: Sequence[PrefillJob], tokens: int, most: int) -> bool:
        """Whether a prompt of so many tokens can be run with these: padding it is worth its while."""
        lengths = [tokens, *(job.left for job in jobs)]
        return 2 * min(lengths) >= max(lengths) and len(lengths) * max(lengths) <= most

    def run_together(self, jobs: Sequence[PrefillJob]) -> tuple[int, float | None]:
        """Run short prompts that have come equally far to their ends: how many tokens that were, and the seconds.

        Should it fail, each is to be run alone, and the one that is to blame fails alone.
        """
        width = max(job.left for job in jobs)
        # Padded at the right: causal attention never looks there, and it is cut off the caches.
        ends = [[*job.tokens[job.done : -1], *[0] * (width - job.left)] for job in jobs]
        try:
            cache = stack([job.cache for job in jobs if job.cache is not None]) if jobs[0].done else None
            all_rows = cache or self._model.new_cache()
            step = StepInput(mx.array(ends), all_rows, counts=[job.left for job in jobs])
            if jobs[0].scores is not None:
                seconds = self._run_scored(jobs, step)
            else:
                seconds = self._timed(lambda: self._model.prefill(step, wait=False), all_rows)
            rows = unstack(all_rows, [len(job.tokens) - 1 for job in jobs])
        except Exception:
            for job in jobs:
                job.alone = True
                if job.scores is not None:
                    del job.scores[job.done :]
            return 0, None
        for job, row in zip(jobs, rows, strict=True):
            self._meter.prefilled_tokens += job.left
            job.cache, job.done = row, len(job.tokens) - 1
            self._tell_scores(job)
            self._keep(job)
        return width * len(jobs), seconds

    def _keep(self, job: PrefillJob) -> None:
        if job.stops and job.done == job.stops[0] and self._prefixes is not None and job.cache is not None:
            keys = job.keys[: job.stops.pop(0)]
            self._prefixes.insert(job.prompt.salt, keys, partial(copied, job.cache))
