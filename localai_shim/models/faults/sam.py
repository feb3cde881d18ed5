"""SAM encoders of models that read pages, of which mlx-vlm interpolates positions otherwise than PyTorch does."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...backends.patches import replace
from ...types import Json

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn


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
    import mlx.core as mx

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
    from mlx import nn

    for layer in model.vision_model.modules():
        if type(layer).__name__ == "MLP":
            layer.activation_fn = nn.GELU("fast")
        elif type(layer).__name__ == "EncoderLayer":
            layer.layer_norm1.eps = layer.layer_norm2.eps = 1e-5


def between_centers(x: mx.array, axis: int, size: int) -> mx.array:
    """An axis of another size, each place interpolated between two neighbors: their edges are the same."""
    import mlx.core as mx

    count = x.shape[axis]
    places = mx.clip((mx.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
    low = mx.floor(places)
    near = (places - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    below = mx.take(x, low.astype(mx.int32), axis=axis)
    above = mx.take(x, mx.minimum(low + 1, count - 1).astype(mx.int32), axis=axis)
    return below + (above - below) * near
