"""A CUDA kernel for what rows' adapters add to a layer's products.

A step of an 8B model on an H100 is bound by the number of operations that the host launches. With MLX's an adapted
layer has three or four more, two of which make cuBLAS look for an algorithm, 21 us each; here layers that read the same
have one together, of 8 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import mlx.core as mx

from ..machine import on_cuda
from .kernels import Compiled, cuda_kernel, type_name

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
        self._inputs, self._dtype = first.shape[2], first.dtype
        layers = tuple((a.shape[1], b.shape[2]) for a, b in factors)
        self._threads = sum(map(_blocks, layers)) * _THREADS
        self._run = partial(
            _kernel(first.dtype == mx.float16, self._inputs, layers),
            threadgroup=(_THREADS, 1, 1),
            output_dtypes=[self._dtype] * len(layers),
        )
        self._factors = [each for both in factors for each in both]

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
        return self._run(
            inputs=[x, index, *self._factors, *ys],
            grid=(self._threads, x.size // self._inputs, 1),
            output_shapes=[y.shape for y in ys],
        )


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


def _blocks(layer: tuple[int, int]) -> int:
    """Blocks for each token."""
    return -(-layer[1] // _OUTPUTS)


@cache
def _kernel(half: bool, inputs: int, layers: tuple[tuple[int, int], ...]) -> Compiled:
    """Of layers of some ranks and outputs, the blocks of one behind those of the other."""
    name = type_name(half)
    names, source, before = ["x", "index"], "const int tokens = gridDim.y / index_shape[0];\n", 0
    for i, (rank, outputs) in enumerate(layers):
        after = before + _blocks((rank, outputs))
        source += (
            f"if (blockIdx.x < {after}) return localai_shim::add_adapters<{name}, {rank}, {inputs}, {outputs}>"
            f"(x, a{i}, b{i}, y{i}, index, out{i}, tokens, blockIdx.x - {before});\n"
        )
        names += [f"a{i}", f"b{i}"]
        before = after
    count = range(len(layers))
    label = "_".join(f"{rank}x{outputs}" for rank, outputs in layers)
    return cuda_kernel(
        __file__,
        f"adapters_{half:d}_{inputs}_{label}",
        [*names, *(f"y{i}" for i in count)],
        [f"out{i}" for i in count],
        source,
    )
