"""Pictures as image processors take them, of pixels that are an array already."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...threads.workers import CORES, run_all

_BAND_LINES = 64  # of what a thread makes, at least


class Shown(Image.Image):
    """An image of an array that is never written to, `[height, width, 3]` of uint8, and NumPy reads that array.

    PIL would copy the picture, write its pixels out in pieces and join these: a third of what processing 20 megapixels
    takes.
    """

    _core: object = None  # of a copy, or of what was unpickled

    def __init__(self, pixels: npt.NDArray[np.uint8]) -> None:
        super().__init__()
        made = Image.fromarray(pixels)
        self._pixels, self._core = pixels, made.im
        self.im, self._mode, self._size = made.im, made.mode, made.size
        self.readonly = 1  # whatever changes the picture in its place takes another core first

    @property
    def __array_interface__(self) -> dict[str, Any]:
        made: dict[str, Any] = super().__array_interface__ if self._changed else dict(self._pixels.__array_interface__)
        return made

    def convert(self, mode: str | None = None, *args: Any, **options: Any) -> Image.Image:
        """The picture itself where it would be copied."""
        same = mode == self.mode and not self._changed
        return self if same else super().convert(mode, *args, **options)

    def resize(
        self,
        size: tuple[int, int] | list[int] | npt.NDArray[Any],
        resample: int | None = None,
        box: tuple[float, float, float, float] | None = None,
        reducing_gap: float | None = None,
    ) -> Image.Image:
        """Resize on several cores: PIL lets go of the GIL meanwhile."""
        width, height = int(size[0]), int(size[1])
        # PIL goes over rows first, but of tall pictures, and where rows shrink more than columns.
        shrinks_evenly = height * self.width >= width * self.height and self.height <= 2 * self.width
        rows_first = height >= self.height or shrinks_evenly
        plain = box is None and reducing_gap is None and resample not in (None, Image.Resampling.NEAREST)
        if not (plain and rows_first) or min(width, height) < 2 * _BAND_LINES or CORES < 2:
            return super().resize((width, height), resample, box, reducing_gap)
        wide = _in_bands(self, (width, self.height), resample, down=True)
        return _in_bands(wide, (width, height), resample, down=False)

    @property
    def _changed(self) -> bool:
        return self.im is not self._core


def _in_bands(image: Image.Image, size: tuple[int, int], resample: int | None, *, down: bool) -> Image.Image:
    """Resize in one direction, in bands along it, one below the other or side by side: what is made is the same."""
    if size == image.size:
        return image
    lines = size[1] if down else size[0]
    bands = max(1, min(CORES, lines // _BAND_LINES))
    ends = [lines * i // bands for i in range(bands + 1)]

    def band(first: int, last: int) -> Image.Image:
        """Cut out before: of a box PIL would go over the other direction as well."""
        if down:
            return image.crop((0, first, image.width, last)).resize((size[0], last - first), resample)
        return image.crop((first, 0, last, image.height)).resize((last - first, size[1]), resample)

    made = run_all([partial(band, first, last) for first, last in pairwise(ends)])
    joined = Image.new(image.mode, size, None)
    for first, part in zip(ends, made, strict=False):
        joined.paste(part, (0, first) if down else (first, 0))
    return joined
