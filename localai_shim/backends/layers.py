"""Layers of a model on this machine: products of few rows in its own way, and weights that were packed before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import mlx.core as mx
import mlx.nn as nn


class Products(Protocol):
    """Products with a layer's weights, of `cuda.products` or `x86.products`."""

    def multiply(self, layer: nn.Module, x: mx.array) -> mx.array | None:
        """`[..., inputs]` -> `[..., outputs]`, without a bias; None if MLX's product should be used."""


class FewRowsLinear(nn.Linear):  # type: ignore[misc]
    """`mlx.nn.Linear`, with other products where they are faster."""

    kernel: Products

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = self.kernel.multiply(self, x)
        if y is None:
            if "bias" not in self or x.size > x.shape[-1]:
                whole: mx.array = super().__call__(x)
                return whole
            y = x @ self["weight"].T  # one row: on CUDA MLX has a kernel without a bias, and uses cuBLAS with one
        return y + self["bias"] if "bias" in self else y


class FewRowsShare(nn.ShardedToAllLinear):  # type: ignore[misc]
    """`mlx.nn.ShardedToAllLinear`, likewise: a process's share of the inputs, summed over all processes."""

    kernel: Products

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = self.kernel.multiply(self, x)
        y = mx.distributed.all_sum(x @ self["weight"].T if y is None else y, group=self.group)
        return y + self["bias"] if "bias" in self else y


class FewRowsEmbedding(nn.Embedding):  # type: ignore[misc]
    """`mlx.nn.Embedding`, with other products if it is the output layer."""

    kernel: Products

    def as_linear(self, x: mx.array) -> mx.array:
        """`[..., features]` -> `[..., tokens]`."""
        y = self.kernel.multiply(self, x)
        if y is None:
            y = super().as_linear(x)
        return y


_KINDS: dict[type, type] = {
    nn.Linear: FewRowsLinear,
    nn.Embedding: FewRowsEmbedding,
    nn.AllToShardedLinear: FewRowsLinear,  # its outputs are not summed
    nn.ShardedToAllLinear: FewRowsShare,
}


def plain_layers(model: nn.Module) -> list[nn.Module]:
    """Layers of a model that may get other products, each once.

    Layers inside others, LoRA's for example, count; subclasses do not, since they may compute something else.
    """
    return list({id(layer): layer for layer in model.modules() if type(layer) in _KINDS}.values())


def use_products(found: Iterable[tuple[nn.Module, Products]]) -> int:
    """Give layers of `plain_layers` these products; returns how many there are."""
    count = 0
    for layer, products in found:
        layer.__class__ = _KINDS[type(layer)]
        layer.kernel = products
        layer.weight = mx.contiguous(layer["weight"])  # of others, as gpt2's are, each call would make a copy
        mx.eval(layer.weight)
        count += 1
    return count


# -- packed weights --------------------------------------------------------------------------------------------------

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
