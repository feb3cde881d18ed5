"""Attention of mlx-lm's models that misread a batch's mask."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

_BY_BLOCKS = ("mlx_lm.models.minimax_m3_vl", "mlx_lm.models.phi3small")


def batch_attention(model: nn.Module) -> int:
    """Give attention layers that misread a batch's mask a class that does not; returns how many there were.

    gemma2 stacks the queries that share a key head, so that its scores are `[rows, key heads, queries per key head,
    queries, keys]`: the axes of a mask `[rows, 1, queries, keys]` fall on others then, its rows on the key heads.

    Args:
        model: changed in place; its weights stay as they are. Subclasses are left alone: they may compute otherwise.
    """
    gemma2 = sys.modules.get("mlx_lm.models.gemma2")
    if gemma2 is None:
        return 0
    batched = _stacking(gemma2.Attention)
    layers = [layer for layer in model.modules() if type(layer) is gemma2.Attention and layer.repeats > 1]
    for layer in layers:
        layer.__class__ = batched
    return len(layers)


def takes_ends_for_positions(model: nn.Module) -> bool:
    """Whether attention chooses what is near a query by the end of the keys, which is that of the batch's longest row.

    Rows have to be of more blocks than are chosen before this makes a difference, some thousand tokens: no short trial
    shows it.
    """
    return any(type(module).__module__ in _BY_BLOCKS for module in model.modules())


@functools.cache
def _stacking(attention: type[Any]) -> type[Any]:
    class Stacking(attention):  # type: ignore[misc]
        """Attention with an axis for the queries that share a key head."""

        def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
            if mask is not None and mask.ndim == 4:  # per row
                mask = mask[:, :, None]
            out: mx.array = super().__call__(x, mask, cache)
            return out

    Stacking.__name__ = Stacking.__qualname__ = attention.__name__
    return Stacking
