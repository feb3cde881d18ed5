"""Decoders of mlx-lm that take one position for all rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ...backends.patches import rebound
from ...engine.cache_contents import LayerCache, RowCache

if TYPE_CHECKING:
    import mlx.core as mx

Call = Callable[..., Any]


def reusing_by_row(upstream: Call) -> Call:
    """afm7's last layers have no cache, and take the number of keys for the queries' position."""

    def call(self: Any, inputs: mx.array, cache: RowCache | None = None) -> mx.array:
        if cache is None or isinstance(cache[0].offset, int):
            plain: mx.array = upstream(self, inputs, cache)
            return plain
        decoder = copy.copy(self)
        decoder.kv_reuse_layers = [_turned_from(layer, cache[0].offset) for layer in self.kv_reuse_layers]
        out: mx.array = upstream(decoder, inputs, cache)
        return out

    return call


def _turned_from(layer: Any, offset: mx.array) -> Any:
    """A layer that turns its queries from these positions on."""
    made, attention, rope = copy.copy(layer), copy.copy(layer.self_attn), layer.self_attn.rope
    attention.rope = lambda x, offset=None, own=offset: rope(x, offset=own)
    made.self_attn = attention
    return made


def embedded_by_row(upstream: Call) -> Call:
    """gpt_bigcode counts positions on the host."""

    def call(self: Any, inputs: mx.array, cache: RowCache | None = None) -> mx.array:
        import mlx.core as mx

        if cache is None or isinstance(cache[0].offset, int):
            plain: mx.array = upstream(self, inputs, cache)
            return plain
        positions = cache[0].offset[:, None] + mx.arange(inputs.shape[1])
        decoder = copy.copy(self)
        decoder.wpe = lambda _: self.wpe(positions)
        out: mx.array = upstream(decoder, inputs, [Counted(cache[0], 0), *cache[1:]])
        return out

    return call


def scaled_by_row(upstream: FunctionType) -> Call:
    """Ministral 3 scales all rows' queries by the positions of the first one. mlx-lm's function takes those of each."""

    def call(
        self: Any, inputs: mx.array, cache: RowCache | None = None, inputs_embeds: mx.array | None = None
    ) -> mx.array:
        from mlx_lm.models.ministral3 import _get_llama_4_attn_scale as scale_by_row

        run: Call = upstream
        if cache is not None and not isinstance(offset := cache[0].offset, int):

            def scale(start: int, stop: int, *how: float) -> mx.array:
                made: mx.array = scale_by_row(stop - start, offset, *how)
                return made

            run = rebound(upstream, {**upstream.__globals__, "_get_llama_4_attn_scale": scale})
        out: mx.array = run(self, inputs, cache, inputs_embeds)
        return out

    return call


class Counted:
    """A cache with another offset."""

    def __init__(self, cache: LayerCache, offset: int | mx.array) -> None:
        self._cache, self.offset = cache, offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)
