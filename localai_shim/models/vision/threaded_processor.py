"""Processors of mlx-vlm as callers' threads can run them: they compute with NumPy where they would with MLX, and one
thread at a time calls their tokenizer.

Many end in MLX arrays, and some compute with them, but all MLX work belongs to the engine thread. Their classes get
copies of functions, whose globals have NumPy instead of `mlx.core`; mlx-vlm itself stays as it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from PIL.Image import Image

from ...backends.patches import class_like, rebound, scope_with, with_names
from ...threads.cache import LRUCache
from ...threads.system import RLock
from .pixels import qwen_patches

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin

P = ParamSpec("P")
R = TypeVar("R")
_KEPT_TEXTS = 8
_PACKAGE = "mlx_vlm."


class _ArrayType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, np.ndarray)

    def __call__(cls, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[np.generic]:
        array = np.array(values, dtype=dtype)
        return array.astype(np.float32) if dtype is None and array.dtype == np.float64 else array


class _Array(metaclass=_ArrayType):
    """In the place of `mx.array`: makes NumPy's, in the types that MLX would choose."""


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
            for name, value in vars(base).items():
                if isinstance(value, types.FunctionType):
                    members[name] = rebound(value, own)
                elif isinstance(value, staticmethod):
                    members[name] = staticmethod(rebound(value.__func__, own))
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


# -- the tokenizer ---------------------------------------------------------------------------------------------------


class OneAtATime:
    """A tokenizer whose methods run in one thread at a time: fast ones are not re-entrant.

    Encodings of its last texts are kept: a processor makes it read one of thousands of placeholders for each image,
    the same one for images of one size.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._made, self._lock = tokenizer, RLock()
        self._kept: LRUCache[BatchEncoding] = LRUCache(_KEPT_TEXTS)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # before there is one, as in a copy
            raise AttributeError(name)
        value = getattr(self._made, name)
        return self._locked(value) if inspect.ismethod(value) else value

    def __call__(self, *args: object, **options: object) -> object:
        from transformers import BatchEncoding

        key = _key(args, options)
        if key is None:
            return self._locked(self._made)(*args, **options)
        with self._lock:
            made = self._kept.get(key)
            if made is None:
                made = self._made(*args, **options)
                if not isinstance(made, BatchEncoding):
                    return made
                self._kept.put(key, made)
        return _copy(made)

    def __len__(self) -> int:
        return len(self._made)

    def _locked(self, call: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **options: P.kwargs) -> R:
            with self._lock:
                return call(*args, **options)

        return run


def _key(args: Sequence[object], options: Mapping[str, object]) -> Hashable | None:
    """Equal for equal calls with a list of texts; None for others."""
    if len(args) != 1 or type(args[0]) is not list or "return_tensors" in options:
        return None
    values = (*args[0], *options.values())
    plain = all(value is None or isinstance(value, str | int) for value in values)
    return (*args[0], *sorted(options.items())) if plain else None


def _copy(made: BatchEncoding) -> BatchEncoding:
    """The same encoding with its own lists: processors may write to them."""
    other = object.__new__(type(made))
    vars(other).update(vars(made), data={name: [[*row] for row in rows] for name, rows in made.items()})
    return other
