"""Which attention and products are fast: MLX's kernels on Metal and CUDA, as their sources say, and OpenBLAS's."""

from __future__ import annotations

import pytest

from localai_shim.backends import machine


@pytest.fixture(params=["metal", "cuda", "x86", "cpu"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(machine, "on_metal", lambda: request.param == "metal")
    monkeypatch.setattr(machine, "on_cuda", lambda: request.param == "cuda")
    monkeypatch.setattr(machine, "on_x86_cpu", lambda: request.param == "x86")
    return str(request.param)


@pytest.mark.parametrize(
    ("dim", "value_dim", "half", "fusing"),
    [
        (128, 128, True, {"metal", "cuda"}),
        (80, 80, True, {"metal", "cuda"}),
        (64, 64, False, {"metal"}),
        (112, 112, True, {"cuda"}),
        (256, 256, True, set()),  # Gemma 2 and 3
        (192, 128, True, set()),  # DeepSeek
        (16, 16, True, {"cuda"}),
    ],
)
def test_attention_holds_no_scores_where_a_kernel_takes_the_head_dims(
    place: str, dim: int, value_dim: int, half: bool, fusing: set[str]
) -> None:
    assert machine.fuses_attention(dim, value_dim, half=half) == (place in fusing)


@pytest.mark.parametrize(
    ("group", "jumps"), [(1, (8,)), (4, (8,)), (5, (6, 8)), (7, (4, 8)), (8, (4, 8)), (16, (2, 8)), (40, (8,))]
)
def test_few_queries_have_a_kernel_of_metals_and_few_rows_small_products(
    place: str, group: int, jumps: tuple[int, ...]
) -> None:
    assert machine.step_jumps(group) == {"metal": jumps, "x86": (4, 8)}.get(place, ())


def test_macos_watches_its_gpu(place: str) -> None:
    assert machine.is_watched() == (place == "metal")
