"""Quantised layers: what they compute stays, how the CUDA back end runs them changes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from mlx.nn.layers.distributed import shard_linear
from mlx.utils import tree_flatten
from mlx_lm.tuner.lora import LoRALinear

from localai_shim.backends.cuda import products
from localai_shim.backends.cuda.products import (
    BatchedQuantizedEmbedding,
    BatchedQuantizedLinear,
    batch_quantised_layers,
)
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions
from tests import inside
from tests.samples import exhaustive
from tests.tiny import make_model

INPUTS, OUTPUTS = 128, 96
SHAPES = [(7, 1, INPUTS), (1, 5, INPUTS), (3, 5, INPUTS), (2, 3, 4, INPUTS), (INPUTS,), (7, INPUTS), (1, 1, INPUTS)]

on_cuda = mx.cuda.is_available() and mx.default_device() == mx.Device(mx.gpu)


class Layers(nn.Module):  # type: ignore[misc]
    """One layer of each kind that a quantised model has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(OUTPUTS, INPUTS)
        self.biased = nn.Linear(INPUTS, OUTPUTS, bias=True)
        self.plain = nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.full = nn.Linear(INPUTS, OUTPUTS)


@pytest.fixture
def layers() -> Layers:
    mx.random.seed(0)
    made = Layers()
    made.biased.bias = mx.random.normal((OUTPUTS,))
    nn.quantize(made, 64, 4, class_predicate=lambda path, _: path != "full")
    return made


@pytest.mark.parametrize("fill", [False, True], ids=["as is", "few rows filled up"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["biased", "plain", "embedding"])
def test_a_layer_computes_what_it_did(
    layers: Layers, name: str, shape: tuple[int, ...], fill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fill:
        layers.set_dtype(mx.float16)
        monkeypatch.setattr(products, "PAD_FROM_SIZE", 0)
    x = mx.random.normal(shape).astype(mx.float16 if fill else mx.float32)
    layer = layers[name]
    run = (lambda x: layer.as_linear(x)) if name == "embedding" else (lambda x: layer(x))
    alone = on_cuda and x.ndim == 1  # MLX's own layer fails there
    expected = run(x[None])[0] if alone else run(x)
    batch_quantised_layers(layers)
    result = run(x)
    assert result.shape == expected.shape == (*shape[:-1], OUTPUTS)
    assert result.dtype == expected.dtype
    assert mx.allclose(result, expected, rtol=1e-2 if fill else 1e-5, atol=1e-2 if fill else 1e-5)


@pytest.mark.parametrize("sharding", ["all-to-sharded", "sharded-to-all"])
@pytest.mark.parametrize("name", ["biased", "plain", "full"])
def test_a_layer_of_several_processes_computes_what_it_did(layers: Layers, name: str, sharding: str) -> None:
    """A group of one: its share is everything."""
    x = mx.random.normal((5, 1, INPUTS))
    expected = layers[name](x)
    layer = layers[name] = shard_linear(layers[name], sharding, group=mx.distributed.init())
    batch_quantised_layers(layers)
    assert (type(layer).__module__ == products.__name__) == (name != "full")
    assert mx.allclose(layer(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((4096,), (1, 4096)),
        ((1, 1, 4096), (1, 1, 4096)),
        ((4, 1, 4096), (4, 4096)),
        ((7, 1, 4096), (8, 4096)),
        ((1, 7, 4096), (8, 4096)),
        ((8, 1, 4096), (8, 4096)),
        ((3, 4, 4096), (12, 4096)),
        ((1, 12, 4096), (1, 12, 4096)),
    ],
    ids=str,
)
def test_what_a_large_layers_kernel_is_given(
    shape: tuple[int, ...], given: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows in one dimension; just under eight of them are filled up."""
    seen: list[tuple[int, ...]] = []

    def product(x: mx.array, *_: Any, **__: Any) -> mx.array:
        seen.append(x.shape)
        return mx.zeros((*x.shape[:-1], 4096))

    layer = nn.QuantizedLinear(64, 64, bias=False)
    layer.weight = mx.zeros((4096, 512), mx.uint32)
    batch_quantised_layers(layer)
    monkeypatch.setattr(mx, "quantized_matmul", product)
    assert layer(mx.zeros(shape, mx.bfloat16)).shape == (*shape[:-1], 4096)
    assert seen == [given]


LONG = 8_192


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "biased"),
    [(1, True), (8, False), (8, True), (33, False), pytest.param(128, False, marks=exhaustive), (128, True)],
)
def test_a_layer_of_many_inputs_computes_what_it_did(rows: int, biased: bool, dtype: mx.Dtype, bits: int) -> None:
    """With unpacked weights for many rows: it is as exact as MLX's own layer, which on a CPU is not very exact in half
    precision.
    """
    mx.random.seed(1)
    layer = nn.QuantizedLinear(LONG, 8, bias=biased, group_size=64, bits=bits)
    layer.set_dtype(dtype)
    x = mx.random.normal((rows, 1, LONG)).astype(dtype)
    exact = nn.QuantizedLinear(LONG, 8, bias=biased, group_size=64, bits=bits)
    exact.update(layer.parameters())
    exact.set_dtype(mx.float32)
    expected = exact(x.astype(mx.float32))
    mlxs = layer(x)
    batch_quantised_layers(layer)
    result = layer(x)
    assert (result.shape, result.dtype) == ((rows, 1, 8), dtype)
    unit = float(mx.abs(expected).max()) * (2**-10 if dtype == mx.float16 else 2**-7)
    errors = [float(mx.abs(y.astype(mx.float32) - expected).max()) for y in (result, mlxs)]
    assert errors[0] <= max(unit, 1.1 * errors[1])


@pytest.mark.parametrize(("rows", "unpacked"), [(127, False), (128, True), (2048, True)])
def test_weights_are_unpacked_for_many_rows(rows: int, unpacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.QuantizedLinear(64, 64, bias=False)
    layer.set_dtype(mx.bfloat16)
    batch_quantised_layers(layer)
    with monkeypatch.context() as patch:
        patch.setattr(mx, "quantized_matmul" if unpacked else "dequantize", None)
        assert layer(mx.zeros((1, rows, 64), mx.bfloat16)).shape == (1, rows, 64)
    assert layer(mx.zeros((1, rows, 64))).dtype == mx.float32


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("rows", [1, 32, 130])
def test_modes_of_quantising_that_are_not_affine_are_left_to_mlx(mode: str, rows: int) -> None:
    layer = nn.QuantizedLinear(LONG, 8, bias=False, mode=mode)
    x = mx.random.normal((rows, 1, LONG)).astype(mx.bfloat16)
    expected = layer(x)
    batch_quantised_layers(layer)
    result = layer(x)
    assert mx.allclose(result, expected, rtol=1e-2, atol=1e-1)


def test_a_small_layer_is_not_filled_up(layers: Layers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "pad", None)
    layers.set_dtype(mx.bfloat16)
    batch_quantised_layers(layers)
    assert layers.plain(mx.zeros((7, 1, INPUTS), mx.bfloat16)).shape == (7, 1, OUTPUTS)


def test_the_embedding_still_embeds(layers: Layers) -> None:
    ids = mx.array([[1, 2, 3], [3, 2, 90]])
    expected = layers.embedding(ids)
    batch_quantised_layers(layers)
    assert mx.array_equal(layers.embedding(ids), expected)


def test_weights_are_the_same_arrays_under_the_same_names(layers: Layers) -> None:
    before = dict(tree_flatten(layers.parameters()))
    assert batch_quantised_layers(layers) == 3
    after = dict(tree_flatten(layers.parameters()))
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_layers_that_are_not_quantised_and_subclasses_are_left_alone(layers: Layers) -> None:
    class Other(nn.QuantizedLinear):  # type: ignore[misc]
        def __call__(self, x: mx.array) -> mx.array:
            return x

    layers.plain.__class__ = Other
    batch_quantised_layers(layers)
    assert (type(layers.full), type(layers.plain)) == (nn.Linear, Other)
    assert (type(layers.biased), type(layers.embedding)) == (BatchedQuantizedLinear, BatchedQuantizedEmbedding)


def test_doing_it_twice_changes_nothing_more(layers: Layers) -> None:
    batch_quantised_layers(layers)
    assert batch_quantised_layers(layers) == 0


def test_a_lora_layer_around_one_computes_what_it_did_and_fuses(layers: Layers) -> None:
    lora = layers.plain = LoRALinear.from_base(layers.plain, r=4)
    lora.lora_b = mx.random.normal(lora.lora_b.shape)
    x = mx.random.normal((5, 1, INPUTS))
    expected, fused = lora(x), lora.fuse(dequantize=True)(x)
    batch_quantised_layers(layers)
    assert type(lora.linear) is BatchedQuantizedLinear
    assert mx.allclose(lora(x), expected, rtol=1e-4, atol=1e-4)
    assert mx.allclose(lora.fuse(dequantize=True)(x), fused, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tied", [False, True], ids=["own output layer", "tied embedding"])
def test_all_products_of_a_quantised_model_go_through_the_changed_layers(tmp_path: Path, tied: bool) -> None:
    """Relies on mlx-lm loading quantised weights into exactly these two classes of MLX."""
    path = make_model(tmp_path / "float", "qwen3", tie_word_embeddings=tied)
    mlx_lm.convert(str(path), str(tmp_path / "quantised"), quantize=True, q_bits=4, q_group_size=64)
    model, _ = mlx_lm.load(str(tmp_path / "quantised"))[:2]
    tokens = mx.array([[5], [6], [7]])
    expected = model(tokens)
    assert batch_quantised_layers(model) == 2 * 7 + (1 if tied else 2)
    assert not [layer for layer in model.modules() if type(layer) in (nn.QuantizedLinear, nn.QuantizedEmbedding)]
    assert mx.allclose(model(tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(on_cuda, reason="there the layers are changed")
def test_a_model_loaded_on_another_back_end_has_mlxs_own_layers(tmp_path: Path) -> None:
    path = make_model(tmp_path / "float", "qwen3")
    mlx_lm.convert(str(path), str(tmp_path / "quantised"), quantize=True, q_bits=4, q_group_size=64)
    loaded = load_model(str(tmp_path / "quantised"), LoadOptions())
    assert BatchedQuantizedLinear not in {type(layer) for layer in inside.network(loaded).modules()}


@pytest.mark.timed
@pytest.mark.skipif(not on_cuda, reason="needs MLX's CUDA back end")
@pytest.mark.parametrize(
    ("inputs", "outputs", "slow", "fast", "times"),
    [
        (4_096, 12_288, (32, 1), (32,), 2.0),
        (4_096, 12_288, (7,), (8,), 2.0),
        (4_096, 12_288, (2048,), (2048, "unpacked"), 1.5),
    ],
    ids=["split rows", "fewer than eight", "many rows"],
)
def test_what_mlx_on_cuda_is_slow_at(
    inputs: int, outputs: int, slow: tuple[Any, ...], fast: tuple[Any, ...], times: float
) -> None:
    """The upstream behaviour that all this is for. Where this fails, what answers it can go."""
    layer = nn.QuantizedLinear(inputs, outputs, bias=False, group_size=64, bits=4)
    layer.set_dtype(mx.bfloat16)
    ours = nn.QuantizedLinear(inputs, outputs, bias=False, group_size=64, bits=4)
    ours.update(layer.parameters())
    batch_quantised_layers(ours)

    def seconds(shape: tuple[Any, ...]) -> float:
        run = ours if isinstance(shape[-1], str) else layer
        x = mx.random.normal((*(n for n in shape if isinstance(n, int)), inputs)).astype(mx.bfloat16)
        mx.eval(x, layer.parameters())
        taken = []
        for _ in range(10):
            start = time.perf_counter()
            for _ in range(10):  # each waits for the one before it, as in a model
                x = (run(x)[..., :1] * 0 + x).astype(mx.bfloat16)
            mx.eval(x)
            taken.append(time.perf_counter() - start)
        return sorted(taken)[len(taken) // 2]

    assert seconds(slow) > times * seconds(fast)
