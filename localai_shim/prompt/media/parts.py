"""Content parts that hold an image, a video or a sound, of both APIs, as `Media`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...errors import BadRequest
from ...media import Detail, Fits, Media, MediaKind, MediaRules, MediaSize
from . import PARTS
from .pictures import array_pixels, decode_picture, picture_pixels, picture_size
from .sounds import decode_sound
from .sources import read_source
from .videos import MAX_VIDEO_FRAMES, decode_video, joined_frames

_PICTURES = tuple(name for name, (kind, _) in PARTS.items() if kind == "image")
_INNER = {"image": ("url",), "video": ("url",), "audio": ("data", "url")}
_DETAILS: tuple[Detail, ...] = get_args(Detail)


@dataclass(frozen=True, slots=True, eq=False)
class MediaSource:
    """A part's content before it is decoded."""

    kind: MediaKind
    path: str
    detail: Detail
    key: str
    """Equal for parts whose content and detail are equal: a hash of the encoded bytes, or of pixels."""
    content: Content
    """Encoded, or the pixels of one image or of all frames, or the frames of a video."""
    rate: float | None
    """The frames per second that a video was said to have, or is to be read at."""
    fits: Fits
    """See `open_media`: of files whose size only a decoder says."""

    def decode(self) -> Media:
        """Decode it; may take a while. Raises: BadRequest, which names the field."""
        data, rate = self.content, self.rate
        if isinstance(data, tuple):
            data = joined_frames([frame.decode().data for frame in data], self.path)
        elif not isinstance(data, bytes):
            pass
        elif self.kind == "image":
            data = decode_picture(data, self.path)
        elif self.kind == "video":
            data, rate = decode_video(data, self.path, rate, self._check_frames)
        else:
            data, rate = decode_sound(data, self.path)
            self.fits(MediaSize("audio", seconds=len(data) / rate), self.path)
        return Media(self.kind, data, self.path, self.detail, rate)

    def _check_frames(self, frames: int, height: int, width: int) -> None:
        self.fits(MediaSize("video", height, width, frames, detail=self.detail), self.path)


Content = bytes | npt.NDArray[np.generic] | tuple[MediaSource, ...]


def open_media(part: Mapping[str, object], path: str, rules: MediaRules, fits: Fits | None = None) -> MediaSource:
    """Find the content of a part, from wherever `rules` allow, without decoding it.

    Bytes, a `PIL.Image.Image`, an array, or a `pathlib.Path` may replace a URL. The program itself has
    put these there, so a `Path` may name any file; a string may not.

    Args:
        part: as it was sent; one of a type that holds media.
        path: its place in the request: `messages[0].content[1]`.
        fits: is called with the item's size before anything of it is decoded; its errors are raised.

    Raises:
        BadRequest: a field is wrong, or its content cannot or may not be read.
        NotFound: there is no uploaded file of this id.
    """
    kind, fields = PARTS[str(part["type"])]
    rate = _rate(part, path) if kind == "video" else None
    value, at, holder = _content(part, fields, path, kind, rules)
    return _opened(value, at, kind, rules, _detail(*holder), rate, fits or _any_size)


def _any_size(size: MediaSize, path: str) -> None:
    """`Fits` of a prompt that may be of any length."""


def _content(
    holder: Mapping[str, object], fields: tuple[str, ...], path: str, kind: MediaKind, rules: MediaRules
) -> tuple[object, str, tuple[Mapping[str, object], str]]:
    """The content itself, its path, and what holds `detail`: chat has both in an object, Responses side by side."""
    field = next((name for name in ("file_id", *fields) if holder.get(name) is not None), None)
    if field is None:
        raise BadRequest.missing(f"{path}.{fields[0]}")
    value, at = holder[field], f"{path}.{field}"
    if field == "file_id":
        value = _stored(value, at, kind, rules)
    elif isinstance(value, Mapping) and fields != _INNER[kind]:
        return _content(value, _INNER[kind], at, kind, rules)
    return value, at, (holder, path)


def _stored(file_id: object, path: str, kind: MediaKind, rules: MediaRules) -> bytes:
    """The content of an uploaded file."""
    if not isinstance(file_id, str):
        raise BadRequest.wrong_type(path, "a string", file_id)
    if rules.stored is None:
        raise BadRequest.unsupported(path, f"There are no uploaded files here: send the {kind} itself.")
    return rules.stored(file_id, path)[1]


def _opened(
    value: object,
    path: str,
    kind: MediaKind,
    rules: MediaRules,
    detail: Detail,
    rate: float | None,
    fits: Fits,
) -> MediaSource:
    content: Content
    if kind == "video" and isinstance(value, list | tuple):
        content = _frames(value, path, rules, detail, fits)
    elif kind == "video" and isinstance(value, np.ndarray):
        content = joined_frames(_array_frames(value, path), path)
    elif kind == "image" and isinstance(value, np.ndarray):
        content = array_pixels(value, path)
    elif kind == "image" and isinstance(value, Image.Image):
        _check_fits(fits, (value.height, value.width), path, detail)
        content = picture_pixels(value, path)
    else:
        content = read_source(value, path, kind, rules)
    if kind == "image" and isinstance(content, bytes) and fits is not _any_size:
        size = picture_size(content, path)
        _check_fits(fits, None if size is None else size[::-1], path, detail)
    elif isinstance(content, np.ndarray):
        _check_fits(fits, content.shape, path, detail)
    return MediaSource(kind, path, detail, _key(kind, detail, rate, content), content, rate, fits)


def _check_fits(fits: Fits, shape: tuple[int, ...] | None, path: str, detail: Detail) -> None:
    """Check the size of a picture, `[height, width, ...]`, or of frames, `[frames, height, width, 3]`."""
    if shape is None:
        return
    if len(shape) < 4:
        fits(MediaSize("image", shape[0], shape[1], detail=detail), path)
    else:
        fits(MediaSize("video", shape[1], shape[2], shape[0], detail=detail), path)


def _frames(
    values: list[object] | tuple[object, ...], path: str, rules: MediaRules, detail: Detail, fits: Fits
) -> tuple[MediaSource, ...]:
    """Frames that were sent one by one: where one of them is a picture of some size, all are."""
    _check_count(len(values), path)

    def all_fit(size: MediaSize, _: str) -> None:
        fits(MediaSize("video", size.height, size.width, len(values), detail=detail), path)

    frames = []
    for i, value in enumerate(values):
        at = f"{path}[{i}]"
        if isinstance(value, Mapping) and "type" in value:  # a part of its own
            if value["type"] not in _PICTURES:
                raise BadRequest.unknown_value(f"{at}.type", value["type"], _PICTURES)
            frames.append(open_media(value, at, rules, all_fit))
        else:
            frames.append(_opened(value, at, "image", rules, detail, None, all_fit))
    return tuple(frames)


def _array_frames(value: npt.NDArray[np.generic], path: str) -> list[npt.NDArray[np.uint8]]:
    if value.ndim != 4:
        raise BadRequest.refused(path, f"an array of frames is [frames, height, width, 3], not {value.shape}")
    _check_count(len(value), path)
    return [array_pixels(frame, f"{path}[{i}]") for i, frame in enumerate(value)]


def _check_count(frames: int, path: str) -> None:
    if not frames:
        raise BadRequest.empty_array(path)
    if frames > MAX_VIDEO_FRAMES:
        raise BadRequest.long_array(path, MAX_VIDEO_FRAMES, frames)


def _key(kind: str, detail: str, rate: float | None, content: Content) -> str:
    digest = hashlib.sha256(f"{kind} {detail} {rate} {type(content).__name__} ".encode())
    if isinstance(content, bytes):
        digest.update(content)
    elif isinstance(content, tuple):
        digest.update(" ".join(frame.key for frame in content).encode())
    else:
        digest.update(f"{content.shape} ".encode())
        digest.update(np.ascontiguousarray(content).data)
    return digest.hexdigest()


def _detail(holder: Mapping[str, object], path: str) -> Detail:
    value = holder.get("detail")
    if value is None:
        return "auto"
    if not isinstance(value, str):
        raise BadRequest.wrong_type(f"{path}.detail", "a string", value)
    for detail in _DETAILS:
        if value == detail:
            return detail
    raise BadRequest.unknown_value(f"{path}.detail", value, _DETAILS)


def _rate(part: Mapping[str, object], path: str) -> float | None:
    """`fps`, as Qwen's own code writes it next to a video."""
    value = part.get("fps")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest.wrong_type(f"{path}.fps", "a decimal", value)
    if not 0 < value <= 1000:
        raise BadRequest.refused(f"{path}.fps", f"{value} is not between 0 and 1000")
    return float(value)
