"""Experts of gpt-oss as transformers 5 saves them compute what those of mlx-lm's own form do."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import gpt_oss

from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.weights import folder_weights
from localai_shim.options import LoadOptions
from tests.architectures import config_of, randomise
from tests.tiny import make_tokenizer

KEYS = {field.name for field in dataclasses.fields(gpt_oss.ModelArgs)} & config_of("gpt_oss").keys()


def folder_of(made: Path, weights: dict[str, mx.array]) -> Path:
    made.mkdir()
    make_tokenizer(made)
    mx.eval(weights)
    mx.save_safetensors(str(made / "model.safetensors"), weights, {"format": "pt"})
    (made / "config.json").write_text(json.dumps({key: config_of("gpt_oss")[key] for key in KEYS}))
    return made


def plain(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Weights of mlx-lm's form as transformers names and lays them out."""
    made: dict[str, mx.array] = {}
    for name, array in weights.items():
        if ".experts.gate_proj." in name:
            other = weights[name.replace("gate_proj", "up_proj")]
            both = mx.stack([array, other], axis=2).flatten(1, 2)  # a row of each in turn
            if name.endswith(".weight"):
                made[name.replace("gate_proj.weight", "gate_up_proj")] = both.swapaxes(1, 2)
            else:
                made[name.replace("gate_proj.bias", "gate_up_proj_bias")] = both
        elif ".experts.down_proj." in name:
            is_bias = name.endswith(".bias")
            ending = "down_proj_bias" if is_bias else "down_proj"
            made[f"{name.rpartition('.down_proj')[0]}.{ending}"] = array if is_bias else array.swapaxes(1, 2)
        elif ".experts.up_proj." not in name:
            made[name] = array
    return made


def test_experts_that_are_not_packed_load(tmp_path: Path) -> None:
    mx.random.seed(0)
    model = gpt_oss.Model(gpt_oss.ModelArgs.from_dict(copy.deepcopy(config_of("gpt_oss"))))
    randomise(model)
    weights = dict(tree_flatten(model.parameters()))
    saved = plain(weights)
    assert any(name.endswith(".experts.gate_up_proj") for name in saved)
    loaded: list[Any] = [
        load_model(str(folder_of(tmp_path / name, each)), LoadOptions())
        for name, each in (("own", weights), ("saved", saved))
    ]
    one, other = (
        np.array(each.forward(StepInput(mx.array([[5, 9, 13, 21]]), each.new_cache())).logits) for each in loaded
    )
    assert np.allclose(one, other, atol=1e-4)
    loaded[0].read_weights(folder_weights(tmp_path / "saved"))()
