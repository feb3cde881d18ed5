"""Quick forms of image processors make the numbers of the slow ones, and say which pictures are the same."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from localai_shim.media import Media
from localai_shim.models.loading import load_model
from localai_shim.models.vision import pixels
from localai_shim.models.vision.model import VisionModel, on_device
from localai_shim.models.vision.pixels import Levels, Shown
from tests.models.vision.seeing import load
from tests.samples import only
from tests.vision import FAMILIES, make_model, picture

WIDE: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"max_pixels": 1100 * 1100},
    "qwen3_vl": {"max_pixels": 300 * 300, "patch_size": 16, "image_mean": [0.48, 0.45, 0.4], "image_std": [0.26] * 3},
    "glm4v": {"size": {"shortest_edge": 112**2, "longest_edge": 2 * 700**2}},
    "gemma3": {"size": {"height": 448, "width": 448}},
    "paligemma": {},
    "llava": {},
    "smolvlm": {"size": {"longest_edge": 1024}, "max_image_size": {"longest_edge": 256}},
    "idefics3": {"size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 128}},
    "pixtral": {"size": {"longest_edge": 512}},
    "kimi_vl": {},
}
SIZES = [(300, 420), (1024, 1024), (701, 333), (56, 84), (40, 61)]


@pytest.fixture(autouse=True)
def floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats for a tower are made here also where a GPU would make them."""
    monkeypatch.setattr(pixels, "has_gpu", lambda: False)


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl"])
def test_a_gpu_makes_the_same_floats_of_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, media = load(kind), picture(90, 123)
    want = model.text.process(media)
    monkeypatch.setattr(pixels, "has_gpu", lambda: True)
    got = model.text.process(media)
    levels, floats = got.inputs["pixel_values"], want.inputs["pixel_values"]
    assert isinstance(levels, Levels) and 8 * levels.nbytes == floats.nbytes and not levels.flags.writeable
    np.testing.assert_array_equal(np.array(on_device(levels)), floats)
    assert got.tokens == want.tokens and got.digest != model.text.process(picture(90, 123, seed=5)).digest
    np.testing.assert_array_equal(np.array(model.embed(got).rows), np.array(model.embed(want).rows))


@pytest.mark.filterwarnings("ignore:.*getdata is deprecated:DeprecationWarning")  # upstream's own form of Kimi's
@pytest.mark.parametrize("kind", only(["qwen2_5_vl", "gemma3", "smolvlm", "glm4v"], WIDE))
def test_what_towers_read_is_what_upstreams_processor_makes(kind: str, tmp_path: Path) -> None:
    import mlx_vlm.utils

    family = FAMILIES[kind]
    FAMILIES["wide"] = dataclasses.replace(family, pixels={**family.pixels, **WIDE[kind]})
    try:
        folder = make_model(tmp_path / "model", "wide")
    finally:
        del FAMILIES["wide"]
    model = load_model(str(folder), {})
    assert isinstance(model, VisionModel) and model._processor is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = mlx_vlm.utils.load_processor(folder, add_detokenizer=False, trust_remote_code=False)
    text = model._processor.placeholders["image"].text
    for size in SIZES:
        media = picture(*size)
        want = dict(theirs(images=[Image.fromarray(media.data)], text=[text]))
        got = model._processor(media)
        assert {"pixel_values"} <= got.inputs.keys() <= want.keys()
        for name, array in got.inputs.items():
            np.testing.assert_array_equal(array, np.array(want[name]))
        assert not any(array.flags.writeable for array in got.inputs.values())


@pytest.mark.parametrize(
    "size", [(500, 700), (1036, 1036), (1036, 777), (777, 1300), (333, 1301), (64, 700), (2000, 150)]
)
@pytest.mark.parametrize("resample", [Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BILINEAR])
def test_a_picture_that_several_threads_resize_is_the_same(
    size: tuple[int, int], resample: Image.Resampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "CORES", 5)
    for height, width in ((1024, 1024), (777, 1300), (100, 90)):
        data = picture(height, width).data
        want, got = Image.fromarray(data).resize(size, resample), Shown(data).resize(size, resample)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "gemma3", "kimi_vl"])
def test_digests_are_equal_where_the_model_sees_the_same_and_nowhere_else(kind: str) -> None:
    process = load(kind).text.process
    first = picture(700, 900)
    changed = first.data.copy()
    changed[400:430, 400:430] ^= 255
    assert process(first).digest == process(Media("image", first.data.copy(), "elsewhere", "high")).digest
    others = [Media("image", changed, "x"), picture(700, 900, detail="low"), picture(900, 700), picture(700, 901)]
    assert len({process(media).digest for media in (first, *others)}) == 5
