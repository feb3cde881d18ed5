"""Layers with weights in half precision that run a few rows by a custom kernel on MLX's CUDA back end."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from .products import Kernel, kernel_of


class FewRowsLinear(nn.Linear):  # type: ignore[misc]
    """`mlx.nn.Linear`, with the kernel where that is faster."""

    kernel: Kernel

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = self.kernel.multiply(self, x)
        if y is None:
            if "bias" not in self or x.size > x.shape[-1]:
                whole: mx.array = super().__call__(x)
                return whole
            y = x @ self["weight"].T  # one row: with a bias MLX has cuBLAS choose, without it has a kernel of its own
        return y + self["bias"] if "bias" in self else y


class FewRowsShare(nn.ShardedToAllLinear):  # type: ignore[misc]
    """`mlx.nn.ShardedToAllLinear`, likewise: a process's share of the inputs, summed over all processes."""

    kernel: Kernel

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = self.kernel.multiply(self, x)
        y = mx.distributed.all_sum(x @ self["weight"].T if y is None else y, group=self.group)
        return y + self["bias"] if "bias" in self else y


class FewRowsEmbedding(nn.Embedding):  # type: ignore[misc]
    """`mlx.nn.Embedding`, whose use as an output layer has the kernel."""

    kernel: Kernel

    def as_linear(self, x: mx.array) -> mx.array:
        """`[..., features]` -> `[..., tokens]`."""
        y = self.kernel.multiply(self, x)
        if y is None:
            y = super().as_linear(x)
        return y


_KINDS: dict[type, type] = {
    nn.Linear: FewRowsLinear,
    nn.Embedding: FewRowsEmbedding,
    nn.AllToShardedLinear: FewRowsLinear,  # which has outputs of its own, and nothing to sum
    nn.ShardedToAllLinear: FewRowsShare,
}


def use_dense_kernels(model: nn.Module) -> int:
    """Give a model's layers a class that has the kernel for its weights, where there is one; these stay as they are.

    Args:
        model: changed in place. Layers inside others, LoRA's for example, count; subclasses are left alone, since they
            may compute something else.

    Returns:
        how many layers changed.
    """
    layers = [(layer, kernel_of(layer)) for layer in model.modules() if type(layer) in _KINDS]
    found = [(layer, kernel) for layer, kernel in layers if kernel is not None]
    for layer, kernel in found:
        layer.__class__ = _KINDS[type(layer)]
        layer.kernel = kernel
        layer.weight = mx.contiguous(layer["weight"])  # of others, as gpt2's are, each call would make a copy
        mx.eval(layer.weight)
    return len(found)
