"""The kernel of adapters on CUDA: as exact as its type, each row's own."""

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
@pytest.mark.parametrize("ranks", [[1], [4], [8], [13, 16, 2], [64, 64]], ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(4_096, 1_024), (1_024, 12_288), (72, 40)])
def test_each_row_is_given_its_own(inputs: int, outputs: int, ranks: list[int], tokens: int, dtype: Any) -> None:
    mx.random.seed(inputs + ranks[0])
    slots = [2, 0, 1, 2, 3]
    widths = [outputs, max(8, outputs // 16 * 8), outputs]  # of layers that read the same
    factors: list[adapters.Factors] = []
    for rank, width in zip(ranks, widths, strict=False):
        a = mx.random.normal((4, rank, inputs)).astype(dtype) / inputs**0.5
        a[0] = mx.nan  # slot 0 is not read
        factors.append((a, mx.random.normal((4, rank, width)).astype(dtype) / rank**0.5))
    x = mx.random.normal((len(slots) * tokens, inputs)).astype(dtype)
    ys = [mx.random.normal((len(x), b.shape[2])).astype(dtype) for _, b in factors]
    kernel, index = adapters.kernel_of(factors), mx.array(slots, mx.uint32)
    assert kernel is not None and kernel.takes(x)
    results = kernel.add(x, ys, index)
    shaped = kernel.add(
        x.reshape(len(slots), tokens, -1), [y.reshape(len(slots), tokens, -1) for y in ys], mx.array(slots, mx.uint32)
    )
    for (a, b), y, result, other in zip(factors, ys, results, shaped, strict=True):
        assert mx.array_equal(other.reshape(y.shape), result)
        for i, slot in enumerate(slots):
            its = slice(i * tokens, (i + 1) * tokens)
            wide, expected = (each[its].astype(mx.float32) for each in (x, y))
            if slot:
                expected = expected + wide @ a[slot].astype(mx.float32).T @ b[slot].astype(mx.float32)
            error = float(mx.abs(result[its].astype(mx.float32) - expected).max() / mx.abs(expected).max())
            assert error < (4e-3 if dtype == mx.bfloat16 else 1e-3), (i, error)


def test_what_the_kernel_does_not_know_is_left_to_mlx() -> None:
    def factors(inputs: int = 64, outputs: int = 64, rank: int = 8, dtype: Any = mx.bfloat16) -> adapters.Factors:
        return mx.zeros((2, rank, inputs), dtype), mx.zeros((2, rank, outputs), dtype)

    def fit(*args: Any, **more: Any) -> bool:
        return adapters.fit([factors(*args, **more)])

    assert fit() and fit(rank=64) and fit(rank=1) and fit(dtype=mx.float16)
    assert not fit(rank=65)
    assert not fit(inputs=68)
    assert not fit(outputs=60)
    assert not fit(dtype=mx.float32)
    assert not adapters.fit([(mx.zeros((2, 4, 8, 64), mx.bfloat16), mx.zeros((2, 4, 8, 64), mx.bfloat16))]), "experts"
    assert adapters.fit([factors(), factors(outputs=8, rank=2)])
    assert not adapters.fit([factors(), factors(inputs=8)]), "they read something else"
    assert not adapters.fit([factors(), factors(rank=65)])


@pytest.mark.skipif(mx.cuda.is_available(), reason="a machine without CUDA")
def test_there_is_no_kernel_on_another_back_end() -> None:
    assert adapters.kernel_of([(mx.zeros((2, 8, 64), mx.bfloat16), mx.zeros((2, 8, 64), mx.bfloat16))]) is None


@pytest.mark.parametrize(
    ("rows", "dtype", "takes"),
    [(320, mx.bfloat16, True), (321, mx.bfloat16, False), (4, mx.float32, False)],
    ids=["a few rows", "many rows", "wider inputs"],
)
def test_passes_that_are_long_or_of_another_type_are_left_to_mlx(
    rows: int, dtype: Any, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "_kernel", lambda half, inputs, layers: print)
    kernel = adapters.Kernel([(mx.zeros((2, 8, 64), mx.bfloat16), mx.zeros((2, 8, 64), mx.bfloat16))])
    assert kernel.takes(mx.zeros((rows, 64), dtype)) is takes
