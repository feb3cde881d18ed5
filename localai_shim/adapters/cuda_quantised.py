"""CUDA kernels for quantised weights: products of few rows, and weights unpacked for products of many.

MLX's own kernels (0.32.4) read the weights once per row below eight rows, and leave most of the GPU's bandwidth unused
from there on. Here weights are read once, unpacked in registers and multiplied on the tensor cores. On an H100, 4 bits
in groups of 64, bfloat16, us; MLX's product, MLX's weights unpacked and multiplied, these kernels:

| rows | 4,096 -> 4,096 | 4,096 -> 1,024 | 4,096 -> 12,288 | 12,288 -> 4,096 | 4,096 -> 151,936   |
| 1    | 13, 46, 7      | 6, 14, 5       | 31, 148, 15     | 33, 147, 17     | 338, 1,713, 172    |
| 5    | 49, 47, 7      | 14, 16, 5      | 139, 150, 15    | 142, 149, 17    | 1,671, 1,747, 176  |
| 16   | 57, 48, 9      | 56, 16, 7      | 57, 150, 17     | 167, 149, 19    | 300, 1,752, 175    |
| 40   | 98, 47, 12     | 89, 16, 9      | 91, 149, 30     | 280, 151, 27    | 686, 1,759, 390    |
| 64   | 99, 47, 13     | 90, 16, 12     | 91, 147, 37     | 282, 152, 31    | 689, 1,763, 432    |
| 160  | 92, 51, 36     | 99, 18, 13     | 276, 150, 103   | 265, 157, 87    | 1,925, 1,778, 1,210 |

In bfloat16 a weight matrix of 4,096 x 12,288 takes 35 to 41 us for all of these. Steps of a model of the shape of 8B
ones with 4 bits, ms, medians in turns with MLX's kernels: 8 rows 14.8 -> 11.2, 32 rows 18.2 -> 9.6 (bound by the host:
the GPU has 8.5); of five tokens each, waited for: one row 22.8 -> 9.5, 8 rows 30.0 -> 16.0, 32 rows 39.9 -> 31.4.
Relative error beside exact products in bfloat16: 2.1e-3 (MLX's product of one row: 3.1e-3).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from .backend import on_cuda

# A call costs the host some 6 us more than MLX's product does, and steps of one row are bound by the host.
ONE_ROW_FROM_WEIGHTS = 2**25
MOST_ROWS = 160  # more are multiplied with unpacked weights; from some 130 on both take the same time
CAPABILITY = 8  # of a GPU that multiplies bfloat16 on its tensor cores
_HALF = (mx.bfloat16, mx.float16)
_OUTPUTS_MULTIPLE, _WORDS_MULTIPLE = 32, 32  # of weights; the kernels know no remainder
_TILE, _STACK = 8, 16  # rows and outputs of a tensor core's product


class Form(NamedTuple):
    """What a block computes, and with how many warps."""

    tiles: int  # of rows
    stacks: int  # of outputs
    warps: int


FORMS = (Form(1, 1, 8), Form(2, 2, 8), Form(5, 2, 8), Form(8, 2, 8))
"""Each takes seconds to compile. More stacks, or warps that share rows instead of inputs, were no faster."""


class Kernel:
    """Products with one quantised layer's weights."""

    def __init__(self, layer: nn.Module) -> None:
        self._outputs, words = layer["weight"].shape
        self._bits, self._group_size, self._dtype = layer.bits, layer.group_size, layer["scales"].dtype
        self._inputs = words * 32 // layer.bits
        self._fewest_rows = 1 if self._inputs * self._outputs >= ONE_ROW_FROM_WEIGHTS else 2
        self._launches: dict[int, tuple[Any, tuple[int, int, int], tuple[int, int, int]]] = {}
        """By the number of rows: the kernel, its grid and its threads."""

    def multiply(self, layer: nn.Module, x: mx.array) -> mx.array | None:
        """`[..., inputs]` -> `[..., outputs]`, without a bias; None where MLX's product is to be used."""
        rows = x.size // self._inputs
        if rows < self._fewest_rows or x.dtype != self._dtype:
            return None
        if rows > MOST_ROWS:
            return x @ self.unpack(layer).T
        kernel, grid, threads = self._launches.get(rows) or self._launch(rows)
        out: mx.array
        [out] = kernel(
            inputs=[x, layer["weight"], layer["scales"], layer["biases"]],
            grid=grid,
            threadgroup=threads,
            output_shapes=[(*x.shape[:-1], self._outputs)],
            output_dtypes=[self._dtype],
        )
        return out

    def unpack(self, layer: nn.Module) -> mx.array:
        """`[outputs, inputs]`: what `mx.dequantize` gives, which takes twice as long."""
        out: mx.array
        [out] = _unpacking(self._dtype == mx.float16, self._bits, self._group_size)(
            inputs=[layer["weight"], layer["scales"], layer["biases"]],
            grid=(self._outputs * self._inputs // 8, 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[(self._outputs, self._inputs)],
            output_dtypes=[self._dtype],
        )
        return out

    def _launch(self, rows: int) -> tuple[Any, tuple[int, int, int], tuple[int, int, int]]:
        form = form_of(rows)
        threads = 32 * form.warps
        grid = -(-rows // (_TILE * form.tiles)) * threads, self._outputs // (_STACK * form.stacks), 1
        kernel = _product(self._dtype == mx.float16, self._bits, self._group_size, form)
        self._launches[rows] = kernel, grid, (threads, 1, 1)
        return self._launches[rows]


def kernel_of(layer: nn.Module) -> Kernel | None:
    """The kernel for a quantised layer on this GPU, if there is one."""
    if not on_cuda() or int(mx.device_info()["compute_capability_major"]) < CAPABILITY:
        return None
    return Kernel(layer) if fits(layer) else None


def fits(layer: nn.Module) -> bool:
    """Whether the kernels know a quantised layer's shape and types."""
    weight = layer["weight"]
    return (
        layer.mode == "affine"
        and layer.bits in (4, 8)
        and layer["scales"].dtype in _HALF
        and weight.ndim == 2
        and weight.shape[0] % _OUTPUTS_MULTIPLE == 0
        and weight.shape[1] % _WORDS_MULTIPLE == 0
    )


def form_of(rows: int) -> Form:
    """How so many rows are multiplied: by one block of each output, or by several of the last form."""
    return next((form for form in FORMS if _TILE * form.tiles >= rows), FORMS[-1])


# MLX copies and hashes a kernel's source for each call, so that is short: what it does is in a file that it includes.
_HEADER = f'#include "{Path(__file__).with_suffix(".cuh")}"\n'


@cache
def _product(half: bool, bits: int, group_size: int, form: Form) -> Any:
    name = "_".join(map(str, ("quantised", int(half), bits, group_size, *form)))
    numbers = ", ".join(map(str, (_type(half), bits, group_size, *form)))
    source = f"localai_shim::multiply<{numbers}>(x, x_shape, x_ndim, w, scales, biases, out, w_shape[0]);"
    return mx.fast.cuda_kernel(name, ["x", "w", "scales", "biases"], ["out"], source, _HEADER)


@cache
def _unpacking(half: bool, bits: int, group_size: int) -> Any:
    source = f"localai_shim::unpack<{_type(half)}, {bits}, {group_size}>(w, scales, biases, out);"
    return mx.fast.cuda_kernel(
        f"unpacking_{half:d}_{bits}_{group_size}", ["w", "scales", "biases"], ["out"], source, _HEADER
    )


def _type(half: bool) -> str:
    return "__half" if half else "__nv_bfloat16"
