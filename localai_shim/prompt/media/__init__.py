"""Images, videos and sounds of callers, made into `Media`.

Strings of a request are untrusted: URLs and files need `MediaRules`, names are resolved once, and only
public addresses are connected to. What the program itself hands in (a `pathlib.Path`, bytes, a picture, an array)
needs no rule. Formats are told by their first bytes, sizes are checked before pixels exist, reading has a time limit,
and whatever a decoder raises is a 400 that names the field.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...errors import BadRequest
from ...media import MediaKind
from ...threads.panics import is_shortage

PARTS: dict[str, tuple[MediaKind, tuple[str, ...]]] = {
    "image_url": ("image", ("image_url",)),
    "input_image": ("image", ("image_url",)),
    "video_url": ("video", ("video_url",)),
    "input_video": ("video", ("video_url", "input_video", "video")),
    "video": ("video", ("video", "video_url")),
    "input_audio": ("audio", ("input_audio",)),
    "audio_url": ("audio", ("audio_url",)),
}
"""Types of parts that are not text: what each is, and the fields that may hold its content."""
FILES = ("file", "input_file")
"""Types of parts that hold a file."""


@contextlib.contextmanager
def decoding(what: str, path: str, code: str = "invalid_value") -> Iterator[None]:
    """Turn all errors of a library into a BadRequest: for broken files it raises whatever its readers stumble over."""
    try:
        yield
    except BadRequest:
        raise
    except Exception as error:
        if is_shortage(error):
            raise
        why = str(error)[:200] or type(error).__name__
        raise BadRequest.refused(path, f"the {what} cannot be decoded: {why}", code) from None
