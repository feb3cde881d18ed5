"""Cubic interpolation as PyTorch computes it: between four neighbors along each axis, those at the edges repeated."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np

from ...backends.patches import replace
from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

_CUBIC = -0.75  # PyTorch's


def repeat_edges(model: nn.Module, config: Json) -> None:
    kernels = importlib.import_module("mlx_vlm.models.kernels")
    replace(model, ((kernels.bicubic_interpolate, interpolate),))


def interpolate(x: mx.array, size: tuple[int, int] | None = None, *args: object, **kwargs: object) -> mx.array:
    """Resize the last two axes; settings are upstream's."""
    import mlx.core as mx

    if size is None or args or kwargs:
        upstream = importlib.import_module("mlx_vlm.models.kernels").bicubic_interpolate
        resized: mx.array = upstream(x, size, *args, **kwargs)
        return resized
    made = x.astype(mx.float32)
    for axis, count in ((-2, size[0]), (-1, size[1])):
        places, weights = _taps(mx.arange(count), mx.array(count), x.shape[axis])
        along = made.swapaxes(axis, -1)
        made = (along[..., places] * weights).sum(axis=-1).swapaxes(axis, -1)
    return made.astype(x.dtype)


def add_positions(
    self: nn.Module, embeddings: mx.array, lengths: list[int], shapes: mx.array, rows: mx.array, columns: mx.array
) -> mx.array:
    """Add positions that are interpolated between 16 neighbors, those at the edges repeated."""
    import mlx.core as mx

    table = self.position_embedding.weight
    side = int(table.shape[0] ** 0.5)
    number = np.repeat(np.arange(len(lengths)), np.array(lengths, int) if isinstance(lengths, list) else lengths)
    height, width = shapes[mx.array(number), 1], shapes[mx.array(number), 2]
    ys, y_weights = _taps(rows, height, side)
    xs, x_weights = _taps(columns, width, side)
    found = table.astype(mx.float32)[ys[:, :, None] * side + xs[:, None, :]]
    weights = y_weights[:, :, None, None] * x_weights[:, None, :, None]
    added: mx.array = (found * weights).sum(axis=(1, 2))
    return embeddings + added.astype(embeddings.dtype)


def _taps(places: mx.array, count: mx.array, side: int) -> tuple[mx.array, mx.array]:
    """Four places of a table around each of `count` places, and their weights."""
    import mlx.core as mx

    exact = (places.astype(mx.float32) + 0.5) / count.astype(mx.float32) * side - 0.5
    first = mx.floor(exact)
    near = exact - first

    def inner(t: mx.array) -> mx.array:
        return ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1

    def outer(t: mx.array) -> mx.array:
        return ((_CUBIC * t - 5 * _CUBIC) * t + 8 * _CUBIC) * t - 4 * _CUBIC

    weights = mx.stack([outer(near + 1), inner(near), inner(1 - near), outer(2 - near)], axis=-1)
    taps = first.astype(mx.int32)[:, None] + mx.array([-1, 0, 1, 2])
    return mx.clip(taps, 0, side - 1), weights
