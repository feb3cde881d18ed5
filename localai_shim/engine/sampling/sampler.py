"""Per-row sampling of a whole batch in one vectorised pass.

Rows differ freely in every parameter, and what a row samples depends on its own logits, parameters, seed and position
only. Parameters are arrays, so no kernel is ever compiled for a value.

On the GPU back ends everything stays on the device and is queued behind the forward pass. On MLX's CPU back end NumPy
is several times as fast (32 rows of 6,000: exp 0.28 against 5.0 ms, partition 0.37 against 2.0 ms), so there
logits are sampled from on the host; an all-greedy batch is an argmax on the device everywhere.

Inverse-CDF sampling needs one uniform per row, which falls among the kept tokens in order of their ids; on the host a
second one, made of it, where the first falls outside the nucleus. Filters apply in vLLM's order: min_p, top_k, top_p.

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
import numpy.typing as npt

from ...types import RowError
from ..row import Array, Row
from ..uniform import again, uniforms
from . import device, host
from .bans import Bans
from .masks import Masks, make_masks
from .penalties import Bias, Penalties, has_penalty

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Pick: TypeAlias = Callable[[Ints], Array]
"""Gives the logits of some rows, as they are to be sampled from."""

SAMPLE_PORTION_LOGITS = 2**19  # sampled from at once: 32 rows of 152,000 take 27 to 31 ms in such portions, 40 at once


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


class Parameters:
    """The parameters of all rows, as arrays."""

    def __init__(self, rows: Sequence[Row]) -> None:
        params = [row.sampling for row in rows]
        self.keys = np.array([row.key for row in rows], dtype=np.uint64)
        self.temperature = np.array([p.temperature for p in params], dtype=np.float32)
        self.top_k = np.array([p.top_k for p in params], dtype=np.int64)
        self.top_p = np.array([p.top_p for p in params], dtype=np.float32)
        self.min_p = np.array([p.min_p for p in params], dtype=np.float32)
        sampled = self.temperature > 0
        filtered = sampled & ((self.top_p < 1) | (self.top_k > 0) | (self.min_p > 0))
        self.plain = np.flatnonzero(sampled & ~filtered)
        """Places of the rows that sample from the whole distribution."""
        self.filtered = np.flatnonzero(filtered)
        """Places of those that sample from what filters keep of it; all others take the likeliest token."""
        self.logprob_rows = [i for i, p in enumerate(params) if p.top_logprobs is not None]
        """Places of the rows that want logprobs."""
        self.top_logprobs = max((p.top_logprobs or 0 for p in params), default=0)
        """The likeliest tokens that they want, at most."""


class Sampler:
    """Samples one token at a time for a fixed sequence of rows; made again when a row joins or leaves.

    Args:
        rows: in batch order.
        eos: token ids that a row may not sample before its `min_tokens`.
        on_device: keep the work on MLX's device; False samples on the host with NumPy.
        ahead: how many tokens each row is taken to have sampled beyond those that it has. A row may come several times
            then, `has_history` must hold for none, and the sampler is good for one pass and not retired.

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
        self.constrained = [i for i, row in enumerate(rows) if row.constraint is not None]
        greedy = not self.constrained and not any(map(_is_more_than_argmax, dict.fromkeys(rows)))
        self.queues_ahead = (on_device or greedy) and not self.constrained
        self._parameters = None if greedy else Parameters(rows)  # None: all that is asked for is an argmax
        self._adjustments: list[Bias | Penalties | Bans] = []
        if not greedy:
            made = Bias(rows, self._xp), Penalties(rows, self._xp), Bans(rows, eos, self._xp)
            self._adjustments = [adjustment for adjustment in made if adjustment]
        self._prepared: tuple[Masks | None, Doubles] | None = None  # of the next tokens: see `prepare`
        self._buffer: Floats | None = None  # of the host, for logits of a portion of the rows

    def prepare(self, vocabulary: int) -> dict[int, RowError]:
        """Make the logits masks and uniforms of the next tokens, unless that was done since the last were sampled.

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
        self._prepared = masks, uniforms(self._parameters.keys, self._sampled)
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

    def _sample(self, raw: Array, p: Parameters, masks: Masks | None, u: Doubles) -> Sample:
        xp, logits = self._xp, raw
        likeliest = (host if xp is np else device).likeliest
        if self._adjustments:
            logits = xp.array(raw)  # a copy, which they may change
            for adjustment in self._adjustments:
                logits = adjustment.apply(logits, self._sampled)
        if masks is None and len(p.plain) + len(p.filtered) == len(self._rows):
            tokens = xp.zeros(len(self._rows), dtype=xp.int32)
        else:
            tokens = likeliest(logits)
        masked = None
        if masks is not None:
            unmasked = tokens if logits is raw or masks.escapes is None else likeliest(raw)
            masked = (host if xp is np else device).mask(logits, raw, masks, unmasked)
            tokens[xp.array(masks.rows)] = likeliest(masked)
        sample_others = self._sample_on_host if xp is np else self._sample_on_device
        sample_others(tokens, p, u, logits.shape[-1], partial(_picked, logits, masks, masked, xp))
        for adjustment in self._adjustments:
            adjustment.note(tokens)
        sampled = tokens.astype(xp.int32)
        if not p.logprob_rows:
            return Sample(sampled)
        at = xp.array(p.logprob_rows)
        if xp is mx:
            return Sample(sampled, p.logprob_rows, device.logprobs(raw[at], tokens[at], p.top_logprobs))
        return Sample(sampled, p.logprob_rows, lambda: host.logprobs(raw[at], tokens[at], p.top_logprobs))

    def _sample_on_host(self, tokens: Ints, p: Parameters, u: Doubles, vocabulary: int, pick: Pick) -> None:
        second = again(u) if len(p.filtered) else u
        size = max(1, SAMPLE_PORTION_LOGITS // vocabulary)
        for places in (p.plain, p.filtered):
            for which in (places[start : start + size] for start in range(0, len(places), size)):
                if self._buffer is None or len(self._buffer) < len(which):
                    self._buffer = host.padded(
                        len(which), vocabulary
                    )  # kept: a new one costs as much as an exponential
                scaled = self._buffer[: len(which)]
                np.divide(pick(which), p.temperature[which, None], out=scaled[:, :vocabulary])
                if places is p.plain:
                    tokens[which] = host.sample_plain(scaled, vocabulary, u[which])
                else:
                    limits = p.top_k[which], p.top_p[which], p.min_p[which]
                    tokens[which] = host.sample_filtered(scaled, vocabulary, *limits, u[which], second[which])

    def _sample_on_device(self, tokens: Array, p: Parameters, u: Doubles, vocabulary: int, pick: Pick) -> None:
        if len(p.plain):
            scaled = pick(p.plain) / mx.array(p.temperature[p.plain, None])
            tokens[mx.array(p.plain)] = device.sample_plain(scaled, mx.array(u[p.plain].astype(np.float32)))
        if len(which := p.filtered):
            top_k, top_p, min_p = (mx.array(a[which, None]) for a in (p.top_k, p.top_p, p.min_p))
            scaled = pick(which) / mx.array(p.temperature[which, None])
            sampled = device.sample_filtered(scaled, top_k, top_p, min_p, mx.array(u[which].astype(np.float32)))
            tokens[mx.array(which)] = sampled


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
    p = row.sampling
    plain = p.temperature == 0 and not p.logit_bias and p.top_logprobs is None and row.request.min_tokens == 0
    return not plain or has_penalty(p) or p.allowed_token_ids is not None or bool(p.bad_words)


def has_history(row: Row) -> bool:
    """True if a row's sampling depends on its output tokens, apart from their effect on the logits."""
    return row.constraint is not None or has_penalty(row.sampling) or bool(row.sampling.bad_words)
