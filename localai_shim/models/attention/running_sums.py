"""Z1T's layers, which read sums of all earlier tokens and the last few, in a batch.

mlx-vlm's `Z1TCache` has one position for all rows, and waits for the device in each layer. Here the sums, the last
tokens, and each row's position are the states of an `ArraysCache`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx import nn

from ...backends.patches import Function, rebound, with_names
from ...engine.cache_contents import LayerCache, RowCache

_STATES = ("cum_eKV", "cum_eK", "win_eKV", "win_eK", "offset")


def with_states(_: Function) -> Callable[[nn.Module], RowCache]:
    """Give layers caches of states."""

    def make_cache(self: nn.Module) -> RowCache:
        from mlx_vlm.models.cache import ArraysCache

        return [ArraysCache(len(_STATES)) for _ in self.layers]

    return make_cache


def reading_states(upstream: Function) -> Function:
    """The decoder's call, which finds these caches as it finds mlx-vlm's."""

    def call(
        self: nn.Module, inputs: mx.array, *args: object, cache: RowCache | None = None, **kwargs: object
    ) -> mx.array:
        row = None if cache is None else [_Named(layer) for layer in cache]
        return upstream(self, inputs, *args, cache=row, **kwargs)

    return call


class _Named:
    """Cache of states in the form of a `Z1TCache`."""

    def __init__(self, layer: LayerCache) -> None:
        vars(self)["_layer"] = layer

    def __getattr__(self, name: str) -> Any:
        state = self._layer[_STATES.index(name)]
        return 0 if state is None and name == "offset" else state

    def __setattr__(self, name: str, value: int | mx.array) -> None:
        if isinstance(value, int):
            value = mx.full((self.cum_eK.shape[0],), value, mx.int32)
        self._layer[_STATES.index(name)] = value


def placing_rows(upstream: Function) -> Function:
    """The rows of the table of positions, each by its own one; there are zeros behind the table."""

    def places(self: nn.Module, offset: int | mx.array, length: int, dtype: mx.Dtype) -> mx.array:
        if isinstance(offset, int):
            return upstream(self, offset, length, dtype)
        position, most = offset[:, None] + mx.arange(length), self.pe.shape[0]
        return mx.where((position < most)[..., None], self.pe[mx.minimum(position, most - 1)], 0).astype(dtype)

    return places


def not_waiting(upstream: Function) -> Function:
    """The same code, which builds its graph without waiting for the states."""
    names = {**upstream.__globals__, "mx": with_names(mx, eval=lambda *_: None)}
    return rebound(upstream, names)
