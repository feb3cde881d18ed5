"""Blocks of mlx-vlm's towers whose inner width is no multiple of what a GPU reads at once, filled up with zeros.

Qwen2.5-VL's is 3,420: rows of 6,840 bytes do not begin at multiples of 16, and cuBLAS takes 2.5 times as long for them
as for rows of 3,456 numbers (on an H200: 0.46 ms and 0.18). The padding has no effect: its weights and biases are 0,
and so are the columns of the product that reads it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

log = logging.getLogger("localai_shim")

_ALIGNED_BYTES, _MULTIPLE = 16, 64
_TRIED_ROWS, _TOLERANCE = 4, 1e-3  # of the largest number; a block that minds its width is off by 1 part in 100
_Weights = list[dict[str, mx.array]]


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
            agreed[kind] = _agrees(block)
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


def _agrees(block: Block) -> bool:
    """Find out whether a block computes the same when it is filled up, in float32; log a line if not."""
    before = block.weights()
    exact = [{name: array.astype(mx.float32) for name, array in its.items()} for its in before]
    x = mx.sin(mx.arange(float(_TRIED_ROWS * block.narrow.weight.shape[0]))).reshape(_TRIED_ROWS, -1)
    try:
        block.set(exact)
        theirs = block.whole(x)
        block.set(_filled(exact))
        ours = block.whole(x)
        most = _TOLERANCE * mx.abs(theirs).max()
        same, why = bool((mx.abs(ours - theirs) <= most).all().item()), "it computes something else"
    except Exception as error:  # whatever upstream's code does with its weights
        same, why = False, f"{type(error).__name__}: {error}"
    finally:
        block.set(before)
    if not same:
        kind = type(block.whole)
        log.info("%s.%s keeps its width of %d: %s", kind.__module__, kind.__name__, block.width, why)
    return same
