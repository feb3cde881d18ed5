"""Formats of packed weights, and which layers had one before their machine got other weights."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

_PACKED_AS = "_localai_shim_packed_as"

Packed = tuple[mx.array, mx.array, mx.array | None]
"""(weight, scales, biases)"""


class Format(NamedTuple):
    """Format of a packed layer, on which the cost of its products depends."""

    mode: str
    bits: int
    group_size: int

    def unpack(self, packed: Packed) -> mx.array:
        """`[..., outputs, inputs]` float32."""
        return mx.dequantize(*packed, **self._asdict(), dtype=mx.float32)


def remember(layer: nn.Module, how: Format) -> None:
    """Note the format of a layer whose weights are about to be unpacked."""
    object.__setattr__(layer, _PACKED_AS, (how, layer.scales.dtype))  # no parameter of it


def packed_format(layer: nn.Module) -> tuple[Format, mx.Dtype] | None:
    """Format and dtype that a layer's weights were packed in, and are no more; None for all other layers."""
    found: tuple[Format, mx.Dtype] | None = vars(layer).get(_PACKED_AS)
    if found is None:
        return None
    how, dtype = found
    return how, dtype if mx.issubdtype(dtype, mx.floating) else mx.float32
