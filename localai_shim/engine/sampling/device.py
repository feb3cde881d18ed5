"""Sampling from logits with MLX, queued behind the forward pass: what GPU back ends use.

A sort is fast there, and exact for every row without a look at the host. All numbers are arrays, so nothing is compiled
for a value.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..row import NO_TOKEN
from .masks import LOGIT_FLOOR, Masks


def likeliest(logits: mx.array) -> mx.array:
    """Device form of `host.likeliest`."""
    tokens = mx.argmax(logits, axis=-1, keepdims=True)
    found = mx.abs(mx.take_along_axis(logits, tokens, axis=-1)) < mx.inf
    return mx.where(found, tokens.astype(mx.int32), NO_TOKEN)[:, 0]


def sample_plain(scaled: mx.array, u: mx.array) -> mx.array:
    """Device form of `host.sample_plain`. `scaled` `[rows, vocabulary]`, `u` `[rows]`."""
    return _sample_weighted(mx.exp(scaled - mx.max(scaled, axis=-1, keepdims=True)), u)


def sample_filtered(scaled: mx.array, top_k: mx.array, top_p: mx.array, min_p: mx.array, u: mx.array) -> mx.array:
    """One token per row from what min_p, top_k (0: all) and top_p keep; limits are `[rows, 1]`.

    Tokens as likely as the last one kept are kept, too.
    """
    vocabulary = scaled.shape[-1]
    weights = mx.exp(scaled - mx.max(scaled, axis=-1, keepdims=True))
    top = -mx.sort(-weights, axis=-1)
    places = mx.arange(vocabulary)
    limit = mx.where(top_k > 0, top_k, vocabulary)
    top = mx.where((top >= min_p) & (places < limit), top, 0)
    cumulative = mx.cumsum(top, axis=-1)
    keep = ((cumulative - top < top_p * cumulative[:, -1:]) & (top > 0)) | (places == 0)
    least = mx.take_along_axis(top, mx.sum(keep, axis=-1, keepdims=True) - 1, axis=-1)
    return _sample_weighted(mx.where(weights >= least, weights, 0), u)


def penalise(
    logits: mx.array, counts: mx.array, seen: mx.array, repetition: mx.array, presence: mx.array, frequency: mx.array
) -> mx.array:
    """Device form of `host.penalise`."""
    scaled = mx.where(logits > 0, logits / repetition, logits * repetition)
    logits = mx.where(seen | (counts > 0), scaled, logits)
    return logits - frequency * counts - presence * (counts > 0)


def mask(logits: mx.array, raw: mx.array, masks: Masks, likeliest: mx.array) -> mx.array:
    """Device form of `host.mask`."""
    rows, vocabulary = mx.array(masks.rows), logits.shape[-1]
    allowed = _unpacked(masks.packed, vocabulary)
    out = mx.where(allowed, mx.maximum(raw[rows], LOGIT_FLOOR), -mx.inf)
    if logits is not raw:
        adjusted = mx.where(allowed, logits[rows], -mx.inf)
        out = mx.where(mx.max(adjusted, axis=-1, keepdims=True) > LOGIT_FLOOR, adjusted, out)
    if masks.escapes is not None:
        escapes = mx.array(masks.escapes)[:, None]
        alone = mx.where(mx.arange(vocabulary) == escapes, 0.0, -mx.inf)
        banned = mx.take_along_axis(logits[rows], mx.maximum(escapes, 0), axis=-1) <= LOGIT_FLOOR
        out = mx.where((likeliest[rows][:, None] == escapes) & ~banned, alone, out)
    return out


def keep_only(logits: mx.array, packed: npt.NDArray[np.uint8]) -> mx.array:
    """Device form of `host.keep_only`."""
    return mx.where(_unpacked(packed, logits.shape[-1]), logits, -mx.inf)


def ranks(raw: mx.array, tokens: mx.array) -> mx.array:
    """Device form of `host.ranks`."""
    return mx.sum(raw > mx.take_along_axis(raw, tokens[:, None], axis=-1), axis=-1) + 1


def logprobs(raw: mx.array, tokens: mx.array, top_n: int) -> tuple[mx.array, mx.array | None, mx.array | None]:
    """Device form of `host.logprobs`."""
    normalised = raw - mx.logsumexp(raw, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(normalised, tokens[:, None], axis=-1)[:, 0]
    if not top_n:
        return chosen, None, None
    n = min(top_n, raw.shape[-1])
    ids = mx.argpartition(-normalised, n - 1, axis=-1)[:, :n]
    values = mx.take_along_axis(normalised, ids, axis=-1)
    order = mx.argsort(-values, axis=-1)
    return chosen, mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(values, order, axis=-1)


def _unpacked(packed: npt.NDArray[np.uint8], vocabulary: int) -> mx.array:
    """`[rows, vocabulary]` booleans of packed bits."""
    bits = (mx.array(packed)[:, :, None] >> mx.arange(8, dtype=mx.uint8)) & 1
    return bits.reshape(len(packed), -1)[:, :vocabulary].astype(mx.bool_)


def _sample_weighted(weights: mx.array, u: mx.array) -> mx.array:
    """The first token with any weight whose cumulative weight exceeds the uniform's share, or the last with any.

    A parallel sum may round differently from one entry to the next, so that it can grow over entries without weight.
    `NO_TOKEN` if the weights are NaN, as those of logits are of which the highest is not finite.
    """
    cumulative = mx.cumsum(weights, axis=-1)
    hit = (cumulative > (u[:, None] * cumulative[:, -1:])) & (weights > 0)
    last = mx.max(mx.where(weights > 0, mx.arange(weights.shape[-1]), NO_TOKEN), axis=-1)
    return mx.where(mx.any(hit, axis=-1), mx.argmax(hit, axis=-1), last)
