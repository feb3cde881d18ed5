"""Attention as MLX's CUDA back end is best at it; Metal's and the CPU's is left alone.

What MLX 0.32.4 does there, measured on an H100 with a model of the shape of 8B ones:
* For several queries it has cuDNN build a plan for each new pair of query and key lengths, which takes 70 to 90 ms, and
  the other products of a pass prepare for each new number of tokens. Prompts all differ in length. So passes are filled
  up to one of few lengths, and attention as well: `fill` and `attending`.
* For one query per row a mask array leaves its fused attention, and for a few its products prepare for each new number
  of columns: see `cuda_decode`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from ...engine.cache_contents import UPSTREAMS, LayerCache
from ..patches import Array, Function, Mask, attention_patches, replace, replaced
from . import decode_attention as cuda_decode

LENGTHS = (32, 64, 128, 192, 256, 384, 512, 640, 768, 896, 1_024)
"""Tokens that a pass is filled up to; beyond them, multiples of `_grain`."""

FEW_QUERIES = cuda_decode.MOST_QUERIES
"""Up to this number a row, attention is computed by `cuda_decode`, or by `attend_few` for shapes unknown to it."""

_PLANNED_DIM = 128  # cuDNN is used for heads up to this size, in half precision
_HALF = (mx.bfloat16, mx.float16)
_ROWS = (1, 2, 4, 8, 16, 32)


def filled(tokens: int) -> int:
    """The length that a pass of a number of tokens is filled up to."""
    if tokens <= LENGTHS[-1]:
        return next(length for length in LENGTHS if length >= tokens)
    step = _grain(tokens)
    return -(-tokens // step) * step


def filled_rows(rows: int) -> int:
    """The rows that a pass of a number of texts is filled up to: beyond 32 a quarter of a power of two apart."""
    if rows <= _ROWS[-1]:
        return next(n for n in _ROWS if n >= rows)
    step = 1 << (rows - 1).bit_length() - 3
    return -(-rows // step) * step


def fill(tokens: mx.array, cache: Sequence[LayerCache]) -> tuple[mx.array, int]:
    """A pass's tokens, `[rows, k]`, padded at the right up to `filled`, and how many tokens that added to each row.

    Causal attention never looks at padding; `forget` takes it out of the caches. Caches that it could not be taken out
    of get none. Rows of an empty cache become one of few numbers, too: the caller leaves what is behind its own.
    """
    rows, length = tokens.shape
    padding = filled(length) - length
    if not all(_forgets(layer, length + padding) for layer in cache):
        return tokens, 0
    missing = 0
    if rows > 1 and all(layer.empty() for layer in cache):
        missing = next((n for n in _ROWS if n >= rows), rows) - rows
    return mx.pad(tokens, [(0, missing), (0, padding)]) if missing or padding else tokens, padding


def forget(cache: Sequence[LayerCache], padding: int) -> None:
    """Take padding out of the caches after a pass."""
    if padding:
        for layer in cache:
            layer.trim(padding)


def _forgets(layer: LayerCache, tokens: int) -> bool:
    """True if `tokens` more can be taken back from a layer's cache as if they had not been there."""
    kind = type(layer)
    if kind.__module__ not in UPSTREAMS and kind.__name__ != "OwnKVCache":
        return False
    return kind.__name__ in ("KVCache", "OwnKVCache") or (
        kind.__name__ == "RotatingKVCache" and bool(layer.offset + tokens <= layer.max_size)
    )


def use_attention(model: nn.Module) -> int:
    """Make a model's layers call `attending` instead of upstream's function; returns how many layers changed."""
    return replace(model, replaced(attention_patches(attending)))


@functools.cache
def attending(upstream: Function) -> Function:
    """Upstream's `scaled_dot_product_attention`, in a form that is fast on CUDA.

    Batches in upstream's own caches, which are padded on the left, are left to it: they belong to other code.
    """

    def attend(
        queries: Array, keys: Array, values: Array, cache: object, scale: float, mask: Mask, sinks: Array | None = None
    ) -> Array:
        array = mask if isinstance(mask, mx.array) else None
        known = array is mask if queries.shape[2] == 1 else array is not None or mask == "causal"
        theirs = array is not None and (array.dtype != mx.bool_ or getattr(cache, "left_padding", None) is not None)
        if known and not theirs and not hasattr(cache, "bits"):
            if cuda_decode.fits(queries, keys, values):
                return cuda_decode.attend(queries, keys, values, array, scale, sinks)
            if _has_plan(queries, values):
                if queries.shape[2] <= FEW_QUERIES:
                    return attend_few(queries, keys, values, scale, array, sinks)
                if array is not None:
                    return attend_masked(queries, keys, values, scale, array, sinks)
                return attend_filled(queries, keys, values, scale, sinks)
        return upstream(queries, keys, values, cache, scale, mask, sinks)

    return attend


def attend_filled(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, sinks: mx.array | None = None
) -> mx.array:
    """Causal attention of the last tokens to all, `[rows, heads, tokens, dim]`, with lengths that are few.

    Queries are padded on the left, so that they begin at one of few positions, and on the right like keys and values.
    """
    tokens, columns = queries.shape[2], keys.shape[2]
    before, after = _around(columns - tokens, tokens)
    queries, keys, values = _padded(queries, before, after), _padded(keys, 0, after), _padded(values, 0, after)
    out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask="causal", sinks=sinks)
    return out[:, :, before : before + tokens]


def attend_masked(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array, sinks: mx.array | None = None
) -> mx.array:
    """Attention with a bool mask `[..., tokens, columns]`, made one to add: only such a mask stays in one kernel.

    On an H100, 2,048 tokens and 3,072 columns: 1,218 us with a bool mask, 397 so.
    """
    tokens, columns = queries.shape[2], keys.shape[2]
    below, behind = filled(tokens) - tokens, filled(columns) - columns
    mask = mx.pad(mask, [(0, 0)] * (mask.ndim - 2) + [(0, below), (0, behind)])
    added = mx.where(mask, mx.array(0.0, queries.dtype), mx.array(-mx.inf, queries.dtype))
    queries, keys, values = _padded(queries, 0, below), _padded(keys, 0, behind), _padded(values, 0, behind)
    out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=added, sinks=sinks)
    return out[:, :, :tokens]


def attend_few(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    mask: mx.array | None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention of a few queries per row, `[rows, heads, tokens, dim]`, by products of MLX's own: nothing is padded or
    planned, and what the queries share is read once.

    Args:
        mask: bool, to be broadcast to `[rows, 1, tokens, columns]`; None is causal.
    """
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    if mask is None:
        mask = cuda_decode.causal(tokens, columns)
    shape = (rows, key_heads, heads // key_heads, tokens, columns)
    scores = (queries * scale).reshape(rows, key_heads, -1, dim) @ keys.swapaxes(-1, -2)
    scores = mx.where(mask[..., None, :, :], scores.reshape(shape).astype(mx.float32), -mx.inf)
    if sinks is not None:
        extra = mx.broadcast_to(sinks.astype(mx.float32).reshape(1, key_heads, -1, 1, 1), (*shape[:-1], 1))
        scores = mx.concatenate([scores, extra], axis=-1)
    weights = mx.softmax(scores, axis=-1)[..., :columns].astype(values.dtype)
    return (weights.reshape(rows, key_heads, -1, columns) @ values).reshape(rows, heads, tokens, -1)


def _padded(array: mx.array, before: int, after: int) -> mx.array:
    """`[rows, heads, tokens, dim]` with zeros around the tokens."""
    return mx.pad(array, [(0, 0), (0, 0), (before, after), (0, 0)]) if before or after else array


def _around(first: int, tokens: int) -> tuple[int, int]:
    """Padding on the left and on the right of queries that begin at this position.

    Short contexts are computed as a whole, which costs little; in long ones queries begin at a multiple of `_grain`.
    """
    columns = first + tokens
    if columns <= LENGTHS[-1]:
        return first, filled(columns) - columns
    grain = _grain(columns)
    before = first % grain
    return before, -(before + tokens) % (grain // 2)


def _grain(tokens: int) -> int:
    """Factor of lengths beyond LENGTHS: 256 up to 4,096 tokens, then a sixteenth of a power of two."""
    return max(256, 1 << (tokens - 1).bit_length() - 4)


def _has_plan(queries: mx.array, values: mx.array) -> bool:
    return queries.shape[2] > 1 and queries.dtype in _HALF and max(queries.shape[-1], values.shape[-1]) <= _PLANNED_DIM
