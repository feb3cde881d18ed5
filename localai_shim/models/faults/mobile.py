"""The MobileNet encoder of Gemma 3n, of which mlx-vlm computes something else than timm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...backends.patches import class_like
from ...types import Json
from .sam import between_centers

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn

_EPSILON = 1e-6


def correct_norms(model: nn.Module, config: Json) -> None:
    """Norms add less to variances, and GELU is computed by tanh."""
    from mlx import nn

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
    import mlx.core as mx

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
    import mlx.core as mx

    return mx.take(x, mx.arange(size) * x.shape[axis] // size, axis=axis)


def _layers(model: nn.Module, name: str) -> list[nn.Module]:
    return [layer for layer in model.modules() if type(layer).__name__ == name]
