"""The tokens that a size implies are those that the real processor makes of a picture, video or sound of that size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localai_shim.media import Detail, Media, MediaSize
from localai_shim.models.loading import load_model
from localai_shim.models.vision.model import VisionModel
from localai_shim.models.vision.processor import MediaProcessor
from tests.vision import FAMILIES, film, make_model, picture, sound
from tests.vision_others import shrunk
from tests.vision_parts import Family

SIDE = 28
QWEN: dict[str, Any] = {"max_pixels": SIDE * SIDE * 60}
GLM: dict[str, Any] = {"size": {"shortest_edge": 112**2, "longest_edge": 400**2}}
LONGEST: dict[str, Any] = {"size": {"longest_edge": 280}}
WIDE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "paddleocr_vl"), QWEN),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm_ocr"), GLM),
    **dict.fromkeys(("smolvlm", "idefics3"), LONGEST),
    "gemma4": {},
}
"""Families whose pictures take more or fewer tokens, with limits that let them."""
MANY = {"phi3_v": {"num_crops": 4}}
OTHERS = ("ernie4_5_moe_vl", "phi3_v")
LIKE = ("qwen2_5_vl", "glm4v_moe", "glm_ocr", "idefics3", "ernie4_5_moe_vl", "phi3_v")
SIZES = [
    (56, 56),
    (30, 100),
    (100, 30),
    (29, 41),
    (57, 300),
    (333, 128),
    (140, 140),
    (200, 390),
    (480, 640),
    (84, 1000),
]


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=pytest.mark.exhaustive if kind in LIKE else ()) for kind in (*WIDE, *OTHERS)],
)
def processor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaProcessor]:
    kind, folder = request.param, tmp_path_factory.mktemp("wide") / "model"
    with ExitStack() as stack:
        family = stack.enter_context(shrunk(kind)) if kind in OTHERS else FAMILIES[kind]
        limits = WIDE.get(kind, MANY.get(kind, {}))
        yield load(folder, dataclasses.replace(family, pixels={**family.pixels, **limits}))


def load(folder: Path, family: Family) -> MediaProcessor:
    FAMILIES["wide"] = family
    try:
        model = load_model(str(make_model(folder, "wide")), {})
    finally:
        del FAMILIES["wide"]
    assert isinstance(model, VisionModel) and model._processor is not None
    return model._processor


def taken(processor: MediaProcessor, media: Media) -> tuple[int, int]:
    """Number of tokens that are features' places, and of all."""
    made = processor(media)
    return len(processor.places(made)), len(made.tokens)


def implied(processor: MediaProcessor, size: MediaSize) -> int:
    unread = processor.unread(size)
    return 0 if unread is None else len(unread.tokens)


@pytest.mark.parametrize("detail", ["auto", "original"])
@pytest.mark.parametrize("size", SIZES)
def test_a_picture_takes_what_its_size_implies(
    processor: MediaProcessor, size: tuple[int, int], detail: Detail
) -> None:
    """It may stand on its side in its file: the fewer tokens of both ways count."""
    height, width = size
    ways = [taken(processor, picture(*way, detail=detail)) for way in ((height, width), (width, height))]
    tokens = implied(processor, MediaSize("image", height, width, detail=detail))
    assert min(places for places, _ in ways) <= tokens <= min(whole for _, whole in ways)


def test_many_sizes_imply_many_numbers(processor: MediaProcessor) -> None:
    assert len({implied(processor, MediaSize("image", *size)) for size in SIZES}) > 1


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl", "gemma4"])
@pytest.mark.parametrize("shape", [(4, 56, 84), (5, 84, 56), (9, 112, 140)])
def test_a_video_takes_what_its_frames_imply(kind: str, shape: tuple[int, int, int], tmp_path: Path) -> None:
    processor = load(tmp_path / "model", FAMILIES[kind])
    frames, height, width = shape
    places, _ = taken(processor, film(*shape))
    assert implied(processor, MediaSize("video", height, width, frames)) == places


@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_a_sound_takes_what_its_length_implies(seconds: float, tmp_path: Path) -> None:
    processor = load(tmp_path / "model", FAMILIES["gemma4"])
    places, _ = taken(processor, sound(seconds))
    assert implied(processor, MediaSize("audio", seconds=seconds)) == places


def test_limits_of_one_call_are_not_those_of_another(tmp_path: Path) -> None:
    processor = load(tmp_path / "model", FAMILIES["qwen2_vl"])
    large = [implied(processor, MediaSize("image", 560, 560, detail=detail)) for detail in ("auto", "original", "auto")]
    assert large == [4, 400, 4]
