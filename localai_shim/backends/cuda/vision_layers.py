"""Layers of mlx-vlm's models in forms that are fast on CUDA, if a trial finds that these compute the same.

**Rotary embeddings of models that count an image's rows and columns** (MRoPE), where their three numbers are the same.
Behind images and in text every token has one position, as in a text model, and a row's tokens follow one another. Still
mlx-vlm turns queries and keys there by twenty operations of every layer, with cosines that it computes for three
numbers; on Metal alone it has a kernel. A step of one row launches all of that: 80 operations a layer of Qwen2.5-VL,
where Qwen2's text model has 62. Here it is `mx.fast.rope` once for each, as there, from positions that `VisionModel`
says.

**Blocks of towers whose inner width is no multiple of what a GPU reads at once**, filled up with zeros. Qwen2.5-VL's is
3,420: rows of 6,840 bytes do not begin at multiples of 16, and cuBLAS takes 2.5 times as long for them as for rows of
3,456 numbers (on an H200: 0.46 ms and 0.18). The padding has no effect: its weights and biases are 0, and so are the
columns of the product that reads it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from ..patches import Function, class_like, replace

log = logging.getLogger("localai_shim")

Turning = Callable[..., object]
"""Gives queries and keys that are turned."""
Starts = int | mx.array
"""The first position of all rows, or `[rows]` of each."""

_thread = threading.local()
"""`starts`: those of the pass that this thread is building, None where it has others."""
_TRIED_AT, _TURN_TOLERANCE = 3, 0.02  # products of float32 have some 10 bits on a GPU; a wrong pair is wrong by 1

_ALIGNED_BYTES, _MULTIPLE = 16, 64
_TRIED_ROWS, _TOLERANCE = 4, 1e-3  # of the largest number; a block that minds its width is off by 1 part in 100
_Weights = list[dict[str, mx.array]]


def _is_same(trial: Callable[[], bool], otherwise: str, line: str, *names: object) -> bool:
    """Find out by a trial whether a form computes what upstream's code does; log a line with the reason if not."""
    try:
        same, why = trial(), otherwise
    except Exception as error:  # whatever upstream's code has become
        same, why = False, f"{type(error).__name__}: {error}"
    if not same:
        log.info(line, *names, why)
    return same


# -- rotary embeddings -----------------------------------------------------------------------------------------------


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
        if not hasattr(layer, "turn") and _turns_alike(layer, name, traditional):
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


def _turns_alike(rotary: nn.Module, name: str, traditional: bool) -> bool:
    """True if upstream's code turns queries and keys as a `Turn` does."""

    def trial() -> bool:
        function = _upstream(rotary, name)
        frequencies = _frequencies(rotary)
        half = frequencies.size
        sections = {"mrope_section": [half - half // 3 * 2, half // 3, half // 3]}
        known = {key: value for key, value in sections.items() if key in inspect.signature(function).parameters}
        x = mx.sin(mx.arange(6.0 * 2 * half)).reshape(1, 2, 3, 2 * half)
        positions = mx.broadcast_to(mx.arange(_TRIED_AT, _TRIED_AT + 3)[None, None], (3, 1, 3))
        theirs = function(x, x, *rotary(x, positions), **known)
        ours = Turn(frequencies, traditional, _TRIED_AT)(x)
        return all(mx.allclose(each, ours, rtol=0, atol=_TURN_TOLERANCE).item() for each in theirs)

    line = "%s turns queries and keys as mlx-vlm has it: %s"
    return _is_same(trial, "it turns them otherwise", line, ".".join(_key(rotary)))


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


# -- widths of towers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """A layer that is nothing but products: one or two to its inner width, and one back."""

    whole: nn.Module
    wide: tuple[nn.Linear, ...]
    narrow: nn.Linear

    @property
    def width(self) -> int:
        return int(self.narrow.weight.shape[1])

    def weights(self) -> _Weights:
        """Those of the products, the one back last."""
        return [dict(layer.parameters()) for layer in (*self.wide, self.narrow)]

    def set(self, weights: _Weights) -> None:
        for layer, its in zip((*self.wide, self.narrow), weights, strict=True):
            layer.update(its)


def fill_widths(model: nn.Module) -> int:
    """Fill up blocks whose rows are not aligned; a trial of each kind says whether they still compute the same.

    Quantised blocks are left alone. A language model's blocks of such a width, if there are any, gain as a tower's do.

    Args:
        model: changed in place.

    Returns:
        how many blocks changed.
    """
    agreed, changed = dict[tuple[type, int], bool](), 0
    for block in _blocks(model):
        kind = (type(block.whole), block.width)
        if kind not in agreed:
            agreed[kind] = _computes_alike(block)
        if agreed[kind]:
            block.set(_filled(block.weights()))
            mx.eval(block.whole.parameters())  # block by block: what was there before goes
            changed += 1
    return changed


def _blocks(model: nn.Module) -> Iterator[Block]:
    for layer in model.modules():
        if type(layer).__module__.startswith("mlx_vlm.models."):
            block = _block(layer)
            if block is not None and block.width * block.narrow.weight.itemsize % _ALIGNED_BYTES:
                yield block


def _block(layer: nn.Module) -> Block | None:
    """A layer's products; None where it has others, or other weights."""
    products = [child for child in layer.children().values() if type(child) is nn.Linear]
    if len(products) not in (2, 3):
        return None
    if sum(len(product.parameters()) for product in products) != len(tree_flatten(layer.parameters())):
        return None
    for narrow in products:
        wide = tuple(product for product in products if product is not narrow)
        outputs, inputs = narrow.weight.shape
        if inputs > outputs and {product.weight.shape for product in wide} == {(inputs, outputs)}:
            return Block(layer, wide, narrow)
    return None


def _filled(weights: _Weights) -> _Weights:
    """Weights with zeros up to the next multiple of `_MULTIPLE`."""
    *wide, narrow = weights
    width = narrow["weight"].shape[1]
    more = math.ceil(width / _MULTIPLE) * _MULTIPLE - width
    rows = [{name: mx.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1)) for name, array in w.items()} for w in wide]
    return [*rows, {**narrow, "weight": mx.pad(narrow["weight"], [(0, 0), (0, more)])}]


def _computes_alike(block: Block) -> bool:
    """True if a block computes the same when it is filled up, in float32."""

    def trial() -> bool:
        before = block.weights()
        exact = [{name: array.astype(mx.float32) for name, array in its.items()} for its in before]
        x = mx.sin(mx.arange(float(_TRIED_ROWS * block.narrow.weight.shape[0]))).reshape(_TRIED_ROWS, -1)
        try:
            block.set(exact)
            theirs = block.whole(x)
            block.set(_filled(exact))
            ours = block.whole(x)
            most = _TOLERANCE * mx.abs(theirs).max()
            return bool((mx.abs(ours - theirs) <= most).all().item())
        finally:
            block.set(before)

    kind, line = type(block.whole), "%s.%s keeps its width of %d: %s"
    return _is_same(trial, "it computes something else", line, kind.__module__, kind.__name__, block.width)
