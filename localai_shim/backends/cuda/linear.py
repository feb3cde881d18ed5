"""Linear layers and embeddings, quantized or in half precision, in forms that are fast on MLX's CUDA back end."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from ..few_rows import plain_layers, use_products
from . import products as cuda_products
from .products import kernel_of

# What MLX 0.32.4 does on CUDA (QuantizedMatmul::eval_gpu), and Metal and the CPU do not; measured on an H100:
# * The rows of a product are the input's last but one dimension; for every dimension before it the product is repeated.
#   A decoding batch is `[rows, 1, features]`, so weights are read once per row. Here they are `[rows, features]`.
# * Fewer than TILE_ROWS rows take a kernel for vectors, which reads the weights once per row, too. Seven rows of a wide
#   layer take 2 to 7 times as long as eight, so they are padded with zeros.
# * Its products are bound by arithmetic early: from some hundred rows on it is faster to unpack the weights and to
#   multiply with these: 2,048 tokens of an 8B model take 64 ms instead of 233, 256 take 29 instead of 40.
# * It fails for an input of one dimension.
# So layers of the shapes that `cuda_products` knows go through its kernels; what follows here is for the others.
# Layers of experts (gather_qmm) are not concerned: each row reads weights of its own choice.
TILE_ROWS = 8
# Rows times outputs from which eight rows are faster, padding included. Each product waited for the one before it, for
# 11 layers of 1,024 to 151,936 outputs; the number of inputs does not matter.
PAD_FROM_SIZE = 28_000
UNPACK_FROM_ROWS = 128
HALF_DTYPES = (mx.bfloat16, mx.float16)


class BatchedQuantizedLinear(nn.QuantizedLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedLinear`, with all rows of the input in one product."""

    kernel: cuda_products.Kernel | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = _multiply(self, x)
        return y + self["bias"] if "bias" in self else y


class BatchedQuantizedShare(nn.QuantizedShardedToAllLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedShardedToAllLinear`, likewise: a process's share of the inputs, summed over all processes."""

    kernel: cuda_products.Kernel | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = mx.distributed.all_sum(_multiply(self, x), group=self.group)
        return y + self["bias"] if "bias" in self else y


class BatchedQuantizedEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """`mlx.nn.QuantizedEmbedding`, whose use as an output layer has all rows in one product."""

    kernel: cuda_products.Kernel | None = None

    def as_linear(self, x: mx.array) -> mx.array:
        """`[..., features]` -> `[..., tokens]`."""
        return _multiply(self, x)


_BATCHED: dict[type, type] = {
    nn.QuantizedLinear: BatchedQuantizedLinear,
    nn.QuantizedEmbedding: BatchedQuantizedEmbedding,
    nn.QuantizedAllToShardedLinear: BatchedQuantizedLinear,  # its outputs are not summed
    nn.QuantizedShardedToAllLinear: BatchedQuantizedShare,
}


def batch_quantised_layers(model: nn.Module) -> int:
    """Give a model's quantised layers a class that runs a batch in one product; their weights stay as they are.

    Args:
        model: changed in place. Layers inside others, LoRA's for example, count; subclasses are left alone, since they
            may compute something else.

    Returns:
        how many layers changed.
    """
    layers = [layer for layer in model.modules() if type(layer) in _BATCHED]
    for layer in layers:
        layer.__class__ = _BATCHED[type(layer)]
        layer.kernel = cuda_products.kernel_of(layer)
    return len(layers)


def _multiply(layer: nn.Module, x: mx.array) -> mx.array:
    """`[..., inputs]` -> `[..., outputs]`, without a bias."""
    kernel: cuda_products.Kernel | None = layer.kernel
    if kernel is not None and (y := kernel.multiply(layer, x)) is not None:
        return y
    features, outputs = x.shape[-1], layer["weight"].shape[0]
    rows, scales = x.size // features, layer["scales"]
    # These kernels are there for half precision only, and were measured for these widths.
    known = layer.mode == "affine" and layer.bits in (4, 8) and x.dtype in HALF_DTYPES
    if known and rows >= UNPACK_FROM_ROWS and x.dtype == scales.dtype:
        weight = mx.dequantize(layer["weight"], scales, layer["biases"], group_size=layer.group_size, bits=layer.bits)
        return x @ weight.T
    if known and 1 < rows < TILE_ROWS and rows * outputs >= PAD_FROM_SIZE:
        y = _product(layer, mx.pad(x.reshape(rows, features), [(0, TILE_ROWS - rows), (0, 0)]))[:rows]
    elif x.ndim == 1 or rows > x.shape[-2]:
        y = _product(layer, x.reshape(rows, features))
    else:
        return _product(layer, x)
    return y.reshape(*x.shape[:-1], outputs)


def _product(layer: nn.Module, x: mx.array) -> mx.array:
    packed = layer["weight"], layer["scales"], layer.get("biases")
    return mx.quantized_matmul(x, *packed, group_size=layer.group_size, bits=layer.bits, mode=layer.mode)


def use_dense_kernels(model: nn.Module) -> int:
    """Give a model's layers a class that has the kernel for its weights, where there is one; these stay as they are.

    Args:
        model: changed in place. Layers inside others, LoRA's for example, count; subclasses are left alone, since they
            may compute something else.

    Returns:
        how many layers changed.
    """
    kernels = ((layer, kernel_of(layer)) for layer in plain_layers(model))
    return use_products((layer, kernel) for layer, kernel in kernels if kernel is not None)
