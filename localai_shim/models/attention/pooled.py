"""DeepSeek V4's compressed tokens, in a batch and in pieces.

A layer pools each group of `ratio` tokens into one, of this group and, if `ratio` is 4, of the one before. mlx-vlm's
`PoolingCache` forgets the group before at the end of each pass: with each answer token, and wherever a prompt is cut.
It also searches blocks of pooled tokens first, which misses some, and only if a row is alone. Here a token depends on
neither its pass nor its neighbors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function
from ...engine.cache_contents import LayerCache, RowCache

SPARE_PLACES = 64  # that are allocated in a pool of several rows: it is copied when they are full
MOST_SCORES = 2**25  # numbers of a layer, of all heads and pooled tokens, that are computed together


class Pool:
    """The pooled tokens of one layer, of one row or several, and the last groups of tokens that were not pooled.

    Args:
        ratio: tokens of a group.
        kinds: arrays that each group gives a token of.
    """

    def __init__(self, ratio: int, kinds: int = 1) -> None:
        self.ratio, self.kinds = ratio, kinds
        self.tokens = [0]
        """Of each row."""
        self.last: list[mx.array] = []
        """Values and gates of the last two groups' tokens, `[rows, 2 * ratio, dim]`."""
        self.pooled: list[mx.array] = []
        """`[rows, places, dim]` of each kind; there may be more places than tokens."""

    @property
    def counts(self) -> list[int]:
        """Pooled tokens of each row."""
        return [tokens // self.ratio for tokens in self.tokens]

    def add(
        self, values: mx.array, gates: mx.array, dims: Sequence[int], compress: Callable[..., list[mx.array]]
    ) -> list[mx.array]:
        """Add a pass's tokens; returns the pooled ones, as `pooled` has them.

        Args:
            values: `[rows, k, width]` of the tokens.
            gates: `[rows, k, width]`, too.
            dims: of a pooled token of each kind.
            compress: pools groups of values and gates, each with the one before; the first group is only seen. Its
                last argument is the position of the second one. Returns an array of each kind.
        """
        ratio, k = self.ratio, values.shape[1]
        if not self.last:
            shape = (len(self.tokens), 2 * ratio, values.shape[2])
            self.last = [mx.zeros(shape, values.dtype), mx.full(shape, -mx.inf, gates.dtype)]
            self.pooled = [mx.zeros((len(self.tokens), 0, dim), values.dtype) for dim in dims]
        seen = [mx.concatenate([*pair], axis=1) for pair in zip(self.last, (values, gates), strict=True)]
        self.last = [array[:, -2 * ratio :] for array in seen]
        before, self.tokens = self.tokens, [tokens + k for tokens in self.tokens]
        if len(before) == 1:
            begun, new = before[0] % ratio, self.counts[0] - before[0] // ratio
            if new:
                first = ratio - begun
                groups = [array[:, first : first + (1 + new) * ratio] for array in seen]
                made = compress(*groups, before[0] - begun)
                known = before[0] // ratio
                self.pooled = [_joined(old[:, :known], its) for old, its in zip(self.pooled, made, strict=True)]
        elif k > 1:
            raise ValueError("several rows take one token each")
        elif any(tokens % ratio == 0 for tokens in self.tokens):
            self._put(compress(*self.last, mx.array([tokens - ratio for tokens in self.tokens])))
        return self.pooled

    def _put(self, made: Sequence[mx.array]) -> None:
        """Put one pooled token per row behind those that it has; rows whose group is not whole overwrite it later."""
        places = [-(-tokens // self.ratio) - 1 for tokens in self.tokens]
        if max(places) >= self.pooled[0].shape[1]:
            most = max(places) + SPARE_PLACES
            self.pooled = [_widened(old, most, its.dtype) for old, its in zip(self.pooled, made, strict=True)]
        index = mx.array(places)[:, None, None]
        self.pooled = [mx.put_along_axis(old, index, its, axis=1) for old, its in zip(self.pooled, made, strict=True)]

    def make_mask(self, k: int = 1, offset: int | mx.array = 0) -> mx.array | None:
        """`[rows, k, most pooled tokens of a row]`: those that each of the last k tokens sees; None: all."""
        counts = self.counts
        if not max(counts) or (k == 1 and min(counts) == max(counts)):
            return None
        own = (mx.array(self.tokens)[:, None] - k + mx.arange(1, k + 1)) // self.ratio
        if len(counts) == 1:  # a part of a pass asks for its own tokens
            own = ((offset + mx.arange(1, k + 1)) // self.ratio)[None]
        return mx.arange(max(counts)) < own[..., None]

    # -- what rows that join and leave need ---------------------------------------------------------------------

    @classmethod
    def merge(cls, pools: Sequence[Pool]) -> Pool:
        made = cls(pools[0].ratio, pools[0].kinds)
        made.tokens = [tokens for pool in pools for tokens in pool.tokens]
        made._join(pools)
        return made

    def extend(self, other: Pool) -> None:
        pools = [copy.copy(self), other]
        self.tokens = [*self.tokens, *other.tokens]
        self._join(pools)

    def _join(self, pools: Sequence[Pool]) -> None:
        places = max(self.counts) + SPARE_PLACES
        self.last = [mx.concatenate([*arrays]) for arrays in zip(*(pool.last for pool in pools), strict=True)]
        self.pooled = []
        for arrays in zip(*(pool.pooled for pool in pools), strict=True):
            dtype = next((array.dtype for array in arrays if array.shape[1]), arrays[0].dtype)
            self.pooled.append(mx.concatenate([_widened(array, places, dtype) for array in arrays]))

    def filter(self, rows: Sequence[int]) -> None:
        kept = mx.array(list(rows))
        self.tokens = [self.tokens[row] for row in rows]
        self.last = [array[kept] for array in self.last]
        self.pooled = [array[kept] for array in self.pooled]

    def extract(self, row: int) -> Pool:
        made = copy.copy(self)
        made.filter([row])
        made.pooled = [array[:, : made.counts[0]] for array in made.pooled]
        return made

    # -- what the engine and the model ask of any cache -------------------------------------------------------------

    @property
    def state(self) -> list[mx.array]:
        return [*self.last, *self.pooled]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.state)

    def empty(self) -> bool:
        return not self.last


def _joined(known: mx.array, new: mx.array) -> mx.array:
    """New pooled tokens behind those that are known, if there are any: these have the type of the new ones then."""
    return mx.concatenate([known, new], axis=1) if known.shape[1] else new


def _widened(pooled: mx.array, places: int, dtype: mx.Dtype) -> mx.array:
    """Cut or pad each row to this number of places."""
    return mx.pad(pooled[:, :places].astype(dtype), [(0, 0), (0, max(0, places - pooled.shape[1])), (0, 0)])


# -- mlx-vlm's ---------------------------------------------------------------------------------------------------------


def with_pools(upstream: Callable[[nn.Module], RowCache]) -> Callable[[nn.Module], RowCache]:
    """Give compressed layers these caches."""

    def make_cache(self: nn.Module) -> RowCache:
        row = upstream(self)
        for layer in row:
            parts: object = layer
            if hasattr(parts, "caches"):
                parts.caches = tuple(_pool_for(part) for part in parts.caches)
        return row

    return make_cache


def _pool_for(layer: LayerCache) -> LayerCache | Pool:
    return Pool(layer.ratio) if type(layer).__name__ == "PoolingCache" else layer


def pooling(upstream: Function) -> Function:
    """The compressor's call: groups see the one before, in whichever pass it was."""
    compress = {True: upstream.__globals__["_overlap_compress_kv"], False: upstream.__globals__["_simple_compress_kv"]}

    def pooled(layer: nn.Module, values: mx.array, gates: mx.array, position: int | mx.array) -> list[mx.array]:
        shape = (values.shape[0], -1, layer.compress_ratio, layer.out_dim)
        groups = [array.reshape(shape) for array in (values, gates)]
        if layer.overlap:
            made = compress[True](*groups, layer.ape, layer.head_dim)[:, 1:]
        else:
            made = compress[False](*(array[:, 1:] for array in groups), layer.ape, layer.head_dim)
        return [layer.rope(layer.norm(made)[:, None], offset=position).squeeze(1)]

    def call(self: nn.Module, x: mx.array, pool_cache: LayerCache | Pool, offset: int | mx.array) -> mx.array:
        if not isinstance(pool_cache, Pool):
            return upstream(self, x, pool_cache, offset)
        [tokens] = pool_cache.add(self.wkv(x), self.wgate(x), [self.head_dim], partial(pooled, self))
        return tokens[:, : max(pool_cache.counts)]

    return call


def scoring_all(upstream: Function) -> Callable[..., mx.array | None]:
    """The indexer's call: it scores all pooled tokens, for a part of a long pass at a time."""

    def call(
        self: nn.Module,
        x: mx.array,
        q_residual: mx.array,
        position_rope: Function,
        pool_cache: Pool,
        offset: int | mx.array,
    ) -> mx.array | None:
        pooled = self.compressor(x, pool_cache, offset)
        scorer = copy.copy(self)
        scorer.index_block, scorer.compressor = 0, lambda *_: pooled
        part = max(1, MOST_SCORES // (self.n_heads * max(1, pooled.shape[1])))
        if x.shape[1] <= part or not pooled.shape[1]:
            return upstream(scorer, x, q_residual, position_rope, pool_cache, offset)
        starts = range(0, x.shape[1], part)
        pieces = [slice(start, start + part) for start in starts]
        masks = pool_cache.make_mask(x.shape[1], offset)
        assert masks is not None  # which is for passes of one token
        return mx.concatenate(
            [
                upstream(scorer, x[:, at], q_residual[:, at], position_rope, _Masked(masks[:, at]), offset + at.start)
                for at in pieces
            ],
            axis=1,
        )

    return call


class _Masked:
    """A pool of which a part of a pass sees this."""

    def __init__(self, mask: mx.array) -> None:
        self._mask = mask

    def make_mask(self, k: int, offset: int | mx.array) -> mx.array:
        return self._mask
