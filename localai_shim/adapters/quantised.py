"""Quantised layers that decode a batch in one product on MLX's CUDA back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

# What MLX 0.32.4 does on CUDA (QuantizedMatmul::eval_gpu), and Metal and the CPU do not:
# * The rows of a product are the input's last but one dimension; for every dimension before it the product is repeated.
#   A decoding batch is `[rows, 1, features]`, so weights are read once per row. Here they are `[rows, features]`.
# * Fewer than _TILE rows take a kernel for vectors, which reads the weights once per row, too. On an H100 seven rows of
#   a wide layer take 2 to 7 times as long as eight, so they are filled up with zeros.
# * It fails for an input of one dimension.
# Layers of experts (gather_qmm) are not concerned: each row reads weights of its own choice.
_TILE = 8
# Rows times outputs from which eight rows are faster, filling up included. Measured there, each product waiting for the
# one before it, for 11 layers of 1,024 to 151,936 outputs; the number of inputs does not matter.
_FILL_FROM = 28_000


class BatchedQuantizedLinear(nn.QuantizedLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedLinear`, with all rows of the input in one product."""

    def __call__(self, x: Any) -> Any:
        """`[..., inputs]` -> `[..., outputs]`."""
        return _in_one_product(super().__call__, self, x)


class BatchedQuantizedEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """`mlx.nn.QuantizedEmbedding`, whose use as an output layer has all rows in one product."""

    def as_linear(self, x: Any) -> Any:
        """`[..., features]` -> `[..., tokens]`."""
        return _in_one_product(super().as_linear, self, x)


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


def _in_one_product(product: Callable[[Any], Any], layer: Any, x: Any) -> Any:
    features = x.shape[-1]
    rows = x.size // features
    if rows < _TILE and _is_better_filled(layer, rows, x):
        filled = mx.pad(x.reshape(rows, features), [(0, _TILE - rows), (0, 0)])
        return product(filled)[:rows].reshape(*x.shape[:-1], -1)
    if x.ndim == 1 or rows > x.shape[-2]:
        return product(x.reshape(rows, features)).reshape(*x.shape[:-1], -1)
    return product(x)


def _is_better_filled(layer: Any, rows: int, x: Any) -> bool:
    """Whether the kernel for eight rows exists for such a layer and is faster than that for vectors."""
    long = rows > 1 and rows * layer.weight.shape[0] >= _FILL_FROM
    return bool(long and layer.bits in (4, 8) and x.dtype in (mx.bfloat16, mx.float16))


def _on_cuda() -> bool:
    return bool(mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu))
