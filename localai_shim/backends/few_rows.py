"""Layers that multiply few rows in a machine's own way, of `cuda.products` or `x86.products`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import mlx.core as mx
import mlx.nn as nn


class Products(Protocol):
    """Products with a layer's weights."""

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
