"""Products of few rows in pieces: MLX's results, for the rows that a trial finds them faster for."""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import pytest
from mlx_lm.tuner.lora import LoRALinear

from localai_shim import LocalOpenAI
from localai_shim.backends.x86 import forms, products
from localai_shim.backends.x86.forms import CpuForms
from localai_shim.backends.x86.products import MOST_RESULTS, MOST_ROWS, MOST_STEPS, in_pieces, pieces_of, use_pieces
from tests import inside
from tests.graphs import operations
from tests.machine_forms import use_forms
from tests.samples import only
from tests.tiny import tiny

pytestmark = pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="GPUs have their own forms")

INPUTS, OUTPUTS = 96, 4_000


class Layers(nn.Module):  # type: ignore[misc]
    """Layers of each kind, some of them too small for pieces."""

    def __init__(self) -> None:
        super().__init__()
        mx.random.seed(0)
        self.embedding = nn.Embedding(OUTPUTS, INPUTS)
        self.biased = nn.Linear(INPUTS, OUTPUTS)
        self.plain = nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.inner = LoRALinear.from_base(nn.Linear(INPUTS, OUTPUTS))
        self.summed = nn.ShardedToAllLinear(INPUTS, OUTPUTS)
        self.share = nn.AllToShardedLinear(INPUTS, OUTPUTS)
        self.turned = nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.turned.weight = mx.contiguous(self.turned.weight.T).T  # as gpt2's
        self.small = nn.Linear(INPUTS, 16)

    def results(self, x: mx.array) -> dict[str, mx.array]:
        return {
            "embedding": self.embedding.as_linear(x),
            **{name: self[name](x) for name in ("biased", "plain", "inner", "summed", "share", "turned", "small")},
        }


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let trials find pieces faster for up to this number of rows."""
    return lambda rows: monkeypatch.setattr(products, "most_rows", lambda weights: rows)


@pytest.mark.parametrize(
    "shape",
    [
        *((INPUTS,), (1, 1, INPUTS), (3, 1, INPUTS), (1, 5, INPUTS), (5, 1, INPUTS), (1, 7, INPUTS)),
        *((2, 2, 2, INPUTS), (1, 9, INPUTS), (0, 1, INPUTS)),
    ],
    ids=str,
)
def test_layers_compute_what_they_did(shape: tuple[int, ...], few: Any) -> None:
    ours, x = Layers(), mx.random.normal(shape, key=mx.random.key(1))
    theirs = ours.results(x)
    few(MOST_ROWS)
    assert use_pieces(ours) == 7 and use_pieces(ours) == 0
    for name, result in ours.results(x).items():
        assert result.shape == theirs[name].shape, name
        np.testing.assert_allclose(np.array(result), np.array(theirs[name]), atol=1e-4, err_msg=name)
    assert np.array_equal(np.array(ours.embedding(mx.array([7]))), np.array(ours.embedding.weight[7:8]))


def test_only_few_rows_of_float32_have_pieces() -> None:
    weight, x = mx.ones((OUTPUTS, INPUTS)), mx.ones((4, INPUTS))
    assert in_pieces(x, weight, few=4) is not None
    assert in_pieces(x, weight, few=3) is None
    assert in_pieces(x.astype(mx.bfloat16), weight, few=4) is None
    assert in_pieces(x, weight.astype(mx.bfloat16), few=4) is None
    assert in_pieces(x, mx.ones((16, INPUTS)), few=4) is None, "OpenBLAS copies none of these"


def test_pieces_are_one_product_for_mlx() -> None:
    made = in_pieces(mx.ones((4, INPUTS)), mx.ones((OUTPUTS, INPUTS)), few=4)
    assert made is not None and operations(made)["Matmul"] == 1


@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(4_096, 256), (3_072, 1_024), (151_936, 1_024), (2_048, 6_144), (49_152, 576)]
)
def test_pieces_are_equal_and_as_small_as_openblas_needs_them(outputs: int, inputs: int, rows: int) -> None:
    pieces = pieces_of(rows, outputs, inputs)
    each = outputs // pieces
    assert pieces > 1 and each * pieces == outputs
    assert rows * each <= MOST_RESULTS and rows * each * inputs <= MOST_STEPS


@pytest.mark.parametrize(("outputs", "inputs"), [(4_001, 256), (448, 256), (100, 70_000)], ids=str)
def test_weights_without_such_pieces_are_multiplied_whole(outputs: int, inputs: int) -> None:
    assert pieces_of(1, outputs, inputs) == 1


class Clock:
    """Stands for the seconds that a product takes, whole and in pieces, by its rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: dict[int, float]) -> None:
        self.trials: list[int] = []

        def in_turns(*runs: Any) -> list[float]:
            made = [run() for run in runs]
            assert all(mx.allclose(whole, other, atol=1e-4).item() for whole, other in zip(*made, strict=True))
            self.trials.append(made[0][0].shape[0])
            return [1.0, pieces[self.trials[-1]]]

        monkeypatch.setattr(products, "in_turns", in_turns)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ({8: 0.8}, 8),
        ({8: 0.9, 4: 0.5}, 4),
        ({8: 2.0, 4: 1.0, 2: 0.9, 1: 0.99}, 1),
        ({8: 2.0, 4: 1.0, 2: 0.9, 1: 1.01}, 0),
    ],
    ids=["much faster", "for fewer rows", "for one row", "slower"],
)
def test_a_trial_decides_for_how_many_rows(
    pieces: dict[int, float], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, pieces)
    model = Layers()
    assert use_pieces(model) == (7 if expected else 0)
    assert clock.trials == list(pieces)
    assert getattr(model.plain, "kernel", products.Pieces(0)).few == expected


def test_models_of_small_layers_and_of_half_precision_have_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {})
    half = Layers()
    half.set_dtype(mx.bfloat16)
    assert use_pieces(half) == 0 and use_pieces(nn.Linear(16, 16)) == 0 and not clock.trials


def test_models_too_small_to_measure_have_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result would be chance: two loads of one model would round differently."""
    clock = Clock(monkeypatch, dict.fromkeys(range(1, MOST_ROWS + 1), 0.1))
    assert use_pieces(nn.Linear(128, 2_047)) == 0 and not clock.trials
    assert use_pieces(nn.Linear(128, 2_048)) == 1 and clock.trials == [MOST_ROWS]


def test_a_trial_multiplies_with_a_part_of_large_models(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [mx.ones((16, INPUTS)), *[mx.ones((OUTPUTS, INPUTS))] * 5]
    monkeypatch.setattr(products, "TRIAL_NUMBERS", 2 * OUTPUTS * INPUTS)
    assert [w.shape for w in products._some(weights, 4)] == [(OUTPUTS, INPUTS)] * 2
    monkeypatch.setattr(products, "TRIAL_NUMBERS", 750 * INPUTS)
    [part] = products._some(weights, 4)
    assert part.shape == (750, INPUTS) and pieces_of(4, 750, INPUTS) > 1


PROMPTS = [[(7 * i + 11 * j) % 390 + 3 for j in range(length)] for i, length in enumerate((1, 3, 9, 40, 70))]


@functools.cache
def alone(kind: str) -> list[list[int]]:
    model, tokenizer = mlx_lm.load(str(tiny(kind)))[:2]
    runs = [[r.token for r in mlx_lm.stream_generate(model, tokenizer, p, max_tokens=16)] for p in PROMPTS]
    return [[token for token in run if token not in tokenizer.eos_token_ids] for run in runs]


@pytest.mark.parametrize("speculation", ["auto", "off"])
@pytest.mark.parametrize("kind", only(["qwen3", "gemma3_text"], ["qwen3", "gemma3_text", "qwen3_next", "qwen3_moe"]))
def test_a_batchs_tokens_are_mlx_lms(kind: str, speculation: Any, few: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few(MOST_ROWS)
    monkeypatch.setattr(products, "MOST_RESULTS", 64)
    monkeypatch.setattr(products, "LEAST_OUTPUTS", 1)
    monkeypatch.setattr(forms, "on_x86_cpu", lambda: True)
    use_forms(monkeypatch, CpuForms())
    pieces_of.cache_clear()
    try:
        with LocalOpenAI(tiny(kind), keep_alive=0, speculation=speculation) as client:
            made = client.completions.create(
                model="any", prompt=PROMPTS, max_tokens=16, temperature=0, extra_body={"return_token_ids": True}
            )
            ends = inside.engine(client).model.eos_token_ids
            layers = {type(layer).__name__ for layer in inside.network(inside.engine(client).model).modules()}
        assert "FewRowsLinear" in layers
        runs: list[list[int]] = [choice.token_ids for choice in made.choices]  # type: ignore[attr-defined]
        assert [[token for token in run if token not in ends] for run in runs] == alone(kind)
    finally:
        pieces_of.cache_clear()
