"""A CUDA kernel for attention of one query per row, or a few, to keys that a mask chooses.

MLX's own kernels (0.32.4) take no mask for one query: a mask array leads to separate products over all keys, with
scores in half precision; and without a mask cuDNN builds a plan for each new number of rows and capacity of the cache,
which takes 50 ms to 2.5 s. On an H100, 32 query and 8 key heads of 128 in bfloat16, rows of half to all the columns:

| rows x columns | no mask | mask array | this kernel |
| 32 x 4,096     | 209 us  | 1,157 us   | 200 us      |
| 32 x 512       | 58      | 216        | 61          |
| 8 x 4,096      | 83      | 336        | 74          |
| 2 x 512        | 33      | 77         | 37          |

Relative error beside float32: 1.7e-3 (mask array: 4.6e-3); where scores reach hundreds 9e-4 (mask array: 4e-2).

The keys of a row are split between blocks. In a block each warp goes over some of them with a running maximum and sum
(online softmax, Milakov and Gimelshein 2018; split as in Flash-Decoding, Dao et al. 2023). Keys that the mask leaves
out are not read. A second kernel joins the splits. Several queries of a row are as many more heads that share a key
head; which of them see a key is a bit of a number, made once per step.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import mlx.core as mx

_BLOCKS = 528  # four for each of an H100's processors; 1,056 and 2,112 were no faster
_WARPS = 4  # of a block; 8 were no faster
_KEYS_PER_SPLIT = 128  # at least
_HEADS_PER_BLOCK = 8  # query heads that share a key head, and so one reading of it
_KEYS_AHEAD = {True: 4, False: 2}  # keys that a lane group has in flight, with up to four heads and with more
MOST_QUERIES = 16  # of a row
_DIMS = (64, 80, 96, 128, 256)
_TYPES = (mx.bfloat16, mx.float16)


def fits(queries: mx.array, keys: mx.array, values: mx.array) -> bool:
    """Whether the kernel knows these shapes and types.

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
    rows, heads, tokens, dim = queries.shape
    key_heads, columns = keys.shape[1], keys.shape[2]
    sharing, together = heads // key_heads * tokens, _HEADS_PER_BLOCK  # one kernel for any number of several tokens
    if tokens == 1:
        together = max(n for n in range(1, _HEADS_PER_BLOCK + 1) if sharing % n == 0)
    groups = key_heads * -(-sharing // together)
    splits = max(1, min(-(-_BLOCKS // (rows * groups)), -(-columns // _KEYS_PER_SPLIT)))
    template = [("T", queries.dtype), ("D", dim)]
    seen = (mx.array(True) if mask is None else mask) if tokens == 1 else _seen_by(mask, tokens, columns)
    sums, stats = _partial(float(scale))(
        inputs=[queries, keys, values, mx.broadcast_to(seen, (rows, 1, 1, columns))],
        template=[
            *template,
            ("G", together),
            ("WARPS", _WARPS),
            ("U", _KEYS_AHEAD[together <= 4]),
            ("SEVERAL", tokens > 1),
        ],
        grid=(splits * 32 * _WARPS, groups, rows),
        threadgroup=(32 * _WARPS, 1, 1),
        output_shapes=[(rows, heads * tokens, splits, dim), (rows, heads * tokens, splits, 2)],
        output_dtypes=[mx.float32, mx.float32],
    )
    out: mx.array
    [out] = _combine(sinks is not None)(
        inputs=[sums, stats] if sinks is None else [sums, stats, mx.repeat(sinks.astype(mx.float32), tokens)],
        template=template,
        grid=(rows * heads * tokens * dim, 1, 1),
        threadgroup=(dim, 1, 1),
        output_shapes=[(rows, heads, tokens, dim)],
        output_dtypes=[queries.dtype],
    )
    return out


_last = threading.local()
"""By thread: what `_seen_by` was last asked for, and what it said; the layers of a step ask for the same."""


def _seen_by(mask: mx.array | None, tokens: int, columns: int) -> mx.array:
    """`[rows, 1, 1, columns]` or `[columns]` uint32: bit t says whether token t sees the column."""
    known: tuple[object, object, mx.array] | None = getattr(_last, "known", None)
    if known is None or known[0] != (tokens, columns) or known[1] is not mask:
        wide = causal(tokens, columns) if mask is None else mask
        bits = mx.array([1 << t for t in range(tokens)], mx.uint32)[:, None]
        seen = mx.where(wide, bits, mx.array(0, mx.uint32)).sum(axis=-2, keepdims=wide.ndim > 2)
        known = _last.known = (tokens, columns), mask, seen
    return known[2]


def causal(tokens: int, columns: int) -> mx.array:
    """`[tokens, columns]` bool: what the last tokens of so many see."""
    return mx.arange(columns) <= mx.arange(columns - tokens, columns)[:, None]


@cache
def _partial(scale: float) -> Any:
    source = _PARTIAL.replace("SCALE", f"{scale!r}f")
    names = ["q", "k", "v", "mask"]
    return mx.fast.cuda_kernel(
        f"decode_partial_{abs(hash(scale))}", names, ["sums", "stats"], source, ensure_row_contiguous=False
    )


@cache
def _combine(with_sinks: bool) -> Any:
    names = ["sums", "stats", *(["sinks"] if with_sinks else [])]
    source = _COMBINE.replace("SINK", _SINK if with_sinks else "")
    return mx.fast.cuda_kernel(f"decode_combine_{with_sinks:d}", names, ["out"], source)


# Block (split, group of query heads, row). A key's dimensions lie across LANES lanes, 16 bytes each, so that a warp has
# TOK keys at once, U times. Scores are powers of two.
_PARTIAL = r"""
  constexpr int VEC = 16 / sizeof(T);
  constexpr int USED = D / VEC;
  constexpr int LANES = USED <= 8 ? 8 : USED <= 16 ? 16 : 32;
  constexpr int TOK = 32 / LANES;
  constexpr int STRIDE = WARPS * TOK * U;
  constexpr unsigned ALL = 0xffffffff;
  constexpr float LEAST = -1e30f;
  __shared__ float shared_m[WARPS][G], shared_l[WARPS][G], shared_acc[WARPS][G][D];
  const int split = blockIdx.x, splits = gridDim.x, row = blockIdx.z;
  // A head here is a head and a token: all of a head's tokens, then the next head's.
  const int queries = q_shape[2], heads = int(q_shape[1]) * queries, sharing = heads / int(k_shape[1]);
  const int groups = gridDim.y / int(k_shape[1]);
  const int key_head = blockIdx.y / groups, begin = blockIdx.y % groups * G, head0 = key_head * sharing + begin;
  const int columns = k_shape[2];
  const int share = (columns + splits - 1) / splits;
  const int first = split * share, last = min(columns, first + share);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sub = lane / LANES, part = lane % LANES;
  const bool active = part < USED;
  const T* kp = k + row * k_strides[0] + key_head * k_strides[1] + part * VEC;
  const T* vp = v + row * v_strides[0] + key_head * v_strides[1] + part * VEC;
  const auto* mp = mask + row * mask_strides[0];
  float qf[G][VEC], acc[G][VEC], m[G], l[G];
  int bit[G];
  #pragma unroll
  for (int g = 0; g < G; g++) {
    m[g] = LEAST;
    l[g] = 0;
    bit[g] = SEVERAL ? (begin + g) % queries : 0;
    const bool used = active && begin + g < sharing;
    const T* qp = q + row * q_strides[0] + (head0 + g) / queries * q_strides[1] + bit[g] * q_strides[2] + part * VEC;
    #pragma unroll
    for (int i = 0; i < VEC; i++) {
      acc[g][i] = 0;
      qf[g][i] = used ? float(qp[i]) * (SCALE * 1.44269504f) : 0.0f;
    }
  }
  for (int t0 = first + warp * TOK * U; t0 < last; t0 += STRIDE) {
    unsigned on[U], any = 0;
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const int t = t0 + u * TOK + sub;
      on[u] = t < last ? unsigned(mp[t * mask_strides[3]]) : 0;
      any |= on[u];
    }
    if (!__any_sync(ALL, any)) continue;
    float s[U][G];
    uint4 raw[U];
    #pragma unroll
    for (int u = 0; u < U; u++) {
      raw[u] = make_uint4(0, 0, 0, 0);
      if (on[u] && active) raw[u] = *reinterpret_cast<const uint4*>(kp + (t0 + u * TOK + sub) * k_strides[2]);
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const T* x = reinterpret_cast<const T*>(&raw[u]);
      #pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
        #pragma unroll
        for (int i = 0; i < VEC; i++) dot += qf[g][i] * float(x[i]);
        #pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(ALL, dot, step);
        s[u][g] = on[u] >> bit[g] & 1 ? dot : LEAST;
      }
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      raw[u] = make_uint4(0, 0, 0, 0);
      if (on[u] && active) raw[u] = *reinterpret_cast<const uint4*>(vp + (t0 + u * TOK + sub) * v_strides[2]);
    }
    #pragma unroll
    for (int g = 0; g < G; g++) {
      float top = m[g];
      #pragma unroll
      for (int u = 0; u < U; u++) top = max(top, s[u][g]);
      const float shrink = exp2f(m[g] - top);
      m[g] = top;
      l[g] *= shrink;
      #pragma unroll
      for (int i = 0; i < VEC; i++) acc[g][i] *= shrink;
      #pragma unroll
      for (int u = 0; u < U; u++) {
        s[u][g] = on[u] >> bit[g] & 1 ? exp2f(s[u][g] - top) : 0.0f;
        l[g] += s[u][g];
      }
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const T* x = reinterpret_cast<const T*>(&raw[u]);
      #pragma unroll
      for (int i = 0; i < VEC; i++) {
        const float y = float(x[i]);
        #pragma unroll
        for (int g = 0; g < G; g++) acc[g][i] += s[u][g] * y;
      }
    }
  }
  #pragma unroll
  for (int g = 0; g < G; g++) {
    #pragma unroll
    for (int step = LANES; step < 32; step *= 2) {
      const float other_m = __shfl_xor_sync(ALL, m[g], step), other_l = __shfl_xor_sync(ALL, l[g], step);
      const float top = max(m[g], other_m), a = exp2f(m[g] - top), b = exp2f(other_m - top);
      #pragma unroll
      for (int i = 0; i < VEC; i++) acc[g][i] = acc[g][i] * a + __shfl_xor_sync(ALL, acc[g][i], step) * b;
      l[g] = l[g] * a + other_l * b;
      m[g] = top;
    }
    if (sub == 0 && part == 0) {
      shared_m[warp][g] = m[g];
      shared_l[warp][g] = l[g];
    }
    if (sub == 0 && active) {
      #pragma unroll
      for (int i = 0; i < VEC; i++) shared_acc[warp][g][part * VEC + i] = acc[g][i];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < G * D; at += WARPS * 32) {
    const int g = at / D, d = at % D;
    if (begin + g >= sharing) break;
    float top = LEAST, total = 0, weight = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) top = max(top, shared_m[w][g]);
    #pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float factor = exp2f(shared_m[w][g] - top);
      total += factor * shared_acc[w][g][d];
      weight += factor * shared_l[w][g];
    }
    const int64_t place = (int64_t(row) * heads + head0 + g) * splits + split;
    sums[place * D + d] = total;
    if (d == 0) {
      stats[place * 2] = top;
      stats[place * 2 + 1] = weight;
    }
  }
"""

# Block (row and head): the splits' sums, each with its maximum and its weight.
_COMBINE = r"""
  const int splits = stats_shape[2], d = threadIdx.x;
  const int64_t place = int64_t(blockIdx.x) * splits;
  float top = -1e30f, total = 0, weight = 0;
  for (int s = 0; s < splits; s++) top = max(top, stats[(place + s) * 2]);
  SINK
  for (int s = 0; s < splits; s++) {
    const float factor = exp2f(stats[(place + s) * 2] - top);
    total += factor * sums[(place + s) * D + d];
    weight += factor * stats[(place + s) * 2 + 1];
  }
  out[int64_t(blockIdx.x) * D + d] = T(total / weight);
"""

_SINK = r"""
  const float sink = sinks[blockIdx.x % int(stats_shape[1])] * 1.44269504f;
  top = max(top, sink);
  weight = exp2f(sink - top);
"""
