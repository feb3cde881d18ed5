"""Mends of encoders of images, of which mlx-vlm computes something else than PyTorch and timm.

Cubic interpolation is between four neighbors along each axis, with those at the edges repeated. SAM's encoders
interpolate positions, and Gemma 3n has a MobileNet.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import mlx.core as mx
import numpy as np
from mlx import nn

from ...backends.patches import class_like, replace
from ...types import Json

_CUBIC = -0.75  # PyTorch's


def repeat_edges(model: nn.Module, config: Json) -> None:
    kernels = importlib.import_module("mlx_vlm.models.kernels")
    replace(model, ((kernels.bicubic_interpolate, interpolate_cubic),))


def interpolate_cubic(x: mx.array, size: tuple[int, int] | None = None, *args: object, **kwargs: object) -> mx.array:
    """Resize the last two axes; settings are upstream's."""
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


def interpolate(name: str) -> Callable[[nn.Module, Json], None]:
    """Interpolate relative positions of images of other sizes than the encoder's own.

    Args:
        name: of the module that has the encoder.
    """

    def mend(model: nn.Module, config: Json) -> None:
        replace(model, _replaced(name))

    return mend


@functools.cache
def _replaced(name: str) -> tuple[tuple[object, object], ...]:
    upstream = importlib.import_module(f"mlx_vlm.models.{name}").get_rel_pos

    def positions(queries: int, keys: int, table: mx.array) -> mx.array:
        count = 2 * max(queries, keys) - 1
        if len(table) != count:
            table = between_centers(table.astype(mx.float32), 0, count).astype(table.dtype)
        found: mx.array = upstream(queries, keys, table)
        return found

    return ((upstream, positions),)


def smooth_positions(model: nn.Module, config: Json) -> None:
    """Interpolate positions of CLIP's patches like those of SAM's, smoothed if there are fewer of them."""
    replace(model, _smooth())


@functools.cache
def _smooth() -> tuple[tuple[object, object], ...]:
    from mlx_vlm.models import kernels
    from mlx_vlm.models.deepseekocr import vision

    return ((vision.interpolate, functools.partial(kernels.bicubic_interpolate, antialias=True)),)


def correct_layers(model: nn.Module, config: Json) -> None:
    """CLIP's layers have GELU by a sigmoid, and norms that add more to variances."""
    for layer in model.vision_model.modules():
        if type(layer).__name__ == "MLP":
            layer.activation_fn = nn.GELU("fast")
        elif type(layer).__name__ == "EncoderLayer":
            layer.layer_norm1.eps = layer.layer_norm2.eps = 1e-5


def between_centers(x: mx.array, axis: int, size: int) -> mx.array:
    """An axis of another size, each place interpolated between two neighbors: their edges are the same."""
    count = x.shape[axis]
    places = mx.clip((mx.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
    low = mx.floor(places)
    near = (places - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    below = mx.take(x, low.astype(mx.int32), axis=axis)
    above = mx.take(x, mx.minimum(low + 1, count - 1).astype(mx.int32), axis=axis)
    return below + (above - below) * near


_EPSILON = 1e-6


def correct_norms(model: nn.Module, config: Json) -> None:
    """Norms add less to variances, and GELU is computed by tanh."""
    for layer in _layers(model, "RMSNormAct2d"):
        layer.eps = _EPSILON
        if isinstance(layer.act, nn.GELU):
            layer.act = nn.GELU("tanh")


def pad_behind(model: nn.Module, config: Json) -> None:
    """Keys and values of every second pixel are convolved with padding as TensorFlow has it, more of it behind."""
    from mlx_vlm.models.gemma3n.vision import Conv2dSame

    for layer in _layers(model, "MultiQueryAttention2d"):
        for part in (layer.key, layer.value):
            if "down_conv" in part:
                conv = part.down_conv
                conv.__class__ = Conv2dSame
                conv.kernel_size, conv.padding, conv.dilation = conv.weight.shape[1:3], (0, 0), (1, 1)


def fuse_by_rows(model: nn.Module, config: Json) -> None:
    """Features come row by row, always normalized."""
    for layer in _layers(model, "MobileNetV5MultiScaleFusionAdapter"):
        layer.__class__ = class_like(type(layer), {"__call__": _fused})


def _fused(self: nn.Module, inputs: list[mx.array]) -> mx.array:
    height, width = inputs[0].shape[1:3]
    grown = [_nearest(_nearest(each, 1, height), 2, width) for each in inputs]
    fused: mx.array = self.ffn(mx.concatenate(grown, axis=-1))
    rows, columns = self.output_resolution
    if height % rows == 0 and width % columns == 0:
        fused = fused.reshape(len(fused), rows, height // rows, columns, width // columns, -1).mean(axis=(2, 4))
    else:
        fused = between_centers(between_centers(fused, 1, rows), 2, columns)
    normed: mx.array = self.norm(fused)
    return normed


def _nearest(x: mx.array, axis: int, size: int) -> mx.array:
    return mx.take(x, mx.arange(size) * x.shape[axis] // size, axis=axis)


def _layers(model: nn.Module, name: str) -> list[nn.Module]:
    return [layer for layer in model.modules() if type(layer).__name__ == name]
