"""Rotary embeddings of models that count an image's rows and columns (MRoPE), where their three numbers are the same.

Behind images and in text every token has one position, as in a text model, and a row's tokens follow one another. Still
mlx-vlm turns queries and keys there by twenty operations of every layer, with cosines that it computes for three
numbers; on Metal alone it has a kernel. A step of one row launches all of that: 80 operations a layer of Qwen2.5-VL,
where Qwen2's text model has 62. Here it is `mx.fast.rope` once for each, as there, from positions that `VisionModel`
says.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from ..patches import Function, class_like, replace

log = logging.getLogger("localai_shim")

Turning = Callable[..., object]
"""Gives queries and keys that are turned."""
Starts = int | mx.array
"""The first position of all rows, or `[rows]` of each."""

_thread = threading.local()
"""`starts`: those of the pass that this thread is building, None where it has others."""
_TRIED_AT, _TOLERANCE = 3, 0.02  # products of float32 have some 10 bits on a GPU; a wrong pair is wrong by 1


@dataclass(frozen=True, slots=True)
class Turn:
    """Stand-in for cosines and sines that a pass's layers get."""

    frequencies: mx.array
    """`[dims / 2]`: positions per radian."""
    traditional: bool
    """Neighbouring numbers are pairs, not those of the two halves."""
    starts: Starts

    def __call__(self, x: mx.array) -> mx.array:
        """`[rows, heads, tokens, dim]` at its positions."""
        return mx.fast.rope(
            x,
            2 * self.frequencies.size,
            traditional=self.traditional,
            base=None,
            scale=1.0,
            offset=self.starts,
            freqs=self.frequencies,
        )


@contextmanager
def turned_from(starts: Starts | None) -> Iterator[None]:
    """Have the pass that this thread builds meanwhile turned by one position per token, from these; None: by three."""
    _thread.starts = starts
    try:
        yield
    finally:
        _thread.starts = None


def use_one_position(model: nn.Module) -> int:
    """Give a model's rotary embeddings a class that knows `turned_from`, if what its layers make of it is the same.

    Args:
        model: mlx-vlm's; its layers call a function that knows such embeddings instead of upstream's.

    Returns:
        how many embeddings changed.
    """
    found = [(layer, _ROTARY[key]) for layer in model.modules() if (key := _key(layer)) in _ROTARY]
    changed, functions = 0, dict[Function, Turning]()
    for layer, (name, traditional) in found:
        kind: object = type(layer)
        if not hasattr(layer, "turn") and _agrees(layer, name, traditional):
            upstream = _upstream(layer, name)
            functions[upstream] = _applying(upstream)
            layer.__class__ = _form(kind, traditional)
            changed += 1
    replace(model, tuple(functions.items()))
    return changed


def _key(layer: nn.Module) -> tuple[str, str]:
    return type(layer).__module__, type(layer).__name__


def _upstream(layer: nn.Module, name: str) -> Function:
    function: Function = getattr(sys.modules[type(layer).__module__], name)
    return function


@functools.cache
def _applying(upstream: Turning) -> Turning:
    """Upstream's function of queries, keys, cosines and sines, which a `Turn` may take the place of."""

    def apply(q: mx.array, k: mx.array, cos: Turn | mx.array, *more: object, **named: object) -> object:
        if isinstance(cos, Turn):
            return cos(q), cos(k)
        return upstream(q, k, cos, *more, **named)

    return apply


@functools.cache
def _form(kind: type, traditional: bool) -> type:
    """Rotary embeddings of three positions per token, or of one."""

    def turn(self: nn.Module, starts: Starts) -> Turn:
        if not hasattr(self, "_frequencies"):
            self._frequencies = _frequencies(self)
        return Turn(self._frequencies, traditional, starts)

    def call(self: nn.Module, x: mx.array, position_ids: mx.array) -> object:
        starts: Starts | None = getattr(_thread, "starts", None)
        return kind.__call__(self, x, position_ids) if starts is None else (turn(self, starts), None)

    return class_like(kind, {"__call__": call, "turn": turn})


def _frequencies(rotary: nn.Module) -> mx.array:
    made: mx.array = 1.0 / rotary._inv_freq.astype(mx.float32)
    mx.eval(made)
    return made


def _agrees(rotary: nn.Module, name: str, traditional: bool) -> bool:
    """Find out whether upstream's code turns queries and keys as a `Turn` does; log a line if not."""
    try:
        function = _upstream(rotary, name)
        frequencies = _frequencies(rotary)
        half = frequencies.size
        sections = {"mrope_section": [half - half // 3 * 2, half // 3, half // 3]}
        known = {key: value for key, value in sections.items() if key in inspect.signature(function).parameters}
        x = mx.sin(mx.arange(6.0 * 2 * half)).reshape(1, 2, 3, 2 * half)
        positions = mx.broadcast_to(mx.arange(_TRIED_AT, _TRIED_AT + 3)[None, None], (3, 1, 3))
        theirs = function(x, x, *rotary(x, positions), **known)
        ours = Turn(frequencies, traditional, _TRIED_AT)(x)
        same = all(mx.allclose(each, ours, rtol=0, atol=_TOLERANCE).item() for each in theirs)
        why = "it turns them otherwise"
    except Exception as error:  # whatever upstream's code has become
        same, why = False, f"{type(error).__name__}: {error}"
    if not same:
        log.info("%s turns queries and keys as mlx-vlm has it: %s", ".".join(_key(rotary)), why)
    return same


_HALVES = ("apply_multimodal_rotary_pos_emb", False)
_ROTARY: dict[tuple[str, str], tuple[str, bool]] = {
    (f"mlx_vlm.models.{family}.language", kind): how
    for family, kind, how in (
        ("glm4v", "GLM4VRotaryEmbedding", ("apply_multimodal_rotary_pos_emb", True)),
        ("glm4v_moe", "GLM4VRotaryEmbedding", _HALVES),
        ("glm_ocr", "GlmOcrRotaryEmbedding", ("apply_rotary_pos_emb", True)),
        ("paddleocr_vl", "PaddleOCRRotaryEmbedding", _HALVES),
        ("qwen2_5_vl", "Qwen2RotaryEmbedding", _HALVES),
        ("qwen2_vl", "Qwen2RotaryEmbedding", _HALVES),
        ("qwen3_5", "Qwen3_5RotaryEmbedding", _HALVES),
        ("qwen3_omni_moe", "Qwen3OmniMoeThinkerTextRotaryEmbedding", _HALVES),
        ("qwen3_vl", "Qwen3VLRotaryEmbedding", _HALVES),
        ("qwen3_vl_moe", "Qwen3VLMoERotaryEmbedding", _HALVES),
    )
}
"""By module and class: the function that layers call, and whether neighbouring numbers are pairs."""
