"""Decoders that take one position for all rows."""

from __future__ import annotations

import copy

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function, Mask, rebound
from ...engine.cache_contents import LayerCache, RowCache


def reusing_by_row(upstream: Function) -> Function:
    """afm7's last layers have no cache, and take the number of keys for the queries' position."""

    def call(self: nn.Module, inputs: mx.array, cache: RowCache | None = None) -> mx.array:
        if cache is None or isinstance(cache[0].offset, int):
            return upstream(self, inputs, cache)
        decoder = copy.copy(self)
        decoder.kv_reuse_layers = [_turned_from(layer, cache[0].offset) for layer in self.kv_reuse_layers]
        return upstream(decoder, inputs, cache)

    return call


def _turned_from(layer: nn.Module, offset: mx.array) -> nn.Module:
    """A layer that turns its queries from these positions on."""
    made, attention, rope = copy.copy(layer), copy.copy(layer.self_attn), layer.self_attn.rope
    attention.rope = lambda x, offset=None, own=offset: rope(x, offset=own)
    made.self_attn = attention
    return made


def embedded_by_row(upstream: Function) -> Function:
    """gpt_bigcode counts positions on the host."""

    def call(self: nn.Module, inputs: mx.array, cache: RowCache | None = None) -> mx.array:
        if cache is None or isinstance(cache[0].offset, int):
            return upstream(self, inputs, cache)
        positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        decoder = copy.copy(self)
        decoder.wpe = lambda _: self.wpe(positions)
        return upstream(decoder, inputs, [Altered(cache[0], offset=0), *cache[1:]])

    return call


def scaled_by_row(upstream: Function) -> Function:
    """Ministral 3 scales all rows' queries by the positions of the first one. mlx-lm's function takes those of each."""

    def call(
        self: nn.Module, inputs: mx.array, cache: RowCache | None = None, inputs_embeds: mx.array | None = None
    ) -> mx.array:
        from mlx_lm.models.ministral3 import _get_llama_4_attn_scale as scale_by_row

        run: Function = upstream
        if cache is not None and not isinstance(offset := cache[0].offset, int):

            def scale(start: int, stop: int, *how: float) -> mx.array:
                made: mx.array = scale_by_row(stop - start, offset, *how)
                return made

            run = rebound(upstream, {**upstream.__globals__, "_get_llama_4_attn_scale": scale})
        return run(self, inputs, cache, inputs_embeds)

    return call


def placed_by_row(upstream: Function) -> Function:
    """limite counts positions from one offset, unless it is given them."""

    def call(
        self: nn.Module, inputs: mx.array, cache: RowCache | None = None, positions: mx.array | None = None
    ) -> mx.array:
        if cache is not None and positions is None and not isinstance(cache[0].offset, int):
            positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        return upstream(self, inputs, cache, positions)

    return call


def masked_by_cache(upstream: Function) -> Function:
    """limite's attention makes its mask of one offset, and takes the last keys that it reads for the pass's own."""
    names = upstream.__globals__
    attend: Function = names["scaled_dot_product_attention"]

    def attend_to_stored(
        queries: mx.array, _: mx.array, __: mx.array, cache: _Apart, *, scale: float, mask: Mask
    ) -> mx.array:
        return attend(queries, *cache.stored, cache=cache.layer, scale=scale, mask=cache.mask)

    with_own = rebound(upstream, {**names, "scaled_dot_product_attention": attend_to_stored})

    def call(
        self: nn.Module, x: mx.array, values: mx.array | None, positions: mx.array, cache: LayerCache | None = None
    ) -> mx.array:
        if cache is None:
            return upstream(self, x, values, positions)
        window = None if self.window is None else self.window + 1
        out: mx.array = with_own(
            self,
            x,
            values,
            positions,
            _Apart(cache, cache.make_mask(x.shape[1], return_array=False, window_size=window)),
        )
        return out

    return call


class _Apart:
    """A cache that gives a pass its own keys and values, and keeps apart what attention reads."""

    offset = 0
    stored: tuple[mx.array, ...] = ()

    def __init__(self, layer: LayerCache, mask: Mask) -> None:
        self.layer, self.mask = layer, mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.stored = tuple(self.layer.update_and_fetch(keys, values))
        return keys, values


def banded_by_row(upstream: Function) -> Function:
    """Inkling's attention adds a number for each distance of a key, and takes the end of the keys for all positions."""
    names = {**upstream.__globals__, "banded_additive_mask": _banded, "_SLIDING_KV_SLICE": False}
    with_own = rebound(upstream, names)

    def call(
        self: nn.Module, x: mx.array, cache: RowCache | None = None, conv_mask: mx.array | None = None
    ) -> mx.array:
        if cache is None or isinstance(cache[0].offset, int):
            return upstream(self, x, cache, conv_mask)
        position, factor, attention = cache[0].offset[:, None] + mx.arange(x.shape[1]), None, copy.copy(self)
        if self.log_floor is not None:
            longer = mx.maximum((position + 1) / self.log_floor, 1.0)
            factor = (1.0 + self.log_alpha * mx.log(longer)).astype(x.dtype)
            scale, norm = factor[..., None, None], self.q_norm
            attention.q_norm, attention.log_floor = lambda queries: norm(queries) * scale, None
        out: mx.array = with_own(
            attention, x, (Altered(cache[0], left_padding=(position, factor)), cache[1]), conv_mask
        )
        return out

    return call


def _banded(
    rel: mx.array, proj: mx.array, _: int, keys: int, window: int, extent: int, left_padding: Places, **__: object
) -> mx.array:
    """The mask `[rows, heads, tokens, keys]`, with positions and factors `[rows, tokens]` as the padding."""
    position, factor = left_padding
    numbers = (rel @ proj).transpose(0, 2, 1, 3)
    distance = position[:, None, :, None] - mx.arange(keys)
    shape = (*numbers.shape[:3], keys)
    added = mx.take_along_axis(numbers, mx.broadcast_to(mx.clip(distance, 0, extent - 1), shape), axis=-1)
    added = mx.where(distance < extent, added, 0)
    if factor is not None:
        added = added * factor[:, None, :, None]
    seen = (distance >= 0) & (distance < window) if window > 0 else distance >= 0
    return mx.where(seen, added, -1e30).astype(rel.dtype)


Places = tuple[mx.array, mx.array | None]
"""Positions, and factors of the numbers that are added."""


class Altered:
    """A cache with other attributes."""

    def __init__(self, cache: LayerCache, **attributes: object) -> None:
        vars(self).update(attributes, _cache=cache)

    def __getattr__(self, name: str) -> object:
        return getattr(self._cache, name)
