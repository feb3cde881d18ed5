"""Benchmarks for a GPU run on what they make: a smaller model of the same kind, on this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import gpu_vision
from benchmarks.vision import BareVision
from benchmarks.vision_models import SIZES, make_vision_model
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel

SIZE = dataclasses.replace(
    SIZES["small"],
    text=dataclasses.replace(SIZES["small"].text, layers=1, vocabulary=2_000),
    depth=1,
    full_attention=(0,),
    side=112,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("seeing") / "model"
    make_vision_model(made, SIZE)
    return made


def test_the_model_that_sees_can_be_asked(folder: Path) -> None:
    model = load_model(str(folder), {})
    assert isinstance(model, VisionModel)
    assert model.text.media_kinds >= {"image", "video"}
    assert gpu_vision._tower_seconds(model, SIZE.side, 1) > 0
    assert gpu_vision._prefill_seconds(model, SIZE.side, 2) > 0
    assert all(seconds > 0 for seconds in gpu_vision._step_seconds(model, 2, gpu_vision._tokens(SIZE), 2, 1))


def test_the_bare_model_beside_it_can_be_asked(folder: Path) -> None:
    bare = BareVision(folder)
    assert bare.tower_seconds(SIZE.side, 1) > 0
    assert bare.decode([8, 8], 2).streams[0].times
