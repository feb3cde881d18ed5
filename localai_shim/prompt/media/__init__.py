"""Images, videos and sounds of callers, made into `Media`.

Strings of a request are untrusted: URLs and files need `MediaRules`, names are resolved once, and only
public addresses are connected to. What the program itself hands in (a `pathlib.Path`, bytes, a picture, an array)
needs no rule. Formats are told by their first bytes, sizes are checked before pixels exist, reading has a time limit,
and whatever a decoder raises is a 400 that names the field.
"""

from __future__ import annotations

from ...media import MediaKind

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
