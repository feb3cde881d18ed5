"""The CUDA kernels of quantised layers: which products they are chosen for, and what they compute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from localai_shim.adapters import cuda_quantised, quantised
from localai_shim.adapters.backend import on_cuda
from localai_shim.adapters.cuda_quantised import (
    FORMS,
    MOST_ROWS,
    ONE_ROW_FROM_WEIGHTS,
    Kernel,
    fits,
    form_of,
    kernel_of,
)
from localai_shim.adapters.quantised import batch_quantised_layers
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
def test_other_layers_keep_mlxs_product(layer: nn.QuantizedLinear) -> None:
    assert not fits(layer)
    assert kernel_of(layer) is None


@pytest.mark.skipif(on_cuda(), reason="there is a kernel there")
def test_there_is_no_kernel_on_another_back_end() -> None:
    layer = quantised_layer()
    batch_quantised_layers(layer, enabled=True)
    assert fits(layer) and kernel_of(layer) is layer.kernel is None


def test_a_gpu_without_such_tensor_cores_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_quantised, "on_cuda", lambda: True)
    for capability in (7, 8, 9, 12):
        monkeypatch.setattr(mx, "device_info", lambda: {"compute_capability_major": capability})  # noqa: B023
        assert (kernel_of(quantised_layer()) is not None) == (capability >= 8)


def test_every_number_of_rows_has_the_smallest_form_that_holds_it() -> None:
    sizes = [8 * form.tiles for form in FORMS]
    assert sizes == sorted(sizes)
    for rows in range(1, MOST_ROWS + 1):
        held = 8 * form_of(rows).tiles
        assert held == (min(size for size in sizes if size >= rows) if rows <= sizes[-1] else sizes[-1])


class Recorder:
    """In the place of a kernel: keeps how it was launched, and gives MLX's product."""

    def __init__(self, form: Any, bits: int, group_size: int) -> None:
        self.form, self.how = form, {"transpose": True, "bits": bits, "group_size": group_size}
        self.launches: list[dict[str, Any]] = []

    def __call__(self, inputs: list[mx.array], **launch: Any) -> list[mx.array]:
        self.launches.append(launch)
        return [mx.quantized_matmul(*inputs, **self.how)]


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    made: list[Recorder] = []

    def product(half: bool, bits: int, group_size: int, form: Any) -> Recorder:
        made.append(Recorder(form, bits, group_size))
        return made[-1]

    monkeypatch.setattr(cuda_quantised, "_product", product)
    return made


@pytest.mark.parametrize("shape", [(2, 1), (1, 5), (3, 4), (40,), (64, 1), (65, 1), (32, 4), (2, 2, 3)], ids=str)
def test_blocks_cover_all_rows_and_outputs_and_no_more(shape: tuple[int, ...], recorders: list[Recorder]) -> None:
    layer = quantised_layer()
    batch_quantised_layers(layer, enabled=True)
    layer.kernel = Kernel(layer)
    x = mx.random.normal((*shape, INPUTS)).astype(mx.bfloat16)
    result = layer(x)
    [recorder] = recorders
    [launch] = recorder.launches
    rows = x.size // INPUTS
    blocks = [launch["grid"][0] / launch["threadgroup"][0], launch["grid"][1]]
    assert blocks[0] * 8 * recorder.form.tiles - rows in range(8 * recorder.form.tiles)
    assert blocks[1] * 16 * recorder.form.stacks == OUTPUTS
    assert launch["threadgroup"] == (32 * recorder.form.warps, 1, 1)
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
    layer = quantised_layer()
    layer.weight = mx.zeros((ONE_ROW_FROM_WEIGHTS // INPUTS, INPUTS // 8), mx.uint32)
    layer.scales = layer.biases = mx.zeros((len(layer.weight), INPUTS // 64), mx.bfloat16)
    result = Kernel(layer).multiply(layer, mx.zeros((1, 1, INPUTS), mx.bfloat16))
    assert result is not None and [recorder.form for recorder in recorders] == [FORMS[0]]


def test_many_rows_are_multiplied_with_unpacked_weights(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpacking(half: bool, bits: int, group_size: int) -> Any:
        return lambda inputs, **launch: [mx.dequantize(*inputs, group_size=group_size, bits=bits)]

    monkeypatch.setattr(cuda_quantised, "_unpacking", unpacking)
    layer = quantised_layer()
    x = mx.random.normal((MOST_ROWS + 1, INPUTS)).astype(mx.bfloat16)
    result = Kernel(layer).multiply(layer, x)
    assert result is not None and distance(result, exact(layer, x)) < 1e-2
    assert not recorders


def test_the_sources_are_there_and_short() -> None:
    """MLX copies a kernel's source for each call; the file that it includes is read once."""
    for kernel in ("cuda_quantised", "cuda_decode"):
        module = __import__(f"localai_shim.adapters.{kernel}", fromlist=["_HEADER"])
        [path] = re.findall(r'#include "(.*)"', module._HEADER)
        assert "namespace localai_shim" in Path(path).read_text()
        assert len(module._HEADER) < 1_000


# -- what they compute ------------------------------------------------------------------------------------------------


@only_on_cuda
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [pytest.param(32, marks=exhaustive), 64, pytest.param(128, marks=exhaustive)])
@pytest.mark.parametrize("dtype", [mx.bfloat16, pytest.param(mx.float16, marks=exhaustive)], ids=str)
def test_a_product_is_as_exact_as_its_type(bits: int, group_size: int, dtype: Any) -> None:
    layer = quantised_layer(bits, group_size, dtype, outputs=1_024)
    batch_quantised_layers(layer)
    assert layer.kernel is not None
    for rows in (1, 2, 7, 8, 9, 16, 17, 33, 40, 41, 64, 65, 100, 128, 160, 161, 300):
        x = mx.random.normal((rows, 1, INPUTS)).astype(dtype)
        expected, result = exact(layer, x), layer(x)
        assert (result.shape, result.dtype) == ((rows, 1, 1_024), dtype)
        assert distance(result, expected) < (4e-3 if dtype == mx.bfloat16 else 5e-4), rows


@only_on_cuda
def test_each_row_is_what_it_is_alone() -> None:
    """Its neighbours have no part in it."""
    layer = quantised_layer(outputs=1_024)
    batch_quantised_layers(layer)
    x = mx.random.normal((40, INPUTS)).astype(mx.bfloat16)
    together = layer(x)
    for row in (0, 7, 8, 39):
        mixed = mx.where(mx.arange(40)[:, None] == row, x, mx.array(mx.inf, mx.bfloat16))
        assert mx.array_equal(layer(mixed)[row], together[row])


@only_on_cuda
def test_rows_that_are_not_contiguous_and_one_dimension() -> None:
    layer = quantised_layer(outputs=1_024)
    batch_quantised_layers(layer)
    x = mx.random.normal((INPUTS, 6)).astype(mx.bfloat16).T
    assert distance(layer(x), exact(layer, x)) < 4e-3
    assert distance(layer(x[2]), exact(layer, x[2])) < 4e-3
    assert quantised._multiply(layer, x[2:4, None]).shape == (2, 1, 1_024)
