"""Sampling that a checkpoint recommends, as far as it means something."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from tests.tiny import tiny


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.3),
        ("temperature", "hot"),
        ("top_p", 0.5 + 1),
        ("top_k", -5),
    ],
)
def test_a_recommended_setting_that_means_nothing_is_logged_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: Any
) -> None:
    folder = Path(shutil.copytree(tiny("qwen3"), tmp_path / "made"))
    (folder / "generation_config.json").write_text(json.dumps({"min_p": 0.1, name: value}))
    model = load_model(str(folder), LoadOptions())
    assert model.generation_defaults.get("min_p") == 0.1
    assert name not in model.generation_defaults
    [logged] = [each.getMessage() for each in caplog.records if "generation_config" in each.getMessage()]
    assert logged.startswith(f"'{folder / 'generation_config.json'}': {name} is {value!r}, and not a number from")
