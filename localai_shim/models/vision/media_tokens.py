"""Number of tokens that an item's size implies, by its processor's rules, before anything of it is decoded."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from ...media import MediaSize


class Outline:
    """A picture without pixels, on which a processor's own code finds out sizes."""

    mode = "RGB"

    def __init__(self, width: int, height: int) -> None:
        self.size = self.width, self.height = width, height

    def resize(self, size: tuple[int, int], *_: object, **__: object) -> Outline:
        return Outline(*size)

    def crop(self, box: tuple[int, int, int, int]) -> Outline:
        return Outline(box[2] - box[0], box[3] - box[1])

    def convert(self, *_: object) -> Outline:
        return self


def least_tokens(processor: Any, size: MediaSize) -> int:
    """Tokens that an item's features take at least; 0 where they do not follow from its size.

    The rules are the processor's own functions, called with the limits that it has now. A picture may stand in its
    file on its side: the fewer tokens of both ways count.
    """
    if size.detail == "low":  # few, whatever the size
        return 0
    try:
        if size.kind == "image":
            ways = ((size.height, size.width), (size.width, size.height))
            return min(_image(processor, *way) for way in ways)
        return _video(processor, size) if size.kind == "video" else _sound(processor, size.seconds)
    except Exception:  # what it refuses, or what is not as it was: found out where the item is processed
        return 0


def _image(processor: Any, height: int, width: int) -> int:
    images = getattr(processor, "image_processor", processor)
    if hasattr(images, "num_image_tokens"):  # Qwen's
        return int(images.num_image_tokens(height, width))
    if hasattr(images, "get_number_of_image_patches"):  # transformers'
        found = images.get_number_of_image_patches(height, width, {})
        if isinstance(found, tuple):  # tiles
            return max(1, int(found[0])) * int(processor.image_seq_len)
        return int(found) // int(images.merge_size) ** 2
    if hasattr(images, "calc_num_image_tokens"):  # Phi-3
        return int(images.calc_num_image_tokens(Outline(width, height)))
    if hasattr(images, "get_smart_resize"):  # ERNIE's
        rows, columns = images.get_smart_resize(height, width)[1]
        return int(rows * columns) // int(images.merge_size) ** 2
    rule = _RULES.get(type(images).__name__)
    return 0 if rule is None else rule(processor, images, height, width)


def _glm(_: Any, images: Any, height: int, width: int) -> int:
    factor, frames = images.patch_size * images.merge_size, images.temporal_patch_size
    made = _own(images, "smart_resize")(frames, height, width, frames, factor, images.min_pixels, images.max_pixels)
    return int(made[0] // factor) * int(made[1] // factor)


def _kimi(_: Any, images: Any, height: int, width: int) -> int:
    made = images.rescale(Outline(width, height), images.merge_kernel_size)
    down, across = (side * images.patch_size for side in images.merge_kernel_size)
    return int(made.height // down) * int(made.width // across)


def _paddle(_: Any, images: Any, height: int, width: int) -> int:
    factor = images.patch_size * images.merge_size
    made = _own(images, "smart_resize")(height, width, factor, images.min_pixels, images.max_pixels)
    return int(made[0] // factor) * int(made[1] // factor)


def _pixtral(processor: Any, images: Any, height: int, width: int) -> int:
    """With a break behind each row."""
    patch = processor.patch_size * processor.spatial_merge_size
    most = _own(images, "_size_to_pair")(images.size)
    made = _own(images, "get_resize_output_image_size")((height, width), most, patch)
    return int(made[0] // patch) * (int(made[1] // patch) + 1)


def _intern(processor: Any, images: Any, height: int, width: int) -> int:
    least, most, cuts = images.dynamic_min_num, images.dynamic_max_num, _own(images, "dynamic_preprocess")
    tiles = cuts(Outline(width, height), least, most, images.size, images.dynamic_use_thumbnail)
    return len(tiles) * int(processor.num_image_token)


def _deepseek(_: Any, images: Any, height: int, width: int) -> int:
    best = _own(images, "select_best_resolution")((width, height), images.candidate_resolutions)
    across, down = (side // images.image_size for side in best)
    side = math.ceil(images.image_size // images.patch_size / images.downsample_ratio)
    return int(side * (side + 1) + 1 + down * side * (across * side + 1))


def _gemma4(_: Any, images: Any, height: int, width: int) -> int:
    """Of a picture, or of a video's frame."""
    pooled, patch = images.pooling_kernel_size, images.patch_size
    most = images.max_soft_tokens * pooled**2
    made = _own(images, "get_aspect_ratio_preserving_size")(height, width, patch, most, pooled)
    return int(made[0] // patch) * int(made[1] // patch) // int(pooled**2)


_RULES: dict[str, Callable[[Any, Any, int, int], int]] = {
    "Glm46VImageProcessor": _glm,
    "KimiVLImageProcessor": _kimi,
    "ImageProcessor": _paddle,
    "PixtralImageProcessor": _pixtral,
    "InternVLImageProcessor": _intern,
    "DeepseekVLV2Processor": _deepseek,
    "Gemma4ImageProcessor": _gemma4,
}
"""By the name of a class in mlx-vlm."""


def _video(processor: Any, size: MediaSize) -> int:
    videos = processor.video_processor
    if hasattr(videos, "num_frames"):  # Gemma's, which takes some of the frames
        return min(size.frames, int(videos.num_frames)) * _gemma4(processor, videos, size.height, size.width)
    factor, pair = videos.patch_size * videos.merge_size, videos.temporal_patch_size
    made = _own(videos, "_smart_resize_video")(
        size.frames, size.height, size.width, pair, factor, videos.min_pixels, videos.max_pixels
    )
    return math.ceil(size.frames / int(pair)) * int(made[0] // factor) * int(made[1] // factor)


def _sound(processor: Any, seconds: float) -> int:
    if hasattr(processor, "_compute_audio_num_tokens"):
        return int(processor._compute_audio_num_tokens(range(int(seconds * 1000)), 1000))
    return int(getattr(processor, "audio_seq_length", 0))


def _own(thing: Any, name: str) -> Callable[..., Any]:
    """A function beside a processor's class."""
    found: Callable[..., Any] = getattr(sys.modules[type(thing).__module__], name)
    return found
