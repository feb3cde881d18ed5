"""Configs as transformers 5 writes them, and as earlier versions did. transformers' own classes are the oracle."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

Config = dict[str, Any]

_PATTERNS = ("sliding_window_pattern", "full_attention_interval")


def is_known(kind: str) -> bool:
    """transformers has a class for configs of this `model_type`."""
    return kind in CONFIG_MAPPING


def saved(config: Config) -> Config:
    """The config.json of a model with this config that transformers 5 saves.

    Raises:
        Exception: its class refuses the config.
    """
    kind = CONFIG_MAPPING[config["model_type"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `rope_scaling`
        made: Config = json.loads(kind(**copy.deepcopy(config)).to_json_string())
    declared = {field.name for field in dataclasses.fields(kind)}
    for key in set(_PATTERNS) - declared:  # kept only if a config of before has it
        made.pop(key, None)
    return made


def completed(config: Config) -> Config:
    """A config of before with a value for each key that transformers 5 would write, but for RoPE."""
    return {**{key: value for key, value in with_numbers(saved(config)).items() if key != "rope_parameters"}, **config}


def with_numbers(config: Config) -> Config:
    """A config with the numbers that JSON lacks, as transformers reads them."""
    made: Config = json.loads(json.dumps(config), object_hook=_number)
    return made


def _number(value: Config) -> Any:
    return float(value["__float__"]) if value.keys() == {"__float__"} else value


def save_again(folder: Path, into: Path, **changes: Any) -> Path:
    """Copy a checkpoint, with the config.json that transformers 5 would write beside the same weights."""
    shutil.copytree(folder, into)
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    made = saved(config)
    assert "rope_parameters" in json.dumps(made) and "rope_theta" not in made
    (into / "config.json").write_text(json.dumps(made))
    return into
