"""Attention to tokens that rows share, by the kernel for a few queries per row: see `decode_attention`.

The queries of the rows that share are blocks of up to 16, which read the same keys. The kernel makes splits of
these and of the rows' own keys, which one call joins.
"""

from __future__ import annotations

import math

import mlx.core as mx

from ...engine.cache_contents import Shared, SharedPart
from .. import shared_attention as portable
from ..patches import Mask
from . import decode_attention as kernel

Splits = tuple[mx.array, mx.array]
"""Sums and stats of queries: see `decode_attention.partial_sums`."""

_NOTHING = -1e38  # less than any score


def attend_shared(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    shared: Shared,
    scale: float,
    mask: Mask,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention, `[rows, heads, tokens, dim]`; see `shared_attention.attend_shared`."""
    tokens, fits = queries.shape[2], [kernel.fits(queries[:, :, :1], part.keys, part.values) for part in shared.parts]
    known = mask is not None or tokens == 1
    if not (all(fits) and known and kernel.fits(queries[:, :, :1], keys, values)):
        return portable.attend_shared(queries, keys, values, shared, scale, mask, sinks)
    own = _own(queries, keys, values, None if isinstance(mask, str) else mask, scale)
    if len(shared.parts) == 1:
        [part] = shared.parts
        return kernel.combine_shared(own, _packed(queries, part, scale), queries, part.rows, shared.order, sinks)
    before = _in_order([_of_part(queries, part, scale) for part in shared.parts], shared)
    sums, stats = (mx.concatenate([*pair], axis=2) for pair in zip(own, before, strict=True))
    return kernel.combine(sums, stats, queries, sinks)


def _own(queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array | None, scale: float) -> Splits:
    """Attention to the rows' own keys; without a mask it is causal."""
    rows, heads, tokens, dim = queries.shape
    if tokens == 1:
        return kernel.partial_sums(queries, keys, values, mx.array(True) if mask is None else mask, scale)
    if tokens <= kernel.MOST_QUERIES:
        return kernel.partial_sums(queries, keys, values, kernel.seen_by(mask, tokens, keys.shape[2]), scale)
    found = portable.own(queries * scale, keys, values, "causal" if mask is None else mask)
    stats = mx.concatenate([found.top * math.log2(math.e), found.weight], axis=-1)
    return found.sums.reshape(rows, heads * tokens, 1, dim), stats.reshape(rows, heads * tokens, 1, 2)


def _packed(queries: mx.array, part: SharedPart, scale: float) -> Splits:
    """Attention of rows to tokens that they share: their queries are blocks of a few rows' tokens."""
    if part.rows is not None:
        queries = queries[part.rows]
    rows, heads, tokens, dim = queries.shape
    if kernel.fits_many(queries):
        flat = queries.swapaxes(1, 2).reshape(1, rows * tokens, heads, dim).swapaxes(1, 2)
        return kernel.partial_sums_of_many(flat, part.keys, part.values, scale)
    blocks = -(-rows * tokens // kernel.MOST_QUERIES)
    width = -(-rows * tokens // blocks)
    flat = queries.swapaxes(1, 2).reshape(rows * tokens, heads, dim)
    if blocks * width > rows * tokens:
        flat = mx.pad(flat, [(0, blocks * width - rows * tokens), (0, 0), (0, 0)])
    packed = flat.reshape(blocks, width, heads, dim).swapaxes(1, 2)
    keys, values = part.keys, part.values
    if blocks > 1:
        keys, values = (mx.broadcast_to(array, (blocks, *array.shape[1:])) for array in (keys, values))
    seen = mx.array(True) if width == 1 else mx.array((1 << width) - 1, mx.uint32)
    return kernel.partial_sums(packed, keys, values, seen, scale)


def _of_part(queries: mx.array, part: SharedPart, scale: float) -> Splits:
    """The same, by row and head."""
    sums, stats = _packed(queries, part, scale)
    rows = queries.shape[0] if part.rows is None else part.rows.shape[0]
    heads, tokens = queries.shape[1:3]
    return _by_row(sums, rows, heads, tokens), _by_row(stats, rows, heads, tokens)


def _by_row(array: mx.array, rows: int, heads: int, tokens: int) -> mx.array:
    """`[blocks, heads * width, splits, n]` -> `[rows, heads * tokens, splits, n]`."""
    blocks, _, splits, n = array.shape
    flat = array.reshape(blocks, heads, -1, splits, n).swapaxes(0, 1).reshape(heads, -1, splits, n)
    return (
        flat[:, : rows * tokens]
        .reshape(heads, rows, tokens, splits, n)
        .swapaxes(0, 1)
        .reshape(rows, heads * tokens, splits, n)
    )


def _in_order(parts: list[Splits], shared: Shared) -> Splits:
    """The parts' rows in the order of the pass, all with as many splits."""
    if shared.order is None:
        return parts[0]
    most = max(sums.shape[2] for sums, _ in parts)
    sums = [mx.pad(each, [(0, 0), (0, 0), (0, most - each.shape[2]), (0, 0)]) for each, _ in parts]
    stats = [_padded(each, most) for _, each in parts]
    sums.append(mx.zeros((1, *sums[0].shape[1:]), mx.float32))
    stats.append(mx.broadcast_to(mx.array([_NOTHING, 0.0]), (1, *stats[0].shape[1:])))
    return mx.concatenate(sums)[shared.order], mx.concatenate(stats)[shared.order]


def _padded(stats: mx.array, splits: int) -> mx.array:
    rows, queries, given, _ = stats.shape
    missing = mx.broadcast_to(mx.array([_NOTHING, 0.0]), (rows, queries, splits - given, 2))
    return mx.concatenate([stats, missing], axis=2) if given < splits else stats
