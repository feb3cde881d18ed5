"""Quantised layers that decode a batch in one product on MLX's CUDA back end."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

# MLX's CUDA kernels take the rows of a product from the input's last but one dimension alone and repeat the product
# for every dimension before it (QuantizedMatmul::eval_gpu, mlx 0.32.4). A decoding batch is `[rows, 1, features]`, so
# that weights are read once per row. Metal and the CPU join the dimensions by themselves.
# Layers of experts (gather_qmm) are not concerned: each row reads weights of its own choice.


class BatchedQuantizedLinear(nn.QuantizedLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedLinear`, with all rows of the input in one product."""

    def __call__(self, x: Any) -> Any:
        """`[..., inputs]` -> `[..., outputs]`."""
        if not _is_split(x):
            return super().__call__(x)
        return super().__call__(x.flatten(0, -2)).reshape(*x.shape[:-1], -1)


class BatchedQuantizedEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """`mlx.nn.QuantizedEmbedding`, whose use as an output layer has all rows in one product."""

    def as_linear(self, x: Any) -> Any:
        """`[..., features]` -> `[..., tokens]`."""
        if not _is_split(x):
            return super().as_linear(x)
        return super().as_linear(x.flatten(0, -2)).reshape(*x.shape[:-1], -1)


_BATCHED: dict[type, type] = {
    nn.QuantizedLinear: BatchedQuantizedLinear,
    nn.QuantizedEmbedding: BatchedQuantizedEmbedding,
}


def batch_quantised_layers(model: nn.Module, *, enabled: bool | None = None) -> int:
    """Give a model's quantised layers a class that runs a batch in one product; their weights stay as they are.

    Args:
        model: changed in place. Layers inside others, LoRA's for example, count; subclasses are left alone, since they
            may compute something else.
        enabled: whether to do it; None does it on a CUDA GPU, where it helps, and nowhere else.

    Returns:
        how many layers changed.
    """
    if not (_on_cuda() if enabled is None else enabled):
        return 0
    layers = [layer for layer in model.modules() if type(layer) in _BATCHED]
    for layer in layers:
        layer.__class__ = _BATCHED[type(layer)]
    return len(layers)


def _is_split(x: Any) -> bool:
    """Whether the rows of an input are spread over several dimensions."""
    return bool(x.ndim > 2 and x.size > x.shape[-2] * x.shape[-1])


def _on_cuda() -> bool:
    return bool(mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu))
