"""A CUDA kernel for what rows' adapters add to a layer's products.

A step of an 8B model on an H100 is bound by the number of operations that the host launches. With MLX's an adapted
layer has three or four more, two of which have cuBLAS look for an algorithm, 21 us each; here layers that read the same
have one together, of 8 us.
"""

from __future__ import annotations

from collections.abc import Sequence
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


Factors = tuple[mx.array, mx.array]
"""`[slots, rank, inputs]` and `[slots, rank, outputs]`; slot 0 is that of rows without an adapter, and is not read."""


class Kernel:
    """Adds what adapters change to the products of some layers that read the same.

    Args:
        factors: of each layer.
    """

    def __init__(self, factors: Sequence[Factors]) -> None:
        first, _ = factors[0]
        self._factors = [each for both in factors for each in both]
        self._inputs, self._dtype = first.shape[2], first.dtype
        blocks = [-(-b.shape[2] // _OUTPUTS) for _, b in factors]
        self._threads = sum(blocks) * _THREADS
        ranks = tuple(a.shape[1] for a, _ in factors)
        self._run = _kernel(first.dtype == mx.float16, ranks, tuple(blocks))

    def takes(self, x: mx.array) -> bool:
        """True if it adds to the products of x; else MLX's products are to be used."""
        return x.size <= MOST_TOKENS * self._inputs and x.dtype == self._dtype

    def add(self, x: mx.array, ys: Sequence[mx.array], index: mx.array) -> list[mx.array]:
        """`y[i] + x[i] @ a[slot of i].T @ b[slot of i]` for each layer.

        Args:
            x: `[..., inputs]`, the tokens of one row behind those of the other.
            ys: `[..., outputs]` each, of the type of x.
            index: `[rows]` uint32, the slots.
        """
        outs: list[mx.array] = self._run(
            inputs=[x, index, *self._factors, *ys],
            grid=(self._threads, x.size // self._inputs, 1),
            threadgroup=(_THREADS, 1, 1),
            output_shapes=[y.shape for y in ys],
            output_dtypes=[self._dtype] * len(ys),
        )
        return outs


def kernel_of(factors: Sequence[Factors]) -> Kernel | None:
    """The kernel for layers' factors on this machine, compiled, if there is one."""
    return _compiled(Kernel(factors)) if on_cuda() and fit(factors) else None


def fit(factors: Sequence[Factors]) -> bool:
    """True if the kernel knows these shapes and types."""
    return len({(a.dtype, b.dtype, a.shape[-1]) for a, b in factors}) == 1 and all(_fits(a, b) for a, b in factors)


def _fits(a: mx.array, b: mx.array) -> bool:
    if a.ndim != 3 or a.dtype not in _HALF or a.dtype != b.dtype or a.shape[1] > MOST_RANK:
        return False
    return a.shape[2] % _MULTIPLE == b.shape[2] % _MULTIPLE == 0


def _compiled(kernel: Kernel) -> Kernel:
    """The kernel, which has run: the first step that needs it would wait."""
    x, *ys = (mx.zeros((1, each.shape[2]), each.dtype) for each in [kernel._factors[0], *kernel._factors[1::2]])
    mx.eval(kernel.add(x, ys, mx.zeros((1,), mx.uint32)))
    return kernel


_HEADER = f'#include "{Path(__file__).with_suffix(".cuh")}"\n'


@cache
def _kernel(half: bool, ranks: tuple[int, ...], blocks: tuple[int, ...]) -> Any:
    """Of one layer behind the other, each with so many blocks for each token."""
    name = "__half" if half else "__nv_bfloat16"
    inputs, source, before = ["x", "index"], "", 0
    for i, (rank, count) in enumerate(zip(ranks, blocks, strict=True)):
        source += (
            f"if (blockIdx.x < {before + count}) return localai_shim::add_adapters<{name}, {rank}>"
            f"(x, a{i}, b{i}, y{i}, index, out{i}, x_shape[x_ndim - 1], y{i}_shape[y{i}_ndim - 1], "
            f"gridDim.y / index_shape[0], blockIdx.x - {before});\n"
        )
        inputs += [f"a{i}", f"b{i}"]
        before += count
    layers = range(len(ranks))
    inputs += [f"y{i}" for i in layers]
    label = "_".join(map(str, [int(half), *ranks, *blocks]))
    return mx.fast.cuda_kernel(f"adapters_{label}", inputs, [f"out{i}" for i in layers], source, _HEADER)
