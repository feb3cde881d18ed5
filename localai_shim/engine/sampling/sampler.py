"""Per-row sampling of a whole batch in one vectorised pass.

Rows differ freely in every parameter, and what a row samples depends on its own logits, parameters, seed and position
only. Parameters are arrays, so no kernel is ever compiled for a value.

On the GPU back ends everything stays on the device and is queued behind the forward pass. On MLX's CPU back end NumPy
is several times as fast (32 rows of 6,000: exp 0.28 against 5.0 ms, partition 0.37 against 2.0 ms), so there
logits are sampled from on the host; an all-greedy batch is an argmax on the device everywhere.

Inverse-CDF sampling needs one uniform per row, which falls among the kept tokens in order of their ids; on the host a
second one, made of it, where the first falls outside the nucleus. Filters apply in vLLM's order: min_p, top_k, top_p.

A row's grammar constraint has a logits mask for token t+1 once it knows token t, so that with such a row nothing is
queued ahead. Only the logits of constrained rows are copied and masked, and take the place of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import RowError, SamplingParams
from ..row import Array, Row
from ..uniform import again, uniforms
from . import device, host
from .bans import Bans
from .masks import Masks, make_masks

Ints = npt.NDArray[np.int64]

SAMPLE_PORTION_LOGITS = 2**19  # sampled from at once: 32 rows of 152,000 take 27 to 31 ms in such portions, 40 at once


class Sample:
    """The tokens that one pass sampled, possibly still being computed."""

    def __init__(
        self,
        tokens: Array,
        logprob_rows: Ints,
        logprobs: Array | None = None,
        top_ids: Array | None = None,
        top: Array | None = None,
        later: Callable[[], tuple[Array, Array | None, Array | None]] | None = None,
    ) -> None:
        """`later` computes the last three on the host when they are read: the next step runs by then."""
        self.tokens = tokens
        """`[rows]` int32: an MLX array, or NumPy's where the host sampled. MLX would let go of the GIL to read one."""
        self._logprob_rows = logprob_rows
        self._logprobs, self._top_ids, self._top = logprobs, top_ids, top
        self._later = later

    @property
    def inputs(self) -> mx.array:
        """The tokens as a model takes them."""
        return self.tokens if isinstance(self.tokens, mx.array) else mx.array(self.tokens)

    def arrays(self) -> list[mx.array]:
        """Arrays that have to be evaluated before `read`."""
        return [a for a in (self.tokens, self._logprobs, self._top_ids, self._top) if isinstance(a, mx.array)]

    def take(self, indices: Sequence[int]) -> Sample:
        """The tokens of these rows only, still without waiting for them."""
        assert self._later is None, "what the host sampled is read at once"
        wanted = np.isin(self._logprob_rows, indices)
        rows = np.searchsorted(np.array(indices, dtype=np.int64), self._logprob_rows[wanted])
        kept = mx.array(np.flatnonzero(wanted))
        details = (None if a is None else a[kept] for a in (self._logprobs, self._top_ids, self._top))
        return Sample(self.tokens[mx.array(list(indices))], rows, *details)

    def read(self) -> tuple[list[int], dict[int, tuple[float, list[tuple[int, float]]]]]:
        """Token ids, and for the rows that want them (logprob, [(token id, logprob), ...])."""
        tokens: list[int] = self.tokens.tolist()
        if self._later is not None:
            self._logprobs, self._top_ids, self._top = self._later()
            self._later = None
        if self._logprobs is None:
            return tokens, {}
        logprobs = self._logprobs.tolist()
        ids = self._top_ids.tolist() if self._top_ids is not None else [[]] * len(logprobs)
        tops = self._top.tolist() if self._top is not None else [[]] * len(logprobs)
        details = {
            int(row): (logprobs[i], list(zip(ids[i], tops[i], strict=True))) for i, row in enumerate(self._logprob_rows)
        }
        return tokens, details


class Sampler:
    """Samples one token at a time for a fixed sequence of rows; made anew when a row joins or leaves.

    Args:
        rows: in batch order.
        eos: token ids that a row may not sample before its `min_tokens`.
        on_device: keep the work on MLX's device; False samples on the host with NumPy.
        ahead: how many tokens each row is taken to have sampled beyond those that it has. A row may come several times
            then, `has_history` must hold for none, and the sampler is good for one pass and not retired.
    """

    def __init__(
        self, rows: Sequence[Row], eos: Sequence[int], *, on_device: bool, ahead: Sequence[int] | None = None
    ) -> None:
        self._rows = tuple(rows)
        params = [row.sampling for row in rows]
        self._counts: Array = None
        self._seen: Array = None
        self._sampled = np.array([row.sampled for row in rows], dtype=np.uint64)
        if ahead is not None:
            self._sampled += np.array(ahead, dtype=np.uint64)
        self._logprob_rows = np.empty(0, dtype=np.int64)
        self.constrained = [i for i, row in enumerate(rows) if row.constraint is not None]
        """Places of the rows that had a grammar constraint when this was made."""
        self._masks: Masks | None = None
        self._asked = False
        self._u: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
        self._room: npt.NDArray[np.float32] | None = None  # of the host, for logits of a portion of the rows
        self._on_device = on_device
        self._greedy = not self.constrained and not any(map(_is_more_than_argmax, dict.fromkeys(rows)))
        self.queues_ahead = (on_device or self._greedy) and not self.constrained
        """Sampling can be queued behind the forward pass, before the host knows the tokens before."""
        if not self._greedy:
            self._gather(params, eos)

    def _gather(self, params: Sequence[SamplingParams], eos: Sequence[int]) -> None:
        """Parameters as arrays, and what is to be done at all."""
        rows = self._rows
        self._keys = np.array([row.key for row in rows], dtype=np.uint64)
        temperature = np.array([p.temperature for p in params], dtype=np.float32)
        top_p = np.array([p.top_p for p in params], dtype=np.float32)
        top_k = np.array([p.top_k for p in params], dtype=np.int64)
        min_p = np.array([p.min_p for p in params], dtype=np.float32)
        sampled = temperature > 0
        filtered = sampled & ((top_p < 1) | (top_k > 0) | (min_p > 0))
        self._plain = np.flatnonzero(sampled & ~filtered)
        self._filtered = np.flatnonzero(filtered)
        self._temperature, self._top_p, self._top_k, self._min_p = temperature, top_p, top_k, min_p
        biased = [(i, token_id, bias) for i, p in enumerate(params) for token_id, bias in p.logit_bias.items()]
        self._bias_places = np.array([(i, token_id) for i, token_id, _ in biased], dtype=np.int64).reshape(-1, 2)
        self._bias = np.array([bias for *_, bias in biased], dtype=np.float32)
        self._logprob_rows = np.array([i for i, p in enumerate(params) if p.top_logprobs is not None], dtype=np.int64)
        self._top_n = max((p.top_logprobs or 0 for p in params), default=0)
        self._penalised = np.array([i for i, p in enumerate(params) if _has_penalty(p)], dtype=np.int64)
        self._repetition = np.array([[params[i].repetition_penalty] for i in self._penalised], dtype=np.float32)
        self._presence = np.array([[params[i].presence_penalty] for i in self._penalised], dtype=np.float32)
        self._frequency = np.array([[params[i].frequency_penalty] for i in self._penalised], dtype=np.float32)
        self._bans = Bans(rows, eos, mx if self._on_device else np)
        self._adjusts = bool(len(self._bias) or self._bans or len(self._penalised))

    def prepare(self, vocabulary: int) -> dict[int, RowError]:
        """Make the logits masks and uniforms of the next tokens, unless that was done since the last were sampled.

        Returns:
            By place, the errors of grammar constraints; the rows of those sample as if they had none.
        """
        if self._u is None and not (self._greedy or self._on_device):
            u = uniforms(self._keys, self._sampled)
            self._u = u, again(u)
        if self._asked or not self.constrained:
            return {}
        self._asked = True
        constraints = [
            (i, constraint) for i in self.constrained if (constraint := self._rows[i].constraint) is not None
        ]
        self._masks, failures = make_masks(constraints, vocabulary)
        return failures

    def sample(self, logits: Array) -> Sample:
        """Sample one token per row.

        Args:
            logits: `[rows, vocabulary]` float32, an MLX array.
        """
        self.prepare(logits.shape[-1])
        if self._greedy:
            sample = Sample(mx.argmax(logits, axis=-1).astype(mx.int32), self._logprob_rows)
        elif self._on_device:
            sample = self._sample_on_device(logits)
        else:
            sample = self._sample_on_host(np.asarray(logits))
        self._sampled += np.uint64(1)
        self._masks, self._u, self._asked = None, None, False
        return sample

    def retire(self) -> None:
        """Give the rows back what they need to go on in another sampler."""
        for row, sampled in zip(self._rows, self._sampled.tolist(), strict=True):
            row.sampled = sampled
        if self._counts is not None:
            for at, i in enumerate(self._penalised):
                self._rows[i].counts = self._counts[at]
        if not self._greedy:
            self._bans.retire()

    # -- both ---------------------------------------------------------------------------------------------------

    def _uniforms(self, which: Ints) -> npt.NDArray[np.float64]:
        return uniforms(self._keys[which], self._sampled[which])

    def _adjust(self, logits: Array, xp: ModuleType) -> Array:
        """Bans, bias and penalties. `xp` is numpy or mlx.core; the array given is not changed."""
        if not self._adjusts:
            return logits
        logits = xp.array(logits)
        if len(self._bias):
            known = self._bias_places[:, 1] < logits.shape[-1]  # a tokenizer may know more tokens than the model
            rows, ids = (xp.array(places) for places in self._bias_places[known].T)
            logits[rows, ids] = logits[rows, ids] + xp.array(self._bias[known])
        if len(self._penalised):
            if self._counts is None:
                self._load_counts(logits.shape[-1], xp)
            penalise = host.penalise if xp is np else device.penalise
            part = logits[xp.array(self._penalised)]
            logits[xp.array(self._penalised)] = penalise(
                part, self._counts, self._seen, self._repetition, self._presence, self._frequency
            )
        return self._bans.apply(logits, self._sampled)

    def _load_counts(self, vocabulary: int, xp: ModuleType) -> None:
        """Gather the penalised rows' counts into one matrix, of which each row keeps a view."""
        seen = np.zeros((len(self._penalised), vocabulary), dtype=bool)
        counts = []
        for at, i in enumerate(self._penalised):
            row = self._rows[i]
            if row.sampling.repetition_penalty != 1.0:
                seen[at, row.prompt_tokens] = True
            counts.append(row.counts if row.counts is not None else xp.zeros(vocabulary, dtype=xp.float32))
        self._seen, self._counts = xp.array(seen), xp.stack(counts)

    def _count(self, tokens: Array, xp: ModuleType) -> None:
        self._bans.note(tokens)
        if len(self._penalised):
            which, sampled = xp.arange(len(self._penalised)), tokens[xp.array(self._penalised)]
            self._counts[which, sampled] = self._counts[which, sampled] + 1

    def _mask(self, logits: Array, raw: Array, tokens: Array, xp: ModuleType) -> Array:
        """The masked rows' logits, `[masked, vocabulary]`, of which the likeliest go into `tokens`; None: no masks."""
        masks = self._masks
        if masks is None:
            return None
        apply = host.mask if xp is np else device.mask
        likeliest = tokens if logits is raw or masks.escapes is None else xp.argmax(raw, axis=-1)
        masked = apply(logits, raw, masks, likeliest)
        tokens[xp.array(masks.rows)] = xp.argmax(masked, axis=-1)
        return masked

    def _scaled(self, logits: Array, masked: Array, which: Ints, xp: ModuleType) -> Array:
        """Some rows' logits over their temperature, those of the masked ones in their places; nobody else's array."""
        if self._masks is None and len(which) == len(self._rows):
            return logits / xp.array(self._temperature[:, None])
        picked = logits[xp.array(which)]
        if self._masks is not None:
            rows = self._masks.rows
            source = np.flatnonzero(np.isin(rows, which))
            if len(source):
                picked[xp.array(np.searchsorted(which, rows[source]))] = masked[xp.array(source)]
        return picked / xp.array(self._temperature[which, None])

    # -- host ---------------------------------------------------------------------------------------------------

    def _sample_on_host(self, raw: npt.NDArray[np.float32]) -> Sample:
        logits = self._adjust(raw, np)
        needs_likeliest = self._masks is not None or len(self._plain) + len(self._filtered) < len(self._rows)
        tokens = np.argmax(logits, axis=-1) if needs_likeliest else np.empty(len(self._rows), dtype=np.int64)
        masked = self._mask(logits, raw, tokens, np)
        assert self._u is not None
        (u, second), vocabulary = self._u, logits.shape[-1]
        for which in _portions(self._plain, vocabulary):
            scaled = self._scaled_in_room(logits, masked, which)
            tokens[which] = host.sample_plain(scaled, vocabulary, u[which])
        for which in _portions(self._filtered, vocabulary):
            scaled = self._scaled_in_room(logits, masked, which)
            limits = self._top_k[which], self._top_p[which], self._min_p[which]
            tokens[which] = host.sample_filtered(scaled, vocabulary, *limits, u[which], second[which])
        self._count(tokens, np)
        sampled = tokens.astype(np.int32)
        if not len(self._logprob_rows):
            return Sample(sampled, self._logprob_rows)
        rows, top_n = self._logprob_rows, self._top_n
        return Sample(sampled, rows, later=lambda: host.logprobs(raw[rows], tokens[rows], top_n))

    def _scaled_in_room(self, logits: Array, masked: Array, which: Ints) -> npt.NDArray[np.float32]:
        """Scale logits like `_scaled`, in an array that is kept: a new one costs as much as an exponential."""
        vocabulary = logits.shape[-1]
        if self._room is None or len(self._room) < len(which):
            self._room = host.room(len(which), vocabulary)
        room = self._room[: len(which)]
        if self._masks is None and len(which) == len(self._rows):
            np.divide(logits, self._temperature[:, None], out=room[:, :vocabulary])
        else:
            room[:, :vocabulary] = self._scaled(logits, masked, which, np)
        return room

    # -- device -------------------------------------------------------------------------------------------------

    def _sample_on_device(self, raw: Array) -> Sample:
        logits = self._adjust(raw, mx)
        tokens = mx.argmax(logits, axis=-1)
        masked = self._mask(logits, raw, tokens, mx)
        for which, filtered in ((self._plain, False), (self._filtered, True)):
            if not len(which):
                continue
            at = mx.array(which)
            scaled = self._scaled(logits, masked, which, mx)
            u = mx.array(self._uniforms(which).astype(np.float32))
            if filtered:
                top_k, top_p, min_p = (mx.array(a[which, None]) for a in (self._top_k, self._top_p, self._min_p))
                tokens[at] = device.sample_filtered(scaled, top_k, top_p, min_p, u)
            else:
                tokens[at] = device.sample_plain(scaled, u)
        self._count(tokens, mx)
        sampled = tokens.astype(mx.int32)
        if not len(self._logprob_rows):
            return Sample(sampled, self._logprob_rows)
        at = mx.array(self._logprob_rows)
        return Sample(sampled, self._logprob_rows, *device.logprobs(raw[at], tokens[at], self._top_n))


def _portions(which: Ints, vocabulary: int) -> list[Ints]:
    """Rows to sample for at once: as many as leave the processor's caches room."""
    size = max(1, SAMPLE_PORTION_LOGITS // vocabulary)
    return [which[start : start + size] for start in range(0, len(which), size)]


def _is_more_than_argmax(row: Row) -> bool:
    p = row.sampling
    plain = p.temperature == 0 and not p.logit_bias and p.top_logprobs is None and row.min_tokens == 0
    return not plain or _has_penalty(p) or p.allowed_token_ids is not None or bool(p.bad_words)


def has_history(row: Row) -> bool:
    """True if a row's sampling depends on its output tokens, apart from their effect on the logits."""
    return row.constraint is not None or _has_penalty(row.sampling) or bool(row.sampling.bad_words)


def _has_penalty(p: SamplingParams) -> bool:
    return p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0
