"""Bits of single layers are those of the config, whichever names it has for the layers."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from localai_shim.models.checkpoint.quantization import with_layers_names
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests import inside
from tests.vision import tiny_vision

FOUR, EIGHT = {"group_size": 32, "bits": 4}, {"group_size": 32, "bits": 8}
KINDS = ["qwen3_vl", "glm4v", "qwen3_5"]


BEGINS = {
    "language_model.model.": "model.language_model.",
    "language_model.": "",
    "vision_tower.": "model.visual.",
}
"""How names begin in mlx-vlm's classes, and as transformers has them."""


def published_name(name: str) -> str:
    """A tensor's or layer's name as the family's authors have it."""
    begin = next((each for each in BEGINS if name.startswith(each)), "")
    return BEGINS.get(begin, "") + name.removeprefix(begin)


def layers_of(weights: dict[str, mx.array]) -> list[str]:
    """Layers whose matrices can be packed."""
    names = [name.removesuffix(".weight") for name in weights if name.endswith("proj.weight")]
    names = [name for name in names if name.startswith("language_model")]
    return [name for name in names if weights[f"{name}.weight"].shape[-1] % 32 == 0]


def mixed(
    made: Path, kind: str, rename: Any, *, tensors: Any = lambda name: name, more: Any = None
) -> tuple[Path, list[str]]:
    """A checkpoint of 4 bits whose first layers have 8, under names that `rename` makes of the model's.

    Returns:
        The folder, and the layers of 8 bits.
    """
    shutil.copytree(tiny_vision(kind), made)
    weights = mx.load(str(made / "model.safetensors"))
    assert isinstance(weights, dict)
    layers = layers_of(weights)
    eight = layers[: len(layers) // 2]
    written: dict[str, mx.array] = {}
    for name, array in weights.items():
        layer = name.removesuffix(".weight")
        if layer not in layers:
            written[tensors(name)] = array
            continue
        packed = mx.quantize(array, **(EIGHT if layer in eight else FOUR))
        for part, each in zip(("weight", "scales", "biases"), packed, strict=True):
            written[tensors(f"{layer}.{part}")] = each
    mx.eval(written)
    mx.save_safetensors(str(made / "model.safetensors"), written, {"format": "mlx"})
    path = made / "config.json"
    bits = {**FOUR, **{rename(layer): EIGHT for layer in eight}, **(more or {})}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization": bits}))
    return made, eight


def bits_of(model: Any) -> dict[str, int]:
    return {
        name: layer.bits
        for name, layer in inside.network(model).named_modules()
        if isinstance(layer, nn.QuantizedLinear)
    }


@pytest.fixture(autouse=True)
def _packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers stay packed on this machine, so that their bits can be seen."""
    monkeypatch.setattr("localai_shim.backends.own_forms.OwnForms.prepare", lambda *args, **how: {})


def test_names_are_a_families_own() -> None:
    assert published_name("language_model.model.layers.0.x") == "model.language_model.layers.0.x"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tensors", [published_name, str])
@pytest.mark.parametrize("rename", [published_name, str, lambda name: name.removeprefix("language_model.")])
def test_names_of_the_checkpoint_are_names_of_layers(kind: str, rename: Any, tensors: Any, tmp_path: Path) -> None:
    folder, eight = mixed(tmp_path / "mixed", kind, rename, tensors=tensors)
    found = bits_of(load_model(str(folder), LoadOptions()))
    assert {name for name, bits in found.items() if bits == 8} == set(eight)
    assert set(found.values()) == {4, 8}


def test_settings_of_no_layer_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = {"model.language_model.layers.77.mlp.up_proj": EIGHT, "model.visual.nothing": False}
    folder, _ = mixed(tmp_path / "mixed", "qwen3_vl", published_name, tensors=published_name, more=more)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        load_model(str(folder), LoadOptions())
    [text] = [record.getMessage() for record in caplog.records if "does not have" in record.getMessage()]
    assert text.endswith("layers that the model does not have: model.language_model.layers.77.mlp.up_proj")


def test_layers_whose_bits_the_config_does_not_say_are_an_error(tmp_path: Path) -> None:
    folder, _ = mixed(tmp_path / "mixed", "qwen3_vl", lambda name: f"other.{name}", tensors=published_name)
    with pytest.raises(ModelLoadError, match="Expected shape"):
        load_model(str(folder), LoadOptions())


def test_settings_of_a_part_that_is_skipped_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    array = mx.ones(2)
    made = with_layers_names({**FOUR, "a.b": EIGHT}, {"c": "c"}, {"a.b.scales": array}, {"vision.b.scales": array})
    assert made == {**FOUR, "a.b": EIGHT} and caplog.text == ""
