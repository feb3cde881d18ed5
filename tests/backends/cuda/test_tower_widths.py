"""Blocks of towers are filled up to widths that a GPU is quick at; what they make stays what it was."""

from __future__ import annotations

import logging
import sys
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from localai_shim.backends.cuda.vision_layers import fill_widths
from tests.towers import FAMILIES, LAYERS, Grid, rows, tower

PICTURES: list[Grid] = [(1, 6, 10), (1, 2, 2)]
UNALIGNED: dict[str, Any] = {"intermediate_size": 46, "mlp_ratio": 46 / 32}
FILLED = 64


def odd(family: str = "qwen2_5_vl") -> nn.Module:
    """A tower whose blocks are 46 numbers wide."""
    return tower(family, **({"out_hidden_size": 46} if family == "glm4v_moe" else UNALIGNED))


def widths(its: nn.Module) -> list[int]:
    """The widths that blocks compute at."""
    found = [layer for layer in its.modules() if type(layer).__name__.lower().endswith(("mlp", "ffn"))]
    products = [[each for each in layer.children().values() if "weight" in each] for layer in found]
    return [max(each.weight.shape[0] for each in its) for its in products if its]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_tower_makes_is_upstream_s(family: str) -> None:
    its = odd(family)
    before = rows(family, its, PICTURES)
    assert widths(its) == [46] * LAYERS
    assert fill_widths(its) == LAYERS
    assert widths(its) == [FILLED] * LAYERS
    for ours, theirs in zip(rows(family, its, PICTURES), before, strict=True):
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-5, atol=1e-5)
    assert fill_widths(its) == 0, "once"


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_stays_half_precision(dtype: mx.Dtype) -> None:
    its = odd()
    its.set_dtype(dtype)
    before = rows("qwen2_5_vl", its, PICTURES)
    assert fill_widths(its) == LAYERS
    assert {array.dtype for _, array in tree_flatten(its.parameters())} == {dtype}
    for ours, theirs in zip(rows("qwen2_5_vl", its, PICTURES), before, strict=True):
        assert mx.allclose(ours, theirs, rtol=0, atol=0.02 * float(mx.abs(theirs).max()))


@pytest.mark.parametrize(
    ("dtype", "width", "changed"), [(mx.bfloat16, 44, LAYERS), (mx.float32, 44, 0), (mx.bfloat16, 48, 0)]
)
def test_rows_that_begin_at_multiples_of_16_bytes_stay_as_they_are(dtype: mx.Dtype, width: int, changed: int) -> None:
    its = tower("qwen2_5_vl", intermediate_size=width)
    its.set_dtype(dtype)
    assert fill_widths(its) == changed


def test_quantised_blocks_stay_as_they_are() -> None:
    its = odd()
    nn.quantize(its, group_size=32, class_predicate=lambda path, _: path.endswith(("gate_proj", "up_proj")))
    assert fill_widths(its) == 0
    assert widths(its) == [46] * LAYERS


def test_foreign_models_of_the_architecture_stay_as_they_are() -> None:
    ours, theirs = odd(), odd()
    module: Any = sys.modules[type(theirs).__module__]
    before = dict(vars(module)), dict(vars(module.MLP))
    fill_widths(ours)
    assert (vars(module), dict(vars(module.MLP))) == before
    assert widths(theirs) == [46] * LAYERS


def _by_its_width(self: Any, x: mx.array) -> Any:
    wide = nn.silu(self.gate_proj(x)) * self.up_proj(x)
    return self.down_proj(mx.fast.rms_norm(wide, None, 1e-6))


def _with_a_constant(self: Any, x: mx.array) -> Any:
    return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x) + mx.ones((46,)))


def _of_two(self: Any, x: mx.array, y: mx.array) -> Any:
    return self.down_proj(self.gate_proj(x) * self.up_proj(y))


@pytest.mark.parametrize(
    ("code", "why"),
    [(_by_its_width, "computes something else"), (_with_a_constant, "ValueError"), (_of_two, "TypeError")],
)
def test_a_block_that_minds_its_width_keeps_it(
    code: Any, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    its = odd()
    before = tree_flatten(its.parameters())
    monkeypatch.setattr(sys.modules["mlx_vlm.models.qwen2_5_vl.vision"].MLP, "__call__", code)
    caplog.set_level(logging.INFO, logger="localai_shim")
    assert fill_widths(its) == 0
    for (name, ours), (_, theirs) in zip(tree_flatten(its.parameters()), before, strict=True):
        assert ours.dtype == theirs.dtype and mx.array_equal(ours, theirs), name
    [line] = [record.getMessage() for record in caplog.records]
    assert "mlx_vlm.models.qwen2_5_vl.vision.MLP keeps its width of 46" in line and why in line
