"""Attention of towers in windows, one batch per size of window.

mlx-vlm's towers attend within an image, a frame or a window of patches: by a call of MLX for each window, or by a mask
over all patches. A picture of 1,024 x 1,024 is 100 windows for Qwen2.5-VL, 2,800 calls in its 28 layers with windows.
Here windows of one size are a batch: three calls a layer. A CPU, where a call costs little and the scores of one window
fit into its cache, takes three times as long for a batch (280 ms a layer, and 100): there only masks are left out.

A layer gets a class whose `__call__` is upstream's code, run as if all patches were one image; its attention knows the
windows. Nothing that other models share is changed.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from ..engine.ports import host
from .machine import has_gpu, on_cuda
from .patches import Function, Mask, class_like, rebound, with_names

log = logging.getLogger("localai_shim")

_thread = threading.local()
"""`windows`: those of the layer that this thread is building; `made`: what was last made of ends."""

_ENDS, _INNER = "cu_seqlens", "split_points"
"""Names of upstream's arguments that say where windows end: 0 and the last one included, or neither."""
_STANDS_DOWN = "%s attends as mlx-vlm has it, not in batches of windows: %s"
_REPLACED = ("scaled_dot_product_attention", "ensure_fused_sdpa")
_ROTARY = "apply_rotary_pos_emb_vision"
_COMPILED_SHAPES = 16  # MLX keeps 15 KB of each, and goes over them at each call


class UpstreamChangedError(Exception):
    """Upstream's code does something else than this module was written for."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Patches of a tower, by size of their window."""

    patches: int
    groups: tuple[tuple[int, int], ...]
    """(windows, patches of each)"""
    order: mx.array | None
    """Patches as the groups have them; None: as they are."""
    back: mx.array | None
    """The places of the patches in that order."""

    def attend(self, upstream: Function, arrays: Sequence[mx.array]) -> mx.array:
        """Attend within each window by `upstream`; queries, keys and values are `[1, heads, patches, dim]`."""
        if self.groups == ((1, self.patches),):
            return upstream(*arrays)
        heads, dim = arrays[0].shape[1], arrays[-1].shape[-1]
        inputs = [array.squeeze(0).swapaxes(0, 1) for array in arrays]
        if self.order is not None:
            inputs = [array[self.order] for array in inputs]
        made, start = list[mx.array](), 0
        for count, size in self.groups:
            stop = start + count * size
            batch = [array[start:stop].reshape(count, size, *array.shape[1:]).swapaxes(1, 2) for array in inputs]
            made.append(upstream(*batch).swapaxes(1, 2).reshape(-1, heads, dim))
            start = stop
        out = made[0] if len(made) == 1 else mx.concatenate(made)
        return (out if self.back is None else out[self.back]).swapaxes(0, 1)[None]


def windows_of(ends: Sequence[int], *, filled: Callable[[int], int] = lambda count: count) -> Windows:
    """Windows that end at these places, the first of which is 0; several that end at one are one.

    Args:
        ends: ascending.
        filled: windows of a batch -> windows after filling; those added are the first patch, again and again.
    """
    sizes = np.diff(np.unique(np.asarray(ends)))
    starts = np.cumsum(sizes) - sizes
    patches, order, groups = int(sizes.sum()), list[npt.NDArray[np.intp]](), list[tuple[int, int]]()
    for size in sorted(set(sizes.tolist()), reverse=True):
        its = starts[sizes == size]
        more = filled(len(its)) - len(its)
        groups.append((len(its) + more, size))
        order.append((its[:, None] + np.arange(size)).reshape(-1))
        order.append(np.zeros(more * size, its.dtype))
    places = np.concatenate(order)
    if len(places) == patches and (places == np.arange(patches)).all():
        return Windows(patches, tuple(groups), None, None)
    back = np.empty(patches, np.int32)
    back[places[::-1]] = np.arange(len(places) - 1, -1, -1)  # of a patch that is there again, its first place
    return Windows(patches, tuple(groups), mx.array(places.astype(np.int32)), mx.array(back))


def use_windows(model: nn.Module, *, enabled: bool | None = None) -> int:
    """Give a tower's layers that attend in windows a class that does so in batches; their weights stay as they are.

    Args:
        model: mlx-vlm's; changed in place.
        enabled: whether to do it; None does it on a GPU, and elsewhere to layers that make a mask.

    Returns:
        how many layers changed.
    """
    changed, every = 0, has_gpu() if enabled is None else enabled
    for layer in model.modules():
        kind: type = type(layer)
        argument, masks = _LAYERS.get((kind.__module__, kind.__name__), (None, False))
        wanted = argument is not None and (every or (masks and enabled is None)) and not hasattr(kind, "in_windows")
        form = _form(kind, argument) if wanted else None
        if form is not None:
            layer.__class__ = form
            changed += 1
    return changed


@functools.cache
def _form(kind: type, argument: str) -> type | None:
    """A layer's class whose attention is in batches; None, and a line in the log, where upstream is another."""
    name = f"{kind.__module__}.{kind.__name__}"
    try:
        code = _checked(kind, argument)
    except UpstreamChangedError as error:
        log.info(_STANDS_DOWN, name, error)
        return None
    scope = code.__globals__
    as_one_image = rebound(code, {**scope, **_own_names(scope)})
    signature = inspect.signature(code)

    def call(self: nn.Module, *args: mx.array, **kwargs: object) -> mx.array:
        given = signature.bind(self, *args, **kwargs)
        ends = given.arguments.get(argument)
        if ends is None:
            return code(self, *args, **kwargs)
        windows = _made(ends, argument, args[0].shape[-2])
        given.arguments[argument] = np.array([0, windows.patches]) if argument == _ENDS else []
        try:
            with _attending(windows):
                return as_one_image(*given.args, **given.kwargs)
        except UpstreamChangedError as error:
            log.info(_STANDS_DOWN, name, error)
            self.__class__ = kind
            return code(self, *args, **kwargs)

    return class_like(kind, {"__call__": call, "in_windows": True})


def _checked(kind: type, argument: str) -> Function:
    """A class's own `__call__`."""
    code = kind.__call__
    if not isinstance(code, FunctionType) or code.__closure__:
        raise UpstreamChangedError("its __call__ is no plain function")
    if argument not in inspect.signature(code).parameters:
        raise UpstreamChangedError(f"its __call__ has no argument {argument}")
    if not set(_REPLACED) & set(code.__code__.co_names):
        raise UpstreamChangedError(f"its __call__ calls none of {', '.join(_REPLACED)}")
    return code


def _own_names(scope: Mapping[str, Any]) -> dict[str, object]:
    """Names as a layer's code finds them."""

    def attend(
        queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: Mask = None, **more: object
    ) -> mx.array:
        form: Function = scope["mx"].fast.scaled_dot_product_attention
        return _batched(lambda q, k, v: form(q, k, v, scale=scale, mask=None, **more), queries, keys, values)

    def fused(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: Mask = None) -> mx.array:
        form: Function = scope["ensure_fused_sdpa"]
        return _batched(lambda q, k, v: form(q, k, v, scale), q, k, v)

    names: dict[str, object] = {"ensure_fused_sdpa": fused}
    if "mx" in scope:
        names["mx"] = with_names(scope["mx"], fast=with_names(scope["mx"].fast, scaled_dot_product_attention=attend))
    if _ROTARY in scope:
        names[_ROTARY] = partial(_turned, scope)
    return {name: value for name, value in names.items() if name in scope}


def _turned(scope: Mapping[str, Any], *given: object, **named: object) -> mx.array:
    """Queries or keys at their positions, by upstream's function; compiled on CUDA, where that takes half as long."""
    function: Function = scope[_ROTARY]
    if not on_cuda():
        return function(*given, **named)
    shapes = tuple(array.shape for array in given if isinstance(array, mx.array))
    try:
        return _compiled(function, shapes)(*given, **named)
    except ValueError as error:  # what it does depends on numbers
        raise UpstreamChangedError(f"{_ROTARY} cannot be compiled: {error}") from error


@functools.lru_cache(_COMPILED_SHAPES)
def _compiled(function: Function, shapes: tuple[tuple[int, ...], ...]) -> Function:
    """A function as MLX compiles it for these shapes.

    A trace takes 0.1 ms; the kernels are the same ones. (MLX cannot trace one for all shapes: there are slices in it.)
    """
    made: Function = mx.compile(function)
    return made


def _batched(upstream: Function, *arrays: mx.array) -> mx.array:
    """Attention of all patches, whose mask is left out: it is that of one image."""
    windows: Windows | None = _thread.windows
    if windows is None:
        raise UpstreamChangedError("it attends more than once")
    for array in arrays:
        if array.ndim != 4 or array.shape[0] != 1 or array.shape[2] != windows.patches:
            raise UpstreamChangedError(f"it attends to {array.shape}, not to {windows.patches} patches")
    _thread.windows = None
    return windows.attend(upstream, arrays)


@contextmanager
def _attending(windows: Windows) -> Iterator[None]:
    """Have the one attention that this thread builds meanwhile be in these windows."""
    _thread.windows = windows
    try:
        yield
        if _thread.windows is not None:
            raise UpstreamChangedError("it does not attend")
    finally:
        _thread.windows = None


def _made(ends: mx.array | Sequence[int], argument: str, patches: int) -> Windows:
    """Windows of what a layer was given; a tower gives its layers the same one or two."""
    last: list[tuple[object, Windows]] = _thread.__dict__.setdefault("made", [])
    for known, windows in last:
        if known is ends:
            return windows
    places = np.asarray(ends).tolist()
    windows = windows_of(places if argument == _ENDS else [0, *places, patches], filled=host().forms().filled_rows)
    last[:] = [*last[-1:], (ends, windows)]
    return windows


_CALLS, _MASKS = (_ENDS, False), (_ENDS, True)
_LAYERS: dict[tuple[str, str], tuple[str, bool]] = {
    (f"mlx_vlm.models.{family}.vision", kind): how
    for family, kind, how in (
        ("cohere_compass", "Attention", _CALLS),
        ("dots_ocr", "VisionAttention", _CALLS),
        ("glm4v_moe", "Glm4vMoeVisionAttention", _MASKS),
        ("glm5_next", "VisionAttention", _CALLS),
        ("glm_ocr", "GlmOcrVisionAttention", _CALLS),
        ("kimi_vl", "Attention", _MASKS),
        ("locateanything", "Attention", _MASKS),
        ("minimax_m3_vl", "MiniMaxVisionAttention", _CALLS),
        ("muse_glimmer", "VisionAttention", (_INNER, False)),
        ("paddleocr_vl", "Attention", _MASKS),
        ("qwen2_5_vl", "Attention", _CALLS),  # zaya1_vl's as well
        ("qwen2_vl", "Attention", _CALLS),
        ("qwen3_omni_moe", "Attention", _CALLS),
        ("qwen3_vl", "Attention", _CALLS),  # qwen3_5's as well
        ("qwen3_vl_moe", "Attention", _CALLS),
        ("youtu_vl", "Siglip2Attention", _CALLS),
    )
}
"""By module and class: the argument that says where windows end, and whether upstream makes a mask of it.

glm4v and ernie4_5_moe_vl cut more than three images wrongly, and run one at a time here; mimo_v2 has batches itself.
"""
