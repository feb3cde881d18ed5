"""Videos as frames in RGB: files through OpenCV, or frames that were sent one by one."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...errors import BadRequest
from . import decoding
from .pictures import MAX_PICTURE_PIXELS

if TYPE_CHECKING:
    from cv2 import VideoCapture

Frames = npt.NDArray[np.uint8]
"""`[frames, height, width, 3]`, RGB; never written to."""

_refuse = BadRequest.refused
MAX_VIDEO_FRAMES = 768
"""Of one video, as in mlx-vlm, whose other defaults are here too."""
MAX_VIDEO_PIXELS = 128_000_000
"""Of all frames together, 384 MB: larger ones are scaled down. Qwen's own processor keeps at most 90 million."""
VIDEO_SECONDS = 60.0
"""For decoding one."""
_MIN_FRAMES = 4
_FRAMES_PER_SECOND = 2.0
_FRAMES_AT_ONCE = 2
_MAX_SOURCE_RATE = 1000.0
_MAX_COUNTED_FRAMES = 20_000
# Playlists and the like, which would have FFmpeg open other files and URLs, are not among them.
_CONTAINERS = re.compile(rb"....(ftyp|moov|mdat|wide|free)|\x1aE\xdf\xa3|RIFF....AVI ", re.DOTALL)


def is_video(data: bytes) -> bool:
    """True if a file begins as MP4, MOV, WebM, MKV or AVI do."""
    return _CONTAINERS.match(data) is not None


def decode_video(
    data: bytes, path: str, rate: float | None = None, check: Callable[[int, int, int], None] | None = None
) -> tuple[Frames, float]:
    """Decode frames of a video, evenly over all of it, and say how many per second they are.

    Args:
        data: MP4, MOV, WebM, MKV or AVI, whatever it was called.
        path: the field that it came from.
        rate: how many frames per second to take. Default: 2, but at least 4 and at most `MAX_VIDEO_FRAMES` in all.
        check: gets the number of frames, their height and width before they are decoded, and may raise BadRequest.

    Raises:
        BadRequest: it is none of these, is broken, too large or takes too long.
    """
    if not is_video(data):
        raise _refuse(path, "the video is neither MP4, MOV, WebM, MKV nor AVI" if data else "the video is empty")
    import cv2

    with tempfile.NamedTemporaryFile(prefix="localai-video-", suffix=".video") as file:
        file.write(data)
        file.flush()
        with decoding("video", path):
            return _read(cv2, file.name, path, rate, check)


def joined_frames(frames: Sequence[npt.NDArray[np.uint8]], path: str) -> Frames:
    """Frames that were sent one by one, as a video."""
    sizes = {frame.shape for frame in frames}
    if len(sizes) > 1:
        raise _refuse(path, "the frames of a video are of one size; scale them")
    if sum(frame.size for frame in frames) > 3 * MAX_VIDEO_PIXELS:
        raise _refuse(path, f"the frames have more than {MAX_VIDEO_PIXELS // 1_000_000} megapixels; scale them down")
    return _frozen(np.stack(frames))


def _read(
    cv2: ModuleType, file: str, path: str, rate: float | None, check: Callable[[int, int, int], None] | None
) -> tuple[Frames, float]:
    deadline = time.monotonic() + VIDEO_SECONDS
    capture = cv2.VideoCapture(file, cv2.CAP_FFMPEG)
    try:
        if not capture.isOpened():
            raise _refuse(path, "the video cannot be opened: it is broken, or of a format that OpenCV does not read")
        width, height = (int(capture.get(key)) for key in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        if not 0 < width * height <= MAX_PICTURE_PIXELS:
            raise _refuse(path, f"the video's frames have {width}x{height} pixels")
        total = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        source_rate = capture.get(cv2.CAP_PROP_FPS)
        if not 0 < source_rate <= _MAX_SOURCE_RATE:
            source_rate = 1.0
        if total < 1:  # what was streamed to a file does not say
            total = _count(cv2, capture, path, deadline)
        places = _places(total, source_rate, rate or _FRAMES_PER_SECOND)
        size = _scaled(width, height, len(places))
        if check is not None:
            check(len(places), size[1], size[0])
        frames = [frame for place in places if (frame := _frame(cv2, capture, place, size, path, deadline)) is not None]
    finally:
        capture.release()
    if not frames:
        raise _refuse(path, "no frame of the video can be decoded")
    return _frozen(np.stack(frames)), len(places) / total * source_rate


def _count(cv2: ModuleType, capture: VideoCapture, path: str, deadline: float) -> int:
    total = 0
    while total < _MAX_COUNTED_FRAMES and capture.grab():
        total += 1
        _check_time(path, deadline)
    capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
    if not total:
        raise _refuse(path, "no frame of the video can be decoded")
    return total


def _places(total: int, source_rate: float, rate: float) -> list[int]:
    """The frames to take, as mlx-vlm's `load_video` does; of a single one, that."""
    most = min(MAX_VIDEO_FRAMES, total)
    wanted = min(max(total / source_rate * rate, _MIN_FRAMES), most)
    count = max(math.floor(wanted / _FRAMES_AT_ONCE) * _FRAMES_AT_ONCE, 1)
    return [int(place) for place in np.linspace(0, total - 1, count).round()]


def _scaled(width: int, height: int, frames: int) -> tuple[int, int]:
    """The size at which all frames fit into `MAX_VIDEO_PIXELS`."""
    scale = min(1.0, math.sqrt(MAX_VIDEO_PIXELS / (width * height * frames)))
    return max(1, int(width * scale)), max(1, int(height * scale))


def _frame(
    cv2: ModuleType, capture: VideoCapture, place: int, size: tuple[int, int], path: str, deadline: float
) -> npt.NDArray[np.uint8] | None:
    """One frame; None where the file has none, as after its broken end."""
    _check_time(path, deadline)
    capture.set(cv2.CAP_PROP_POS_FRAMES, place)
    found, frame = capture.read()
    if not found:
        return None
    if (frame.shape[1], frame.shape[0]) != size:
        frame = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
    rgb: npt.NDArray[np.uint8] = cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    return rgb


def _check_time(path: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _refuse(path, f"the video takes longer than {VIDEO_SECONDS:g} seconds to decode; cut or scale it")


def _frozen(frames: Frames) -> Frames:
    frames.flags.writeable = False
    return frames
