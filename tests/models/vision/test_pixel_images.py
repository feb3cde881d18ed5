"""Pictures for processors are PIL's in every respect, but for where NumPy reads their pixels."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps

from localai_shim.models.vision.pixels import Shown
from tests.vision import picture

PIXELS = picture(30, 40).data
PIXELS.flags.writeable = False


def drawn(image: Image.Image) -> Image.Image:
    ImageDraw.Draw(image).rectangle((2, 2, 9, 9), fill="red")
    return image


def pasted(image: Image.Image) -> Image.Image:
    image.paste((1, 2, 3), (0, 0, 5, 5))
    return image


def small(image: Image.Image) -> Image.Image:
    image.thumbnail((10, 10))
    return image


@pytest.mark.parametrize(
    "work",
    [
        lambda image: image,
        drawn,
        pasted,
        small,
        lambda image: image.convert("RGB"),
        lambda image: drawn(image.convert("RGB")),
        lambda image: image.convert("L"),
        lambda image: image.convert("RGBA"),
        lambda image: image.resize((20, 15), Image.Resampling.BICUBIC),
        lambda image: image.crop((3, 4, 20, 21)),
        lambda image: image.transpose(Image.Transpose.ROTATE_90),
        lambda image: ImageOps.pad(image, (50, 50)),
        lambda image: ImageOps.exif_transpose(image),
        copy.copy,
        copy.deepcopy,
        lambda image: pickle.loads(pickle.dumps(image)),
        lambda image: pasted(copy.copy(image)),
    ],
)
def test_whatever_is_done_to_it_gives_what_pil_gives(work: Callable[[Image.Image], Image.Image]) -> None:
    want, got = work(Image.fromarray(PIXELS)), work(Shown(PIXELS))
    assert (got.mode, got.size) == (want.mode, want.size)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert got.tobytes() == want.tobytes()


def test_numpy_reads_the_pixels_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> bytes:
        raise AssertionError("the pixels were written out")

    monkeypatch.setattr(Image.Image, "tobytes", refuse)
    image = Shown(PIXELS)
    assert np.shares_memory(np.asarray(image.convert("RGB")), PIXELS)
    mine = np.array(image)
    mine[:] = 0
    assert PIXELS.any(), "of which an array is a copy"
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(image)[:] = 0
