"""What adapters add to a product on CUDA: as exact as its type, each row's own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from localai_shim.backends.cuda import adapters

only_on_cuda = pytest.mark.skipif(
    not (mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu)), reason="a kernel for CUDA"
)


@only_on_cuda
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("rank", [1, 4, 8, 13, 16, 64])
@pytest.mark.parametrize(("inputs", "outputs"), [(4_096, 1_024), (1_024, 12_288), (72, 40)])
def test_each_row_is_given_its_own(inputs: int, outputs: int, rank: int, tokens: int, dtype: Any) -> None:
    mx.random.seed(inputs + rank)
    slots = [2, 0, 1, 2, 3]
    a = mx.random.normal((4, rank, inputs)).astype(dtype) / inputs**0.5
    b = mx.random.normal((4, rank, outputs)).astype(dtype) / rank**0.5
    a[0] = mx.nan  # slot 0 is not read
    x = mx.random.normal((len(slots) * tokens, inputs)).astype(dtype)
    y = mx.random.normal((len(slots) * tokens, outputs)).astype(dtype)
    kernel = adapters.kernel_of(a, b)
    assert kernel is not None
    result = kernel.add(x, y, mx.array(slots, mx.uint32))
    assert result is not None
    shaped = kernel.add(
        x.reshape(len(slots), tokens, inputs), y.reshape(len(slots), tokens, outputs), mx.array(slots, mx.uint32)
    )
    assert shaped is not None and mx.array_equal(shaped.reshape(y.shape), result)
    for i, slot in enumerate(slots):
        its = slice(i * tokens, (i + 1) * tokens)
        wide, expected = (each[its].astype(mx.float32) for each in (x, y))
        if slot:
            expected = expected + wide @ a[slot].astype(mx.float32).T @ b[slot].astype(mx.float32)
        error = float(mx.abs(result[its].astype(mx.float32) - expected).max() / mx.abs(expected).max())
        assert error < (4e-3 if dtype == mx.bfloat16 else 1e-3), (i, error)


def test_what_the_kernel_does_not_know_is_left_to_mlx() -> None:
    def takes(inputs: int = 64, outputs: int = 64, rank: int = 8, dtype: Any = mx.bfloat16) -> bool:
        return adapters.fits(mx.zeros((2, rank, inputs), dtype), mx.zeros((2, rank, outputs), dtype))

    assert takes() and takes(rank=64) and takes(rank=1) and takes(dtype=mx.float16)
    assert not takes(rank=65)
    assert not takes(inputs=68)
    assert not takes(outputs=60)
    assert not takes(dtype=mx.float32)
    assert not adapters.fits(mx.zeros((2, 4, 8, 64), mx.bfloat16), mx.zeros((2, 4, 8, 64), mx.bfloat16)), "experts"


@pytest.mark.skipif(mx.cuda.is_available(), reason="a machine without CUDA")
def test_there_is_no_kernel_on_another_back_end() -> None:
    assert adapters.kernel_of(mx.zeros((2, 8, 64), mx.bfloat16), mx.zeros((2, 8, 64), mx.bfloat16)) is None


@pytest.mark.parametrize(
    ("rows", "x", "y"),
    [(321, mx.bfloat16, mx.bfloat16), (4, mx.float32, mx.bfloat16), (4, mx.bfloat16, mx.float32)],
    ids=["many rows", "wider inputs", "wider outputs"],
)
def test_passes_that_are_long_or_of_another_type_are_left_to_mlx(
    rows: int, x: Any, y: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "_kernel", lambda half, rank: lambda **_: [mx.zeros((1,))])
    kernel = adapters.Kernel(mx.zeros((2, 8, 64), mx.bfloat16), mx.zeros((2, 8, 64), mx.bfloat16))
    index = mx.zeros((rows,), mx.uint32)
    assert kernel.add(mx.zeros((rows, 64), x), mx.zeros((rows, 64), y), index) is None
    few = mx.zeros((4, 64), mx.bfloat16)
    assert kernel.add(few, few, index[:4]) is not None
