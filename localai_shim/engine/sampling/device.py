"""Sampling from logits with MLX, queued behind the forward pass: what GPU back ends use.

A sort is fast there, and exact for every row without a look at the host. All numbers are arrays, so nothing is compiled
for a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..noise import BLOCK_TOKENS, FACTORS, SHIFTS, Noise, starts, steps_of
from ..row import NO_TOKEN
from .parameters import LOGIT_FLOOR, Limits, Masks

MAX_HOST_NUMBERS = 2**13  # of noise, which take the host 0.1 ms


def likeliest(logits: mx.array) -> mx.array:
    """Device form of `host.likeliest`."""
    tokens = mx.argmax(logits, axis=-1, keepdims=True)
    found = mx.abs(mx.take_along_axis(logits, tokens, axis=-1)) < mx.inf
    return mx.where(found, tokens.astype(mx.int32), NO_TOKEN)[:, 0]


def sample_plain(scaled: mx.array, noise: Noise) -> mx.array:
    """Device form of `host.sample_plain`. `scaled` `[rows, vocabulary]`."""
    weights, found = _weights(scaled)
    return mx.where(found, _sample(weights, _factors(noise, 1)[0]), NO_TOKEN)


def sample_filtered(scaled: mx.array, limits: Limits, noise: Noise) -> mx.array:
    """Device form of `host.sample_filtered`. `scaled` `[rows, vocabulary]`."""
    weights, found = _weights(scaled)
    rising, floor = weights, limits.min_p
    if limits.top_k is not None or limits.top_p is not None:
        rising = mx.sort(weights, axis=-1)
    if limits.top_k is not None:
        floor = mx.take_along_axis(rising, weights.shape[-1] - limits.top_k, axis=-1)
        floor = floor if limits.min_p is None else mx.maximum(floor, limits.min_p)
    if limits.top_p is None:
        kept = weights if floor is None else mx.where(weights >= floor, weights, 0)
        sampled = _sample(kept, _factors(noise, 1)[0])
    else:
        least = _least_inside(rising if floor is None else mx.where(rising >= floor, rising, 0), limits.top_p)
        # What the host samples first, and what it samples next if that is outside the nucleus.
        limit = mx.stack([mx.zeros_like(least) if floor is None else floor, least])
        first, second = _sample(mx.where(weights >= limit, weights, 0), _factors(noise, 2))
        inside = mx.take_along_axis(weights, first[:, None], axis=-1) >= least
        sampled = mx.where(inside[:, 0], first, second)
    return mx.where(found, sampled, NO_TOKEN)


def penalise(
    logits: mx.array,
    repetition: mx.array | None,
    presence: mx.array | None,
    frequency: mx.array | None,
    *,
    counts: mx.array,
    seen: mx.array | None,
) -> mx.array:
    """Device form of `host.penalise`. A penalty that no row has starts no kernel."""
    if repetition is not None and seen is not None:
        scaled = mx.where(logits > 0, logits / repetition, logits * repetition)
        logits = mx.where(seen | (counts > 0), scaled, logits)
    if frequency is not None:
        logits = logits - frequency * counts
    return logits if presence is None else logits - presence * (counts > 0)


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


def prefer_group(logits: mx.array, starts: npt.NDArray[np.int64]) -> mx.array:
    """Device form of `host.prefer_group`: `starts` `[rows]`, the size of the vocabulary for rows without a group."""
    inside = mx.arange(logits.shape[-1]) >= mx.array(starts.astype(np.int32))[:, None]
    together = mx.logsumexp(mx.where(inside, logits, -mx.inf), axis=-1, keepdims=True)
    likeliest = mx.max(mx.where(inside, -mx.inf, logits), axis=-1, keepdims=True)
    return mx.where(~inside & (together > likeliest), -mx.inf, logits)


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


def logprobs_of(raw: mx.array, tokens: Sequence[int]) -> mx.array:
    """Device form of `host.logprobs_of`."""
    return raw[:, mx.array(list(tokens))] - mx.logsumexp(raw, axis=-1, keepdims=True)


def _unpacked(packed: npt.NDArray[np.uint8], vocabulary: int) -> mx.array:
    """`[rows, vocabulary]` booleans of packed bits."""
    bits = (mx.array(packed)[:, :, None] >> mx.arange(8, dtype=mx.uint8)) & 1
    return bits.reshape(len(packed), -1)[:, :vocabulary].astype(mx.bool_)


def _weights(scaled: mx.array) -> tuple[mx.array, mx.array]:
    """Device form of `host._weights`: (`[rows, vocabulary]`, which rows have any `[rows]`)."""
    highest = mx.max(scaled, axis=-1, keepdims=True)
    return mx.exp(scaled - highest), mx.abs(highest[:, 0]) < mx.inf


def _factors(noise: Noise, attempts: int) -> mx.array:
    """Device form of `noise.factors`: `[attempts, rows, 128 + blocks]`.

    Starting these kernels takes longer than making a few numbers on the host, which takes 1 ms for 32 rows of 152,000
    tokens. Near 1 a uniform is not exact in float32, but 1 minus it is.
    """
    count = BLOCK_TOKENS + noise.blocks
    if attempts * len(noise.keys) * count <= MAX_HOST_NUMBERS:
        made = (noise.first(), noise.second()) if attempts == 2 else (noise.first(),)
        return mx.array(np.stack(made))
    begin = np.stack([starts(noise.keys, noise.positions, attempt) for attempt in range(attempts)])
    z = mx.array(begin)[..., None] + mx.array(steps_of(count))
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        z = z ^ (z >> shift)
        if factor is not None:
            z = z * mx.array(np.array([factor], np.uint64))
    halves = z.view(mx.uint32)[..., :count]
    low, high = (((each.astype(mx.float32) + 0.5) * 2.0**-32) for each in (halves, mx.bitwise_invert(halves)))
    return -1 / mx.where(low < 0.5, mx.log(low), mx.log1p(-high))


def _least_inside(rising: mx.array, top_p: mx.array) -> mx.array:
    """The least weight in each row's nucleus, `[rows, 1]`, of its sorted weights."""
    upto = mx.cumsum(rising, axis=-1)
    outside = mx.sum(upto <= (1 - top_p) * upto[:, -1:], axis=-1, keepdims=True)
    return mx.take_along_axis(rising, mx.minimum(outside, rising.shape[-1] - 1), axis=-1)


def _sample(weights: mx.array, factors: mx.array) -> mx.array:
    """Device form of `host._sample`: `[..., vocabulary]` -> `[...]` int32."""
    if rest := -weights.shape[-1] % BLOCK_TOKENS:
        weights = mx.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, rest)])
    blocks = mx.unflatten(weights, -1, (-1, BLOCK_TOKENS))
    block = mx.argmax(mx.sum(blocks, axis=-1) * factors[..., BLOCK_TOKENS:], axis=-1, keepdims=True)
    inside = mx.take_along_axis(blocks, block[..., None], axis=-2)[..., 0, :] * factors[..., :BLOCK_TOKENS]
    return block[..., 0].astype(mx.int32) * BLOCK_TOKENS + mx.argmax(inside, axis=-1).astype(mx.int32)
