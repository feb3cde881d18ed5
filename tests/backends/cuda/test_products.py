"""The CUDA kernels of products: which they are chosen for, and what they compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.nn.layers.distributed import shard_linear

from localai_shim.backends.cuda import products as cuda_products
from localai_shim.backends.cuda.kernels import include_line
from localai_shim.backends.cuda.products import (
    DENSE_FORMS,
    DENSE_ROWS_HOPPER,
    MANY,
    MANY_WIDE,
    MOST_ROWS,
    ONE_ROW_FROM_WEIGHTS,
    PACKED_FORMS,
    Form,
    Kernel,
    batch_quantised_layers,
    fits,
    kernel_of,
    prepare,
    shared_kernel_of,
    use_dense_kernels,
)
from localai_shim.backends.layers import FewRowsEmbedding, FewRowsLinear
from localai_shim.backends.machine import on_cuda
from tests.graphs import operations
from tests.samples import exhaustive

only_on_cuda = pytest.mark.skipif(not on_cuda(), reason="a kernel for CUDA")
INPUTS, OUTPUTS = 512, 96


def quantised_layer(
    bits: int = 4, group_size: int = 64, dtype: Any = mx.bfloat16, inputs: int = INPUTS, outputs: int = OUTPUTS
) -> nn.QuantizedLinear:
    mx.random.seed(bits + group_size)
    layer = nn.QuantizedLinear(inputs, outputs, bias=False, group_size=group_size, bits=bits)
    layer.set_dtype(dtype)
    return layer


def exact(layer: nn.QuantizedLinear, x: mx.array) -> mx.array:
    """The product in float32, on the CPU: a GPU would round float32 to 10 bits."""
    packed = [
        layer[name] if name == "weight" else layer[name].astype(mx.float32) for name in ("weight", "scales", "biases")
    ]
    with mx.stream(mx.cpu):
        weight = mx.dequantize(*packed, group_size=layer.group_size, bits=layer.bits)
        return x.astype(mx.float32) @ weight.T


def distance(a: mx.array, b: mx.array) -> float:
    return float(mx.linalg.norm(a.astype(mx.float32) - b) / mx.linalg.norm(b))


# -- which products ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
def test_four_and_eight_bits_in_half_precision_have_a_kernel(bits: int, group_size: int, dtype: Any) -> None:
    assert fits(quantised_layer(bits, group_size, dtype))


@pytest.mark.parametrize(
    "layer",
    [
        quantised_layer(dtype=mx.float32),
        quantised_layer(bits=6),
        quantised_layer(outputs=OUTPUTS + 16),
        quantised_layer(inputs=INPUTS + 128),
        nn.QuantizedLinear(INPUTS, OUTPUTS, bias=False, mode="mxfp4"),
    ],
    ids=["float32", "six bits", "outputs that leave a remainder", "inputs that leave a remainder", "mxfp4"],
)
def test_layers_of_unknown_shape_keep_mlxs_product(layer: nn.QuantizedLinear) -> None:
    assert not fits(layer)
    assert kernel_of(layer) is None


@pytest.mark.skipif(on_cuda(), reason="there is a kernel there")
def test_there_is_no_kernel_on_another_back_end() -> None:
    layer = quantised_layer()
    batch_quantised_layers(layer)
    assert fits(layer) and kernel_of(layer) is layer.kernel is None


def test_a_gpu_without_such_tensor_cores_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_products, "on_cuda", lambda: True)
    for capability in (7, 8, 9, 12):
        monkeypatch.setattr(mx, "device_info", lambda: {"compute_capability_major": capability})  # noqa: B023
        assert (kernel_of(quantised_layer()) is not None) == (capability >= 8)


def shaped(inputs: int, outputs: int, bits: int = 4, group_size: int = 64) -> nn.QuantizedLinear:
    """A layer of this shape, whose weights nobody computes."""
    layer = quantised_layer(bits, group_size)
    layer.weight = mx.zeros((outputs, inputs * bits // 32), mx.uint32)
    layer.scales = layer.biases = mx.zeros((outputs, inputs // group_size), mx.bfloat16)
    return layer


def test_every_number_of_rows_has_the_smallest_form_that_holds_it() -> None:
    kernel = Kernel(quantised_layer())
    sizes = [form.rows for form in PACKED_FORMS]
    assert sizes == sorted(sizes)
    for rows in range(1, MOST_ROWS + 1):
        held = kernel.form_of(rows).rows
        assert held == (min(size for size in sizes if size >= rows) if rows <= sizes[-1] else sizes[-1])
    dense = Kernel(linear())
    assert [dense.form_of(rows).rows for rows in DENSE_ROWS_HOPPER] == [8] * 7 + [16] * 8 + [40] * 24


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows", "form"),
    [
        (4_096, 12_288, 64, PACKED_FORMS[-1]),
        (4_096, 12_288, 65, MANY),
        (4_096, 12_288, 80, MANY),
        (4_096, 12_288, 81, MANY_WIDE),
        (4_096, 12_288, 320, MANY_WIDE),
        (12_288, 4_096, 128, PACKED_FORMS[-1]),
        (12_288, 4_096, 160, MANY),
        (4_096, 1_024, 160, PACKED_FORMS[-1]),
        (11_008 - 256, 4_096, 160, MANY),
        (11_008, 4_096, 160, PACKED_FORMS[-1]),  # half of its inputs is no multiple of four groups
        (11_008, 8_192, 160, MANY_WIDE),  # which has no need of halves
        (4_096, 12_288 + 32, 160, PACKED_FORMS[-1]),
    ],
)
def test_hopper_has_forms_for_many_rows(inputs: int, outputs: int, rows: int, form: Form) -> None:
    layer = shaped(inputs, outputs)
    assert Kernel(layer, hopper=True).form_of(rows) == form
    assert Kernel(layer).form_of(rows) in PACKED_FORMS


@pytest.mark.parametrize(
    ("inputs", "outputs", "hopper", "most"),
    [(512, 128, True, 40), (512, 128, False, 16), (512, 96, True, 16), (512 - 64, 128, True, 16)],
)
def test_dense_products_of_more_rows_are_left_to_mlx(inputs: int, outputs: int, hopper: bool, most: int) -> None:
    layer = linear(inputs, outputs)
    assert Kernel(layer, hopper=hopper)._rows == range(2, most + 1)


def test_forms_fit_into_a_blocks_memory() -> None:
    for bits, forms in ((4, (MANY, MANY_WIDE)), (8, (MANY, MANY_WIDE)), (16, DENSE_FORMS)):
        for form in forms:
            assert form.shared_bytes(bits) <= 227 * 1_024
            assert form.threads <= 512
    assert all(form.shared_bytes(4) == 0 for form in PACKED_FORMS)


def linear(inputs: int = INPUTS, outputs: int = OUTPUTS, dtype: Any = mx.bfloat16, bias: bool = False) -> nn.Linear:
    mx.random.seed(inputs)
    layer = nn.Linear(inputs, outputs, bias=bias)
    layer.set_dtype(dtype)
    return layer


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        (linear(), True),
        (linear(dtype=mx.float16), True),
        (nn.Embedding(OUTPUTS, INPUTS), False),
        (linear(dtype=mx.float32), False),
        (linear(outputs=OUTPUTS + 16), False),
        (linear(inputs=INPUTS + 32), False),
    ],
    ids=["bfloat16", "float16", "float32 embedding", "float32", "outputs that leave a remainder", "inputs that do"],
)
def test_weights_in_half_precision_have_a_kernel(layer: nn.Module, found: bool) -> None:
    assert fits(layer) == found


class Recorder:
    """In the place of a kernel: keeps how it was launched, and gives MLX's product."""

    def __init__(self, form: Any, bits: int, group_size: int) -> None:
        self.form, self.bits = form, bits
        self.how = {"transpose": True, "bits": bits, "group_size": group_size}
        self.launches: list[dict[str, Any]] = []

    def __call__(self, inputs: list[mx.array], **launch: Any) -> list[mx.array]:
        self.launches.append(launch)
        return [self.product(inputs)]

    def product(self, inputs: list[mx.array]) -> mx.array:
        return mx.quantized_matmul(*inputs, **self.how) if self.bits < 16 else inputs[0] @ inputs[1].T


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    made: list[Recorder] = []

    def product(half: bool, bits: int, group_size: int, form: Any) -> Recorder:
        made.append(Recorder(form, bits, group_size))
        return made[-1]

    monkeypatch.setattr(cuda_products, "_product", product)
    return made


@pytest.mark.parametrize("shape", [(2, 1), (1, 5), (3, 4), (40,), (64, 1), (65, 1), (32, 4), (2, 2, 3)], ids=str)
def test_blocks_cover_all_rows_and_outputs_and_no_more(shape: tuple[int, ...], recorders: list[Recorder]) -> None:
    layer = quantised_layer()
    batch_quantised_layers(layer)
    layer.kernel = Kernel(layer)
    x = mx.random.normal((*shape, INPUTS)).astype(mx.bfloat16)
    result = layer(x)
    [recorder] = recorders
    [launch] = recorder.launches
    rows = x.size // INPUTS
    blocks = [launch["grid"][0] / launch["threadgroup"][0], launch["grid"][1]]
    assert blocks[0] * recorder.form.rows - rows in range(recorder.form.rows)
    assert blocks[1] * recorder.form.outputs == OUTPUTS
    assert launch["threadgroup"] == (recorder.form.threads, 1, 1)
    assert launch["output_shapes"] == [(*shape, OUTPUTS)]
    assert (result.shape, result.dtype) == ((*shape, OUTPUTS), mx.bfloat16)
    layer(x + 1)
    assert len(recorders) == 1  # what was chosen for a number of rows is kept


def test_one_row_of_a_small_layer_and_other_types_keep_mlxs_product(recorders: list[Recorder]) -> None:
    layer = quantised_layer()
    kernel = Kernel(layer)
    assert kernel.multiply(layer, mx.zeros((1, 1, INPUTS), mx.bfloat16)) is None
    assert kernel.multiply(layer, mx.zeros((4, 1, INPUTS), mx.float32)) is None
    assert kernel.multiply(layer, mx.zeros((4, 1, INPUTS), mx.float16)) is None
    assert not recorders


def test_one_row_of_a_large_layer_has_the_kernel(recorders: list[Recorder]) -> None:
    layer = shaped(INPUTS, ONE_ROW_FROM_WEIGHTS // INPUTS)
    result = Kernel(layer).multiply(layer, mx.zeros((1, 1, INPUTS), mx.bfloat16))
    assert result is not None and [recorder.form for recorder in recorders] == [PACKED_FORMS[0]]


def test_many_rows_are_multiplied_with_unpacked_weights(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpacking(half: bool, bits: int, group_size: int) -> Any:
        return lambda inputs, **launch: [mx.dequantize(*inputs, group_size=group_size, bits=bits)]

    monkeypatch.setattr(cuda_products, "_unpacking", unpacking)
    layer = quantised_layer()
    x = mx.random.normal((MOST_ROWS + 1, INPUTS)).astype(mx.bfloat16)
    result = Kernel(layer).multiply(layer, x)
    assert result is not None and distance(result, exact(layer, x)) < 1e-2
    assert not recorders


def test_a_dense_layer_has_the_kernel_for_few_rows_and_mlxs_product_otherwise(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, embedding = linear(bias=True), nn.Embedding(OUTPUTS, INPUTS)
    embedding.set_dtype(mx.bfloat16)
    x = mx.random.normal((40, 1, INPUTS)).astype(mx.bfloat16)
    expected, tokens = layer(x), embedding.as_linear(x)
    monkeypatch.setattr(
        "localai_shim.backends.cuda.products.kernel_of", lambda layer: Kernel(layer) if fits(layer) else None
    )
    assert use_dense_kernels(nn.Sequential(layer, embedding, linear(dtype=mx.float32))) == 2
    assert (type(layer), type(embedding)) == (FewRowsLinear, FewRowsEmbedding)
    for rows in (1, 2, 9, 16, 17, 40):
        assert distance(layer(x[:rows]), expected[:rows].astype(mx.float32)) < 1e-2, rows
        assert distance(embedding.as_linear(x[:rows]), tokens[:rows].astype(mx.float32)) < 1e-2, rows
    assert [len(recorder.launches) for recorder in recorders] == [1] * 6  # 2, 9 and 16 rows of each
    assert {recorder.form for recorder in recorders} == set(DENSE_FORMS[:2])
    before = len(recorders)
    assert layer(x[:4].astype(mx.float32)).dtype == mx.float32  # another type than the weights'
    assert len(recorders) == before


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("sharding", ["all-to-sharded", "sharded-to-all"])
def test_a_dense_layer_of_several_processes_has_the_kernel(
    sharding: str, bias: bool, recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of one: its share is everything."""
    whole = linear(bias=bias)
    x = mx.random.normal((40, 1, INPUTS)).astype(mx.bfloat16)
    expected = whole(x).astype(mx.float32)
    monkeypatch.setattr("localai_shim.backends.cuda.products.kernel_of", Kernel)
    layer = shard_linear(whole, sharding, group=mx.distributed.init())
    use_dense_kernels(layer)
    for rows in (1, 9, 40):
        assert distance(layer(x[:rows]), expected[:rows]) < 1e-2, rows
    assert len(recorders) == 1  # 9 rows


def test_one_row_of_a_dense_layer_gets_its_bias_behind_mlxs_kernel_for_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX has that kernel without a bias only; with one cuBLAS looks for an algorithm at each call."""
    layer = linear(bias=True)
    x = mx.random.normal((9, 1, 1, INPUTS)).astype(mx.bfloat16)
    expected = layer(x[0]).astype(mx.float32)
    monkeypatch.setattr("localai_shim.backends.cuda.products.kernel_of", Kernel)
    use_dense_kernels(layer)
    assert distance(layer(x[0]), expected) < 1e-2
    assert {"Matmul", "Add"} <= set(operations(layer(x[0]))) and "AddMM" not in operations(layer(x[0]))
    assert "AddMM" in operations(layer(mx.tile(x, (9, 1, 1, 1)))), "many rows are one product"


def test_each_form_is_compiled_once_before_the_first_step(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = [linear(bias=True), linear()]
    packed = [quantised_layer(), shaped(INPUTS, 8_192), quantised_layer(bits=8)]
    model = nn.Sequential(*dense, *packed, linear(dtype=mx.float32))
    for layer in (*dense, *packed):
        layer.kernel = Kernel(layer, hopper=True)
    monkeypatch.setattr(
        Recorder, "product", lambda self, inputs: inputs[0]
    )  # a CPU takes seconds for that of many rows
    assert prepare(model) == len(recorders) == 2 + 4 + 2 + 4
    assert all(len(recorder.launches) == 1 for recorder in recorders)
    assert {recorder.form for recorder in recorders} == {*PACKED_FORMS, *DENSE_FORMS[:2], MANY, MANY_WIDE}
    assert prepare(linear()) == 0


def test_weights_that_a_checkpoint_has_the_other_way_round_are_turned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, turned = linear(dtype=mx.float16), linear(dtype=mx.float16)
    turned.weight = mx.contiguous(layer["weight"].T).T
    mx.eval(turned.weight)
    assert not np.array(turned.weight, copy=False).flags.c_contiguous
    monkeypatch.setattr("localai_shim.backends.cuda.products.kernel_of", Kernel)
    use_dense_kernels(turned)
    assert np.array(turned.weight, copy=False).flags.c_contiguous
    assert mx.array_equal(turned.weight, layer.weight)


def test_subclasses_of_a_dense_layer_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(nn.Linear):  # type: ignore[misc]
        pass

    monkeypatch.setattr("localai_shim.backends.cuda.products.kernel_of", Kernel)
    assert use_dense_kernels(Other(INPUTS, OUTPUTS)) == 0


def test_the_sources_are_there_and_short() -> None:
    """MLX copies a kernel's source for each call; the file that it includes is read once."""
    for kernel in ("products", "decode_attention", "adapters"):
        line = include_line(import_module(f"localai_shim.backends.cuda.{kernel}").__file__ or "")
        [path] = re.findall(r'#include "(.*)"', line)
        assert "namespace localai_shim" in Path(path).read_text()
        assert len(line) < 1_000


# -- what they compute ------------------------------------------------------------------------------------------------


@only_on_cuda
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [pytest.param(32, marks=exhaustive), 64, pytest.param(128, marks=exhaustive)])
@pytest.mark.parametrize("dtype", [mx.bfloat16, pytest.param(mx.float16, marks=exhaustive)], ids=str)
def test_a_product_is_as_exact_as_its_type(bits: int, group_size: int, dtype: Any) -> None:
    for outputs in (1_024, 8_192):
        layer = quantised_layer(bits, group_size, dtype, inputs=1_024, outputs=outputs)
        batch_quantised_layers(layer)
        assert layer.kernel is not None
        for rows in (1, 2, 7, 8, 9, 16, 17, 33, 40, 41, 64, 65, 80, 81, 100, 128, 160, 161, 300, 330):
            x = mx.random.normal((rows, 1, 1_024)).astype(dtype)
            expected, result = exact(layer, x), layer(x)
            assert (result.shape, result.dtype) == ((rows, 1, outputs), dtype)
            assert distance(result, expected) < (4e-3 if dtype == mx.bfloat16 else 5e-4), rows


@only_on_cuda
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
def test_a_dense_product_is_as_exact_as_its_type(dtype: Any) -> None:
    layer = linear(1_024, 1_024, dtype, bias=True)
    weight, bias = (layer[name].astype(mx.float32) for name in ("weight", "bias"))
    assert use_dense_kernels(layer) == 1
    for rows in (1, 2, 7, 8, 9, 16, 17, 33, 40, 41):
        x = mx.random.normal((rows, 1, 1_024)).astype(dtype)
        with mx.stream(mx.cpu):
            expected = x.astype(mx.float32) @ weight.T + bias
        assert distance(layer(x), expected) < (4e-3 if dtype == mx.bfloat16 else 5e-4), rows


def dense_layers(inputs: int, outputs: Sequence[int], dtype: Any = mx.bfloat16) -> list[Any]:
    layers = [linear(inputs, each, dtype, bias=False) for each in outputs]
    for layer in layers:
        layer.kernel = Kernel(layer, hopper=True)
    return layers


@only_on_cuda
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("outputs", [(1_024, 256, 256), (512, 512), (96, 32)], ids=str)
def test_layers_that_read_the_same_have_one_launch_and_the_same_products(outputs: tuple[int, ...], dtype: Any) -> None:
    layers = [linear(1_024, each, dtype, bias=False) for each in outputs]
    for layer in layers:
        use_dense_kernels(layer)
    shared = shared_kernel_of(layers)
    assert shared is not None
    for rows in (2, 8, 9, 16, 17, 33, 40):
        x = mx.random.normal((rows, 1, 1_024)).astype(dtype)
        together, alone = shared.multiply(x), [layer(x) for layer in layers]
        if together is not None:
            assert all(mx.array_equal(*both) for both in zip(together, alone, strict=True))
        else:
            assert rows > 16  # which no kernel of this GPU's takes


@pytest.mark.parametrize("rows", [4, 16, 17, 40])
def test_blocks_of_layers_that_read_the_same_follow_each_other(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def kernel(name: str, inputs: list[str], outs: list[str], source: str, header: str, **more: Any) -> Any:
        def run(**launch: Any) -> list[mx.array]:
            made.append({"source": source, **launch})
            return [mx.zeros(shape) for shape in launch["output_shapes"]]

        return run

    monkeypatch.setattr(mx.fast, "cuda_kernel", kernel)
    cuda_products._shared_product.cache_clear()
    try:
        layers = dense_layers(512, (256, 128, 64))
        shared = shared_kernel_of(layers)
        assert shared is not None
        result = shared.multiply(mx.zeros((rows, 1, 512), mx.bfloat16))
        assert result is not None and [each.shape for each in result] == [(rows, 1, n) for n in (256, 128, 64)]
        form = layers[0].kernel.form_of(rows)
        [launch] = made
        assert launch["grid"][1] * form.outputs == 448 and launch["inputs"][1:] == [each["weight"] for each in layers]
        first, second = 256 // form.outputs, 384 // form.outputs
        assert f"(b < {first} ? w0 : (b < {second} ? w1 : w2))" in launch["source"]
        assert f"(b < {first} ? b - 0 : (b < {second} ? b - {first} : b - {second}))" in launch["source"]
        assert shared.multiply(mx.zeros((41, 512), mx.bfloat16)) is None
        assert shared.multiply(mx.zeros((1, 512), mx.bfloat16)) is None
        assert shared.multiply(mx.zeros((4, 512), mx.float32)) is None
    finally:
        cuda_products._shared_product.cache_clear()


def test_layers_of_other_inputs_types_or_kinds_share_no_kernel() -> None:
    layers = dense_layers(512, (64, 64))
    assert shared_kernel_of(layers) is not None
    assert shared_kernel_of(layers[:1]) is None
    assert shared_kernel_of([*layers, *dense_layers(256, (64,))]) is None
    assert shared_kernel_of([*layers, *dense_layers(512, (64,), mx.float16)]) is None
    assert shared_kernel_of([*layers, linear(512, 64, mx.bfloat16, bias=False)]) is None, "one has no kernel"
    packed = quantised_layer(outputs=64)
    packed.kernel = Kernel(packed)
    assert shared_kernel_of([*layers, packed]) is None


@only_on_cuda
def test_each_row_is_what_it_is_alone() -> None:
    """Its neighbours have no part in it."""
    layer = quantised_layer(outputs=8_192)
    batch_quantised_layers(layer)
    for rows, some in ((40, (0, 7, 8, 39)), (81, (0, 79, 80))):
        x = mx.random.normal((rows, INPUTS)).astype(mx.bfloat16)
        together = layer(x)
        for row in some:
            mixed = mx.where(mx.arange(rows)[:, None] == row, x, mx.array(mx.inf, mx.bfloat16))
            assert mx.array_equal(layer(mixed)[row], together[row])


@only_on_cuda
def test_rows_that_are_not_contiguous_and_one_dimension() -> None:
    layer = quantised_layer(outputs=1_024)
    batch_quantised_layers(layer)
    x = mx.random.normal((INPUTS, 6)).astype(mx.bfloat16).T
    assert distance(layer(x), exact(layer, x)) < 4e-3
    assert distance(layer(x[2]), exact(layer, x[2])) < 4e-3
    assert cuda_products._multiply(layer, x[2:4, None]).shape == (2, 1, 1_024)
