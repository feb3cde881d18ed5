"""Python objects instead of URLs, and how they are written where only JSON will do.

A request to a model in the same process may hold a picture as a `PIL.Image.Image`, an array of pixels, the bytes of a
file, or its `pathlib.Path`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from ..errors import BadRequest
from .media import PARTS

FIELDS = frozenset({"data", "url", "file_data", *(field for _, fields in PARTS.values() for field in fields)})
"""Names of the fields that may hold such an object, or a list of them."""
_BASE64_BYTES = 3 * 2**18  # at a time: it holds the GIL


def is_object(value: object) -> bool:
    """True if this is not JSON, but may replace a URL."""
    if isinstance(value, str | dict | list | tuple | int | float | None):
        return False
    return isinstance(value, bytes | bytearray | memoryview | PurePath) or hasattr(type(value), "__array_interface__")


def holds_objects(value: object) -> bool:
    """True if there are such objects anywhere in a JSON value."""
    if isinstance(value, dict):
        return any(map(holds_objects, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_objects, value))
    return is_object(value)


def with_data_urls(value: Any, path: str) -> Any:
    """The same JSON value with data URLs instead of objects. Takes long for large pictures.

    Args:
        path: of the request's field, for errors.

    Raises:
        BadRequest: an object is not a picture.
    """
    if not holds_objects(value):
        return value
    if isinstance(value, dict):
        return {key: with_data_urls(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_data_urls(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return _data_urls(value, path)


def _data_urls(value: Any, path: str) -> str | list[str]:
    """The data URL of an object, or those of its frames if it is an array of several."""
    if isinstance(value, PurePath):
        from .media.sources import read_file

        try:
            return _data_url(read_file(Path(value), path, "video"))  # whose files may be the largest
        except BadRequest:
            return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _data_url(value)
    if getattr(value, "ndim", 0) == 4:
        return [_data_url(_png(frame, path)) for frame in value]
    return _data_url(_png(value, path))


def _data_url(data: bytes | bytearray | memoryview) -> str:
    from .media.pictures import media_type

    view = memoryview(data)
    pieces: Sequence[memoryview] = [view[at : at + _BASE64_BYTES] for at in range(0, len(view), _BASE64_BYTES)]
    encoded = "".join(base64.b64encode(piece).decode("ascii") for piece in pieces)
    return f"data:{media_type(data) or 'application/octet-stream'};base64,{encoded}"


def _png(picture: Any, path: str) -> bytes:
    """A picture as the model sees it: upright, in RGB."""
    from PIL import Image

    from .media.pictures import array_pixels, picture_pixels

    pixels = (picture_pixels if isinstance(picture, Image.Image) else array_pixels)(picture, path)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()
