"""CUDA kernels for products of a few to some hundred rows with a layer's weights, and the layers that use them.

MLX's own kernels (0.32.4) read quantised weights once per row below eight rows, and leave most of the GPU's bandwidth
unused from there on. Here weights are read once, unpacked in registers and multiplied on the tensor cores. On an H100,
4 bits in groups of 64, bfloat16, us; MLX's product, MLX's weights unpacked and multiplied, these kernels:

| rows | 4,096 -> 4,096 | 4,096 -> 1,024 | 4,096 -> 12,288 | 12,288 -> 4,096 | 4,096 -> 151,936   |
| 1    | 13, 46, 7      | 6, 14, 5       | 31, 148, 15     | 33, 147, 17     | 338, 1,713, 172    |
| 5    | 49, 47, 7      | 14, 16, 5      | 139, 150, 15    | 142, 149, 17    | 1,671, 1,747, 176  |
| 16   | 57, 48, 9      | 56, 16, 7      | 57, 150, 17     | 167, 149, 19    | 300, 1,752, 175    |
| 40   | 98, 47, 12     | 89, 16, 10     | 91, 149, 31     | 280, 149, 27    | 686, 1,759, 357    |
| 64   | 99, 47, 14     | 90, 16, 12     | 91, 147, 37     | 282, 150, 31    | 689, 1,761, 428    |
| 80   | -, 47, 24      | -, 17, 12      | -, 149, 39      | -, 151, 57      | -, 1,763, 323      |
| 160  | 92, 51, 24     | 99, 18, 13     | 276, 150, 52    | 265, 155, 66    | 1,925, 1,776, 459  |
| 320  | -, 54, 37      | -, 19, 23      | -, 158, 103     | -, 163, 112     | -, 1,865, 902      |

MLX multiplies weights in half precision well, but makes cuBLAS look for an algorithm at each call and records its
launches: 21 us of the host's time for 5 rows, which it has not got; a kernel takes 8. Time on the GPU, MLX's and the
kernel's: 4,096 -> 4,096 15.8 and 13.5 us, 4,096 -> 12,288 36.9 and 35.5; for 32 rows 14.4 and 16.9, 40.1 and 42.3.
Relative error compared with exact products in bfloat16: 2.1e-3 (MLX's product of one row: 3.1e-3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from ..layers import plain_layers, use_products
from ..machine import on_cuda
from .kernels import Compiled, cuda_kernel, type_name

# A call costs the host some 6 us more than MLX's product does, and steps of one row are bound by the host.
ONE_ROW_FROM_WEIGHTS = 2**25
# Of packed weights; more rows are multiplied with unpacked ones.
MOST_ROWS, MOST_ROWS_HOPPER = 160, 320
# From so many rows of them Hopper's form for many is faster, where outputs are many (WIDE), and fewer (NARROW).
ROWS_WIDE, ROWS_NARROW = 65, 129
WIDE, NARROW = 8_192, 2_048
# Of weights in half precision. For more cuBLAS takes less of the GPU's time than kernels save of the host's.
DENSE_ROWS, DENSE_ROWS_HOPPER = range(2, 17), range(2, 41)
CAPABILITY = 8  # of a GPU that multiplies bfloat16 on its tensor cores
HOPPER = 9
_HALF = (mx.bfloat16, mx.float16)
_OUTPUTS_MULTIPLE, _WORDS_MULTIPLE, _INPUTS_MULTIPLE = 32, 32, 64  # of weights; the kernels know no remainder


class Form(NamedTuple):
    """A kernel: what a block computes, and with what."""

    function: str
    numbers: tuple[int, ...]  # of the function's template, behind the weights' type
    rows: int
    outputs: int
    threads: int
    deep: int = 1  # groups of warps that share the inputs
    stages: int = 0  # of 64 inputs for each, in shared memory

    def shared_bytes(self, bits: int) -> int:
        """Bytes of shared memory that it asks for."""
        groups = self.threads // 128
        scales = groups * 4_096 if bits < 16 else 0
        return self.stages and 1_024 + self.stages * (self.deep * self.rows * 128 + groups * 512 * bits) + scales

    def takes(self, inputs: int, outputs: int, group_size: int) -> bool:
        """True if weights of this shape leave no remainder."""
        return outputs % self.outputs == inputs % (self.deep * group_size) == 0


def _few(tiles: int, stacks: int, warps: int) -> Form:
    """Warps share the inputs. More stacks, or warps that share rows instead, were no faster."""
    return Form("multiply", (tiles, stacks, warps), 8 * tiles, 16 * stacks, 32 * warps)


def _many(rows: int, tiles: int, across: int, deep: int, stages: int) -> Form:
    """Some groups of four warps have other outputs, and some other inputs: `multiply_many`."""
    numbers = (rows, tiles, across, deep, stages)
    return Form("multiply_many", numbers, rows * tiles, 64 * across, 128 * across * deep, deep, stages)


PACKED_FORMS = (_few(1, 1, 8), _few(2, 2, 8), _few(5, 2, 8), _few(8, 2, 8))
DENSE_FORMS = (_few(1, 1, 16), _few(2, 1, 16), _many(40, 1, 1, 4, 4))  # the last on Hopper
MANY, MANY_WIDE = _many(80, 1, 1, 2, 4), _many(80, 2, 2, 1, 4)
"""Each takes two seconds to compile: see `prepare`."""
_PREPARED_ROWS = (1, 2, 16, 40, 64, 80, 160)


Launch = tuple[Compiled, tuple[int, int, int], tuple[int, int, int]]
"""A kernel, its grid and its threads."""


class Kernel:
    """Products with one layer's weights, quantised or in half precision.

    Args:
        layer: one that `fits`.
        hopper: whether the GPU has the tensor cores of that generation.
    """

    def __init__(self, layer: nn.Module, *, hopper: bool = False) -> None:
        packed = "scales" in layer
        self._outputs, words = layer["weight"].shape
        self._bits: int = layer.bits if packed else 16
        self._group_size: int = layer.group_size if packed else 64
        self._names = ["weight", "scales", "biases"] if packed else ["weight"]
        self._dtype, self._hopper = layer[self._names[-1]].dtype, hopper
        self._inputs: int = words * 32 // self._bits if packed else words
        self._rows = self._range()
        self._launches: dict[int, Launch] = {}
        """By the number of rows."""

    def multiply(self, layer: nn.Module, x: mx.array) -> mx.array | None:
        """`[..., inputs]` -> `[..., outputs]`, without a bias; None where MLX's product is to be used."""
        rows = x.size // self._inputs
        if rows < self._rows.start or x.dtype != self._dtype:
            return None
        if rows >= self._rows.stop:
            return x @ self.unpack(layer).T if self._bits < 16 else None
        kernel, grid, threads = self._launches.get(rows) or self._launch(rows)
        [out] = kernel(
            inputs=[x, *(layer[name] for name in self._names)],
            grid=grid,
            threadgroup=threads,
            output_shapes=[(*x.shape[:-1], self._outputs)],
            output_dtypes=[self._dtype],
        )
        return out

    def unpack(self, layer: nn.Module) -> mx.array:
        """`[outputs, inputs]`: what `mx.dequantize` gives of packed weights, which takes twice as long."""
        [out] = _unpacking(self._dtype == mx.float16, self._bits, self._group_size)(
            inputs=[layer["weight"], layer["scales"], layer["biases"]],
            grid=(self._outputs * self._inputs // 8, 1, 1),
            threadgroup=(256, 1, 1),
            output_shapes=[(self._outputs, self._inputs)],
            output_dtypes=[self._dtype],
        )
        return out

    def prepare(self, layer: nn.Module, done: set[tuple[object, ...]]) -> None:
        """Have each form compiled that is not among what has been done, and add it."""
        for rows in _PREPARED_ROWS:
            form = (self._dtype, self._bits, self._group_size, self.form_of(rows)) if rows in self._rows else None
            if form is not None and form not in done:
                done.add(form)
                mx.eval(self.multiply(layer, mx.zeros((rows, self._inputs), self._dtype)))

    def form_of(self, rows: int) -> Form:
        """Form in which `rows` rows are multiplied: by one block of each output, or by several of the last form."""
        if self._bits == 16:
            return next(form for form in DENSE_FORMS if form.rows >= rows)
        wide = self._outputs >= WIDE
        if self._hopper and self._outputs >= NARROW and rows >= (ROWS_WIDE if wide else ROWS_NARROW):
            form = MANY_WIDE if wide and rows > MANY.rows else MANY
            if form.takes(self._inputs, self._outputs, 4 * self._group_size):
                return form
        return next((form for form in PACKED_FORMS if form.rows >= rows), PACKED_FORMS[-1])

    def _range(self) -> range:
        """The numbers of rows that have a form."""
        if self._bits == 16:
            takes = DENSE_FORMS[-1].takes(self._inputs, self._outputs, self._group_size)
            return DENSE_ROWS_HOPPER if self._hopper and takes else DENSE_ROWS
        fewest = 1 if self._inputs * self._outputs >= ONE_ROW_FROM_WEIGHTS else 2
        many = self.form_of(MOST_ROWS_HOPPER) in (MANY, MANY_WIDE)
        return range(fewest, 1 + (MOST_ROWS_HOPPER if many else MOST_ROWS))

    def _launch(self, rows: int) -> Launch:
        form = self.form_of(rows)
        grid = -(-rows // form.rows) * form.threads, self._outputs // form.outputs, 1
        kernel = _product(self._dtype == mx.float16, self._bits, self._group_size, form)
        self._launches[rows] = kernel, grid, (form.threads, 1, 1)
        return self._launches[rows]


class SharedKernel:
    """Products of one input with the weights of several layers in half precision, in one launch.

    Args:
        layers: with a kernel each, for the same inputs.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._kernels: list[Kernel] = [layer.kernel for layer in layers]
        self._launches: dict[int, Launch] = {}

    def multiply(self, x: mx.array) -> list[mx.array] | None:
        """`[..., outputs]` of each layer, without a bias; None where each layer's own product is to be used."""
        first = self._kernels[0]
        rows = x.size // first._inputs
        if x.dtype != first._dtype or not all(rows in each._rows for each in self._kernels):
            return None
        kernel, grid, threads = self._launches.get(rows) or self._launch(rows)
        return kernel(
            inputs=[x, *(layer["weight"] for layer in self._layers)],
            grid=grid,
            threadgroup=threads,
            output_shapes=[(*x.shape[:-1], each._outputs) for each in self._kernels],
            output_dtypes=[first._dtype] * len(self._kernels),
        )

    def _launch(self, rows: int) -> Launch:
        first = self._kernels[0]
        form, outputs = first.form_of(rows), tuple(each._outputs for each in self._kernels)
        grid = -(-rows // form.rows) * form.threads, sum(outputs) // form.outputs, 1
        kernel = _shared_product(first._dtype == mx.float16, form, outputs)
        self._launches[rows] = kernel, grid, (form.threads, 1, 1)
        return self._launches[rows]


def shared_kernel_of(layers: Sequence[nn.Module]) -> SharedKernel | None:
    """The kernel for all of these layers, if there is one."""
    kernels = [getattr(layer, "kernel", None) for layer in layers]
    if len(layers) < 2 or not all(isinstance(each, Kernel) and each._bits == 16 for each in kernels):
        return None
    if len({(each._inputs, each._dtype) for each in kernels if each is not None}) > 1:
        return None
    return SharedKernel(layers)


def prepare(model: nn.Module) -> int:
    """Have the kernels of a model's layers compiled for any number of rows: the first step that needs one would wait.

    Returns:
        how many there are.
    """
    done: set[tuple[object, ...]] = set()
    for layer in model.modules():
        kernel = getattr(layer, "kernel", None)
        if isinstance(kernel, Kernel):
            kernel.prepare(layer, done)
    return len(done)


def kernel_of(layer: nn.Module) -> Kernel | None:
    """The kernel for a layer on this GPU, if there is one."""
    if not on_cuda():
        return None
    capability = int(mx.device_info()["compute_capability_major"])
    return Kernel(layer, hopper=capability == HOPPER) if capability >= CAPABILITY and fits(layer) else None


def fits(layer: nn.Module) -> bool:
    """True if the kernels know a layer's shape and types."""
    weight = layer["weight"]
    if weight.ndim != 2 or weight.shape[0] % _OUTPUTS_MULTIPLE:
        return False
    if "scales" not in layer:
        return weight.dtype in _HALF and weight.shape[1] % _INPUTS_MULTIPLE == 0
    return (
        layer.mode == "affine"
        and layer.bits in (4, 8)
        and layer["scales"].dtype in _HALF
        and weight.shape[1] % _WORDS_MULTIPLE == 0
    )


@cache
def _product(half: bool, bits: int, group_size: int, form: Form) -> Compiled:
    name = "_".join(map(str, (form.function, int(half), bits, group_size, *form.numbers)))
    numbers = ", ".join(map(str, (type_name(half), bits, group_size, *form.numbers)))
    packed = bits < 16
    words, others = ("w", "scales, biases") if packed else ("reinterpret_cast<const uint32_t*>(w)", "nullptr, nullptr")
    source = (
        f"localai_shim::{form.function}<{numbers}>(x, x_shape, x_ndim, {words}, {others}, out, w_shape[0], blockIdx.y);"
    )
    inputs = ["x", "w", "scales", "biases"] if packed else ["x", "w"]
    return cuda_kernel(__file__, name, inputs, ["out"], source, shared_memory=form.shared_bytes(bits))


@cache
def _shared_product(half: bool, form: Form, outputs: tuple[int, ...]) -> Compiled:
    """Blocks of one layer behind those of the other."""
    begins = [sum(outputs[:i]) // form.outputs for i in range(len(outputs))]

    def chosen(values: Sequence[object]) -> str:
        made = str(values[-1])
        for begin, value in zip(begins[:0:-1], values[-2::-1], strict=True):
            made = f"(b < {begin} ? {value} : {made})"
        return made

    places = range(len(outputs))
    w, out, size, block = map(
        chosen,
        ([f"w{i}" for i in places], [f"out{i}" for i in places], outputs, [f"b - {begin}" for begin in begins]),
    )
    numbers = ", ".join(map(str, (type_name(half), 16, 64, *form.numbers)))
    source = (
        "const int b = blockIdx.y;\n"
        f"localai_shim::{form.function}<{numbers}>(x, x_shape, x_ndim, reinterpret_cast<const uint32_t*>({w}), "
        f"nullptr, nullptr, {out}, {size}, {block});"
    )
    name = "_".join(map(str, ("shared", form.function, int(half), *form.numbers, *outputs)))
    inputs, made = ["x", *(f"w{i}" for i in places)], [f"out{i}" for i in places]
    return cuda_kernel(__file__, name, inputs, made, source, shared_memory=form.shared_bytes(16))


@cache
def _unpacking(half: bool, bits: int, group_size: int) -> Compiled:
    source = f"localai_shim::unpack<{type_name(half)}, {bits}, {group_size}>(w, scales, biases, out);"
    return cuda_kernel(__file__, f"unpacking_{half:d}_{bits}_{group_size}", ["w", "scales", "biases"], ["out"], source)


# -- layers ----------------------------------------------------------------------------------------------------------

# What MLX 0.32.4 does on CUDA (QuantizedMatmul::eval_gpu), and Metal and the CPU do not; measured on an H100:
# * The rows of a product are the input's last but one dimension; for every dimension before it the product is repeated.
#   A decoding batch is `[rows, 1, features]`, so weights are read once per row. Here they are `[rows, features]`.
# * Fewer than TILE_ROWS rows take a kernel for vectors, which reads the weights once per row, too. Seven rows of a wide
#   layer take 2 to 7 times as long as eight, so they are padded with zeros.
# * Its products are bound by arithmetic early: from some hundred rows on it is faster to unpack the weights and to
#   multiply with these: 2,048 tokens of an 8B model take 64 ms instead of 233, 256 take 29 instead of 40.
# * It fails for an input of one dimension.
# So layers of the shapes that `Kernel` knows go through its kernels; what follows here is for the others.
# Layers of experts (gather_qmm) are not concerned: each row reads weights of its own choice.
TILE_ROWS = 8
# Rows times outputs from which eight rows are faster, padding included. Each product waited for the one before it, for
# 11 layers of 1,024 to 151,936 outputs; the number of inputs does not matter.
PAD_FROM_SIZE = 28_000
UNPACK_FROM_ROWS = 128


class BatchedQuantizedLinear(nn.QuantizedLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedLinear`, with all rows of the input in one product."""

    kernel: Kernel | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = _multiply(self, x)
        return y + self["bias"] if "bias" in self else y


class BatchedQuantizedShare(nn.QuantizedShardedToAllLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedShardedToAllLinear`, likewise: a process's share of the inputs, summed over all processes."""

    kernel: Kernel | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        y = mx.distributed.all_sum(_multiply(self, x), group=self.group)
        return y + self["bias"] if "bias" in self else y


class BatchedQuantizedEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """`mlx.nn.QuantizedEmbedding`, whose use as an output layer has all rows in one product."""

    kernel: Kernel | None = None

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
        layer.kernel = kernel_of(layer)
    return len(layers)


def _multiply(layer: nn.Module, x: mx.array) -> mx.array:
    """`[..., inputs]` -> `[..., outputs]`, without a bias."""
    kernel: Kernel | None = layer.kernel
    if kernel is not None and (y := kernel.multiply(layer, x)) is not None:
        return y
    features, outputs = x.shape[-1], layer["weight"].shape[0]
    rows, scales = x.size // features, layer["scales"]
    # These kernels are there for half precision only, and were measured for these widths.
    known = layer.mode == "affine" and layer.bits in (4, 8) and x.dtype in _HALF
    if known and rows >= UNPACK_FROM_ROWS and x.dtype == scales.dtype:
        weight = mx.dequantize(layer["weight"], scales, layer["biases"], group_size=layer.group_size, bits=layer.bits)
        return x @ weight.T
    if known and 1 < rows < TILE_ROWS and rows * outputs >= PAD_FROM_SIZE:
        y = _packed_product(layer, mx.pad(x.reshape(rows, features), [(0, TILE_ROWS - rows), (0, 0)]))[:rows]
    elif x.ndim == 1 or rows > x.shape[-2]:
        y = _packed_product(layer, x.reshape(rows, features))
    else:
        return _packed_product(layer, x)
    return y.reshape(*x.shape[:-1], outputs)


def _packed_product(layer: nn.Module, x: mx.array) -> mx.array:
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
