"""Sparse attention in a batch: each token sees or chooses blocks of keys by its own row's position."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function, Mask
from ...engine.cache_contents import LayerCache, RowCache


def near_and_strided(_: Function) -> Function:
    """Phi-3-small's attention to the last blocks before a token and, in each head, to one in some blocks of all.

    mlx-lm counts a token's block from the end of all keys, and adds a mask of true and false to the scores, so that
    tokens attend to later ones of the same pass.
    """

    def attend(
        self: nn.Module, queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None
    ) -> mx.array:
        heads, k, places = queries.shape[1], queries.shape[2], keys.shape[2]
        if mask is None:
            position = mx.arange(places - k, places)
            mask = mx.arange(places) <= position[:, None]
        else:  # keys begin with a row's first one
            position = mask.sum(axis=-1) - 1
        size = self.blocksparse_block_size
        own, block = position[..., None] // size, mx.arange(places) // size
        step = getattr(self, "head_step", 1)
        strided = (block + step * mx.arange(heads)[:, None, None] + 1) % self.blocksparse_vert_stride == 0
        kept = mask & ((own - block < self.blocksparse_num_local_blocks) | strided)
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=kept)

    return attend


def blocks_by_row(upstream: Callable[..., Mask]) -> Callable[..., Mask]:
    """MiniMax M3's choice of blocks. mlx-lm takes the end of the keys for all rows' position."""

    def block_mask(self: nn.Module, x: mx.array, mask: Mask, offset: int | mx.array, cache: LayerCache | None) -> Mask:
        if isinstance(offset, int) or cache is None:
            return upstream(self, x, mask, offset, cache)
        rows, k, _ = x.shape
        own = self.index_k_norm(self.index_k_proj(x)[:, :, None]).transpose(0, 2, 1, 3)
        keys, _ = cache.update_and_fetch(self.index_rope(own, offset=offset), mx.zeros((rows, 1, k, 0), own.dtype))
        if keys.shape[2] <= self.index_topk_blocks * self.index_block_size:
            return mask
        queries = self.index_q_proj(x).reshape(rows, k, self.index_n_heads, -1)
        queries = self.index_rope(self.index_q_norm(queries).transpose(0, 2, 1, 3), offset=offset)
        scores = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
        position = (offset[:, None] + mx.arange(k))[:, None, :, None]
        seen = mask if isinstance(mask, mx.array) else mx.arange(keys.shape[2]) <= position
        kept = best_blocks(
            mx.where(seen, scores, -mx.inf),
            position // self.index_block_size,
            self.index_block_size,
            self.index_topk_blocks,
            self.index_local_blocks,
        )
        return mx.repeat(kept & seen, self.num_attention_heads // self.index_n_heads, axis=1)

    return block_mask


def best_blocks(scores: mx.array, own: mx.array, size: int, most: int, local: int, first: int = 0) -> mx.array:
    """Which keys are in the blocks with the largest scores, or in the first or last ones of a token.

    Args:
        scores: `[rows, heads, tokens, keys]`, -inf for keys that a token must not see.
        own: `[rows, 1, tokens, 1]` each token's block.
        size: keys of a block.
        most: blocks that are chosen, the last ones included; fewer than there are.
        local: number of last blocks that are always chosen.
        first: number of first blocks that are always chosen.
    """
    keys = scores.shape[-1]
    padded = mx.pad(scores, [(0, 0)] * 3 + [(0, -keys % size)], constant_values=-mx.inf)
    best = padded.reshape(*scores.shape[:-1], -1, size).max(axis=-1)
    block = mx.arange(best.shape[-1])
    best = mx.where((block <= own) & ((block > own - local) | (block < first)), mx.inf, best)
    chosen = mx.argpartition(-best, kth=most - 1, axis=-1)[..., :most]
    kept = mx.put_along_axis(mx.zeros(best.shape, mx.bool_), chosen, mx.array(True), axis=-1)
    return mx.repeat(kept, size, axis=-1)[..., :keys]


# -- mlx-vlm's ---------------------------------------------------------------------------------------------------------


def with_lists(upstream: Callable[[nn.Module], RowCache]) -> Callable[[nn.Module], RowCache]:
    """Give sparse layers a list of two plain caches: of keys and values, and of the keys that choose blocks."""

    def make_cache(self: nn.Module) -> RowCache:
        return [_listed(layer) if type(layer).__name__ == "MiniMaxM3KVCache" else layer for layer in upstream(self)]

    return make_cache


def _listed(layer: LayerCache) -> LayerCache:
    classes = importlib.import_module(type(layer.kv_cache).__module__)
    made: LayerCache = classes.CacheList(classes.KVCache(), classes.KVCache())
    return made


def reading_lists(upstream: Function) -> Function:
    """The decoder's call, which finds such lists as it finds mlx-vlm's cache of one row."""

    def call(
        self: nn.Module, inputs: mx.array, *args: object, cache: RowCache | None = None, **kwargs: object
    ) -> mx.array:
        if cache is not None:
            cache = [_Indexed(*layer.caches) if hasattr(layer, "caches") else layer for layer in cache]
        return upstream(self, inputs, *args, cache=cache, **kwargs)

    return call


def by_head(indexer: nn.Module) -> nn.Module:
    """mlx-vlm's indexer of a layer, which then chooses blocks for each head of keys and not one choice for all."""
    if indexer.attention.index_heads == 1 or indexer.score_type != "max":
        return indexer

    def select_blocks(
        self: nn.Module,
        queries: mx.array,
        keys: mx.array,
        start: int,
        mask: Mask = None,
        positions: mx.array | None = None,
    ) -> mx.array:
        rows, _, k, _ = queries.shape
        position = self.attention._sparse_query_positions(rows, k, start, positions)[:, None, :, None]
        seen = mx.arange(keys.shape[2]) <= position
        if isinstance(mask, mx.array):
            seen = seen & (mask if mask.dtype == mx.bool_ else mask > -1e20)
        scores = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
        scores = mx.where(seen, scores, -mx.inf)
        own = position // self.block_size
        kept = best_blocks(scores, own, self.block_size, self.topk_blocks, self.local_blocks, self.init_blocks)
        # Of four axes, for which mlx-vlm's own kernels are not used: these have one choice for all heads.
        return mx.repeat(kept & seen, self.attention.num_attention_heads // self.attention.index_heads, axis=1)

    def build_block_mask(self: nn.Module, kept: mx.array, mask: Mask, *args: object) -> mx.array:
        merged: mx.array = self.attention._merge_sparse_mask(kept, mask)
        return merged

    kind = type(indexer)
    members = {"select_blocks": select_blocks, "build_block_mask": build_block_mask}
    indexer.__class__ = type(kind.__name__, (kind,), members)
    return indexer


def choosing_in_padded_rows(upstream: Function) -> Function:
    """Qwen4's attention chooses blocks also if rows have different lengths.

    mlx-vlm names the mask of padded rows that decode, and its layers then attend to all keys. That is right only while
    there are no more blocks than are chosen.
    """

    def call(
        self: nn.Module, x: mx.array, mask: Mask = None, cache: LayerCache | None = None, **kwargs: object
    ) -> mx.array:
        if isinstance(mask, str) and mask != "causal" and cache is not None and hasattr(cache, "index_offset"):
            blocks = (cache.index_offset + x.shape[1]) // self.indexer.compress_ratio
            if blocks > self.indexer.block_topk:
                mask = None  # the chosen blocks are a mask that leaves padding out
        return upstream(self, x, mask=mask, cache=cache, **kwargs)

    return call


def decoding_merged_rows(upstream: Function) -> Function:
    """Qwen4's decoder runs merged rows as it runs prompts: mlx-vlm's code for decoding ignores the chosen blocks."""

    def decode(self: nn.Module, inputs: mx.array, *, cache: RowCache, **kwargs: object) -> mx.array:
        if not any(hasattr(layer, "kv_cache") for layer in cache):
            return upstream(self, inputs, cache=cache, **kwargs)
        usual = copy.copy(self)
        usual._supports_batch_invariant_decode = lambda: False
        states: mx.array = usual(inputs, cache=cache, **kwargs)
        return states

    return decode


class _Indexed:
    """Two caches as one of mlx-vlm's `MiniMaxM3KVCache`."""

    def __init__(self, pairs: LayerCache, index: LayerCache) -> None:
        self._pairs, self._index = pairs, index

    @property
    def index_offset(self) -> int:
        """Position of the pass's first token, if it is the same in all rows; otherwise `position_ids` say it."""
        offset = self._index.offset
        return offset if isinstance(offset, int) else 0

    def update_index_and_fetch(self, keys: mx.array) -> mx.array:
        stored: mx.array = self._index.update_and_fetch(keys, mx.zeros((*keys.shape[:3], 0), keys.dtype))[0]
        return stored

    def __getattr__(self, name: str) -> object:
        return getattr(self._pairs, name)
