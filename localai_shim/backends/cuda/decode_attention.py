"""A CUDA kernel for attention of one query per row, or a few, to keys that a mask chooses.

MLX's own kernels (0.32.4) take no mask for one query: a mask array leads to separate products over all keys, with
scores in half precision; and without a mask cuDNN builds a plan for each new number of rows and capacity of the cache,
which takes 50 ms to 2.5 s. On an H100, 32 query and 8 key heads of 128 in bfloat16, rows of half to all the columns:

| rows x columns | no mask | mask array | this kernel |
| 32 x 4,096     | 209 us  | 1,157 us   | 200 us      |
| 32 x 512       | 58      | 216        | 61          |
| 8 x 4,096      | 83      | 336        | 74          |
| 2 x 512        | 33      | 77         | 37          |

Relative error compared with float32: 1.7e-3 (mask array: 4.6e-3); where scores reach hundreds 9e-4 (mask array: 4e-2).

The keys of a row are split between blocks. In a block each warp goes over some of them with a running maximum and sum
(online softmax, Milakov and Gimelshein 2018; split as in Flash-Decoding, Dao et al. 2023). Keys that the mask leaves
out are not read. A second kernel joins the splits. Several queries of a row are as many more heads that share a key
head; which of them see a key is a bit of a number, made once per step. These go over the tensor cores:

| rows x queries x columns | sums of products | on the tensor cores |
| 32 x 5 x 4,096           | 1,490 us         | 232 us              |
| 32 x 5 x 512             | 203              | 53                  |
| 8 x 16 x 512             | 131              | 33                  |
| 1 x 5 x 512              | 19               | 12                  |
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from .. import memory as device
from .kernels import Compiled, cuda_kernel, type_name

_BLOCKS = 528  # four for each of an H100's processors; 1,056 and 2,112 were no faster
_WARPS = 4  # of a block; 8 were no faster
_KEYS_PER_SPLIT = 128  # at least
_HEADS_PER_BLOCK = 8  # query heads that share a key head, and so one reading of it
_KEYS_AHEAD = {True: 4, False: 2}  # keys that a lane group has in flight, with up to four heads and with more
MOST_QUERIES = 16  # of a row
_DIMS = (64, 80, 96, 128, 256)
_TENSOR_DIMS = (64, 128)  # of several queries that go over the tensor cores, 16 that share a key head at a time
_TENSOR_QUERIES = 16
_MANY_WARPS = 8  # of a block for many queries, each for 16 of them
_MANY_BLOCKS = 264  # two for each of an H100's processors
_MANY_KEYS = 128  # of a block at least
_TYPES = (mx.bfloat16, mx.float16)


def fits(queries: mx.array, keys: mx.array, values: mx.array) -> bool:
    """True if the kernel knows these shapes and types.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        keys: `[rows, key heads, columns, dim]`.
        values: as the keys.
    """
    return (
        queries.shape[2] <= MOST_QUERIES
        and queries.dtype in _TYPES
        and queries.dtype == keys.dtype == values.dtype
        and queries.shape[-1] in _DIMS
        and keys.shape == values.shape
    )


def attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: mx.array | None,
    scale: float,
    sinks: mx.array | None = None,
) -> mx.array:
    """`[rows, heads, tokens, dim]`: what `mx.fast.scaled_dot_product_attention` computes of the same arguments.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        keys: `[rows, key heads, columns, dim]`, a slice of a larger buffer where that is at hand.
        values: as the keys.
        mask: bool, to be broadcast to `[rows, 1, tokens, columns]`; at least one column counts for each token. None: it
            is causal, as for the last tokens.
        scale: of the scores.
        sinks: `[heads]` scores of a key without a value, or None.
    """
    tokens, columns = queries.shape[2], keys.shape[2]
    seen = (mx.array(True) if mask is None else mask) if tokens == 1 else seen_by(mask, tokens, columns)
    return combine(*partial_sums(queries, keys, values, seen, scale), queries, sinks)


def partial_sums(
    queries: mx.array, keys: mx.array, values: mx.array, seen: mx.array, scale: float
) -> tuple[mx.array, mx.array]:
    """Attention to splits of the keys, for `combine` to join.

    Args:
        queries: `[rows, heads, tokens, dim]`.
        keys: `[rows, key heads, columns, dim]`.
        values: as the keys.
        seen: to be broadcast to `[rows, 1, 1, columns]`; bool for one token, else uint32: bit t says whether token t
            sees the column.
        scale: of the scores.

    Returns:
        `[rows, heads * tokens, splits, dim]` float32 sums, and `[..., 2]` float32: the largest score of each, in powers
        of 2, and its weight.
    """
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    sharing, together = heads // key_heads * tokens, _HEADS_PER_BLOCK  # one kernel for any number of several tokens
    if tokens == 1:
        together = max(n for n in range(1, _HEADS_PER_BLOCK + 1) if sharing % n == 0)
    elif dim in _TENSOR_DIMS:
        together = _TENSOR_QUERIES
    groups = key_heads * -(-sharing // together)
    splits = max(1, min(-(-_BLOCKS // (rows * groups)), -(-columns // _KEYS_PER_SPLIT)))
    sums, stats = _partial(queries.dtype == mx.float16, dim, together, tokens > 1, float(scale))(
        inputs=[queries, keys, values, mx.broadcast_to(seen, (rows, 1, 1, columns))],
        grid=(splits * 32 * _WARPS, groups, rows),
        threadgroup=(32 * _WARPS, 1, 1),
        output_shapes=[(rows, heads * tokens, splits, dim), (rows, heads * tokens, splits, 2)],
        output_dtypes=[mx.float32, mx.float32],
    )
    return sums, stats


def fits_many(queries: mx.array) -> bool:
    """True if `partial_sums_of_many` knows these shapes and types, which `fits`."""
    return queries.shape[-1] in _TENSOR_DIMS


def partial_sums_of_many(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float
) -> tuple[mx.array, mx.array]:
    """Partial sums of any number of queries that all see all keys; see `partial_sums`.

    A block reads its keys once for 128 queries.

    Args:
        queries: `[1, heads, n, dim]`.
        keys: `[1, key heads, columns, dim]`.
        values: as the keys.
        scale: of the scores.
    """
    _, heads, count, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    groups = key_heads * -(-(heads // key_heads * count) // (16 * _MANY_WARPS))
    splits = max(1, min(_MANY_BLOCKS // groups, -(-columns // _MANY_KEYS)))
    sums, stats = _partial_of_many(queries.dtype == mx.float16, dim, float(scale))(
        inputs=[queries, keys, values],
        grid=(splits * 32 * _MANY_WARPS, groups, 1),
        threadgroup=(32 * _MANY_WARPS, 1, 1),
        output_shapes=[(1, heads * count, splits, dim), (1, heads * count, splits, 2)],
        output_dtypes=[mx.float32, mx.float32],
    )
    return sums, stats


def combine(sums: mx.array, stats: mx.array, queries: mx.array, sinks: mx.array | None = None) -> mx.array:
    """Join what `partial_sums` made of queries, `[rows, heads, tokens, dim]`."""
    rows, heads, tokens, dim = queries.shape
    [out] = _combine(queries.dtype == mx.float16, dim, sinks is not None)(
        inputs=[sums, stats] if sinks is None else [sums, stats, mx.repeat(sinks.astype(mx.float32), tokens)],
        grid=(rows * heads * tokens * dim, 1, 1),
        threadgroup=(dim, 1, 1),
        output_shapes=[(rows, heads, tokens, dim)],
        output_dtypes=[queries.dtype],
    )
    return out


def combine_shared(
    own: tuple[mx.array, mx.array],
    shared: tuple[mx.array, mx.array],
    queries: mx.array,
    rows: mx.array | None,
    order: mx.array | None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Join what `partial_sums` made of queries, and of packed ones with tokens that their rows share.

    Args:
        own: of `queries`.
        shared: of queries `[blocks, heads, width, dim]`, those of a row's tokens behind those of the row before.
        queries: `[rows, heads, tokens, dim]`.
        rows: `[n]` those that share; None: all.
        order: `[rows]` int32 places among these, n for the others; None: all share, in their order.
        sinks: `[heads]` scores of a key without a value, or None.
    """
    count, heads, tokens, dim = queries.shape
    inputs = [*own, *shared, *([] if rows is None or order is None else [rows, order])]
    [out] = _combine_shared(queries.dtype == mx.float16, dim, heads, sinks is not None, order is not None)(
        inputs=inputs if sinks is None else [*inputs, sinks.astype(mx.float32)],
        grid=(count * heads * tokens * dim, 1, 1),
        threadgroup=(dim, 1, 1),
        output_shapes=[(count, heads, tokens, dim)],
        output_dtypes=[queries.dtype],
    )
    return out


def seen_by(mask: mx.array | None, tokens: int, columns: int) -> mx.array:
    """The mask of several tokens as `partial_sums` takes it; None is a causal one.

    Returns:
        `[rows, 1, 1, columns]` or `[columns]` uint32: bit t says whether token t sees the column.
    """
    # What was last asked for: the layers of a step ask for the same.
    known: tuple[object, object, mx.array] | None = getattr(device.kept, "seen_by", None)
    if known is None or known[0] != (tokens, columns) or known[1] is not mask:
        wide = causal(tokens, columns) if mask is None else mask
        bits = mx.array([1 << t for t in range(tokens)], mx.uint32)[:, None]
        seen = mx.where(wide, bits, mx.array(0, mx.uint32)).sum(axis=-2, keepdims=wide.ndim > 2)
        known = device.kept.seen_by = (tokens, columns), mask, seen
    return known[2]


def causal(tokens: int, columns: int) -> mx.array:
    """`[tokens, columns]` bool: what the last `tokens` of `columns` tokens see."""
    return mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None]


@cache
def _partial(half: bool, dim: int, together: int, several: bool, scale: float) -> Compiled:
    function, numbers = "attend_several_split", f"{dim}"
    if together != _TENSOR_QUERIES:
        function, numbers = "attend_split", f"{dim}, {together}, {_WARPS}, {_KEYS_AHEAD[together <= 4]}, {several:d}"
    source = (
        f"localai_shim::{function}<{type_name(half)}, {numbers}>(q, q_shape, q_strides, k, k_shape, k_strides, "
        f"v, v_strides, mask, mask_strides, {scale!r}f, sums, stats);"
    )
    name = f"decode_partial_{half:d}_{dim}_{together}_{several:d}_{abs(hash(scale))}"
    names = ["q", "k", "v", "mask"]
    return cuda_kernel(__file__, name, names, ["sums", "stats"], source, ensure_row_contiguous=False)


@cache
def _partial_of_many(half: bool, dim: int, scale: float) -> Compiled:
    source = (
        f"localai_shim::attend_many_split<{type_name(half)}, {dim}, {_MANY_WARPS}>(q, q_shape, q_strides, k, k_shape, "
        f"k_strides, v, v_strides, {scale!r}f, sums, stats);"
    )
    name = f"decode_many_{half:d}_{dim}_{abs(hash(scale))}"
    return cuda_kernel(__file__, name, ["q", "k", "v"], ["sums", "stats"], source, ensure_row_contiguous=False)


@cache
def _combine(half: bool, dim: int, with_sinks: bool) -> Compiled:
    sinks = "sinks" if with_sinks else "nullptr"
    source = (
        f"localai_shim::join_splits<{type_name(half)}, {dim}, {with_sinks:d}>(sums, stats, stats_shape, {sinks}, out);"
    )
    names = ["sums", "stats", *(["sinks"] if with_sinks else [])]
    return cuda_kernel(__file__, f"decode_combine_{half:d}_{dim}_{with_sinks:d}", names, ["out"], source)


@cache
def _combine_shared(half: bool, dim: int, heads: int, with_sinks: bool, ordered: bool) -> Compiled:
    sinks, order = "sinks" if with_sinks else "nullptr", "order, members_shape[0]" if ordered else "nullptr, 0"
    source = (
        f"localai_shim::join_shared<{type_name(half)}, {dim}, {with_sinks:d}>(sums, stats, stats_shape, more, "
        f"more_stats, more_stats_shape, {order}, {heads}, {sinks}, out);"
    )
    names = ["sums", "stats", "more", "more_stats", *(["members", "order"] * ordered), *(["sinks"] * with_sinks)]
    name = f"decode_shared_{half:d}_{dim}_{heads}_{with_sinks:d}_{ordered:d}"
    return cuda_kernel(__file__, name, names, ["out"], source)
