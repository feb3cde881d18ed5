"""Sampling from logits with NumPy, a whole batch at a time.

No row is ever sorted whole: `top_k` needs a partial selection, and `top_p` is rejection sampling: a token is sampled
from the whole distribution and accepted if it is in the nucleus, which the sum of what is likelier tells. Only for rows
where it is not, the nucleus is found, and it is among those likelier tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .masks import LOGIT_FLOOR, Masks

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 128  # vocabulary entries summed at once before the block that holds the sampled token is opened
FEW_SHARE = 4  # one token of so many or fewer: they alone are summed, not the whole row with zeros
# What eight packed bits add to the logits of their tokens: a table does in 1 ms, for 16 rows of 152,000, what takes
# `unpackbits` and `where` 14.
_ADDED_BY_BYTE = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), 0, -np.inf)
_ADDED_BY_BYTE = _ADDED_BY_BYTE.astype(np.float32)


def room(rows: int, vocabulary: int) -> Floats:
    """What the functions below take, to be filled up to the vocabulary: `[rows, whole blocks]`, zeros at the end."""
    out = np.empty((rows, -(-vocabulary // BLOCK_TOKENS) * BLOCK_TOKENS), dtype=np.float32)
    out[:, vocabulary:] = 0
    return out


def sample_plain(scaled: Floats, vocabulary: int, u: Doubles) -> Ints:
    """One token per row from the whole distribution.

    Args:
        scaled: logits over temperature in a `room`; overwritten.
        u: uniforms, `[rows]`.
    """
    return _sample_weighted(_weights(scaled, vocabulary), u)[0]


def sample_filtered(
    scaled: Floats, vocabulary: int, top_k: Ints, top_p: Floats, min_p: Floats, u: Doubles, again: Doubles
) -> Ints:
    """One token per row from what min_p, top_k (0: all) and top_p keep, in this order; `scaled` is overwritten.

    `again` are other uniforms, for rows whose first token is rejected.
    """
    weights = _weights(scaled, vocabulary)
    few = (top_k > 0) & (top_k < vocabulary)
    if not few.any():
        return _sample_nucleus(weights, top_p, min_p, u, again)
    tokens = np.empty(len(u), dtype=np.int64)
    tokens[few] = _sample_top_k(weights[few], top_k[few], top_p[few], min_p[few], u[few])
    if not few.all():
        many = ~few
        tokens[many] = _sample_nucleus(weights[many], top_p[many], min_p[many], u[many], again[many])
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


def _weights(scaled: Floats, vocabulary: int) -> Floats:
    """Probabilities, in units of the likeliest token's, in the place of the logits."""
    logits = scaled[:, :vocabulary]
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    return scaled


def _sample_nucleus(weights: Floats, top_p: Floats, min_p: Floats, u: Doubles, again: Doubles) -> Ints:
    """Rejection sampling: from what min_p leaves, and where that is outside the nucleus, from the nucleus alone."""
    if min_p.any():
        weights[weights < min_p[:, None]] = 0
    tokens, sampled, total = _sample_weighted(weights, u)
    nucleus, heavier = top_p * total, _heavier(weights, sampled, total)
    outside = (heavier >= nucleus) & (heavier > 0) & (top_p < 1)  # the likeliest token is inside of any, top_p 0 too
    for row in np.flatnonzero(outside).tolist():
        tokens[row] = _sample_likeliest(weights[row], sampled[row], nucleus[row], again[row])
    return tokens


def _heavier(weights: Floats, least: Floats, total: Doubles) -> Floats:
    """How much of each row weighs more than `least` each, `[rows]`."""
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
    values = weights[ids].astype(np.float64)
    order = (-values).argsort(kind="stable")  # of equally likely tokens those with the smaller ids come first
    kept = int(values[order].cumsum().searchsorted(nucleus)) + 1
    inside = order[:kept]
    inside.sort()
    cumulative = values[inside].cumsum()
    index = min(int(cumulative.searchsorted(u * cumulative[-1], side="right")), len(inside) - 1)
    return int(ids[inside[index]])


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
