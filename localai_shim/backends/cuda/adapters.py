"""A CUDA kernel for what rows' adapters add to a layer's products.

A step of an 8B model on an H100 is bound by the number of operations that the host launches. With MLX's an adapted
layer has three or four more, two of which have cuBLAS look for an algorithm, 21 us each; here it has one, of 8 us.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..machine import on_cuda

MOST_TOKENS = 320  # of a pass: a block reads the factors anew for each, and for more of them products are faster
MOST_RANK = 64
_THREADS, _OUTPUTS = 256, 2_048  # of a block
_HALF = (mx.bfloat16, mx.float16)
_MULTIPLE = 8  # numbers that are read at once


class Kernel:
    """Adds what adapters change to one layer's products.

    Args:
        a: `[slots, rank, inputs]`; slot 0 is that of rows without an adapter, and is not read.
        b: `[slots, rank, outputs]`.
    """

    def __init__(self, a: mx.array, b: mx.array) -> None:
        self._factors, self._inputs, self._dtype = (a, b), a.shape[2], a.dtype
        self._blocks = -(-b.shape[2] // _OUTPUTS) * _THREADS
        self._run = _kernel(a.dtype == mx.float16, a.shape[1])

    def add(self, x: mx.array, y: mx.array, index: mx.array) -> mx.array | None:
        """`y[i] + x[i] @ a[slot of i].T @ b[slot of i]`; None where MLX's products are to be used.

        Args:
            x: `[..., inputs]`, the tokens of one row behind those of the other.
            y: `[..., outputs]`.
            index: `[rows]` uint32, the slots.
        """
        tokens = x.size // self._inputs
        if tokens > MOST_TOKENS or x.dtype != self._dtype or y.dtype != self._dtype:
            return None
        out: mx.array
        [out] = self._run(
            inputs=[x, *self._factors, y, index],
            grid=(self._blocks, tokens, 1),
            threadgroup=(_THREADS, 1, 1),
            output_shapes=[y.shape],
            output_dtypes=[self._dtype],
        )
        return out


def kernel_of(a: mx.array, b: mx.array) -> Kernel | None:
    """The kernel for a layer's factors on this machine, compiled, if there is one."""
    return _compiled(Kernel(a, b)) if on_cuda() and fits(a, b) else None


def fits(a: mx.array, b: mx.array) -> bool:
    """True if the kernel knows these shapes and types."""
    if a.ndim != 3 or a.dtype not in _HALF or a.dtype != b.dtype or a.shape[1] > MOST_RANK:
        return False
    return a.shape[2] % _MULTIPLE == b.shape[2] % _MULTIPLE == 0


def _compiled(kernel: Kernel) -> Kernel:
    """The kernel, which has run: the first step that needs it would wait."""
    a, b = kernel._factors
    x, y = (mx.zeros((1, each.shape[2]), each.dtype) for each in (a, b))
    mx.eval(kernel.add(x, y, mx.zeros((1,), mx.uint32)))
    return kernel


_HEADER = f'#include "{Path(__file__).with_suffix(".cuh")}"\n'


@cache
def _kernel(half: bool, rank: int) -> Any:
    name = "__half" if half else "__nv_bfloat16"
    source = (
        f"localai_shim::add_adapters<{name}, {rank}>"
        "(x, a, b, y, index, out, x_shape[x_ndim - 1], y_shape[y_ndim - 1], gridDim.y / index_shape[0]);"
    )
    inputs = ["x", "a", "b", "y", "index"]
    return mx.fast.cuda_kernel(f"adapters_{half:d}_{rank}", inputs, ["out"], source, _HEADER)
