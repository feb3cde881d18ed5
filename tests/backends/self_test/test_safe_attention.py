"""Plain attention equals the device's, and takes its place at the sizes that failed and between these only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models import base, qwen3

from localai_shim.backends import forms
from localai_shim.backends.self_test import Shape, safe_attention
from localai_shim.backends.self_test.attention import QUERIES, SIZES, Size, check_attention, fused
from localai_shim.backends.self_test.safe_attention import Call, calls, guard, is_unsafe, plain
from localai_shim.backends.self_test.shape import KEYS
from tests.tiny import tiny
from tests.vision import tiny_vision

Sizes = frozenset[Size]


@pytest.fixture(autouse=True)
def _no_forms_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Metal, where layers call the libraries' attention."""
    monkeypatch.setattr(forms, "has_gpu", lambda: True)
    monkeypatch.setattr(forms, "on_cuda", lambda: False)


def load() -> Any:
    return mlx_lm.load(str(tiny("qwen3")))[0]


# -- plain products and softmax --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sinks", [False, True])
def test_plain_attention_passes_the_self_test(dtype: str, sinks: bool) -> None:
    shape = Shape(16, 4, 2, dtype, 100, sinks=sinks, value_dim=24)
    assert [size for size, check in check_attention(shape, plain).items() if not check.passed] == []


def added(mask: mx.array) -> mx.array:
    return mx.where(mask, mx.random.normal(mask.shape), -mx.inf)


MASKS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "causal": lambda: "causal",
    "one for all rows and heads": lambda: mx.arange(40) <= mx.arange(31, 40)[:, None],
    "one for each row": lambda: mx.random.uniform(shape=(2, 1, 9, 40)) < 0.5,
    "one for each head": lambda: mx.random.uniform(shape=(2, 4, 9, 40)) < 0.5,
    "the same for all queries": lambda: mx.random.uniform(shape=(2, 1, 1, 40)) < 0.5,
    "numbers to add": lambda: added(mx.random.uniform(shape=(2, 1, 9, 40)) < 0.5),
}


@pytest.mark.parametrize("most_scores", [2**26, 700, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_plain_attention_computes_what_mlx_computes(
    mask: str, most_scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some queries at a time as well: a long prompt's scores do not fit into memory."""
    monkeypatch.setattr(safe_attention, "MOST_SCORES", most_scores)
    mx.random.seed(5)
    queries, keys, values = (mx.random.normal((2, heads, n, 16)) for heads, n in ((4, 9), (2, 40), (2, 40)))
    given = MASKS[mask]()
    for sinks in (None, mx.random.normal((4,))):
        expected = fused(queries, keys, values, None, 0.3, given, sinks)
        assert mx.allclose(plain(queries, keys, values, None, 0.3, given, sinks), expected, atol=1e-5)


# -- which sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_tested_size_is_unsafe_only_if_it_failed(size: Size) -> None:
    assert is_unsafe(frozenset({size}), size.queries, size.columns, size.ragged)
    assert not is_unsafe(frozenset(SIZES) - {size}, size.queries, size.columns, size.ragged)


@pytest.mark.parametrize(
    ("failed", "queries", "columns", "unsafe"),
    [
        (Size(1, 4_200, False), 1, 100_000, True),  # beyond the largest one
        (Size(1, 4_200, False), 1, 1_101, True),
        (Size(1, 4_200, False), 1, 1_099, False),
        (Size(1, 4_200, False), 3, 4_200, False),
        (Size(1, 4_200, False), 2, 4_200, True),
        (Size(1, 40, False), 1, 1, True),
        (Size(64, 1_100, False), 2_048, 2_048, True),
        (Size(64, 1_100, False), 63, 1_000, True),
        (Size(64, 1_100, False), 9, 1_000, False),
        (Size(8, 40, False), 6, 17, True),
        (Size(8, 40, False), 5, 17, False),
    ],
)
def test_a_size_between_tested_ones_is_unsafe_if_a_nearest_one_failed(
    failed: Size, queries: int, columns: int, unsafe: bool
) -> None:
    assert is_unsafe(frozenset({failed}), queries, columns, failed.ragged) is unsafe
    assert not is_unsafe(frozenset({failed}), queries, columns, not failed.ragged)


# -- a model's layers ------------------------------------------------------------------------------------------------

ONE_QUERY = frozenset(Size(1, keys, ragged) for keys in KEYS for ragged in (False, True))


def zeros_for_one_query(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Plant a fault; returns the number of queries of each call."""
    right, called = mx.fast.scaled_dot_product_attention, list[int]()

    def attend(queries: mx.array, *others: Any, **options: Any) -> mx.array:
        called.append(queries.shape[2])
        out = right(queries, *others, **options)
        return mx.zeros_like(out) if queries.shape[2] == 1 else out

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", attend)
    return called


def test_guarded_layers_answer_rightly_and_call_the_device_at_the_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = load(), load()
    several, one = mx.array([[5, 6, 7, 8]]), mx.array([[5]])
    expected = [theirs(several), theirs(one)]
    called = zeros_for_one_query(monkeypatch)
    assert not mx.allclose(theirs(one), expected[1], atol=1e-3), "the fault makes a difference"
    assert guard(ours, ONE_QUERY) == len(ours.layers)
    called.clear()
    assert mx.allclose(ours(one), expected[1], atol=1e-5) and called == []
    assert mx.allclose(ours(several), expected[0], atol=1e-5) and called == [4] * len(ours.layers)


def test_nothing_but_the_model_changes() -> None:
    ours, theirs = load(), load()
    function, own = base.scaled_dot_product_attention, mx.fast.scaled_dot_product_attention
    guard(ours, frozenset(SIZES))
    assert base.scaled_dot_product_attention is qwen3.scaled_dot_product_attention is function
    assert mx.fast.scaled_dot_product_attention is own
    assert type(theirs.layers[0].self_attn) is qwen3.Attention


def test_layers_that_call_mlx_itself_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        return mx.fast.scaled_dot_product_attention(x, x, x, scale=1.0, mask=None)

    model = load()
    layer = model.layers[0].self_attn
    kind = type("Attention", (qwen3.Attention,), {"direct": call, "__module__": qwen3.__name__})
    layer.__class__ = kind
    x = mx.random.normal((1, 2, 1, 8))
    expected = layer.direct(x)
    guard(model, ONE_QUERY)
    zeros_for_one_query(monkeypatch)
    assert mx.allclose(layer.direct(x), expected)


def test_quantized_keys_and_values_are_left_to_the_libraries() -> None:
    seen = list[Any]()

    def attend(*arguments: Any, **options: Any) -> mx.array:
        seen.append(arguments[1])
        return mx.array(arguments[0])

    class Cache:
        bits = 8

    queries, packed = mx.zeros((1, 2, 1, 8)), (mx.zeros(3),) * 3
    safe_attention._guarded(attend, frozenset(SIZES))(queries, packed, packed, Cache(), 1.0)
    assert seen == [packed]


def test_the_form_of_the_machine_is_guarded_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, where layers call another function than the libraries'."""
    from localai_shim.backends.x86.activations import attending, use_x86_forms

    monkeypatch.setattr(forms, "has_gpu", lambda: False)
    model, tokens = load(), mx.array([[5]])
    expected = model(tokens)
    assert use_x86_forms(model)
    [call] = calls(model, lambda: model(tokens))
    assert call.attend is attending(base.scaled_dot_product_attention)
    guard(model, ONE_QUERY)
    zeros_for_one_query(monkeypatch)
    assert mx.allclose(model(tokens), expected, atol=1e-5)


def test_calls_of_layers_are_recorded_and_layers_stay_as_they_are() -> None:
    model = load()
    kinds = [type(layer) for layer in model.modules()]
    found = calls(model, lambda: model(mx.array([[5, 6]])))
    attend = base.scaled_dot_product_attention
    assert found == [Call(attend, 4, 2, 16, 16, "float32", False)]
    assert [type(layer) for layer in model.modules()] == kinds
    with pytest.raises(RuntimeError, match="no pass"):
        calls(model, lambda: (_ for _ in ()).throw(RuntimeError("no pass")).__next__())
    assert [type(layer) for layer in model.modules()] == kinds


def test_calls_of_a_model_that_sees_images_are_recorded() -> None:
    import mlx_vlm.utils

    model: Any = mlx_vlm.utils.load_model(tiny_vision("qwen2_5_vl"))
    assert [call.head_dim for call in calls(model, lambda: model.language_model(mx.array([[5, 6]])))] != []


def test_tested_sizes_are_in_order() -> None:
    assert sorted(QUERIES) == [*QUERIES] and sorted(KEYS) == [*KEYS]
