"""Prefill: prompts are run into rows' caches, a chunk of one or several short ones in one pass.

A prompt's last token runs with the decode batch. Where no row is running, the pass that ends a prompt runs it, too,
and gives the logits after it, so that the answer's first token needs no separate pass; not where a snapshot of all
but the last token is due, where the prompt's logprobs are wanted, or where a pass is so long that its last layer
would take more time than the token's own pass (`Model.end_tokens`).
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import mlx.core as mx
import numpy as np

from ...types import Prompt, TokenScore, common_length
from ..costs.cost_model import CostModel, Meter
from ..kv import RowCache, copied
from ..kv.segments import stack, takes_padding, unstack
from ..kv.shared import Prefix
from ..ports import Features, MediaSpan, Model, StepInput
from ..prefix.cache import PrefixCache
from ..prefix.sharing import Sharing
from ..row import KnownStates, Row, adapters_of
from .scores import FIRST_PORTION_TOKENS, MAX_LOGITS, Scoring

MAX_SHORT_TOKENS = 128  # of prompts that share a pass: 8 of 32 tokens take 0.57 of the time, of 128 take 0.79 (CPU)
MIN_SHARED_TOKENS = 64  # of the prefix of two waiting prompts, for one to wait for the other
MIN_STEP_WAIT = 0.0002  # seconds; a longer wait was one for a step in flight
NEAR_END_TOKENS = 16  # a snapshot so near to a prompt's end serves as well as one at its end


class PrefillJob:
    """Rows that share one prompt, and the cache that it is being prefilled into.

    Args:
        rows: those that join the batch afterwards; more may be added before it is queued.
        prompt: theirs.
        arrival: smaller for those that came earlier.
        output: what a preempted row has generated so far, which follows the prompt; None for new rows.
    """

    def __init__(self, rows: list[Row], prompt: Prompt, arrival: int, output: Sequence[int] | None = None) -> None:
        self.rows, self.prompt, self.arrival = rows, prompt, arrival
        self.priority = rows[0].request.priority
        self.tokens = [*prompt.tokens, *output] if output else prompt.tokens
        self.keys = self.tokens if prompt.keys is prompt.tokens else [*prompt.keys, *(output or ())]
        self.resumed = output is not None
        self.cache: RowCache | None = None
        self.done = 0
        """Tokens that have been prefilled; before it has begun, those that the prefix cache is expected to give."""
        self.logits: mx.array | None = None
        """`[1, vocabulary]`: of the next token, if the last one was run as well."""
        self.begun = False
        wants_scores = not output and prompt.top_logprobs is not None and prompt.scores is None
        self.scores: list[TokenScore] | None = [] if wants_scores else None
        """Those of the tokens so far; None: not wanted. Where they are, all of the prompt is run, whatever the prefix
        cache has of it."""
        self.alone = False
        """A pass with others has failed."""
        self.insert_at: list[int] = []
        """Lengths at which the row is inserted into the prefix cache, ascending."""
        self.batch_inserts = False
        """The batch inserts its end, once its rows have their first tokens."""
        self.dependents: list[tuple[int, PrefillJob]] = []
        """(length, job): jobs that begin when this one has run that many tokens."""
        self.first_pass = 0
        """See `Model.first_pass`."""
        self.min_prefix = 0
        """Tokens that a prefix in the prefix cache has to have for the row to start from it."""
        self.prefix: Prefix | None = None
        """First tokens that its cache shares with other rows."""
        self.state: object | None = None
        """See `Model.row_state`; set when the job begins."""
        self.states: list[KnownStates] = []
        """Hidden states of its last tokens, for what drafts."""
        self.features: dict[int, Features] = {}
        """By digest; while they are here they are pinned."""

    @property
    def number(self) -> int:
        """Its name in plans: that of its first row."""
        return self.rows[0].number

    @property
    def left(self) -> int:
        """Tokens to prefill; the prompt's last one runs with the decode batch, or with the last of them."""
        return max(0, len(self.tokens) - 1 - self.done)

    @property
    def opening(self) -> tuple[str | None, tuple[int, ...]] | None:
        """Beginning that is equal for two jobs that share a prefix; None where the prompt is too short to be waited
        for.
        """
        return (self.prompt.salt, tuple(self.keys[:MIN_SHARED_TOKENS])) if len(self.keys) > MIN_SHARED_TOKENS else None

    @property
    def length(self) -> tuple[int, int]:
        """Order of jobs: how many items may be run before, and how many tokens."""
        items = 0 if not self.prompt.media else sum(span.media.digest not in self.features for span in self.spans())
        return items, self.left

    def spans(self) -> Iterator[MediaSpan]:
        """The items that have a placeholder among the tokens that are still to be prefilled."""
        return (span for span in self.prompt.media if span.stop > self.done)

    def step(self, size: int, *, ends: bool = False) -> StepInput:
        """The pass of the next `size` tokens, and of the prompt's last one if it `ends` there."""
        assert self.cache is not None
        end = self.done + size + ends
        tokens = mx.array([self.tokens[self.done : end]])
        adapters = None if self.prompt.adapter is None else [self.prompt.adapter]
        if self.state is None and not self.prompt.media:
            return StepInput(tokens, self.cache, adapters=adapters, ends=ends)
        inside = [span for span in self.prompt.media if np.diff(np.searchsorted(span.places, (self.done, end)))[0]]
        media = [(span, self.features[span.media.digest]) for span in inside]
        state = None if self.state is None else [self.state]
        return StepInput(tokens, self.cache, state=state, media=media, adapters=adapters, ends=ends)


@dataclass(eq=False)
class Prefiller:
    """Runs prompts from the longest prefix that the prefix cache has, and inserts them there.

    Args:
        model: runs them.
        meter: counts them.
        prefixes: the prefix cache; None: there is none.
        wait_for_step: returns when the decode step in flight has run.
        end_tokens: see `Model.end_tokens`; 0 if the model gives wrong logits of prompts' last tokens.
        costs: measures passes.
        sharing: chooses what rows share; None: they share nothing.
        wanted_states: returns the number of a prompt's last tokens whose hidden states are wanted.
        portion: most tokens that are scored in one pass, those of all its rows together: their logits are held at once.
    """

    model: Model
    meter: Meter
    prefixes: PrefixCache | None
    wait_for_step: Callable[[], None]
    end_tokens: int
    costs: CostModel
    sharing: Sharing | None = None
    wanted_states: Callable[[Sequence[Row]], int] = lambda rows: 0
    portion: int = FIRST_PORTION_TOKENS

    def estimate(self, job: PrefillJob) -> None:
        """Set how many tokens of a waiting prompt the prefix cache would give now."""
        if self.prefixes is not None and not job.begun and job.scores is None:
            found = self.prefixes.match_prefix(job.prompt.salt, job.keys[:-1])
            job.done = found if found >= job.min_prefix else 0

    def begin(self, job: PrefillJob) -> None:
        """Start from the longest prefix in the prefix cache, and set at which lengths the row is inserted there."""
        if job.begun:
            return
        job.begun = True
        for row in job.rows:
            row.request.timings.begin()
        prefixes, prompt = self.prefixes, job.prompt
        if prompt.scores is not None:  # another job with this prompt has found them meanwhile
            job.scores = None
        if prompt.media and prompt.media[-1].stop == len(job.tokens):
            raise ValueError("the prompt ends with an image, a video or a sound: some text has to follow it")
        self._set_first_pass(job)
        job.state = self.model.row_state(prompt)
        for row in job.rows:
            row.shares = not job.first_pass
        found = None
        if prefixes is not None and job.scores is None:
            job.prefix = self._shared(job, prefixes)
            found = prefixes.start(prompt.salt, job.keys, job.min_prefix, job.prefix)
        job.cache, job.done = found or (self.model.new_cache(), 0)
        self._set_scores(job)
        if prefixes is None:
            return
        if prompt.cached_tokens is None:
            prompt.cached_tokens = job.done
        end = len(job.tokens) - 1
        lengths = {*job.insert_at} if prefixes.cuts_anywhere else {*prompt.boundaries, *job.insert_at}
        if not any(end - NEAR_END_TOKENS <= length <= end for length in lengths):
            lengths.add(end)
        job.insert_at = sorted(length for length in lengths if job.done < length <= end and length >= job.min_prefix)

    def _shared(self, job: PrefillJob, prefixes: PrefixCache) -> Prefix | None:
        """First tokens that a starting prompt shares with other rows; None if there are none."""
        if self.sharing is None or job.resumed or job.first_pass or job.state is not None or job.prompt.media:
            return None
        return self.sharing.for_prompt(job.prompt, prefixes.match_prefix(job.prompt.salt, job.keys[:-1]))

    def _set_first_pass(self, job: PrefillJob) -> None:
        job.first_pass = job.min_prefix = self.model.first_pass(job.prompt)
        if job.first_pass and job.first_pass == len(job.prompt.tokens) - 1:
            job.min_prefix = len(job.tokens)  # what its tokens leave depends on all of it: no other prompt's will do

    def note_first_pass(self, job: PrefillJob) -> None:
        """Set how many of a waiting job's tokens run in one pass, as far as the model says."""
        with contextlib.suppress(Exception):  # the job will fail with it when it begins
            self._set_first_pass(job)

    def run(self, job: PrefillJob, most: int, *, wait: bool, last: bool, first: bool) -> tuple[int, float | None]:
        """Run the next tokens of a prompt, at most `most`: how many, and the seconds, if it was waited for.

        Args:
            job: whose prompt.
            most: tokens.
            wait: for them to have run; otherwise only those before the last chunk of the prompt are waited for.
            last: no other prompt waits for what this one leaves.
            first: the rows will be the first of the batch: its last token may run in this pass.
        """
        cache = job.cache
        assert cache is not None
        size = min(job.left, most, job.insert_at[0] - job.done if job.insert_at else job.left)
        if job.done < job.first_pass:
            size = job.first_pass
        step = job.step(size, ends=first and size == job.left and self._may_end([job], most))
        seconds = None
        if job.scores is not None:
            seconds = self._run_scored([job], step)
        elif wait or size < job.left:
            seconds = self._timed(lambda: self._launch([job], step), cache)
        else:
            self._launch([job], step)
        job.done += size + step.ends
        self._set_scores(job)
        self.meter.prefilled_tokens += size
        if last and not job.left and self.prefixes is not None and self.prefixes.cuts_anywhere and job.insert_at:
            job.batch_inserts = True  # a copy now would delay its first token, and the row can be trimmed later
        else:
            self._insert(job)
        return size, seconds

    def _may_end(self, jobs: Sequence[PrefillJob], most: int) -> bool:
        """True if a pass to the ends of prompts should run their last tokens, too: the first ones of their answers need
        no step then. Where a shorter row could not be made of what that leaves, prompts end as snapshots want it.
        """
        tokens = 1 + max(job.left for job in jobs)
        if tokens > self.end_tokens or tokens * len(jobs) > most or any(job.scores is not None for job in jobs):
            return False
        return all(not job.insert_at or len(job.tokens) <= self._takes_padding for job in jobs)

    def _launch(self, jobs: Sequence[PrefillJob], step: StepInput) -> mx.array | None:
        """Run a pass without waiting for it, and have the jobs' logits if it ends them, and their hidden states."""
        k, wanted = step.tokens.shape[1], [self.wanted_states(job.rows) for job in jobs]
        hides = any(most > len(job.tokens) - job.done - k for job, most in zip(jobs, wanted, strict=True))
        logits, hidden = self.model.prefill(replace(step, hidden=hides), wait=False)
        for i, job in enumerate(jobs if hidden is not None else ()):
            assert hidden is not None
            count = k if step.counts is None else step.counts[i]
            job.states.append(KnownStates(job.done, hidden.flatten(0, 1), i * k, count))
        if step.ends:
            assert logits is not None
            for i, job in enumerate(jobs):
                job.logits = logits if len(jobs) == 1 else logits[i : i + 1]
        return logits

    def chunk_limit(self, job: PrefillJob, most: int) -> int:
        """Most tokens of a job in one pass: fewer where it wants scores, for which all logits are held."""
        return most if job.scores is None else min(most, self.portion)

    def _run_scored(self, jobs: Sequence[PrefillJob], step: StepInput) -> float:
        """Run tokens of several jobs and score those that follow them; returns the seconds that it took."""
        following = [job.tokens[job.done + 1 :] for job in jobs]
        top = max(job.prompt.top_logprobs or 0 for job in jobs)
        launched: list[Scoring] = []

        def launch() -> None:
            logits = self.model.forward(step).logits
            self.portion = max(1, MAX_LOGITS // logits.shape[-1])
            on_device, watched = self.model.samples_on_device, [job.prompt.watched for job in jobs]
            launched.append(Scoring(logits, following, top, on_device=on_device, watched=watched))

        seconds = self._timed(launch, step.layers)
        reading = self.costs.start()
        for job, scores in zip(jobs, launched[0].read(), strict=True):
            assert job.scores is not None
            job.scores += scores
        return seconds + reading.seconds

    def _set_scores(self, job: PrefillJob) -> None:
        if job.scores is not None and not job.left:
            job.prompt.scores = job.scores

    def _timed(self, launch: Callable[[], mx.array | None], cache: RowCache) -> float:
        """Run a pass and wait for it; returns its seconds, without those of the step that was in flight before it."""
        if not self.model.samples_on_device:  # on a CPU parts of a pass may run while it is built
            self._end_step()
        watch = self.costs.start()
        logits = launch()
        waiting = self.costs.start()
        self._end_step()
        if waiting.seconds > MIN_STEP_WAIT:
            watch = self.costs.start()
        mx.eval(cache[-1].state, logits)  # all other layers come before
        return watch.seconds

    def _end_step(self) -> None:
        self.wait_for_step()
        self.costs.end_step()

    def depends(self, job: PrefillJob, other: PrefillJob) -> bool:
        """True if a job should wait for the prefix that it shares with another; makes it a dependent of that if so."""
        prefixes = self.prefixes
        if prefixes is None or job.resumed or job.priority < other.priority:
            return False
        if job.scores is not None and job.prompt is not other.prompt:
            return False
        at = min(common_length(other.keys, job.keys), len(job.keys) - 1, len(other.keys) - 1)
        if at < max(job.min_prefix, other.min_prefix):
            return False
        if at - prefixes.match_prefix(job.prompt.salt, job.keys[:at]) < MIN_SHARED_TOKENS:
            return False
        if other.begun and other.done >= at:
            if prefixes.cuts_anywhere and other.cache is not None:
                prefixes.insert(other.prompt.salt, other.keys[: other.done], partial(copied, other.cache))
            return False
        if at not in other.insert_at:
            bisect.insort(other.insert_at, at)
        other.dependents.append((at, job))
        return True

    # -- several in one pass ------------------------------------------------------------------------------------

    def is_short(self, job: PrefillJob, most: int) -> bool:
        """True if a prompt should share a pass with others."""
        inserts_before_end = job.insert_at and job.insert_at[0] < len(job.tokens) - 1
        needs_own_pass = job.alone or job.prompt.media or job.first_pass or job.state is not None
        if needs_own_pass or inserts_before_end or not 0 < job.left <= min(MAX_SHORT_TOKENS, most):
            return False
        return len(job.tokens) <= self._takes_padding

    @cached_property
    def _takes_padding(self) -> int:
        return takes_padding(self.model.new_cache())

    def together(self, job: PrefillJob, others: Sequence[PrefillJob], most: int) -> list[PrefillJob]:
        """The jobs of one pass: a short one, and those of the others that fit."""
        jobs = [job]
        for other in sorted(others, key=lambda other: other.left, reverse=True):
            fits = (
                (other.done, other.prefix) == (job.done, job.prefix)
                and self.is_short(other, most)
                and self.worth_padding(jobs, other.left, most)
            )
            if fits and other is not job and (other.scores is None) == (job.scores is None):
                jobs.append(other)
        return jobs

    def worth_padding(self, jobs: Sequence[PrefillJob], tokens: int, most: int) -> bool:
        """True if a prompt of a number of tokens should share a pass with these, given the padding that this takes."""
        lengths = [tokens, *(job.left for job in jobs)]
        return 2 * min(lengths) >= max(lengths) and len(lengths) * max(lengths) <= most

    def run_together(self, jobs: Sequence[PrefillJob], most: int, *, first: bool) -> tuple[int, float | None]:
        """Run short prompts, of which equally many tokens are done, to their ends: how many tokens, and the seconds.

        Where it fails, each will be run alone, so that only the one that is to blame fails.

        Args:
            jobs: whose prompts.
            most: tokens.
            first: see `run`.
        """
        ends = first and self._may_end(jobs, most)
        stops = [len(job.tokens) - 1 + ends for job in jobs]
        counts = [stop - job.done for job, stop in zip(jobs, stops, strict=True)]
        width = max(counts)
        # Padded on the right: causal attention never looks there, and caches are trimmed by it.
        padded = [[*job.tokens[job.done : stop], *[0] * width][:width] for job, stop in zip(jobs, stops, strict=True)]
        try:
            cache = stack([job.cache for job in jobs if job.cache is not None]) if jobs[0].done else None
            all_rows = cache or self.model.new_cache()
            adapters = adapters_of([job.rows[0] for job in jobs])
            step = StepInput(mx.array(padded), all_rows, counts=counts, adapters=adapters, ends=ends)
            if jobs[0].scores is not None:
                seconds = self._run_scored(jobs, step)
            else:
                seconds = self._timed(lambda: self._launch(jobs, step), all_rows)
            rows = unstack(all_rows, stops)
        except Exception:
            for job in jobs:
                job.alone, job.logits = True, None
                if job.scores is not None:
                    del job.scores[job.done :]
            return 0, None
        for job, row, stop in zip(jobs, rows, stops, strict=True):
            self.meter.prefilled_tokens += job.left
            job.cache, job.done = row, stop
            self._set_scores(job)
            self._insert(job)
        return width * len(jobs), seconds

    def _insert(self, job: PrefillJob) -> None:
        if job.insert_at and job.done >= job.insert_at[0] and self.prefixes is not None and job.cache is not None:
            job.insert_at.pop(0)
            self.prefixes.insert(job.prompt.salt, job.keys[: job.done], partial(copied, job.cache))
