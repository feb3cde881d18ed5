"""Images that hooks return, as files in base64."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from typing import TYPE_CHECKING, NamedTuple

from .kind import BadResultError

if TYPE_CHECKING:
    from PIL import Image

_FORMATS = {"png": "PNG", "jpeg": "JPEG", "webp": "WEBP", "gif": "GIF"}
"""Pillow's names."""
_LOSSY = ("jpeg", "webp")
_SVG = (b"<svg", b"<?xml")


class ImageFile(NamedTuple):
    """An image file."""

    data: str
    """Its bytes in base64."""
    format: str
    """`png`, `jpeg`, `webp`, `gif`, or `svg`."""
    size: str | None = None
    """Such as `1024x1536`."""

    @property
    def url(self) -> str:
        """A `data:` URL."""
        return f"data:image/{self.format};base64,{self.data}"


def image_file(value: object, format: str | None = None, quality: int | None = None) -> ImageFile:
    """Read an image, or write it.

    Args:
        value: an image of Pillow, the bytes of a file, or base64 of them, also in a `data:` URL.
        format: one that it is converted to, unless it is an SVG; None: a file stays as it is.
        quality: of a conversion, from 0 to 100; None: Pillow's.

    Raises:
        BadResultError: it is none of these.
    """
    from PIL import Image

    if isinstance(value, str):
        value = _decoded(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        if data.lstrip()[:5].startswith(_SVG):
            return ImageFile(base64.b64encode(data).decode(), "svg")
        image = _opened(data)
        found = (image.format or "").lower()
        if found in _FORMATS and format in (None, found, "svg"):
            return ImageFile(base64.b64encode(data).decode(), found, _size(image))
    elif isinstance(value, Image.Image):
        image = value
    else:
        raise BadResultError(f"an image must be bytes, base64, or an image of Pillow, not {type(value).__name__}")
    return _written(image, format if format in _FORMATS else "png", quality)


def is_readable(url: str) -> bool:
    """A URL holds an image that models can read."""
    try:
        return url.startswith("data:image/") and image_file(url).format != "svg"
    except BadResultError:
        return False


def _decoded(text: str) -> bytes:
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise BadResultError("the `data:` URL of an image must be in base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadResultError("an image that is a string must be base64 of a file, or a `data:` URL") from None


def _opened(data: bytes) -> Image.Image:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
            image.load()
            return image
    except Exception as error:  # which Pillow raises of many kinds
        raise BadResultError(f"an image cannot be read: {error}") from error


def _written(image: Image.Image, format: str, quality: int | None) -> ImageFile:
    if format == "jpeg" and image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    out = io.BytesIO()
    more = {"quality": quality} if format in _LOSSY and quality is not None else {}
    try:
        image.save(out, _FORMATS[format], **more)
    except Exception as error:
        raise BadResultError(f"an image cannot be written as {format}: {error}") from error
    return ImageFile(base64.b64encode(out.getvalue()).decode(), format, _size(image))


def _size(image: Image.Image) -> str:
    return f"{image.width}x{image.height}"
