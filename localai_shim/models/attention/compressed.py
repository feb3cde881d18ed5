"""DeepSeek V4.1's attention, by each row's position.

mlx-lm's `LayerCache` has one position for all rows. Here a layer has the ring of its window, and a `Pool` if it
compresses tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function
from ...engine.cache_contents import LayerCache, RowCache
from .blocks import best_blocks
from .pooled import Pool

Shared = dict[str, mx.array]
"""Arrays that layers leave to later ones of the same pass."""
Chosen = tuple[mx.array, mx.array | None]
"""Places of the groups that each token attends to, and the candidates of later layers."""


def with_rings_and_pools(_: Function) -> Callable[[nn.Module], RowCache]:
    """Give layers caches whose rows may have different lengths."""

    def make_cache(self: nn.Module) -> RowCache:
        from mlx_lm.models.cache import CacheList, RotatingKVCache

        row: RowCache = []
        for layer in self.pipeline_layers:
            attention, ring = layer.self_attn, RotatingKVCache(self.args.sliding_window)
            if attention.ratio and attention.is_kv_source:
                row.append(CacheList(ring, Pool(attention.ratio, 1 + attention.is_index_source)))
            else:
                row.append(ring)
        return row

    return make_cache


def reading_rings(upstream: Function) -> Function:
    """The decoder's call, which finds these caches as it finds mlx-lm's."""
    indices = upstream.__globals__["_window_indices"]

    def call(self: nn.Module, inputs: mx.array, cache: RowCache | None = None) -> mx.array:
        row = self.make_cache() if cache is None else cache
        (first, *_), k, window = _parts(row[0]), inputs.shape[1], self.args.sliding_window
        if not isinstance(first.offset, int):
            mask = first.make_mask(k, window_size=window)[:, 0]
            seen = mx.where(mask, mx.arange(mask.shape[-1]), -1)
        elif k == 1:  # whatever the order of a ring, all that it holds
            seen = mx.arange(min(first.offset + 1, window))[None, None]
        else:
            seen = indices(previous=min(first.offset, window - 1), length=k, window=window)[None]
        return upstream(self, inputs, [_Layer(layer, seen) for layer in row])

    return call


def _parts(layer: LayerCache) -> tuple[LayerCache, ...]:
    """The ring, and the pool if there is one."""
    return tuple(getattr(layer, "caches", (layer,)))


class _Layer:
    """Caches of a layer in the form of mlx-lm's `LayerCache`, for one pass.

    Args:
        layer: the caches.
        seen: `[rows or 1, k, keys]` which of the window's keys each token sees; -1 for none.
    """

    window = None  # mlx-lm makes indices of its size, which are not used

    def __init__(self, layer: LayerCache, seen: mx.array) -> None:
        self._ring, *pools = _parts(layer)
        self.seen, self.pool = seen, pools[0] if pools else None
        self.offset = self._ring.offset
        if not isinstance(self.offset, int):
            self.offset = self.offset[...]  # of this pass: the ring's changes with it

    def update_window(self, kv: mx.array) -> mx.array:
        keys: mx.array = self._ring.update_and_fetch(kv[:, None], mx.zeros((kv.shape[0], 1, kv.shape[1], 0), kv.dtype))[
            0
        ]
        return keys[:, 0]


def windowed_by_row(upstream: Function) -> Function:
    """An attention layer's call."""

    def call(
        self: nn.Module, x: mx.array, *, start_pos: int | mx.array, window_idx: mx.array, cache: _Layer, shared: Shared
    ) -> mx.array:
        attention, seen = self, mx.broadcast_to(cache.seen, (*x.shape[:2], cache.seen.shape[2]))
        if not isinstance(start_pos, int):
            attention = copy.copy(self)
            attention.rope = partial(_turned, self.rope)
        return upstream(attention, x, start_pos=start_pos, window_idx=seen, cache=cache, shared=shared)

    return call


def _turned(rope: Function, x: mx.array, **options: object) -> mx.array:
    """Turn each row by its own position. Without an axis of heads, rows would be taken for heads."""
    turned: mx.array = rope(x, **options) if x.ndim == 4 else rope(x[:, None], **options)[:, 0]
    return turned


def compressing(upstream: Function) -> Callable[..., None]:
    """Add a pass's tokens to the pool of a layer that compresses them."""
    names = upstream.__globals__

    def compress(self: nn.Module, x: mx.array, *, start_pos: int | mx.array, cache: _Layer, shared: Shared) -> None:
        compressor, pool = self.compressor, cache.pool
        assert pool is not None
        tokens = x if pool.ratio == 1 else x.astype(mx.float32)
        values = compressor.kv_proj(tokens)
        gates = values if pool.ratio == 1 else compressor.gate_proj(tokens)
        dims = [self.head_dim, self.indexer.head_dim] if self.is_index_source else [self.head_dim]
        keys, *index = pool.add(values, gates, dims, partial(pooled, self, x.dtype))
        shared["compress_kv"] = keys
        if index:
            [shared["index_k"]] = index

    def pooled(
        layer: nn.Module, dtype: mx.Dtype, values: mx.array, gates: mx.array, position: int | mx.array
    ) -> list[mx.array]:
        ratio = layer.ratio
        shape = (values.shape[0], -1, ratio, values.shape[2])
        values, gates = (array[:, ratio:].reshape(shape) for array in (values, gates))
        made = values[:, :, 0] if ratio == 1 else mx.sum(values * mx.softmax(gates, axis=2), axis=2)
        made = layer.compressor.kv_norm(made.astype(dtype))
        turn = partial(
            names["_apply_rope"], rope=layer.rope, rope_dim=layer.rope_dim, offset=position // ratio, scale=ratio
        )
        out = [names["_fake_quant_fp4"](turn(made), block_size=16, e4m3_scale=True)]
        if layer.is_index_source:
            keys = layer.indexer.k_norm(layer.indexer.k_proj(made))
            out.append(names["_fake_quant_fp4"](turn(keys), block_size=32))
        return out

    return compress


def choosing_by_row(upstream: Callable[..., Chosen]) -> Callable[..., Chosen]:
    """The indexer's call: each row chooses of the groups that it has."""
    names = upstream.__globals__

    def call(
        self: nn.Module,
        x: mx.array,
        q_residual: mx.array,
        *,
        index_k: mx.array | None,
        candidates: mx.array | None,
        rope: Function,
        start_pos: int | mx.array,
    ) -> Chosen:
        if isinstance(start_pos, int) or index_k is None or not index_k.shape[1]:
            return upstream(self, x, q_residual, index_k=index_k, candidates=candidates, rope=rope, start_pos=start_pos)
        rows, k, groups = *x.shape[:2], index_k.shape[1]
        queries = self.q_b_proj(q_residual).reshape(rows, k, self.num_heads, self.head_dim)
        queries = names["_apply_rope"](queries, rope, rope_dim=self.rope_dim, offset=start_pos)
        queries = names["_fake_quant_fp4"](queries, block_size=32).astype(mx.float32)
        weights = self.weights_proj(x).astype(mx.float32) * (self.num_heads**-0.5)
        scores = mx.maximum(queries @ index_k.astype(mx.float32)[:, None].swapaxes(-1, -2), 0)
        scores = mx.sum(scores * (self.head_dim**-0.5) * weights[..., None], axis=2)
        whole = ((start_pos[:, None] + mx.arange(1, k + 1)) // self.ratio)[..., None]
        scores = mx.where(mx.arange(groups) < whole, scores, -mx.inf)
        if self.is_candidate_source and self.candidate_topk_blocks > 0:
            size = self.candidate_block_size
            most = min(self.candidate_topk_blocks, -(-groups // size))
            candidates = best_blocks(scores[:, None], ((whole - 1) // size)[:, None], size, most, 1)[:, 0]
        elif candidates is not None:
            scores = mx.where(candidates, scores, -mx.inf)
        most = min(self.index_topk, groups)
        chosen = mx.argpartition(-scores, kth=most - 1, axis=-1)[..., :most].astype(mx.int32)
        return mx.where(chosen < whole, chosen, -1), candidates

    return call
