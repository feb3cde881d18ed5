"""Sampling from logits with NumPy, a whole batch at a time.

No row is ever sorted whole: `top_k` needs a partial selection, and `top_p` is rejection sampling: a token is sampled
from the whole distribution and accepted if it is in the nucleus, which one sum tells. Only for rows where it is not,
the nucleus is found: through a histogram of the probabilities, of which only the bin that its edge is in is sorted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .masks import LOGIT_FLOOR, Masks
from .uniform import again

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 64  # vocabulary entries summed at once before the block that holds the sampled token is opened
_BITS_OF_ONE = int(np.float32(1).view(np.int32))
BIN_SHIFT_BITS = 18  # 32 bins per halving of the probability
BINS = 32 * 24  # 24 halvings below the likeliest token; the last bin holds all that is less likely
# What eight packed bits add to the logits of their tokens: a table does in 1 ms, for 16 rows of 152,000, what takes
# `unpackbits` and `where` 14.
_ADDED_BY_BYTE = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), 0, -np.inf)
_ADDED_BY_BYTE = _ADDED_BY_BYTE.astype(np.float32)


def sample_plain(scaled: Floats, u: Doubles) -> Ints:
    """One token per row from the whole distribution.

    Args:
        scaled: logits over temperature, `[rows, vocabulary]`; overwritten.
        u: uniforms, `[rows]`.
    """
    return _sample_weighted(_weights(scaled), u)[0]


def sample_filtered(scaled: Floats, top_k: Ints, top_p: Floats, min_p: Floats, u: Doubles) -> Ints:
    """One token per row from what min_p, top_k (0: all) and top_p keep, in this order; `scaled` is overwritten."""
    weights = _weights(scaled)
    few = (top_k > 0) & (top_k < weights.shape[-1])
    if not few.any():
        return _sample_nucleus(weights, top_p, min_p, u)
    tokens = np.empty(len(u), dtype=np.int64)
    tokens[few] = _sample_top_k(weights[few], top_k[few], top_p[few], min_p[few], u[few])
    if not few.all():
        many = ~few
        tokens[many] = _sample_nucleus(weights[many], top_p[many], min_p[many], u[many])
    return tokens


def penalise(
    logits: Floats, counts: Floats, seen: npt.NDArray[np.bool_], repetition: Floats, presence: Floats, frequency: Floats
) -> Floats:
    """Repetition, presence and frequency penalties, on the tokens that they concern.

    Args:
        logits: `[rows, vocabulary]`; changed in place.
        counts: `[rows, vocabulary]` occurrences in the output.
        seen: `[rows, vocabulary]`, whether the repetition penalty concerns a token of the prompt.
        repetition, presence, frequency: `[rows, 1]`.
    """
    rows, tokens = np.nonzero(seen | (counts > 0))
    values, count = logits[rows, tokens], counts[rows, tokens]
    factor = repetition[rows, 0]
    values = np.where(values > 0, values / factor, values * factor)
    logits[rows, tokens] = values - frequency[rows, 0] * count - presence[rows, 0] * (count > 0)
    return logits


def mask(logits: Floats, raw: Floats, masks: Masks, likeliest: Ints) -> Floats:
    """The logits of the masked rows, `[masked, vocabulary]`, -inf where a token may not come.

    Args:
        logits: `[rows, vocabulary]`.
        raw: the same before bans and penalties; where these leave a masked row nothing, its raw logits count.
        masks: see `Masks`.
        likeliest: `[rows]`, the argmax of `raw`; looked at only where there are escapes.
    """
    out = logits[masks.rows]
    out += _added(masks.packed, out.shape[-1])
    for at in np.flatnonzero(out.max(axis=-1) <= LOGIT_FLOOR):
        out[at] = np.maximum(raw[masks.rows[at]], LOGIT_FLOOR) + _added(masks.packed[at : at + 1], out.shape[-1])[0]
    if masks.escapes is not None:
        banned = logits[masks.rows, masks.escapes] <= LOGIT_FLOOR
        taken = np.flatnonzero((likeliest[masks.rows] == masks.escapes) & ~banned)
        out[taken] = -np.inf
        out[taken, masks.escapes[taken]] = 0
    return out


def keep_only(logits: Floats, packed: npt.NDArray[np.uint8]) -> Floats:
    """Logits `[rows, vocabulary]`, -inf for tokens without a bit in `packed`; see `Masks.packed`."""
    return logits + _added(packed, logits.shape[-1])


def ranks(raw: Floats, tokens: Ints) -> Ints:
    """Each row's place of its token among all, by likelihood: 1 for the likeliest."""
    higher: Ints = (raw > np.take_along_axis(raw, tokens[:, None], axis=-1)).sum(axis=-1)
    return higher + 1


def logprobs(raw: Floats, tokens: Ints, top_n: int) -> tuple[Floats, Ints | None, Floats | None]:
    """(logprob of each row's token `[rows]`, ids and logprobs of its `top_n` likeliest `[rows, top_n]` or None)."""
    highest = raw.max(axis=-1, keepdims=True)
    normaliser = highest + np.log(np.exp(raw - highest).sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(raw, tokens[:, None], axis=-1)[:, 0] - normaliser[:, 0]
    if not top_n:
        return chosen, None, None
    n = min(top_n, raw.shape[-1])
    ids = np.argpartition(raw, raw.shape[-1] - n, axis=-1)[:, -n:]
    values = np.take_along_axis(raw, ids, axis=-1) - normaliser
    order = np.lexsort((ids, -values), axis=-1)
    return chosen, np.take_along_axis(ids, order, axis=-1), np.take_along_axis(values, order, axis=-1)


# ---------------------------------------------------------------------------------------------------------------------


def _added(packed: npt.NDArray[np.uint8], vocabulary: int) -> Floats:
    """What masks add to logits: 0 or -inf. `[masked, vocabulary]`."""
    added: Floats = _ADDED_BY_BYTE.take(packed[:, : -(-vocabulary // 8)], axis=0)
    return added.reshape(len(packed), -1)[:, :vocabulary]


def _weights(scaled: Floats) -> Floats:
    """Probabilities, in units of the likeliest token's, in the place of the logits."""
    scaled -= scaled.max(axis=-1, keepdims=True)
    return np.exp(scaled, out=scaled)


def _sample_nucleus(weights: Floats, top_p: Floats, min_p: Floats, u: Doubles) -> Ints:
    """Rejection sampling: from what min_p leaves, and where that is outside the nucleus, from the nucleus alone."""
    if min_p.any():
        weights[weights < min_p[:, None]] = 0
    tokens, total = _sample_weighted(weights, u)
    sampled = weights[np.arange(len(u)), tokens]
    heavier = (weights * (weights > sampled[:, None])).sum(axis=-1)
    outside = np.flatnonzero((heavier >= top_p * total) & (top_p < 1))
    if len(outside):
        tokens[outside] = _sample_weighted(_cut_nucleus(weights[outside], top_p[outside]), again(u[outside]))[0]
    return tokens


def _sample_weighted(weights: Floats, u: Doubles) -> tuple[Ints, Doubles]:
    """(tokens, each row's weight in all). In order of the ids: first the block that the uniform falls into."""
    starts = np.arange(0, weights.shape[-1], BLOCK_TOKENS)
    blocks = np.cumsum(np.add.reduceat(weights, starts, axis=-1), axis=-1, dtype=np.float64)
    target = u * blocks[:, -1]
    # Rounding may point past the last block that has any weight.
    block = np.minimum((blocks <= target[:, None]).sum(axis=-1), np.argmax(blocks >= blocks[:, -1:], axis=-1))
    rows = np.arange(len(u))
    inside = starts[block][:, None] + np.arange(BLOCK_TOKENS)
    ids = np.minimum(inside, weights.shape[-1] - 1)
    part = np.where(inside < weights.shape[-1], weights[rows[:, None], ids], 0)
    before = np.where(block > 0, blocks[rows, block - 1], 0.0)
    return starts[block] + _index(part, before, target), blocks[:, -1]


def _index(weights: Floats, before: Doubles, target: Doubles) -> Ints:
    """Where the target falls in a row's cumulative weight; never on an entry behind the last that has any."""
    cumulative = before[:, None] + np.cumsum(weights, axis=-1, dtype=np.float64)
    last = weights.shape[-1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=-1)
    index: Ints = np.minimum((cumulative <= target[:, None]).sum(axis=-1), last)
    return index


def _sample_top_k(weights: Floats, top_k: Ints, top_p: Floats, min_p: Floats, u: Doubles) -> Ints:
    """Rows with a top_k: only so many candidates are looked at."""
    k = int(top_k.max())
    ids = np.argpartition(weights, weights.shape[-1] - k, axis=-1)[:, -k:]
    top = np.take_along_axis(weights, ids, axis=-1)
    order = np.lexsort((ids, -top), axis=-1)
    ids, top = np.take_along_axis(ids, order, axis=-1), np.take_along_axis(top, order, axis=-1)
    top = np.where((top >= min_p[:, None]) & (np.arange(k) < top_k[:, None]), top, 0)
    cumulative = np.cumsum(top, axis=-1, dtype=np.float64)
    keep = cumulative - top < top_p[:, None].astype(np.float64) * cumulative[:, -1:]
    keep[:, 0] = True  # the likeliest token stays whatever top_p is
    top = np.where(keep, top, 0)
    order = np.argsort(ids, axis=-1)
    ids, top = np.take_along_axis(ids, order, axis=-1), np.take_along_axis(top, order, axis=-1)
    index = _index(top, np.zeros(len(u)), u * top.sum(axis=-1, dtype=np.float64))
    tokens: Ints = np.take_along_axis(ids, index[:, None], axis=-1)[:, 0]
    return tokens


def _cut_nucleus(weights: Floats, top_p: Floats) -> Floats:
    """Zero what is outside the smallest set of likeliest tokens that holds `top_p` of each row's weight."""
    rows = np.arange(len(weights))
    nucleus = top_p.astype(np.float64) * weights.sum(axis=-1, dtype=np.float64)
    # A float's exponent and leading mantissa bits are a logarithmic bin number that costs no logarithm.
    bins = _BITS_OF_ONE - weights.view(np.int32)
    np.right_shift(bins, BIN_SHIFT_BITS, out=bins)
    np.minimum(bins, BINS - 1, out=bins)
    flat = bins + (rows * BINS)[:, None]
    mass = np.bincount(flat.ravel(), weights.ravel(), minlength=len(rows) * BINS).reshape(-1, BINS)
    cumulative = np.cumsum(mass, axis=-1)
    edge = np.minimum((cumulative < nucleus[:, None]).sum(axis=-1), BINS - 1)
    edges = edge.astype(np.int32)[:, None]
    out: Floats = weights * (bins < edges)
    # The edge's own bin is taken from its heaviest token down.
    row, token = np.divmod(np.flatnonzero(bins == edges), weights.shape[-1])
    value = weights[row, token]
    order = np.lexsort((token, -value, row))
    row, token, value = row[order], token[order], value[order]
    running = np.cumsum(value, dtype=np.float64) - value
    first = np.searchsorted(row, row)
    above = np.where(edge > 0, cumulative[rows, edge - 1], 0.0)
    within = above[row] + running - running[first] < nucleus[row]
    within[first] |= edge[row[first]] == 0  # the likeliest token stays whatever top_p is
    out[row[within], token[within]] = value[within]
    return out
