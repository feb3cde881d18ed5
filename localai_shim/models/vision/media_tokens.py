"""Number of tokens that an item's size implies, by its processor's rules, before anything of it is decoded."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence, Sized
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...media import MediaSize

if TYPE_CHECKING:
    from transformers import ImageProcessingMixin, ProcessorMixin


def least_tokens(processor: ProcessorMixin, size: MediaSize) -> int:
    """Tokens that an item's features take at least; 0 where they do not follow from its size.

    The rules are the processor's own functions, called with the limits that it has now. A file may hold an
    image turned on its side: the fewer tokens of both ways count.
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


def _image(processor: ProcessorMixin, height: int, width: int) -> int:
    images = getattr(processor, "image_processor", processor)
    if hasattr(images, "num_image_tokens"):  # Qwen's
        return int(images.num_image_tokens(height, width))
    if hasattr(images, "get_number_of_image_patches"):  # transformers'
        found = images.get_number_of_image_patches(height, width, {})
        if isinstance(found, tuple):  # tiles
            return max(1, int(found[0])) * int(processor.image_seq_len)
        return int(found) // int(images.merge_size) ** 2
    if hasattr(images, "calc_num_image_tokens"):  # Phi-3
        outline = SimpleNamespace(size=(width, height), width=width, height=height)
        return int(images.calc_num_image_tokens(outline))
    if hasattr(images, "get_smart_resize"):  # ERNIE's
        rows, columns = images.get_smart_resize(height, width)[1]
        return int(rows * columns) // int(images.merge_size) ** 2
    rule = _RULES.get(type(images).__name__)
    return 0 if rule is None else rule(images, height, width)


def _glm(images: ImageProcessingMixin, height: int, width: int) -> int:
    frames = images.temporal_patch_size
    return _resized(images, "smart_resize", frames, height, width, frames)


def _resized(images: ImageProcessingMixin, rule: str, *size: int) -> int:
    """Tokens of what a processor's rule makes of a size."""
    factor = images.patch_size * images.merge_size
    made = _own(images, rule)(*size, factor, images.min_pixels, images.max_pixels)
    return int(made[0] // factor) * int(made[1] // factor)


def _gemma4(images: ImageProcessingMixin, height: int, width: int) -> int:
    """Of a picture, or of a video's frame."""
    pooled, patch = images.pooling_kernel_size, images.patch_size
    most = images.max_soft_tokens * pooled**2
    made = _own(images, "get_aspect_ratio_preserving_size")(height, width, patch, most, pooled)
    return int(made[0] // patch) * int(made[1] // patch) // int(pooled**2)


_RULES: dict[str, Callable[[ImageProcessingMixin, int, int], int]] = {
    "Glm46VImageProcessor": _glm,
    "ImageProcessor": lambda images, height, width: _resized(images, "smart_resize", height, width),  # PaddleOCR's
    "Gemma4ImageProcessor": _gemma4,
}
"""By the name of a class in mlx-vlm. The pictures of other families take few tokens, whatever their size."""


def _video(processor: ProcessorMixin, size: MediaSize) -> int:
    videos = processor.video_processor
    if hasattr(videos, "num_frames"):  # Gemma's, which takes some of the frames
        return min(size.frames, int(videos.num_frames)) * _gemma4(videos, size.height, size.width)
    pair = videos.temporal_patch_size
    each = _resized(videos, "_smart_resize_video", size.frames, size.height, size.width, pair)
    return math.ceil(size.frames / int(pair)) * each


def _sound(processor: ProcessorMixin, seconds: float) -> int:
    if hasattr(processor, "_compute_audio_num_tokens"):
        return int(processor._compute_audio_num_tokens(range(int(seconds * 1000)), 1000))
    return int(getattr(processor, "audio_seq_length", 0))


def count_frames(processor: ProcessorMixin) -> None:
    """Let Gemma 4's processor count the frames of an audio's spectrogram, four to a token.

    mlx-vlm counts by time: for a quarter of all lengths one token too many, which gets the first one's features.
    """
    if type(processor).__name__ != "Gemma4Processor" or processor.feature_extractor is None:
        return
    extractor, most = processor.feature_extractor, int(processor.audio_seq_length)

    def tokens(samples: Sized, rate: int) -> int:
        count, length = len(samples) * int(extractor.sampling_rate) // rate, int(extractor.frame_length)
        frames = (count + length // 2 - length - 1) // int(extractor.hop_length) + 1
        return min(most, max(0, math.ceil(frames / 4)))

    processor._compute_audio_num_tokens = tokens


def _own(images: ImageProcessingMixin, name: str) -> Callable[..., Sequence[float]]:
    """A function in the module of a processor's class."""
    found: Callable[..., Sequence[float]] = getattr(sys.modules[type(images).__module__], name)
    return found
