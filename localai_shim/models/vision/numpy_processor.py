"""Processors of mlx-vlm that compute with NumPy where they would with MLX.

Many end in MLX arrays, and some compute with them, but all MLX work belongs to the engine thread. Their classes get
copies of functions, whose globals have NumPy instead of `mlx.core`; mlx-vlm itself stays as it is.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...backends.patches import class_like, rebound, scope_with, with_names
from .pixels import qwen_patches

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import ProcessorMixin

_PACKAGE = "mlx_vlm."


class _ArrayType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, np.ndarray)


class _Array(metaclass=_ArrayType):
    """In the place of `mx.array`: makes NumPy's, in the types that MLX would choose."""

    def __new__(cls, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
        array = np.array(values, dtype=dtype)
        return array.astype(np.float32) if dtype is None and array.dtype == np.float64 else array


_NUMPY = with_names(np, array=_Array, eval=lambda *_: None)
"""In the place of `mlx.core`."""


def without_mlx(processor: ProcessorMixin) -> ProcessorMixin:
    """The same processor, and what it is made of, whose functions compute with NumPy, and a quick form of Qwen's."""
    for part in (processor, *(vars(processor).values() if hasattr(processor, "__dict__") else ())):
        if type(part).__module__.startswith(_PACKAGE):
            part.__class__ = _without_mlx(type(part))  # type: ignore[arg-type]
    return processor


@functools.cache
def _without_mlx(kind: type) -> type:
    """A subclass with the methods of the class and of its bases in mlx-vlm."""
    members = dict[str, object]()
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(_PACKAGE):
            own = _globals(base.__module__)
            members |= {
                name: rebound(value, own)
                if isinstance(value, types.FunctionType)
                else staticmethod(rebound(value.__func__, own))
                for name, value in vars(base).items()
                if isinstance(value, types.FunctionType | staticmethod)
            }
    if "to_mlx" in members:
        members["to_mlx"] = _channels_first
    if hasattr(kind, "_resolved_size"):  # Qwen's
        members["__call__"] = qwen_patches
    return class_like(kind, members)


def _channels_first(_: object, image: Image) -> npt.NDArray[np.float32]:
    """In the place of `to_mlx` of some image processors, which makes a Python object of each pixel."""
    return np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1) / np.float32(255)


@functools.cache
def _globals(module: str) -> dict[str, object]:
    """A module's globals with NumPy instead of MLX."""
    scope = vars(sys.modules[module])
    return scope_with(scope, {name: value for name, value in (("mx", _NUMPY), ("to_mlx", dict)) if name in scope})
