"""Attention and activations in the forms that are fast on an x86 CPU: what comes out is MLX's, but for rounding."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models import activations, base

from localai_shim.backends.patches import Patch
from localai_shim.backends.x86 import activations as cpu_forms
from localai_shim.backends.x86 import forms as x86
from localai_shim.engine import ports
from localai_shim.engine.ports import StepInput
from tests import inside
from tests.models.vision.seeing import load, pictures
from tests.samples import only
from tests.vision import FAMILIES

attend = cpu_forms.attending(base.scaled_dot_product_attention)
ACTIVATIONS = ["silu", "gelu", "gelu_approx", "gelu_fast_approx"]
AT_ONCE = [False, True]
SHAPES = [
    (1, 4, 2, 1, 600, 32),
    (8, 6, 3, 5, 70, 32),
    (3, 4, 4, 16, 64, 16),
    (1, 8, 1, 40, 90, 64),
    (2, 4, 2, 7, 80, 32),
]
"""Rows, heads, key heads, tokens, columns, dim: more than FEWEST_SCORES."""


class Quantised:
    bits = 8


def arrays(shape: tuple[int, ...], dtype: mx.Dtype = mx.float32) -> tuple[mx.array, mx.array, mx.array]:
    """Queries, and keys and values that are parts of larger buffers, as caches give them."""
    rows, heads, key_heads, tokens, columns, dim = shape
    mx.random.seed(columns)
    made = [mx.random.normal((rows, key_heads, columns + 9, dim)).astype(dtype)[:, :, :columns] for _ in range(2)]
    return 3 * mx.random.normal((rows, heads, tokens, dim)).astype(dtype), made[0], made[1]


def masks(shape: tuple[int, ...]) -> dict[str, Any]:
    rows, heads, _, tokens, columns, _ = shape
    seen = columns - tokens + mx.arange(tokens)[:, None] - 3 * mx.arange(rows)[:, None, None, None]
    per_row = mx.arange(columns) <= mx.maximum(seen, 0)
    return {
        "none": None,
        "causal": "causal",
        "per row": per_row,
        "one for all": per_row[0, 0],
        "added": mx.where(per_row, 0.0, -1e9) + mx.random.normal((1, heads, 1, columns)),
        "a query that sees nothing": per_row & (mx.arange(tokens) > 0)[:, None],
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_upstreams(shape: tuple[int, ...]) -> None:
    queries, keys, values = arrays(shape)
    for name, mask in masks(shape).items():
        ours = attend(queries, keys, values, None, 0.2, mask)
        theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, mask=mask)
        assert ours.shape == theirs.shape
        assert mx.allclose(ours, theirs, rtol=1e-5, atol=2e-6), name


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_upstreams_where_it_is_computed_at_once(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_SCORES", 1)
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    queries, keys, values = arrays(shape)
    for name, mask in masks(shape).items():
        before = [np.array(array) for array in (queries, keys, values, mask) if isinstance(array, mx.array)]
        with cpu_forms.at_once():
            ours = attend(queries, keys, values, None, 0.2, mask)
        theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, mask=mask)
        assert ours.shape == theirs.shape
        assert mx.allclose(ours, theirs, rtol=1e-5, atol=2e-6), name
        given = [array for array in (queries, keys, values, mask) if isinstance(array, mx.array)]
        assert all(map(np.array_equal, before, given)), "what it is given stays as it was"


def test_only_a_thread_that_says_so_computes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[int]()

    def noting(array: mx.array) -> np.ndarray:
        computed.append(array.size)
        return np.array(array)

    monkeypatch.setattr(cpu_forms, "_view", noting)
    many, few = mx.zeros((2, cpu_forms.FEWEST_AT_ONCE)), mx.zeros((1, cpu_forms.FEWEST_AT_ONCE - 1))

    def call() -> None:
        for x in (many, few):
            cpu_forms.silu(x)

    with cpu_forms.at_once():
        other = threading.Thread(target=call)
        other.start()
        other.join()
        with cpu_forms.at_once(False):
            call()
        assert computed == []
        call()
    call()
    assert computed == [many.size]


@pytest.mark.parametrize("case", ["half precision", "sinks", "packed keys", "few scores"])
def test_what_it_does_not_know_is_left_to_upstream(case: str) -> None:
    given: list[Any] = []
    attend = cpu_forms.attending(lambda *arguments: given.append(arguments))  # type: ignore[arg-type]
    queries, keys, values = arrays(SHAPES[1], mx.float16 if case == "half precision" else mx.float32)
    if case == "few scores":
        queries, keys, values = (array[:1, :, :1] for array in (queries, keys, values))
    sinks = mx.zeros(6) if case == "sinks" else None
    attend(queries, keys, values, Quantised() if case == "packed keys" else None, 0.2, None, sinks)
    assert len(given) == 1 and given[0][-1] is sinks


# -- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_mlx_s(name: str, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1_000)
    special = [0.0, -0.0, 88.0, -88.0, 500.0, -500.0, 1e-30, -1e-30, float("nan"), float("inf")]
    x = mx.concatenate([mx.random.normal((2_000,)) * 5, mx.array(special)])
    before = np.array(x)
    with cpu_forms.at_once(at_once):
        for each in (x, mx.broadcast_to(x[:30], (50, 30)), x[:2_000].reshape(40, 50).T):
            ours, theirs = getattr(cpu_forms, name)(each), getattr(nn, name)(each)
            np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=2e-6, atol=2e-6)
        for other in (x[:10], x.astype(mx.bfloat16)):
            made = getattr(cpu_forms, name)(other)
            assert made.dtype == other.dtype
            np.testing.assert_allclose(
                np.array(made.astype(mx.float32)),
                np.array(getattr(nn, name)(other).astype(mx.float32)),
                rtol=2e-6,
                atol=2e-6,
            )
    assert np.array_equal(before, np.array(x), equal_nan=True), "what it is given stays as it was"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at_once", AT_ONCE)
def test_gated_units_are_upstreams(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1_000)
    monkeypatch.setattr(cpu_forms, "FEWEST_BY_POWER", 100)
    swiglu = cpu_forms._gated(activations.swiglu)
    special = [0.0, -0.0, 88.0, -88.0, 500.0, -500.0, 1e-30, float("nan"), float("inf")]
    gate = mx.concatenate([mx.random.normal((2_000,)) * 5, mx.array(special)])
    x = mx.random.normal(gate.shape)
    before = np.array(gate), np.array(x)
    with cpu_forms.at_once(at_once):
        for some in (slice(None), slice(0, 10)):
            ours, theirs = swiglu(gate[some], x[some]), activations.swiglu(gate[some], x[some])
            np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=2e-6, atol=2e-6)
            assert (np.array(ours)[:10] == np.array(theirs)[:10]).all() == (len(ours) == 10), "MLX's, if there are few"
        assert swiglu(gate.astype(mx.bfloat16), x.astype(mx.bfloat16)).dtype == mx.bfloat16
    assert all(np.array_equal(a, np.array(b), equal_nan=True) for a, b in zip(before, (gate, x), strict=True))


def test_what_is_compiled_has_no_numbers_of_its_first_call() -> None:
    def made(silu: Callable[[mx.array], mx.array]) -> list[mx.array]:
        x = mx.random.normal((cpu_forms.FEWEST_AT_ONCE,), key=mx.random.key(3))
        compiled = mx.compile(lambda x: silu(x + 1))
        return [compiled(x), compiled(-x)]

    with cpu_forms.at_once():
        ours = made(cpu_forms.silu)
    assert all(mx.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, made(nn.silu), strict=True))


@pytest.mark.parametrize("approx", ["none", "precise", "tanh", "fast"])
def test_layers_of_activations_stay_what_they_are(approx: str) -> None:
    its = nn.Sequential(nn.GELU(approx), nn.SiLU())
    x = mx.random.normal((40, 64))
    before = its(x)
    for layer in its.layers:
        layer.__class__ = cpu_forms._LAYERS[type(layer)]
    assert isinstance(its.layers[0], nn.GELU) and isinstance(its.layers[1], nn.SiLU)
    assert mx.allclose(its(x), before, rtol=1e-5, atol=1e-6)


def test_layers_that_share_an_activation_are_changed_once() -> None:
    """As FastVLM's, whose encoder has one GELU for all of its layers."""
    shared = nn.GELU()
    model = type("Shares", (nn.Sequential,), {"__module__": "mlx_vlm.models.shares"})(shared, nn.Sequential(shared))
    assert cpu_forms.use_x86_forms(model) == 1
    assert type(shared) in cpu_forms._LAYERS.values()


# -- what calls them --------------------------------------------------------------------------------------------------


def test_attention_by_mlx_s_own_name_is_mlx_s() -> None:
    queries, keys, values = (mx.random.normal((2, heads, 40, 24)) for heads in (4, 2, 2))
    sees = mx.random.uniform(shape=(2, 1, 40, 40)) < 0.5
    for mask in (None, "causal", sees, mx.where(sees, 0.0, -2.0)):
        theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, mask=mask)
        ours = cpu_forms.attention(queries, keys, values, scale=0.2, mask=mask)
        assert mx.allclose(ours, theirs, rtol=1e-5, atol=2e-6)
    sinks = mx.ones(4)
    theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, sinks=sinks)
    assert mx.array_equal(cpu_forms.attention(queries, keys, values, scale=0.2, sinks=sinks), theirs)


def test_heads_are_not_filled_up() -> None:
    base = importlib.import_module("mlx_vlm.models.base")
    queries, keys, values = (mx.random.normal((1, 2, 60, 24)) for _ in range(3))
    theirs = base.ensure_fused_sdpa(queries, keys, values, 0.2)
    ours = cpu_forms._fused(queries, keys, values, 0.2)
    assert mx.allclose(ours, theirs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("patch", cpu_forms.PATCHES, ids=lambda patch: f"{patch.module}.{patch.name}")
def test_patches_are_written_for_the_versions_that_are_installed(patch: Patch) -> None:
    importlib.import_module(patch.module)
    assert len(patch.replaced()) == 1


@pytest.mark.parametrize("kind", only(["qwen2_5_vl", "smolvlm"], FAMILIES))
def test_what_a_tower_makes_is_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(x86, "on_x86_cpu", lambda: False)
    model = load(kind)
    [item] = (model.text.process(each) for each in pictures(1))
    before = np.array(model.embed(item).rows)
    for name in ("FEWEST_SCORES", "FEWEST_AT_ONCE"):
        monkeypatch.setattr(cpu_forms, name, 1)
    assert cpu_forms.use_x86_forms(inside.network(model)) >= 1
    assert cpu_forms.use_x86_forms(inside.network(model)) == 0, "once"
    np.testing.assert_allclose(np.array(model.embed(item).rows), before, rtol=1e-4, atol=2e-5)


def test_passes_that_are_waited_for_compute_exponentials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Towers and prompts do; a step, which may be built before its tokens are known, does not."""
    monkeypatch.setattr(ports, "_connected", replace(ports.host(), forms=x86.CpuForms))  # whatever runs the test
    monkeypatch.setattr(x86, "on_x86_cpu", lambda: True)
    model = load("qwen2_5_vl")
    [item] = (model.text.process(each) for each in pictures(1))
    tokens = mx.array([[5, 6, 7, 8] * 20])
    prompts = [model.new_cache(), model.new_cache()]
    before = np.array(model.embed(item).rows)
    model.prefill(StepInput(tokens, prompts[0]))
    for name in ("FEWEST_SCORES", "FEWEST_AT_ONCE"):
        monkeypatch.setattr(cpu_forms, name, 1)
    lazy, power = list[int](), mx.power
    monkeypatch.setattr(mx, "power", lambda a, b: lazy.append(b.size) or power(a, b))  # type: ignore[func-returns-value]
    made = np.array(model.embed(item).rows)
    model.prefill(StepInput(tokens, prompts[1]))
    assert not lazy
    logits = [np.array(model.forward(StepInput(tokens[:, :1], cache)).logits) for cache in prompts]
    assert lazy
    np.testing.assert_allclose(made, before, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=2e-5)
