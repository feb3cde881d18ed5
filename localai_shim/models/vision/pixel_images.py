"""Pictures as image processors take them, of pixels that are an array already."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image


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

    @property
    def _changed(self) -> bool:
        return self.im is not self._core
