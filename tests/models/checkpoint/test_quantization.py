"""Checkpoints that others than MLX have quantized, and settings that are none: refused by what they are, or loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import Json, ModelLoadError
from tests.tiny import tiny

Weights = dict[str, mx.array]
Change = Callable[[str, mx.array], Weights]
"""What a tool writes for the matrix of a layer: the layer's name with a dot, and the matrix."""


def bitsandbytes(layer: str, matrix: mx.array) -> Weights:
    packed = mx.zeros((matrix.size // 2, 1), mx.uint8)
    return {f"{layer}weight": packed, f"{layer}weight.absmax": mx.zeros(4), f"{layer}weight.quant_map": mx.zeros(16)}


def int8(layer: str, matrix: mx.array) -> Weights:
    return {f"{layer}weight": matrix.astype(mx.int8), f"{layer}SCB": mx.zeros(matrix.shape[0])}


def float8(layer: str, matrix: mx.array) -> Weights:
    return {f"{layer}weight": mx.to_fp8(matrix), f"{layer}weight_scale_inv": mx.ones((1, 1))}


def bare_float8(layer: str, matrix: mx.array) -> Weights:
    return {f"{layer}weight": mx.to_fp8(matrix)}


def gptq(layer: str, matrix: mx.array) -> Weights:
    rows, columns = matrix.shape
    return {
        f"{layer}qweight": mx.zeros((columns // 8, rows), mx.uint32),
        f"{layer}qzeros": mx.zeros((columns // 32, rows // 8), mx.uint32),
        f"{layer}scales": mx.zeros((columns // 32, rows), mx.float16),
        f"{layer}g_idx": mx.zeros((columns,), mx.int32),
    }


def awq(layer: str, matrix: mx.array) -> Weights:
    rows, columns = matrix.shape
    return {
        f"{layer}qweight": mx.zeros((columns, rows // 8), mx.uint32),
        f"{layer}qzeros": mx.zeros((columns // 32, rows // 8), mx.uint32),
        f"{layer}scales": mx.zeros((columns // 32, rows), mx.float16),
    }


def of_mlx(layer: str, matrix: mx.array) -> Weights:
    weight, scales, biases = mx.quantize(matrix, group_size=32, bits=4)
    return {f"{layer}weight": weight, f"{layer}scales": scales, f"{layer}biases": biases}


def renamed(name: str) -> Change:
    return lambda layer, matrix: {f"{layer}{name}": matrix}


def plain(layer: str, matrix: mx.array) -> Weights:
    return {f"{layer}weight": matrix}


def folder_of(made: Path, config: Json, change: Change) -> Path:
    """A checkpoint with these fields in its config, whose layers' matrices a tool has written."""
    shutil.copytree(tiny("qwen3", head_dim=32), made)
    path = made / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    weights = mx.load(str(made / "model.safetensors"))
    assert isinstance(weights, dict)
    written: Weights = {}
    for name, array in weights.items():
        written |= change(name.removesuffix("weight"), array) if name.endswith("proj.weight") else {name: array}
    mx.eval(written)
    mx.save_safetensors(str(made / "model.safetensors"), written, {"format": "mlx"})
    return made


def by(method: str | None, **more: Any) -> Json:
    return {"quantization_config": {"quant_method": method, **more}}


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (by("bitsandbytes", load_in_4bit=True), bitsandbytes, "quantized as 'bitsandbytes' .*parameters not in model"),
        (by("bitsandbytes", load_in_8bit=True), int8, "quantized as 'bitsandbytes'"),
        (by("fp8", weight_block_size=[128, 128]), float8, "quantized as 'fp8' .*weight_scale_inv"),
        (by("gptq", bits=4, group_size=32), gptq, "quantized as 'gptq' .*g_idx"),
        (by("gptq", bits=8, group_size=32), gptq, "quantized as 'gptq'"),
        (by("awq", bits=0), awq, "quantized as 'awq'"),
        (
            by("compressed-tensors", format="pack-quantized"),
            renamed("weight_packed"),
            "as 'compressed-tensors' .*_packed",
        ),
        (by("compressed-tensors", format="float-quantized"), plain, "unsupported compressed-tensors format 'float-q"),
        (by("compressed-tensors"), plain, "unsupported compressed-tensors format None"),
        (by("hqq"), renamed("W_q"), "quantized as 'hqq'"),
        (by("modelopt", quant_algo="FP8"), plain, "Unsupported modelopt quant_algo: FP8"),
        (by("modelopt"), plain, r"quantized as 'modelopt' .*\(KeyError: 'quant_algo'\)"),
        (by("bitnet"), plain, "quantized as 'bitnet' .*Missing 15 parameters"),
        (by("fp8", scale_fmt="ue8m0", weight_block_size=7), plain, "quantized as 'fp8' .*TypeError"),
        (by("fp8"), bare_float8, r"proj.weight' holds integers of the type mlx.core.uint8 .* the quantization 'fp8'\."),
        ({}, bare_float8, "proj.weight' holds integers of the type mlx.core.uint8"),
    ],
)
def test_a_form_that_cannot_be_read_is_named(config: Json, change: Change, message: str, tmp_path: Path) -> None:
    """MLX reads float8 as bytes, and upstream takes these for numbers where nothing else is wrong."""
    folder = folder_of(tmp_path / "made", config, change)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(str(folder), LoadOptions())
    assert str(caught.value).startswith(f"The model '{folder}' could not be loaded: ")
    assert "Choose an MLX version of the model, or make one of its original weights" in str(caught.value)
    assert len(str(caught.value)) < 900


FOUR = {"group_size": 32, "bits": 4}
FIELDS: list[Any] = [
    ({"quantization": 7}, "'quantization' is 7, not an object"),
    ({"quantization": []}, r"'quantization' is \[\], not an object"),
    ({"quantization": {}}, "'quantization' lacks 'group_size'"),
    ({"quantization": {"group_size": 64}}, "'quantization' lacks 'bits'"),
    ({"quantization": {"group_size": 0, "bits": 4}}, "'quantization': 'group_size' of all layers is 0"),
    ({"quantization": {"group_size": 64, "bits": "4"}}, "'bits' of all layers is '4'"),
    ({"quantization": {"group_size": 64, "bits": 2**40}}, "'bits' of all layers is 1099511627776"),
    ({"quantization": {"group_size": 64, "bits": True}}, "'bits' of all layers is True"),
    ({"quantization": {**FOUR, "lm_head": {"bits": None}}}, "'bits' of lm_head is None"),
    ({"quantization_config": 7}, "'quantization_config' is 7, not an object"),
    ({"quantization_config": [1]}, r"'quantization_config' is \[1\], not an object"),
    (by(None), "'quantization_config' has no 'quant_method'"),
    ({"quantization_config": FOUR}, "has no 'quant_method'.* the field's name has to be 'quantization'"),
    ({"text_config": {"quantization_config": "x"}}, "'text_config.quantization_config' is 'x', not an object"),
]


@pytest.mark.parametrize(("config", "message"), FIELDS, ids=range(len(FIELDS)))
def test_settings_that_are_none_are_refused_by_their_field(config: Json, message: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "made", config, of_mlx)
    with pytest.raises(ModelLoadError, match=rf"could not be loaded: config.json: .*{message}"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize("change", [of_mlx, awq])
def test_settings_that_were_lost_are_missed(change: Change, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "made", {}, change)
    with pytest.raises(ModelLoadError, match=r"its weights are quantized, but config.json has no 'quantization'"):
        load_model(str(folder), LoadOptions())


@pytest.mark.parametrize(
    ("config", "change"),
    [
        ({"quantization": FOUR}, of_mlx),
        ({"quantization": FOUR, "quantization_config": FOUR}, of_mlx),
        ({"quantization": {**FOUR, "model.layers.0.mlp.up_proj": FOUR}}, of_mlx),
        ({"quantization": FOUR, **by("bitsandbytes")}, of_mlx),
        (by("awq", bits=4, group_size=32), awq),
        (by("bitsandbytes", load_in_4bit=True), plain),
        ({"quantization_config": {}}, plain),
        ({"quantization": None, "quantization_config": None}, plain),
    ],
)
def test_what_upstream_reads_loads(config: Json, change: Change, tmp_path: Path) -> None:
    """A method that is left over in the config of weights that are quantized no longer is no reason to refuse them."""
    load_model(str(folder_of(tmp_path / "made", config, change)), LoadOptions())
