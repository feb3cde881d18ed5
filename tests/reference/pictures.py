"""Images of prompts, as transformers' models and ours get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


IMAGE, START, END = 390, 391, 392
"""Tokens of images, and of their edges."""


@dataclass(frozen=True)
class Picture:
    """An image of a prompt, as models get it.

    Attributes:
        tokens: of the prompt, those that features replace among them.
        theirs: arguments of transformers' model.
        ours: arguments of mlx-vlm's model.
    """

    tokens: list[int]
    theirs: Arrays
    ours: Arrays


def _noise(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def patches(grids: tuple[tuple[int, int], ...] = ((4, 6), (8, 4)), patch: int = 14, times: int = 2) -> list[Picture]:
    """Images as Qwen's processors cut them, by their rows and columns of patches."""
    made = []
    for number, (rows, columns) in enumerate(grids):
        inputs: Arrays = {
            "pixel_values": _noise(rows * columns, 3 * times * patch * patch, seed=number),
            "image_grid_thw": np.array([[1, rows, columns]], np.int64),
        }
        made.append(Picture([START, *[IMAGE] * (rows * columns // 4), END], inputs, inputs))
    return made


def square(
    tokens: int,
    *,
    tiles: tuple[int, ...] = (1, 1),
    size: int = 56,
    axes: int = 4,
    mask: bool = False,
    edges: bool = True,
    channels_last: bool = False,
) -> Callable[[], list[Picture]]:
    """Images of fixed size, or of several tiles each: so many tokens per tile."""

    def made() -> list[Picture]:
        found = []
        for number, count in enumerate(tiles):
            pixels = _noise(count, 3, size, size, seed=number)
            inputs: Arrays = {"pixel_values": pixels if axes == 4 else pixels[None]}
            if mask:
                inputs["pixel_attention_mask"] = np.ones((1, count, size, size), bool)
            places = [IMAGE] * (tokens * count)
            ours = {**inputs, "pixel_values": pixels.transpose(0, 2, 3, 1)} if channels_last else inputs
            found.append(Picture([START, *places, END] if edges else places, inputs, ours))
        return found

    return made


def tiled(tokens: tuple[int, int]) -> Callable[[], list[Picture]]:
    """An upright and a wide image, each of two tiles and an overview."""

    def made() -> list[Picture]:
        found = []
        for number, (count, size) in enumerate(zip(tokens, ((112, 56), (56, 112)), strict=True)):
            pixels: Arrays = {"pixel_values": _noise(1, 3, 3, 56, 56, seed=number), "image_sizes": np.array([size])}
            found.append(Picture([START, *[IMAGE] * count, END], pixels, pixels))
        return found

    return made


def sized(step: int) -> list[Picture]:
    """Images of any height and width, one token per square of so many pixels."""
    found = []
    for number, (height, width) in enumerate(((56, 84), (112, 56))):
        pixels = _noise(1, 3, height, width, seed=number)
        sizes = {"image_sizes": np.array([[height, width]])}
        padded = np.zeros((1, 3, 112, 84), np.float32)
        padded[..., :height, :width] = pixels
        count = (height // step) * (width // step)
        found.append(
            Picture(
                [START, *[IMAGE] * count, END], {"pixel_values": padded, **sizes}, {"pixel_values": pixels, **sizes}
            )
        )
    return found


def packed() -> list[Picture]:
    """Patches of images of any size, filled up to a common number."""
    found = []
    for number, (rows, columns) in enumerate(((4, 6), (6, 4))):
        pixels, mask = _noise(1, 32, 3 * 14 * 14, seed=number), np.zeros((1, 32), np.int64)
        mask[:, : rows * columns] = 1
        inputs: Arrays = {
            "pixel_values": pixels,
            "pixel_attention_mask": mask,
            "spatial_shapes": np.array([[rows, columns]]),
        }
        found.append(Picture([START, *[IMAGE] * (rows * columns // 4), END], inputs, inputs))
    return found


def cut(
    name: str = "image_grid_thw", ours: str = "image_grid_thw", whole: bool = False, frames: bool = True
) -> list[Picture]:
    """Patches as pictures, with the rows and columns of each image, behind its number of frames for mlx-vlm as well."""
    found = []
    for number, (rows, columns) in enumerate(((4, 6), (8, 4))):
        pixels, grid = _noise(rows * columns, 3, 14, 14, seed=number), np.array([[1, rows, columns]])
        found.append(
            Picture(
                [START, *[IMAGE] * (rows * columns // 4), END],
                {"pixel_values": pixels, name: grid},
                {"pixel_values": pixels[None] if whole else pixels, ours: grid if frames else grid[:, 1:]},
            )
        )
    return found


def positioned(size: int = 14, pooled: int = 4) -> list[Picture]:
    """Patches with their places."""
    found = []
    for number, (rows, columns) in enumerate(((4, 6), (6, 4))):
        places = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(1, -1, 2)
        inputs: Arrays = {
            "pixel_values": _noise(1, rows * columns, 3 * size * size, seed=number),
            "image_position_ids": places.astype(np.int64),
        }
        found.append(Picture([START, *[IMAGE] * (rows * columns // pooled), END], inputs, inputs))
    return found


def overview(size: int) -> list[Picture]:
    """Square images that are not cut: each row of features ends with another one, and one comes last."""
    found, side = [], size // 64
    for number in range(2):
        pixels, count = _noise(1, 3, size, size, seed=number), side * (side + 1) + 1
        tokens = [START, *[IMAGE] * count, END]
        ours: Arrays = {
            "pixel_values": np.stack([pixels, pixels]),  # the first is of parts, of which there are none
            "images_spatial_crop": np.ones((1, 2), np.int64),
            "images_seq_mask": np.array([tokens]) == IMAGE,
        }
        found.append(Picture(tokens, {"pixel_values": pixels}, ours))
    return found


def unfolded() -> list[Picture]:
    """Images of any height and width, of which transformers gets the patches."""
    found = []
    for number, (rows, columns) in enumerate(((4, 6), (8, 4))):
        pixels = _noise(1, 3, 14 * rows, 14 * columns, seed=number)
        patches = pixels.reshape(3, rows, 14, columns, 14).transpose(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        theirs: Arrays = {"pixel_values": patches, "image_grid_hw": np.array([[rows, columns]])}
        tokens = [START, *[IMAGE] * (rows * columns // 4), END]
        found.append(Picture(tokens, theirs, {"pixel_values": pixels}))
    return found


def folded(size: int = 14) -> list[Picture]:
    """Patches in two frames, each of which is a token."""
    found = []
    for number, count in enumerate((6, 9)):
        inputs: Arrays = {"pixel_values": _noise(count, 2, size, size, 3, seed=number)}
        found.append(Picture([START, *[IMAGE] * count, END], inputs, inputs))
    return found


def chained() -> list[Picture]:
    """Patches next to each other in one row, of images of which 16 patches are a token."""
    found = []
    for number, (rows, columns) in enumerate(((4, 8), (8, 4))):
        pixels = _noise(1, 3, 14, rows * columns * 14, seed=number)
        sizes, count = np.array([[rows, columns]]), rows * columns // 16
        ours: Arrays = {
            "pixel_values": pixels[None],
            "tgt_sizes": sizes[None],
            "image_bound": np.array([[[1, 1 + count]]]),
        }
        theirs: Arrays = {"pixel_values": pixels, "target_sizes": sizes}
        found.append(Picture([START, *[IMAGE] * count, END], theirs, ours))
    return found
