"""Llama 4's attention in chunks, by each row's position.

A token of most of its layers attends to its own chunk only, `attention_chunk_size` positions that begin at a
multiple of it. mlx-lm and mlx-vlm take one row's position for all rows, and their `ChunkedKVCache` holds one row. A
ring of a chunk's size holds what these layers read, whichever part of it the mask shows.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function, Mask
from ...engine.cache_contents import UPSTREAMS, LayerCache, RowCache


def with_rings(upstream: Callable[[nn.Module], RowCache]) -> Callable[[nn.Module], RowCache]:
    """Give chunked layers rings as caches."""

    def make_cache(self: nn.Module) -> RowCache:
        return [_ring_for(layer) if type(layer).__name__ == "ChunkedKVCache" else layer for layer in upstream(self)]

    return make_cache


def _ring_for(layer: LayerCache) -> LayerCache:
    ring: LayerCache = importlib.import_module(type(layer).__module__).RotatingKVCache(layer.chunk_size)
    return ring


def masked_by_row(upstream: Function) -> Function:
    """The decoder's call, with masks by each row's position. It takes what mlx-lm's and mlx-vlm's take."""
    names = upstream.__globals__

    def call(
        self: nn.Module,
        inputs: mx.array | None = None,
        cache: RowCache | None = None,
        *,
        input_ids: mx.array | None = None,
        input_embeds: mx.array | None = None,
        mask: Mask = None,
    ) -> mx.array:
        tokens = input_ids if inputs is None else inputs
        h = self.embed_tokens(tokens) if input_embeds is None else input_embeds
        layers = [None] * len(self.layers) if cache is None else cache
        chunk = (self.args if "args" in vars(self) else self.config).attention_chunk_size
        kept: dict[bool, Mask] = {}
        for layer, its in zip(self.layers, layers, strict=True):
            chunked = bool(layer.self_attn.use_rope)
            if chunked not in kept:
                kept[chunked] = (
                    chunk_mask(its, h.shape[1], chunk) if chunked else names["create_attention_mask"](h, its)
                )
            h = layer(h, kept[chunked], cache=its)
        states: mx.array = self.norm(h)
        return states

    return call


def chunk_mask(cache: LayerCache | None, tokens: int, chunk: int) -> Mask:
    """The mask of the next tokens in a chunked layer."""
    mask: Mask = None
    if cache is not None and type(cache).__module__ not in UPSTREAMS:
        mask = cache.make_mask(tokens, chunk_size=chunk)
        return mask
    start = 0 if cache is None else int(cache.offset)
    if start + tokens <= chunk:
        return "causal" if tokens > 1 else None
    if tokens == 1 and cache is not None:
        mask = cache.make_mask(1, window_size=start % chunk + 1)
        return mask
    held = min(start, chunk - 1)  # by a ring, of what came before these
    position = mx.arange(start - held, start + tokens)
    own = position[held:, None]
    return (position <= own) & (position >= own - own % chunk)


def tuned_by_row(upstream: Function) -> Function:
    """Layers without rotation scale their queries by their positions, for which they take one number."""

    def call(self: nn.Module, x: mx.array, mask: Mask = None, cache: LayerCache | None = None) -> mx.array:
        offset = 0 if cache is None else cache.offset
        if self.use_rope or not self.attn_temperature_tuning or isinstance(offset, int):
            return upstream(self, x, mask, cache)
        position = offset[:, None] + mx.arange(1, x.shape[1] + 1)
        factor = (1 + self.attn_scale * mx.log(1 + mx.floor(position / self.floor_scale)))[..., None]
        project, scaled = self.q_proj, copy.copy(self)
        scaled.q_proj = lambda x: (project(x) * factor).astype(x.dtype)
        scaled.attn_temperature_tuning = 0
        return upstream(scaled, x, mask, cache)

    return call
