"""What towers call in MLX, in the forms that are fast on an x86 CPU: what comes out is MLX's, but for rounding."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from localai_shim.backends.x86 import forms as cpu_forms
from localai_shim.backends.x86 import towers as cpu_tower
from localai_shim.engine.ports import StepInput
from localai_shim.models.vision.model import VisionModel
from tests.models.vision.seeing import load, pictures
from tests.samples import only
from tests.vision import FAMILIES

ACTIVATIONS = ["silu", "gelu", "gelu_approx", "gelu_fast_approx"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_mlx_s(name: str) -> None:
    special = [0.0, -0.0, 88.0, -88.0, 500.0, -500.0, 1e-30, -1e-30, float("nan"), float("inf")]
    x = mx.concatenate([mx.random.normal((2_000,)) * 5, mx.array(special)])
    ours, theirs = getattr(cpu_tower, name)(x), getattr(nn, name)(x)
    np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=2e-6, atol=2e-6)
    for few in (x[:10], x.astype(mx.bfloat16)):
        made = getattr(cpu_tower, name)(few)
        assert made.dtype == few.dtype and mx.array_equal(made, getattr(nn, name)(few), equal_nan=True)


@pytest.mark.parametrize("approx", ["none", "precise", "tanh", "fast"])
def test_layers_of_activations_stay_what_they_are(approx: str) -> None:
    its = nn.Sequential(nn.GELU(approx), nn.SiLU())
    x = mx.random.normal((40, 64))
    before = its(x)
    for layer in its.layers:
        layer.__class__ = cpu_tower._LAYERS[type(layer)]
    assert isinstance(its.layers[0], nn.GELU) and isinstance(its.layers[1], nn.SiLU)
    assert mx.allclose(its(x), before, rtol=1e-5, atol=1e-6)


def test_attention_is_mlx_s() -> None:
    queries, keys, values = (mx.random.normal((2, heads, 40, 24)) for heads in (4, 2, 2))
    sees = mx.random.uniform(shape=(2, 1, 40, 40)) < 0.5
    for mask in (None, "causal", sees, mx.where(sees, 0.0, -2.0)):
        theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, mask=mask)
        assert mx.allclose(
            cpu_tower.attention(queries, keys, values, scale=0.2, mask=mask), theirs, rtol=1e-5, atol=2e-6
        )
    sinks = mx.ones(4)
    theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, sinks=sinks)
    assert mx.array_equal(cpu_tower.attention(queries, keys, values, scale=0.2, sinks=sinks), theirs)


def test_heads_are_not_filled_up() -> None:
    base = importlib.import_module("mlx_vlm.models.base")
    queries, keys, values = (mx.random.normal((1, 2, 60, 24)) for _ in range(3))
    theirs = getattr(base.ensure_fused_sdpa, "__wrapped__", base.ensure_fused_sdpa)(queries, keys, values, 0.2)
    assert mx.allclose(cpu_tower._fused(queries, keys, values, 0.2), theirs, rtol=1e-5, atol=2e-6)


def _as_before(model: VisionModel, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modules that a model is made of, as before any was loaded."""
    upstream = {"mx": mx, "nn": nn}
    modules = [sys.modules[name] for name in {type(layer).__module__ for layer in model._model.modules()}]
    modules = [module for module in modules if module.__name__.startswith("mlx_vlm.")]
    for module in modules:
        for name in upstream.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, upstream[name])
    kinds = {form: kind for kind, form in cpu_tower._LAYERS.items()}
    for layer in model._model.modules():
        layer.__class__ = kinds.get(type(layer), type(layer))
    return modules


@pytest.mark.parametrize("kind", only(["qwen2_5_vl", "smolvlm"], FAMILIES))
def test_what_a_tower_makes_is_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(kind)
    [item] = (model.text.process(each) for each in pictures(1))
    modules = _as_before(model, monkeypatch)
    before = np.array(model.embed(item).rows)
    for name in ("FEWEST_SCORES", "FEWEST_GATES"):
        monkeypatch.setattr(cpu_forms, name, 1)
    assert cpu_tower.use_tower_forms(model._model, enabled=False) == 0
    assert cpu_tower.use_tower_forms(model._model, enabled=True) >= 1
    assert cpu_tower.use_tower_forms(model._model, enabled=True) == 0, "once"
    assert {module.mx is mx for module in modules if hasattr(module, "mx")} == {False}
    np.testing.assert_allclose(np.array(model.embed(item).rows), before, rtol=1e-4, atol=2e-5)


def test_passes_that_are_waited_for_compute_exponentials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Towers and prompts do; a step, which may be built before its tokens are known, does not."""
    model = load("qwen2_5_vl")
    cpu_forms.use_cpu_forms(model._model, enabled=True)
    cpu_tower.use_tower_forms(model._model, enabled=True)
    [item] = (model.text.process(each) for each in pictures(1))
    tokens = mx.array([[5, 6, 7, 8] * 20])
    prompts = [model.new_cache(), model.new_cache()]
    before = np.array(model.embed(item).rows)
    model.prefill(StepInput(tokens, prompts[0]))
    for name in ("FEWEST_SCORES", "FEWEST_GATES", "FEWEST_AT_ONCE"):
        monkeypatch.setattr(cpu_forms, name, 1)
    lazy, power = list[int](), mx.power
    monkeypatch.setattr(mx, "power", lambda a, b: lazy.append(b.size) or power(a, b))  # type: ignore[func-returns-value]
    made = np.array(model.embed(item).rows)
    model.prefill(StepInput(tokens, prompts[1]))
    assert not lazy
    logits = [np.array(model.forward(StepInput(tokens[:, :1], cache))) for cache in prompts]
    assert lazy
    np.testing.assert_allclose(made, before, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=2e-5)


def test_mlx_vlm_s_own_swiglu_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("qwen2_5_vl")
    mlp, activations = (importlib.import_module(f"mlx_vlm.models.{name}") for name in ("mlp", "activations"))
    monkeypatch.setattr(mlp, "swiglu", activations.swiglu)  # as before it was loaded
    assert cpu_forms.use_cpu_forms(model._model, enabled=True) == 1
    assert mlp.swiglu is cpu_forms.swiglu


def test_mlx_s_own_names_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module gets has all that MLX has, also what is put there later."""
    its = cpu_tower._MODULES["mx"][1]
    assert its.array is mx.array and its.fast.rms_norm is mx.fast.rms_norm
    assert its.fast.scaled_dot_product_attention is not mx.fast.scaled_dot_product_attention
    monkeypatch.setattr(mx, "something_new", 7, raising=False)
    assert its.something_new == 7
    assert nn.silu is not cpu_tower.silu and nn.Linear is cpu_tower._MODULES["nn"][1].Linear
    with pytest.raises(AttributeError):
        its.nothing_at_all  # noqa: B018
