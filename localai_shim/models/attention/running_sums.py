"""Z1T's layers, which read sums of all earlier tokens and the last few, in a batch.

mlx-vlm's `Z1TCache` has one position for all rows, and waits for the device in each layer. Here the sums, the last
tokens, and each row's position are the states of an `ArraysCache`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...backends.patches import rebound, with_names
from ...engine.cache_contents import LayerCache, RowCache

if TYPE_CHECKING:
    import mlx.core as mx

Call = Callable[..., Any]

_STATES = ("cum_eKV", "cum_eK", "win_eKV", "win_eK", "offset")


def with_states(_: Call) -> Callable[[Any], RowCache]:
    """Give layers caches of states."""

    def make_cache(self: Any) -> RowCache:
        from mlx_vlm.models.cache import ArraysCache

        return [ArraysCache(len(_STATES)) for _ in self.layers]

    return make_cache


def reading_states(upstream: Call) -> Call:
    """The decoder's call, which finds these caches as it finds mlx-vlm's."""

    def call(self: Any, inputs: mx.array, *args: Any, cache: RowCache | None = None, **kwargs: Any) -> Any:
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

    def __setattr__(self, name: str, value: Any) -> None:
        import mlx.core as mx

        if isinstance(value, int):
            value = mx.full((self.cum_eK.shape[0],), value, mx.int32)
        self._layer[_STATES.index(name)] = value


def placing_rows(upstream: Call) -> Call:
    """The rows of the table of positions, each by its own one; there are zeros behind the table."""

    def places(self: Any, offset: int | mx.array, length: int, dtype: mx.Dtype) -> mx.array:
        import mlx.core as mx

        if isinstance(offset, int):
            plain: mx.array = upstream(self, offset, length, dtype)
            return plain
        position, most = offset[:, None] + mx.arange(length), self.pe.shape[0]
        return mx.where((position < most)[..., None], self.pe[mx.minimum(position, most - 1)], 0).astype(dtype)

    return places


def not_waiting(upstream: Any) -> Call:
    """The same code, which builds its graph without waiting for the states."""
    import mlx.core as mx

    return rebound(upstream, {**upstream.__globals__, "mx": with_names(mx, eval=lambda *_: None)})
