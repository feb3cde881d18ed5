"""Pictures in requests."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

RED, GREEN, BLUE = (200, 10, 20), (10, 200, 20), (10, 20, 200)


def picture(colour: tuple[int, int, int] = RED, width: int = 8, height: int = 6) -> Image.Image:
    """One of a single colour."""
    return Image.new("RGB", (width, height), colour)


def png(colour: tuple[int, int, int] = RED, **size: int) -> bytes:
    """The file."""
    out = io.BytesIO()
    picture(colour, **size).save(out, "PNG")
    return out.getvalue()


def data_url(colour: tuple[int, int, int] = RED, **size: int) -> str:
    """The file in a URL."""
    return f"data:image/png;base64,{base64.b64encode(png(colour, **size)).decode()}"


def image_url(source: Any, **more: Any) -> Any:
    """A part of a chat message."""
    return {"type": "image_url", "image_url": {"url": source, **more}}


def input_image(source: Any, **more: Any) -> Any:
    """A part of an item of a response."""
    return {"type": "input_image", "image_url": source, **more}


def user(*parts: Any) -> Any:
    """A message of texts and parts."""
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}


def user_item(*parts: Any) -> Any:
    """The same as an item of a response."""
    return {"role": "user", "content": [{"type": "input_text", "text": p} if isinstance(p, str) else p for p in parts]}
