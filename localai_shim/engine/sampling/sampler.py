"""Per-row sampling of a whole batch in one vectorised pass.

Rows differ freely in every parameter, and what a row samples depends on its own logits, parameters, seed and position
only. Parameters are arrays, so no kernel is ever compiled for a value.

On the GPU back ends everything stays on the device and is queued behind the forward pass. On MLX's CPU back end NumPy
is several times as fast (32 rows of 6,000: exp 0.28 against 5.0 ms, partition 0.37 against 2.0 ms), so there
logits are sampled from on the host; an all-greedy batch is an argmax on the device everywhere.

Each row samples with its own Gumbel noise, see `..noise`, made while the model runs. A token that min_p
and top_k leave is sampled first; if top_p bars it, one of the nucleus is, with the row's second noise. Filters apply in
vLLM's order: min_p, top_k, top_p.

A row's grammar constraint has a logits mask for token t+1 once it knows token t, so that with such a row nothing is
queued ahead. Only the logits of constrained rows are copied and masked, and replace the originals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from ...types import RowError
from ..noise import BLOCK_TOKENS, Noise
from ..row import Array, Row
from . import device, host
from .adjustments import Bans, Bias, Groups, Penalties, has_penalty
from .parameters import Floats, Ints, Masks, Parameters, Portion, make_masks, portions_of

Pick: TypeAlias = Callable[[Ints], Array]
"""Gives the logits of some rows, as they are to be sampled from."""

SAMPLE_PORTION_LOGITS = 2**19  # sampled from together: 32 rows of 152,000 take 27 to 31 ms in such portions, 40 at once


Logprobs: TypeAlias = tuple[Array, Array | None, Array | None]
"""Of some rows: those of their tokens `[rows]`, and ids and logprobs of the likeliest tokens `[rows, n]` or None."""


class Sample:
    """The tokens that one pass sampled, possibly still being computed.

    Args:
        tokens: `[rows]` int32, `NO_TOKEN` for rows without a finite logit: an MLX array, or NumPy's where the host
            sampled. MLX would let go of the GIL to read one.
        logprob_rows: places of the rows that `logprobs` are of.
        logprobs: a function computes them on the host when they are read: the next step runs by then.
    """

    def __init__(
        self, tokens: Array, logprob_rows: Sequence[int] = (), logprobs: Logprobs | Callable[[], Logprobs] | None = None
    ) -> None:
        self.tokens = tokens
        self._logprob_rows, self._logprobs = logprob_rows, logprobs

    @property
    def inputs(self) -> mx.array:
        """The tokens as a model takes them; another one than `NO_TOKEN`, whose row fails anyway."""
        return mx.maximum(mx.array(self.tokens), 0)

    def arrays(self) -> list[mx.array]:
        """Arrays that have to be evaluated before `read`."""
        details = self._logprobs if isinstance(self._logprobs, tuple) else ()
        return [a for a in (self.tokens, *details) if isinstance(a, mx.array)]

    def take(self, indices: Sequence[int]) -> Sample:
        """The tokens of these rows only, still without waiting for them."""
        tokens = self.tokens[mx.array(list(indices))]
        if self._logprobs is None:
            return Sample(tokens)
        assert isinstance(self._logprobs, tuple), "what the host sampled is read at once"
        places = {row: at for at, row in enumerate(self._logprob_rows)}
        rows = [at for at, i in enumerate(indices) if i in places]
        kept = mx.array([places[indices[at]] for at in rows], dtype=mx.int32)
        chosen, ids, top = (None if a is None else a[kept] for a in self._logprobs)
        return Sample(tokens, rows, (chosen, ids, top))

    def read(self) -> tuple[list[int], dict[int, tuple[float, list[tuple[int, float]]]]]:
        """Token ids, and for the rows that want them (logprob, [(token id, logprob), ...])."""
        tokens: list[int] = self.tokens.tolist()
        logprobs = self._logprobs() if callable(self._logprobs) else self._logprobs
        if logprobs is None:
            return tokens, {}
        none: list[list[float]] = [[]] * len(self._logprob_rows)
        columns = (none if a is None else a.tolist() for a in logprobs)
        return tokens, {
            row: (logprob, list(zip(ids, top, strict=True)))
            for row, logprob, ids, top in zip(self._logprob_rows, *columns, strict=True)
        }


class Sampler:
    """Samples one token at a time for a fixed sequence of rows; made again when a row joins or leaves.

    Args:
        rows: in batch order.
        eos: token ids that a row may not sample before its `min_tokens`.
        on_device: keep the work on MLX's device; False samples on the host with NumPy.
        ahead: how many tokens each row is taken to have sampled beyond those that it has. A row may come several times
            then, the sampler must not be retired, and whatever `has_history` tells of is left out.

    Attributes:
        constrained: places of the rows that had a grammar constraint when this was made.
        queues_ahead: sampling can be queued behind the forward pass, before the host knows the tokens before.
    """

    def __init__(
        self, rows: Sequence[Row], eos: Sequence[int], *, on_device: bool, ahead: Sequence[int] | None = None
    ) -> None:
        self._rows, self._xp = tuple(rows), mx if on_device else np
        self._sampled = np.array([row.sampled for row in rows], dtype=np.uint64)
        if ahead is not None:
            self._sampled += np.array(ahead, dtype=np.uint64)
        whole = ahead is None
        self.constrained = [i for i, row in enumerate(rows) if whole and row.constraint is not None]
        greedy = not any(_is_more_than_argmax(row) or (whole and has_history(row)) for row in dict.fromkeys(rows))
        self.queues_ahead = (on_device or greedy) and not self.constrained
        self._parameters = None if greedy else Parameters(rows)  # None: all that is asked for is an argmax
        self._adjustments: list[Bias | Penalties | Bans] = []
        self._groups = Groups(rows, self._xp)
        if not greedy:
            penalised = rows if whole else ()
            made = Bias(rows, self._xp), Penalties(penalised, self._xp), Bans(rows, eos, self._xp, words=whole)
            self._adjustments = [adjustment for adjustment in made if adjustment]
        self._prepared: tuple[Masks | None, Noise] | None = None  # of the next tokens: see `prepare`
        self._portions: list[Portion] | None = None  # known with the vocabulary
        self._buffer: Floats | None = None  # of the host, for logits of a portion of the rows

    def prepare(self, vocabulary: int) -> dict[int, RowError]:
        """Make the logits masks and the noise of the next tokens, unless that was done since the last were sampled.

        Returns:
            By place, the errors of grammar constraints; the rows of those sample as if they had none.
        """
        if self._parameters is None or self._prepared is not None:
            return {}
        masks: Masks | None = None
        failures: dict[int, RowError] = {}
        if self.constrained:
            constraints = [(i, its) for i in self.constrained if (its := self._rows[i].constraint) is not None]
            masks, failures = make_masks(constraints, vocabulary)
        p = self._parameters
        noise = Noise(p.keys, self._sampled[p.sampled], -(-vocabulary // BLOCK_TOKENS))
        if self._xp is np:
            noise.first()  # made while the model runs
        self._prepared = masks, noise
        return failures

    def sample(self, logits: Array) -> Sample:
        """Sample one token per row.

        Args:
            logits: `[rows, vocabulary]` float32, an MLX array.
        """
        self.prepare(logits.shape[-1])
        p, prepared, self._prepared = self._parameters, self._prepared, None
        if p is None or prepared is None:
            sample = Sample(device.likeliest(logits))
        else:
            sample = self._sample(logits if self._xp is mx else np.asarray(logits), p, *prepared)
        self._sampled += np.uint64(1)
        return sample

    def retire(self) -> None:
        """Give the rows back what they need to continue in another sampler."""
        for row, sampled in zip(self._rows, self._sampled.tolist(), strict=True):
            row.sampled = sampled
        for adjustment in self._adjustments:
            adjustment.retire()

    def _sample(self, raw: Array, p: Parameters, masks: Masks | None, noise: Noise) -> Sample:
        xp, logits = self._xp, raw
        likeliest = (host if xp is np else device).likeliest
        if self._adjustments or self._groups:
            logits = xp.array(raw)  # a copy, which they may change
            for adjustment in self._adjustments:
                logits = adjustment.apply(logits, self._sampled)
        if self._groups:
            logits = self._groups.apply(logits, None if masks is None else masks.rows)
        if masks is None and len(p.sampled) == len(self._rows):
            tokens = xp.zeros(len(self._rows), dtype=xp.int32)
        else:
            tokens = likeliest(logits)
        masked = None
        if masks is not None:
            unmasked = tokens if logits is raw or masks.escapes is None else likeliest(raw)
            masked = (host if xp is np else device).mask(logits, raw, masks, unmasked)
            if self._groups:
                masked = self._groups.apply(masked, masks.rows, of_masked=True)
            tokens[xp.array(masks.rows)] = likeliest(masked)
        sample_others = self._sample_on_host if xp is np else self._sample_on_device
        tokens = sample_others(tokens, p, noise, logits.shape[-1], partial(_picked, logits, masks, masked, xp))
        for adjustment in self._adjustments:
            adjustment.note(tokens)
        sampled = tokens.astype(xp.int32)
        if not p.logprob_rows:
            return Sample(sampled)
        at = xp.array(p.logprob_rows)
        if xp is mx:
            return Sample(sampled, p.logprob_rows, device.logprobs(raw[at], tokens[at], p.top_logprobs))
        return Sample(sampled, p.logprob_rows, lambda: host.logprobs(raw[at], tokens[at], p.top_logprobs))

    def _sample_on_host(self, tokens: Ints, p: Parameters, noise: Noise, vocabulary: int, pick: Pick) -> Ints:
        if self._portions is None:
            self._portions = portions_of(p, vocabulary, max(1, SAMPLE_PORTION_LOGITS // vocabulary), np)
            most = max((len(portion.rows) for portion in self._portions), default=0)
            self._buffer = host.padded(most, vocabulary)  # kept: a new one costs as much as an exponential
        assert self._buffer is not None
        for portion in self._portions:
            scaled, its = self._buffer[: len(portion.rows)], noise.take(portion.which)
            np.divide(pick(portion.rows), portion.temperature, out=scaled[:, :vocabulary])
            if portion.limits is None:
                tokens[portion.rows] = host.sample_plain(scaled, vocabulary, its)
            else:
                tokens[portion.rows] = host.sample_filtered(scaled, vocabulary, portion.limits, its)
        return tokens

    def _sample_on_device(self, tokens: Array, p: Parameters, noise: Noise, vocabulary: int, pick: Pick) -> Array:
        if self._portions is None:
            self._portions = portions_of(p, vocabulary, len(self._rows), mx)
        for portion in self._portions:
            scaled, its = pick(portion.rows) / portion.temperature, noise.take(portion.which)
            if portion.limits is None:
                sampled = device.sample_plain(scaled, its)
            else:
                sampled = device.sample_filtered(scaled, portion.limits, its)
            if len(portion.rows) == len(self._rows):
                return sampled  # each kernel less counts: starting them takes a GPU's host longer than they run
            tokens[mx.array(portion.rows)] = sampled
        return tokens


def _picked(logits: Array, masks: Masks | None, masked: Array, xp: ModuleType, which: Ints) -> Array:
    """Some rows' logits, `[rows, vocabulary]`, with the masked ones replaced."""
    if masks is None and len(which) == len(logits):
        return logits
    picked = logits[xp.array(which)]
    if masks is not None:
        source = np.flatnonzero(np.isin(masks.rows, which))
        if len(source):
            picked[xp.array(np.searchsorted(which, masks.rows[source]))] = masked[xp.array(source)]
    return picked


def _is_more_than_argmax(row: Row) -> bool:
    """True if sampling takes more than an argmax, whatever the row's history is."""
    p = row.sampling
    plain = p.temperature == 0 and not p.logit_bias and p.top_logprobs is None and row.request.min_tokens == 0
    return not plain or p.allowed_token_ids is not None or p.group_from is not None


def has_history(row: Row) -> bool:
    """True if a row's sampling depends on its output tokens, apart from their effect on the logits."""
    return row.constraint is not None or has_penalty(row.sampling) or bool(row.sampling.bad_words)
