"""Pictures as image processors take them, of pixels that are an array already."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..spare_threads import CORES, run_all

_BAND_ROWS = 64  # of what a thread makes, at least


class Shown(Image.Image):
    """A picture of an array `[height, width, 3]` of uint8 that nobody writes to, and NumPy reads that array.

    PIL would copy the picture, write its pixels out in pieces and join these: a third of what processing 20 megapixels
    takes.
    """

    _core: Any = None  # of a copy, or of what was unpickled

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
        """Resize a whole picture in bands, a core each: PIL lets go of the GIL meanwhile."""
        width, height = int(size[0]), int(size[1])
        bands = min(CORES, height // _BAND_ROWS)
        whole = box is not None or reducing_gap is not None or (width, height) == self.size
        if bands < 2 or whole or resample in (None, Image.Resampling.NEAREST):
            return super().resize((width, height), resample, box, reducing_gap)
        ends = [height * i // bands for i in range(bands + 1)]
        scale = self.height / height
        boxes = [(0, ends[i] * scale, self.width, ends[i + 1] * scale) for i in range(bands)]
        resized = super().resize
        made = run_all([partial(resized, (width, ends[i + 1] - ends[i]), resample, boxes[i]) for i in range(bands)])
        joined = Image.new("RGB", (width, height))
        for top, band in zip(ends, made, strict=False):
            joined.paste(band, (0, top))
        return joined

    @property
    def _changed(self) -> bool:
        return self.im is not self._core
