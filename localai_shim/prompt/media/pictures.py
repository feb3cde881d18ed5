"""Images of many formats as RGB pixels. Other files, and too large images, are refused before decoding."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import time
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from ...errors import BadRequest
from ...threads.system import Lock
from . import decoding

Pixels = npt.NDArray[np.uint8]
"""`[height, width, 3]`, RGB; never written to."""

MAX_PICTURE_PIXELS = 64_000_000
"""The largest sensors of phones and cameras in common use have 50 to 61 megapixels; 64 are 192 MB in RGB."""
MAX_PICTURE_SIDE = 65_535
"""JPEG's and GIF's own limit. The time that PIL takes is quadratic in the length of a row: minutes, without a limit."""
PICTURE_SECONDS = 20.0
"""Of a processor, for decoding one. 64 megapixels take about three."""
# Compressed rows of BMP are decoded in Python, for about a second per million pixels.
_MAX_RLE_PIXELS = 4_000_000
# A progressive JPEG goes over all of its pixels once per scan. Encoders write about ten.
_MAX_JPEG_SCANS = 64
_STRIP_PIXELS = 1 << 18
_ORIENTATION = 0x0112
_TIFF_TILE_SIDES = (322, 323)
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class _File(io.BytesIO):
    """An encoded picture that can be read for some time only: readers ask for each note and block."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._deadline = time.thread_time() + PICTURE_SECONDS  # not the neighbours' time

    def read(self, size: int | None = -1, /) -> bytes:
        if time.thread_time() > self._deadline:
            raise TimeoutError(f"it takes longer than {PICTURE_SECONDS:g} seconds")
        return super().read(size)


FORMATS = "PNG, JPEG, GIF, WebP, BMP and TIFF"
# By a file's first bytes. The classes are called directly: `Image.open` would ask every plugin there is, and warn.
_READERS: tuple[tuple[re.Pattern[bytes], type[ImageFile]], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), PngImageFile),
    (re.compile(rb"\xff\xd8\xff"), JpegImageFile),
    (re.compile(rb"GIF8[79]a"), GifImageFile),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), WebPImageFile),
    (re.compile(rb"BM"), BmpImageFile),
    (re.compile(rb"II[\x2a\x2b]\x00|MM\x00[\x2a\x2b]"), TiffImageFile),
)
_OTHERS = {
    b"%PDF": "a PDF",
    b"ftyphei": "HEIC",
    b"ftypmif": "HEIC",
    b"ftypavi": "AVIF",
    b"<svg": "SVG",
    b"<html": "a web page",
    b"<!doctype html": "a web page",
    b"%!ps": "PostScript",
}
# A picture that several threads have in hand may not have been read from its file yet, which only one may do.
_loading = Lock()


def media_type(data: bytes | bytearray | memoryview) -> str | None:
    """Media type of a file that begins as one of `FORMATS` does; None for others."""
    reader = _reader(data)
    return None if reader is None else Image.MIME[str(reader.format)]


def _reader(data: bytes | bytearray | memoryview) -> type[ImageFile] | None:
    return next((reader for pattern, reader in _READERS if pattern.match(data)), None)


def picture_size(data: bytes, path: str) -> tuple[int, int] | None:
    """Width and height, as the file's head says; None where `decode_picture` would refuse it."""
    try:
        with _opened(data, path) as image:
            return image.size
    except BadRequest:
        return None


def decode_picture(data: bytes, path: str) -> Pixels:
    """Decode a file's first frame, upright, on white where it is transparent.

    Args:
        data: one of `FORMATS`, whatever it was called.
        path: the field that it came from.

    Raises:
        BadRequest: it is none of these, is broken, or has more than `MAX_PICTURE_PIXELS`.
    """
    with _opened(data, path) as image:
        decoded = _decoded_webp(image, data)
        return _upright_pixels(image) if decoded is None else _upright_pixels(decoded, _orientation(image))


@contextlib.contextmanager
def _opened(data: bytes, path: str) -> Iterator[Image.Image]:
    """A file whose head was read, and which may be decoded. Its errors are BadRequests."""
    reader = _reader(data)
    if reader is None:
        raise _unknown(data, path)
    _quieten()
    with decoding("image", path, "image_parse_error"):
        if data.startswith(b"\xff\xd8") and data.count(b"\xff\xda") > _MAX_JPEG_SCANS:
            raise _refuse(path, f"the JPEG has more than {_MAX_JPEG_SCANS} scans; save it again as a baseline JPEG")
        if data.startswith(b"GIF8"):
            _check_size(_gif_extent(data), path)
        with reader(_File(data)) as image:
            _check_image(image, path)
            yield image


def picture_pixels(image: Image.Image, path: str) -> Pixels:
    """The pixels of a picture that the program has opened or made itself, upright, on white where transparent."""
    _check_size(image.size, path)
    _quieten()
    with decoding("image", path, "image_parse_error"):
        with _loading:
            image.load()
        return _upright_pixels(image)


def array_pixels(array: npt.NDArray[np.generic], path: str) -> Pixels:
    """A copy of an array `[height, width]` or `[height, width, 1 | 3 | 4]` of uint8, or of floats from 0 to 1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        raise _refuse(path, f"an array of pixels is [height, width] or [height, width, 3 or 4], not {array.shape}")
    _check_size((array.shape[1], array.shape[0]), path)
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise _refuse(path, "pixels that are floats go from 0 to 1; divide them by their largest value")
        array = np.rint(array * 255).astype(np.uint8)
    elif array.dtype != np.uint8:
        raise _refuse(path, f"pixels are uint8, or floats from 0 to 1, not {array.dtype}")
    if array.ndim == 3 and array.shape[2] == 4:
        return _upright_pixels(Image.fromarray(np.ascontiguousarray(array)))
    if array.ndim == 2 or array.shape[2] == 1:
        array = np.broadcast_to(array.reshape(*array.shape[:2], 1), (*array.shape[:2], 3))
    pixels = np.array(array, order="C")
    pixels.flags.writeable = False
    return pixels


def _decoded_webp(image: Image.Image, data: bytes) -> Image.Image | None:
    """A large WebP as OpenCV decodes it, through the same library as PIL, which holds the GIL all the while.

    None for others, where OpenCV is missing, and where it has none, of which PIL says why.
    """
    if not isinstance(image, WebPImageFile) or image.is_animated or image.width * image.height < _STRIP_PIXELS:
        return None
    try:
        import cv2

        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except Exception:
        return None
    if pixels is None or pixels.shape[:2] != (image.height, image.width):
        return None
    order = cv2.COLOR_BGRA2RGBA if pixels.shape[2] == 4 else cv2.COLOR_BGR2RGBA
    return Image.fromarray(cv2.cvtColor(pixels, order))  # of four channels it makes no copy


def _upright_pixels(image: Image.Image, orientation: int | None = None) -> Pixels:
    image.load()
    turn = _TURNS.get(_orientation(image) if orientation is None else orientation)
    if turn is not None:
        image = image.transpose(turn)
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    scale = _float_scale(image) if image.mode == "F" else 1.0
    for top, strip in _strips(image):  # other threads run between strips, and there is no second copy of all
        pixels[top : top + strip.height] = np.asarray(_rgb(strip, scale))
    pixels.flags.writeable = False
    return pixels


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Pieces of some rows each, with the first row's number."""
    width, height = image.size
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        yield top, image.crop((0, top, width, min(top + rows, height)))


def _rgb(image: Image.Image, scale: float) -> Image.Image:
    if image.mode.startswith("I;16"):  # PIL would cut off what is above 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "I":  # what PIL makes of 16 bits, too
        return Image.fromarray((np.asarray(image).clip(0, 0xFFFF) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return Image.fromarray((_finite(image) * scale).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        image = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _float_scale(image: Image.Image) -> float:
    """Of pixels that are floats: they go to 1 or to 255."""
    return 255.0 if max(_finite(strip).max() for _, strip in _strips(image)) <= 1 else 1.0


def _finite(image: Image.Image) -> npt.NDArray[np.floating]:
    values: npt.NDArray[np.floating] = np.nan_to_num(np.asarray(image), posinf=255.0)
    return values


def _orientation(image: Image.Image) -> int:
    """EXIF's. A picture with broken notes is a picture still."""
    if isinstance(image, TiffImageFile):
        return 1  # PIL has turned it
    try:
        value = image.getexif().get(_ORIENTATION)
    except Exception:
        return 1
    return value if isinstance(value, int) else 1


def _gif_extent(data: bytes) -> tuple[int, int]:
    """Of the screen and the first frame, which may reach beyond it; PIL would warn of large ones. Reads as PIL does."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    file = _File(data)
    file.seek(13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0))
    while (mark := file.read(1)) not in (b"", b";"):
        if mark == b",":
            left, top, across, down = struct.unpack("<HHHH", file.read(8))
            return max(width, left + across), max(height, top + down)
        if mark == b"!":
            _skip_gif_note(file)
    return width, height


def _skip_gif_note(file: _File) -> None:
    def block() -> bytes:
        length = file.read(1)
        return file.read(length[0]) if length else b""

    label, first = file.read(1), block()
    if label == b"\xff" and first.startswith(b"NETSCAPE2.0"):
        block()
    if first or label != b"\xfe":
        while block():
            pass


def _check_image(image: Image.Image, path: str) -> None:
    """Refuse what would take too long or too much memory to decode."""
    _check_size(image.size, path)
    if isinstance(image, TiffImageFile):
        sides = [image.tag_v2.get(tag, 1) for tag in _TIFF_TILE_SIDES]
        _check_size((int(sides[0]), int(sides[1])), path)
    codecs = {tile[0] for tile in getattr(image, "tile", ())}
    if "bmp_rle" in codecs and image.width * image.height > _MAX_RLE_PIXELS:
        raise _refuse(path, "the BMP is compressed and too large for that; save it as PNG", "image_too_large")


def _check_size(size: tuple[int, int], path: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise _refuse(path, f"the image has no pixels: it is {width}x{height}", "image_too_small")
    if max(width, height) > MAX_PICTURE_SIDE or width * height > MAX_PICTURE_PIXELS:
        most = f"at most {MAX_PICTURE_SIDE} on a side and {MAX_PICTURE_PIXELS // 1_000_000} megapixels in all"
        why = f"the image has {width}x{height} pixels, and {most} are read; scale it down"
        raise _refuse(path, why, "image_too_large")


def _quieten() -> None:
    """Ignore the warnings of two modules about odd metadata in files, which the caller cannot mend.

    `warnings.catch_warnings` is no alternative, as it would put back what other threads had changed meanwhile.
    """
    first = warnings.filters[0] if warnings.filters else None
    if first is None or first[3] is None or getattr(first[3], "pattern", first[3]) != _QUIET:
        warnings.filterwarnings("ignore", module=_QUIET)


_QUIET = r"PIL\.(Tiff|Png)ImagePlugin"


def _unknown(data: bytes, path: str) -> BadRequest:
    if not data:
        return _refuse(path, "the image is empty", "empty_image_file")
    head = data[:256].lower()
    name = next((name for mark, name in _OTHERS.items() if mark.lower() in head), "of an unknown format")
    return _refuse(path, f"the image is {name}; {FORMATS} are read", "invalid_image_format")


def _refuse(path: str, why: str, code: str = "invalid_image") -> BadRequest:
    return BadRequest.refused(path, why, code)
