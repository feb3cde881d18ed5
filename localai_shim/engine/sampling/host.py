"""Sampling from logits with NumPy, a whole batch at a time.

No row is ever sorted whole. The k likeliest tokens are at least as likely as the k-th of the blocks' likeliest ones.
`top_p` is rejection sampling: a token is sampled from the whole distribution and accepted if it is in the nucleus,
which the sum of what is likelier tells. Only for rows where it is not, the nucleus is found, and it is among those
likelier tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..row import NO_TOKEN
from .masks import LOGIT_FLOOR, Masks

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 128  # vocabulary entries summed at once before the block that holds the sampled token is opened
BUCKET_BITS = 16  # of a weight, that its bucket leaves out: 128 buckets for each power of two
FEW_SHARE = 4  # one token of so many or fewer: they alone are summed, not the whole row with zeros
_LEAST_WEIGHT = np.nextafter(np.float32(0), np.float32(1))  # a token without any is never sampled
# What eight packed bits add to the logits of their tokens: a table does in 1 ms, for 16 rows of 152,000, what takes
# `unpackbits` and `where` 14.
_ADDED_BY_BYTE = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), 0, -np.inf)
_ADDED_BY_BYTE = _ADDED_BY_BYTE.astype(np.float32)


def padded(rows: int, vocabulary: int) -> Floats:
    """Array for the functions below, to be filled up to the vocabulary: `[rows, whole blocks]`, zeros at the end."""
    out = np.empty((rows, -(-vocabulary // BLOCK_TOKENS) * BLOCK_TOKENS), dtype=np.float32)
    out[:, vocabulary:] = 0
    return out


def likeliest(logits: Floats) -> Ints:
    """Each row's likeliest token, `[rows]`; `NO_TOKEN` if its logit is not finite."""
    tokens = logits.argmax(axis=-1)
    found = np.isfinite(logits[np.arange(len(tokens)), tokens])
    return np.where(found, tokens, NO_TOKEN)


def sample_plain(scaled: Floats, vocabulary: int, u: Doubles) -> Ints:
    """One token per row from the whole distribution; `NO_TOKEN` if the likeliest logit is not finite.

    Args:
        scaled: logits over temperature in a `padded` array; overwritten.
        u: uniforms, `[rows]`.
    """
    weights, found = _weights(scaled, vocabulary)
    return np.where(found, _sample_weighted(weights, u)[0], NO_TOKEN)


def sample_filtered(
    scaled: Floats, vocabulary: int, top_k: Ints, top_p: Floats, min_p: Floats, u: Doubles, again: Doubles
) -> Ints:
    """One token per row from what min_p, top_k (0: all) and top_p keep, in this order; see `sample_plain`.

    `again` are other uniforms, for rows whose first token is rejected.
    """
    weights, found = _weights(scaled, vocabulary)
    few = (top_k > 0) & (top_k < vocabulary)
    tokens = np.empty(len(u), dtype=np.int64)
    for row in few.nonzero()[0].tolist():
        tokens[row] = _sample_top_k(weights[row], int(top_k[row]), top_p[row], min_p[row], u[row])
    if not few.any():
        tokens = _sample_nucleus(weights, top_p, min_p, u, again)
    elif not few.all():
        many = ~few
        tokens[many] = _sample_nucleus(weights[many], top_p[many], min_p[many], u[many], again[many])
    return np.where(found, tokens, NO_TOKEN)


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
    """(logprob of each row's token `[rows]`, ids and logprobs of its `top_n` likeliest `[rows, top_n]` or None).

    All are NaN for rows whose likeliest logit is not finite.
    """
    highest = _highest(raw)
    weights = raw - highest
    np.exp(weights, out=weights)
    normaliser = highest + np.log(weights.sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(raw, tokens[:, None], axis=-1)[:, 0] - normaliser[:, 0]
    if not top_n:
        return chosen, None, None
    none = np.arange(min(top_n, raw.shape[-1]))
    known = ~np.isnan(highest[:, 0])
    ids = np.array([top_ids(row, top_n) if there else none for row, there in zip(raw, known, strict=True)])
    return chosen, ids, np.take_along_axis(raw, ids, axis=-1) - normaliser


def top_ids(row: Floats, count: int, floor: float = -np.inf) -> Ints:
    """Ids of one row's `count` likeliest tokens, best first; of equally likely ones those with the smaller ids.

    Tokens below `floor` may be left out.
    """
    whole = len(row) // BLOCK_TOKENS * BLOCK_TOKENS
    best = row[:whole].reshape(-1, BLOCK_TOKENS).max(axis=-1)
    ids: Ints = np.arange(len(row))
    if count < len(best):  # so many blocks have a token that is as likely as this
        least = np.partition(best, len(best) - count)[len(best) - count]
        ids = (row >= max(least, np.float32(floor))).nonzero()[0]
    return ids[(-row[ids]).argsort(kind="stable")[:count]]


# ---------------------------------------------------------------------------------------------------------------------


def _added(packed: npt.NDArray[np.uint8], vocabulary: int) -> Floats:
    """Numbers that masks add to logits: 0 or -inf. `[masked, vocabulary]`."""
    added: Floats = _ADDED_BY_BYTE.take(packed[:, : -(-vocabulary // 8)], axis=0)
    return added.reshape(len(packed), -1)[:, :vocabulary]


def _highest(logits: Floats) -> Floats:
    """Each row's highest logit, `[rows, 1]`; NaN if that is not finite."""
    highest: Floats = logits.max(axis=-1, keepdims=True)
    return np.where(np.isfinite(highest), highest, np.float32(np.nan))


def _weights(scaled: Floats, vocabulary: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Probabilities, in units of the likeliest token's, written over the logits, and which rows have any, `[rows]`:
    of the others the first token has all.
    """
    logits = scaled[:, :vocabulary]
    highest = _highest(logits)
    found = ~np.isnan(highest[:, 0])
    logits -= highest
    np.exp(logits, out=logits)
    if not found.all():
        logits[~found] = 0
        logits[~found, 0] = 1
    return scaled, found


def _sample_nucleus(weights: Floats, top_p: Floats, min_p: Floats, u: Doubles, again: Doubles) -> Ints:
    """Rejection sampling: from what min_p leaves, and where that is outside the nucleus, from the nucleus alone."""
    if min_p.any():
        np.multiply(weights, weights >= min_p[:, None], out=weights)
    tokens, sampled, total = _sample_weighted(weights, u)
    if (top_p >= 1).all():
        return tokens
    nucleus, heavier = top_p * total, _heavier(weights, sampled, total)
    outside = (heavier >= nucleus) & (heavier > 0) & (top_p < 1)  # the likeliest token is inside of any, top_p 0 too
    for row in np.flatnonzero(outside).tolist():
        tokens[row] = _sample_likeliest(weights[row], sampled[row], nucleus[row], again[row])
    return tokens


def _heavier(weights: Floats, least: Floats, total: Doubles) -> Floats:
    """Weight in each row of the entries that weigh more than `least` each, `[rows]`."""
    heavier = weights > least[:, None]
    # A sum of some entries only is fast where they are few: no more can be than weigh so much together.
    many = (least * (weights.shape[-1] / FEW_SHARE) <= total).nonzero()[0]
    if len(many):
        heavier[many] = False
    sums: Floats = np.add.reduce(weights, axis=-1, where=heavier)
    for row in many.tolist():
        sums[row] = (weights[row] * (weights[row] > least[row])).sum()
    return sums


def _sample_likeliest(weights: Floats, least: np.float32, nucleus: np.float64, u: np.float64) -> int:
    """A token from the smallest set of one row's likeliest tokens that weighs `nucleus`: they weigh over `least`."""
    ids = (weights > least).nonzero()[0]
    values = weights[ids]
    inside = _smallest_set(values, nucleus)
    return int(ids[inside[_place(values[inside], u)]])


def _smallest_set(values: Floats, nucleus: np.float64) -> Ints:
    """Indices of the fewest values that together weigh `nucleus`, in order; of equal ones the first.

    Only those of one bucket are sorted: numbers over 0 are ordered as their bits are.
    """
    buckets = values.view(np.int32) >> BUCKET_BITS
    heavier = np.bincount(buckets, values)[::-1].cumsum()  # with the heaviest bucket first
    last = min(int(heavier.searchsorted(nucleus)), len(heavier) - 1)
    bucket = len(heavier) - 1 - last
    ties = (buckets == bucket).nonzero()[0]
    ties = ties[(-values[ties]).argsort(kind="stable")]
    before = heavier[last - 1] if last else 0.0
    kept = int(values[ties].cumsum(dtype=np.float64).searchsorted(nucleus - before)) + 1
    inside = buckets > bucket
    inside[ties[:kept]] = True
    return inside.nonzero()[0]


def _place(weights: Floats, u: np.float64) -> int:
    """Index at which a uniform falls in some weights, none of which is 0."""
    cumulative = weights.cumsum(dtype=np.float64)
    return min(int(cumulative.searchsorted(u * cumulative[-1], side="right")), len(weights) - 1)


def _sample_weighted(weights: Floats, u: Doubles) -> tuple[Ints, Floats, Doubles]:
    """(tokens, their weights, each row's weight in all). In order of the ids: first the block with the target."""
    rows = np.arange(len(u))
    blocks = weights.reshape(len(u), -1, BLOCK_TOKENS)
    before = np.zeros((len(u), blocks.shape[1] + 1))
    np.add.reduce(blocks, axis=-1).astype(np.float64).cumsum(axis=-1, out=before[:, 1:])
    total = before[:, -1]
    target = u * total
    block = (before[:, 1:] > target[:, None]).argmax(axis=-1)
    cumulative = blocks[rows, block].astype(np.float64).cumsum(axis=-1)
    cumulative += before[rows, block][:, None]
    index = (cumulative > target[:, None]).argmax(axis=-1)
    tokens: Ints = block * BLOCK_TOKENS + index
    # Rounding may leave the target behind all that there is of a block, or of a row.
    for row in (cumulative[rows, index] <= target).nonzero()[0].tolist():
        end = BLOCK_TOKENS * (int(block[row]) + 1) if target[row] < total[row] else weights.shape[-1]
        tokens[row] = weights[row, :end].nonzero()[0][-1]
    return tokens, weights[rows, tokens], total


def _sample_top_k(weights: Floats, top_k: int, top_p: np.float32, min_p: np.float32, u: np.float64) -> int:
    """A token of one row with a top_k: only `top_k` candidates are looked at."""
    ids = top_ids(weights, top_k, _LEAST_WEIGHT)
    top = weights[ids]
    top = top[(top > 0) & (top >= min_p)]
    cumulative = top.cumsum(dtype=np.float64)
    inside = cumulative - top < np.float64(top_p) * cumulative[-1]
    inside[0] = True  # the likeliest token stays whatever top_p is
    ids = ids[: len(top)][inside]
    ids.sort()
    return int(ids[_place(weights[ids], u)])
