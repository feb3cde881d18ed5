"""Attention and swiglu in the forms that are fast on an x86 CPU: what comes out is upstream's, but for rounding."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import activations, base, qwen3

from localai_shim.backends.x86 import forms as cpu_forms

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
        ours = cpu_forms.scaled_dot_product_attention(queries, keys, values, None, 0.2, mask)
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
            ours = cpu_forms.scaled_dot_product_attention(queries, keys, values, None, 0.2, mask)
        theirs = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.2, mask=mask)
        assert ours.shape == theirs.shape
        assert mx.allclose(ours, theirs, rtol=1e-5, atol=2e-6), name
        given = [array for array in (queries, keys, values, mask) if isinstance(array, mx.array)]
        assert all(map(np.array_equal, before, given)), "what it is given stays as it was"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("parted", [False, True], ids=["whole", "halves of one array"])
def test_swiglu_is_upstreams_where_it_is_computed_at_once(parted: bool) -> None:
    mx.random.seed(7)
    both = 8 * mx.random.normal((4, 16, 2, 128))
    both[0, 0, 0, :6] = mx.array([0.0, -0.0, 90.0, -90.0, 500.0, -500.0])
    gate, x = (both[:, :, i] if parted else mx.contiguous(both[:, :, i]) for i in range(2))
    before = np.array(both)
    with cpu_forms.at_once():
        ours = cpu_forms.swiglu(gate, x)
    assert ours.shape == gate.shape
    assert ours.dtype == mx.float32
    assert mx.allclose(ours, activations.swiglu(gate, x), rtol=1e-5, atol=1e-6)
    assert np.array_equal(before, both)


def test_only_a_thread_that_says_so_computes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, ...]] = []

    def by_numpy(gate: mx.array, x: mx.array) -> mx.array:
        given.append(gate.shape)
        return gate

    monkeypatch.setattr(cpu_forms, "_swiglu_by_numpy", by_numpy)
    many, few = mx.zeros((2, cpu_forms.FEWEST_AT_ONCE)), mx.zeros((1, cpu_forms.FEWEST_AT_ONCE - 1))

    def call() -> None:
        for x in (many, few):
            cpu_forms.swiglu(x, x)

    with cpu_forms.at_once():
        other = threading.Thread(target=call)
        other.start()
        other.join()
        with cpu_forms.at_once(False):
            call()
        assert given == []
        call()
    call()
    assert given == [many.shape]


def test_what_is_built_of_a_pass_is_begun_where_it_may_be_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[mx.array] = []

    def begin(array: mx.array) -> None:
        mx.async_eval(array)
        begun.append(array)

    monkeypatch.setattr(cpu_forms, "_async_eval", begin)
    for count in (cpu_forms.FEWEST_GATES - 1, cpu_forms.FEWEST_GATES):
        x = mx.random.normal((count,))
        cpu_forms.swiglu(x, x)
        assert begun == []  # a graph that is built ahead gets its tokens later
        with cpu_forms.at_once():
            made = cpu_forms.swiglu(x, x)
        assert begun.pop() is made
        assert mx.allclose(made, activations.swiglu(x, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [8, cpu_forms.FEWEST_GATES])
def test_what_traces_swiglu_where_it_may_be_computed_at_once_gets_upstreams(count: int) -> None:
    x = mx.random.normal((count,))

    def made(swiglu: Callable[[mx.array, mx.array], mx.array]) -> list[mx.array]:
        compiled = mx.compile(lambda x: swiglu(x + 1, x))
        return [compiled(x), compiled(-x), mx.grad(lambda x: swiglu(x, x).sum())(x)]

    with cpu_forms.at_once():
        ours = made(cpu_forms.swiglu)
    theirs = made(activations.swiglu)
    assert all(mx.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_gradients_are_upstreams() -> None:
    """Others may train a model of this architecture in the same process."""
    x = mx.random.normal((4, cpu_forms.FEWEST_AT_ONCE))

    def loss(swiglu: Callable[[mx.array, mx.array], mx.array]) -> mx.array:
        return mx.grad(lambda x: swiglu(x, x).sum())(x)

    assert mx.allclose(loss(cpu_forms.swiglu), loss(activations.swiglu), rtol=1e-4, atol=1e-5)


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


def test_swiglu_is_upstreams() -> None:
    gate = mx.concatenate(
        [mx.random.normal((40, 64)).reshape(-1) * 8, mx.array([0.0, -0.0, 90.0, -90.0, 500.0, -500.0])]
    )
    x = mx.random.normal(gate.shape)
    assert mx.allclose(cpu_forms.swiglu(gate, x), activations.swiglu(gate, x), rtol=1e-5, atol=1e-6)
    half = gate.astype(mx.bfloat16)
    assert cpu_forms.swiglu(half, half).dtype == mx.bfloat16


def test_modules_that_a_model_is_made_of_are_changed_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in (
        ("scaled_dot_product_attention", base.scaled_dot_product_attention),
        ("swiglu", activations.swiglu),
    ):
        monkeypatch.setattr(qwen3, name, function)
    arguments = qwen3.ModelArgs.from_dict(
        {
            "model_type": "qwen3",
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "rms_norm_eps": 1e-6,
            "vocab_size": 50,
            "rope_theta": 1e4,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
        }
    )
    model = qwen3.Model(arguments)
    tokens = mx.arange(120).reshape(3, 40) % 50
    before = model(tokens)
    mx.eval(before)
    assert cpu_forms.use_cpu_forms(model, enabled=False) == 0
    assert cpu_forms.use_cpu_forms(model, enabled=True) == 2
    assert cpu_forms.use_cpu_forms(model, enabled=True) == 0, "once"
    assert qwen3.swiglu is cpu_forms.swiglu
    assert mx.allclose(model(tokens), before, rtol=1e-4, atol=1e-5)


def test_exponentials_at_once_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    gate = mx.concatenate([mx.random.normal((5_000,)) * 8, mx.array([0.0, 90.0, -90.0, 500.0, -500.0, float("inf")])])
    x = mx.random.normal(gate.shape)
    queries, keys, values = arrays(SHAPES[3])
    lazy = [
        cpu_forms.swiglu(gate, x),
        cpu_forms.scaled_dot_product_attention(queries, keys, values, None, 0.2, "causal"),
    ]
    before = [mx.array(array) for array in (gate, x, queries, keys, values)]
    with cpu_forms.at_once(), warnings.catch_warnings(action="error"):
        made = [
            cpu_forms.swiglu(gate, x),
            cpu_forms.scaled_dot_product_attention(queries, keys, values, None, 0.2, "causal"),
        ]
    assert all(mx.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in zip(made, lazy, strict=True))
    after = (gate, x, queries, keys, values)
    assert all(mx.array_equal(a, b) for a, b in zip(before, after, strict=True)), "what it was given is as it was"


@pytest.mark.filterwarnings("error")
def test_what_is_no_number_is_none_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning that a caller's filters make an error would fail a step."""
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    monkeypatch.setattr(cpu_forms, "FEWEST_GATES", 1)
    queries, keys, values = arrays(SHAPES[3])
    tokens, columns = queries.shape[2], keys.shape[2]
    mask = mx.where(mx.arange(tokens)[:, None] == 0, -mx.inf, mx.zeros((tokens, columns)))
    gate, x = mx.array([float("-inf"), float("inf"), float("nan"), -1e38, 1.0]), mx.full(5, 1e38)

    def made() -> list[mx.array]:
        return [
            cpu_forms.scaled_dot_product_attention(queries, keys, values, None, 0.2, mask),
            cpu_forms.swiglu(gate, x),
        ]

    lazy = made()
    with cpu_forms.at_once():
        now = made()
    assert mx.isnan(now[0][:, :, 0]).all() and not mx.isnan(now[0][:, :, 1:]).any()
    assert all(mx.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in zip(now, lazy, strict=True))


def test_a_graph_that_is_built_ahead_has_what_its_inputs_become(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are built before their tokens are known; another thread that computes at once changes nothing there."""
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    entered, built = threading.Event(), threading.Event()

    def beside() -> None:
        with cpu_forms.at_once():
            entered.set()
            built.wait()

    other = threading.Thread(target=beside)
    other.start()
    entered.wait()
    tokens = mx.zeros(2_000)
    mx.eval(tokens)
    made = cpu_forms.exp_of(tokens + 1)
    built.set()
    other.join()
    np.array(tokens, copy=False)[:] = 1
    assert mx.allclose(made, mx.full(2_000, math.exp(2)))


def test_what_is_compiled_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    compiled = mx.compile(lambda x: cpu_forms.exp_of(x + 1))
    with cpu_forms.at_once():
        made = compiled(mx.ones(3_000))
    assert mx.allclose(made, mx.full(3_000, math.exp(2)))
    assert mx.allclose(compiled(mx.zeros(3_000)), mx.full(3_000, math.e)), "no number of the first call stayed in it"


def test_what_repeats_numbers_in_memory_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forms, "FEWEST_AT_ONCE", 1)
    with cpu_forms.at_once():
        for x in (mx.broadcast_to(mx.array([1.0, 2.0]), (500, 2)), mx.ones((40, 50)).T):
            before = mx.array(x)
            assert mx.allclose(cpu_forms.exp_of(-x), mx.exp(-before))
