"""Pictures for image processors, and quick forms of what these do with pixels: the same numbers, in fewer passes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...backends.machine import has_gpu
from ...threads.workers import CORES, run_all

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.generic]
"""Floats or bytes."""
_BAND_LINES = 64  # of what a thread makes, at least
_BAND_PIXELS = 1 << 17  # of the picture, which one thread does
_BLOCK_PATCHES = 128  # whose floats are in the processor's cache until they are copied


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
    def __array_interface__(self) -> dict[str, str | bytes | int | tuple[int, ...]]:
        return super().__array_interface__ if self._changed else dict(self._pixels.__array_interface__)

    def convert(self, mode: str | None = None, *args: Any, **options: Any) -> Image.Image:
        """The picture itself where it would be copied."""
        same = mode == self.mode and not self._changed
        return self if same else super().convert(mode, *args, **options)

    def resize(
        self,
        size: tuple[int, int] | list[int] | Numbers,
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


# -- Qwen's patches --------------------------------------------------------------------------------------------------


class QwenImages(Protocol):
    """Settings of Qwen's image processor in mlx-vlm that are read."""

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    do_rescale: bool
    rescale_factor: float
    do_normalize: bool
    image_mean: Sequence[float]
    image_std: Sequence[float]

    def _resolved_size(self, height: int, width: int) -> tuple[int, int]: ...


class Levels(np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]):
    """Patches as bytes, `[patches, 3, patch * patch]`, of which a GPU makes the floats: an eighth of what is moved."""

    table: Floats
    """`[3, 256]`: the float of each byte, by channel."""
    frames: int
    """Copies of a patch in its row of floats, by channel."""

    @classmethod
    def of(cls, pixels: Numbers, processor: QwenImages) -> Levels:
        """Patches of one frame each, which the processor has several times."""
        made = pixels.view(cls)
        scale, mean, std = _factors(processor)
        made.table, made.frames = (np.arange(256, dtype=np.uint8) * scale - mean) / std, processor.temporal_patch_size
        return made


def qwen_patches(processor: QwenImages, images: Sequence[Image.Image], **_: object) -> dict[str, object]:
    """In the place of `__call__` of Qwen's image processor in mlx-vlm: patches of pictures, and their grids."""
    made, grids, levels = list[Numbers](), list[list[int]](), has_gpu()
    for image in images:
        height, width = processor._resolved_size(image.height, image.width)
        if (width, height) != image.size:
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        made.append(_patches(image, processor, levels))
        grids.append([1, height // processor.patch_size, width // processor.patch_size])
    pixels = made[0] if len(made) == 1 else np.concatenate(made)
    pixels = Levels.of(pixels, processor) if levels else pixels.reshape(len(pixels), -1)
    return {"pixel_values": pixels, "image_grid_thw": np.array(grids, np.int64)}


def _patches(image: Image.Image, processor: QwenImages, levels: bool) -> Numbers:
    """Patches, those that become one token side by side.

    Returns:
        floats `[patches, 3, frames, patch * patch]`, or bytes `[patches, 3, patch * patch]`.
    """
    patch, merge, frames = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    factors, side = _factors(processor), patch * merge
    rows, columns = image.height // side, image.width // side
    shape: tuple[int, ...] = (rows * columns * merge * merge, 3, patch * patch)
    made: Numbers = np.empty(shape, np.uint8) if levels else np.empty((*shape[:2], frames, shape[2]), np.float32)

    def band(first: int, stop: int) -> None:
        pixels = _rearranged(image.crop((0, first * side, image.width, stop * side)), patch, merge)
        out = made[first * columns * merge * merge : stop * columns * merge * merge]
        if levels:
            out[:] = pixels
        else:
            _normalise(pixels, out, *factors)

    step = max(1, _BAND_PIXELS // (side * image.width))
    run_all([partial(band, at, min(at + step, rows)) for at in range(0, rows, step)])
    return made


def _normalise(pixels: Bytes, out: Numbers, scale: np.float32, mean: Floats, std: Floats) -> None:
    """Write the floats of patches `[patches, 3, patch * patch]`, once for each frame of `out`."""
    for at in range(0, len(pixels), _BLOCK_PATCHES):
        block = pixels[at : at + _BLOCK_PATCHES] * scale
        block -= mean
        block /= std
        out[at : at + _BLOCK_PATCHES] = block[:, :, None]


def _rearranged(image: Image.Image, patch: int, merge: int) -> Bytes:
    """`[patches, 3, patch * patch]`: lines of patches are moved as they are."""
    line = np.dtype((np.void, patch))
    rows, columns = image.height // (patch * merge), image.width // (patch * merge)
    made = np.empty((rows, columns, merge, merge, 3, patch), line)
    for channel, plane in enumerate(image.split()):
        lines = np.asarray(plane).view(line).reshape(rows, merge, patch, columns, merge)
        made[:, :, :, :, channel] = lines.transpose(0, 3, 1, 4, 2)
    return made.view(np.uint8).reshape(-1, 3, patch * patch)


def _factors(processor: QwenImages) -> tuple[np.float32, Floats, Floats]:
    """Factor, mean and deviation of pixels: `[3, 1]` each."""
    scale = np.float32(processor.rescale_factor if processor.do_rescale else 1)
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,) * 3, (1.0,) * 3)
    return scale, np.array(mean, np.float32)[:, None], np.array(std, np.float32)[:, None]
