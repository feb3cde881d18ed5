"""Planted faults change logits by far more than the comparison allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localai_shim.models import loading
from localai_shim.models.faults import table
from tests import inside
from tests.reference import comparison
from tests.reference.cases import Case
from tests.reference.text_cases import CASES

FACTOR = 5
"""Times the tolerance that a planted fault changes logits by at least."""


def scale_attention(model: Any) -> None:
    for layer in model.layers:
        layer.self_attn.scale *= 1.01


def forget_a_bias(model: Any) -> None:
    layer = model.layers[-1].self_attn.o_proj
    layer.bias = layer.bias * 0


LAYERS: dict[str, tuple[Case, Callable[[Any], None]]] = {
    "attention's scale by 1 %": (CASES["llama"]["plain"], scale_attention),
    "a bias of one layer": (CASES["llama"]["biases"], forget_a_bias),
}
SETTINGS: dict[str, tuple[Case, Callable[[dict[str, Any]], object]]] = {
    "window by one": (
        CASES["olmo3"]["plain"],
        lambda config: config.update(sliding_window=config["sliding_window"] + 1),
    ),
    "rope_theta by 2 %": (CASES["llama"]["plain"], lambda config: config["rope_parameters"].update(rope_theta=5100.0)),
    "YaRN's factor by 2 %": (CASES["llama"]["yarn"], lambda config: config["rope_parameters"].update(factor=4.08)),
    "soft cap by 10 %": (CASES["gemma2"]["plain"], lambda config: config.update(final_logit_softcapping=33.0)),
}


def compare(case: Case, folder: Path, change: Callable[[dict[str, Any]], object] | None = None) -> tuple[Any, Any]:
    original = comparison.build(case)
    comparison.save(original, folder)
    if change is not None:
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
    return comparison.load(folder), comparison.expected_logits(original)


@pytest.mark.parametrize("name", LAYERS)
def test_a_fault_of_a_layer_is_noticed(name: str, tmp_path: Path) -> None:
    case, plant = LAYERS[name]
    model, expected = compare(case, tmp_path)
    plant(inside.network(model))
    assert comparison.difference(comparison.logits_in_one_pass(model), expected) > FACTOR * case.tolerance


@pytest.mark.parametrize("name", SETTINGS)
def test_another_setting_is_noticed(name: str, tmp_path: Path) -> None:
    case, change = SETTINGS[name]
    model, expected = compare(case, tmp_path, change)
    assert comparison.difference(comparison.logits_in_one_pass(model), expected) > FACTOR * case.tolerance


@pytest.mark.parametrize("name", ["ernie4_5_moe", "falcon_h1", "gemma", "granitemoehybrid", "jamba", "mamba2"])
def test_a_fault_of_upstream_is_noticed_if_nothing_mends_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]["multipliers" if name == "falcon_h1" else "plain"]
    loads = [fault for fault in table.FAULTS[f"mlx_lm.models.{name}"] if "not read" in fault.what]
    monkeypatch.setitem(table.FAULTS, f"mlx_lm.models.{name}", tuple(loads))
    model, expected = compare(case, tmp_path)
    assert comparison.difference(comparison.logits_in_one_pass(model), expected) > case.tolerance


def test_rounded_ends_of_yarns_ramp_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "set_untruncated", lambda model, config: None)
    case = CASES["gpt_oss"]["plain"]
    model, expected = compare(case, tmp_path)
    assert comparison.difference(comparison.logits_in_one_pass(model), expected) > FACTOR * case.tolerance
