"""Quantised layers on a CPU: float32 copies where there is memory, or weights that are unpacked for wide passes."""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import mla, switch_layers

from ..layers import Format, Packed, remember
from .products import MARGIN, TRIAL_NUMBERS, in_turns, multiply

log = logging.getLogger("localai_shim")

# MLX 0.32.4 multiplies packed weights on one core, row by row: 1 ns for each number and row. BLAS takes 0.05 for each
# of many rows; for a single one OpenBLAS takes 0.1 to 0.3 in pieces (see `products`). Unpacking takes 2 ns a number for
# 4 and 8 bits, 8 for mxfp8 and some 20 for 2, 3, 5, 6 bits, mxfp4 and nvfp4 (two cores of an EPYC), and no longer by
# blocks that its caches hold.
BLOCK_NUMBERS = 2**20
EXPERTS_BLOCK_NUMBERS = 2**24  # a block has some outputs of all experts
TRIAL_ROWS, TRIAL_BLOCKS = 16, 2  # of products with weights that are unpacked for them


class Trial(NamedTuple):
    """Measurements of a format on this machine."""

    widen: bool
    """True if a float32 copy is faster for a single row."""
    rows: int
    """Rows from which unpacking is faster than a product with packed weights."""


class UnpackedLinear(nn.QuantizedLinear):  # type: ignore[misc]
    """`mlx.nn.QuantizedLinear`, whose weights are unpacked for passes of many rows."""

    unpack_from = 0

    def __call__(self, x: mx.array) -> mx.array:
        """`[..., inputs]` -> `[..., outputs]`."""
        if x.size < self.unpack_from * x.shape[-1]:
            y: mx.array = super().__call__(x)
            return y
        y = _multiply(self, x, mx.matmul, BLOCK_NUMBERS)
        return y + self["bias"] if "bias" in self else y


class UnpackedEmbedding(nn.QuantizedEmbedding):  # type: ignore[misc]
    """`mlx.nn.QuantizedEmbedding`, whose weights are unpacked where it is the output layer of many rows."""

    unpack_from = 0

    def as_linear(self, x: mx.array) -> mx.array:
        """`[..., features]` -> `[..., tokens]`."""
        if x.size < self.unpack_from * x.shape[-1]:
            y: mx.array = super().as_linear(x)
            return y
        return _multiply(self, x, mx.matmul, BLOCK_NUMBERS)


def use_float32(model: nn.Module, room: int) -> None:
    """Have a model's quantised layers multiply through BLAS where that is faster here, by a trial.

    Args:
        model: changed in place. Layers inside others, LoRA's for example, count; subclasses are left alone, since they
            may compute something else.
        room: bytes that float32 copies may take; if they need more, weights stay packed and wide passes unpack them.
    """
    formats: defaultdict[Format, dict[int, nn.Module]] = defaultdict(dict)
    kinds = _wide_classes()
    for layer in model.modules():
        if type(layer) in kinds and layer.get("global_scale") is None:
            formats[Format(layer.mode, layer.bits, layer.group_size)][id(layer)] = layer
    found = {how: list(layers.values()) for how, layers in formats.items()}
    trials = {how: measure(how, layers) for how, layers in found.items()}
    wide = [layer for how, layers in found.items() for layer in layers if trials[how].widen]
    needed = sum(4 * _numbers(layer["weight"], layer.bits) for layer in wide)
    if needed > room:
        log.info("quantised weights stay packed: %.1f GB of float32 would be too much", needed / 1e9)
    for how, trial in trials.items():
        log.debug("%s: %s", how, trial)
        for layer in found[how]:
            quantised: object = type(layer)
            if trial.widen and needed <= room:
                _widen(how, layer, kinds[type(layer)])
            elif (kind := _unpacked_class(quantised)) is not None:
                layer.__class__ = kind
                layer.unpack_from = trial.rows


def measure(how: Format, layers: list[nn.Module]) -> Trial:
    """Multiply with some of these layers' weights in each way, in turns: other work on the machine concerns all."""
    blocks = _some_blocks(layers)
    wide = [how.unpack(block) for block in blocks]
    mx.eval(wide)
    xs = {(rows, w.shape[1]): mx.ones((rows, w.shape[1])) for w in wide for rows in (1, TRIAL_ROWS)}

    def packed(count: int | None = None) -> list[mx.array]:
        products = zip(blocks[:count], wide, strict=False)
        return [mx.quantized_matmul(xs[1, w.shape[1]], *block, **how._asdict()) for block, w in products]

    def unpacked() -> list[mx.array]:
        products = zip(blocks[:TRIAL_BLOCKS], wide, strict=False)
        return [xs[TRIAL_ROWS, w.shape[1]] @ how.unpack(block).T for block, w in products]

    def widened(in_pieces: bool) -> list[mx.array]:
        return [multiply(xs[1, w.shape[1]], w, few=int(in_pieces)) for w in wide]

    runs = packed, lambda: widened(False), lambda: widened(True), lambda: packed(TRIAL_BLOCKS), unpacked
    one, one_wide, one_in_pieces, few, few_unpacked = in_turns(*runs)
    wins = MARGIN * min(one_wide, one_in_pieces) < one
    return Trial(wins, max(2, math.ceil(MARGIN * few_unpacked / few)))


def _some_blocks(layers: list[nn.Module]) -> list[Packed]:
    """A block of each layer, until there are enough; of experts or heads the first one's."""
    made, numbers = [], 0
    for layer in layers:
        packed = _packed(layer)
        matrix = packed if packed[0].ndim == 2 else _at(packed, 0)
        made.append(_rows(matrix, 0, _block_outputs(matrix[0], layer.bits, BLOCK_NUMBERS)))
        numbers += _numbers(made[-1][0], layer.bits)
        if numbers >= TRIAL_NUMBERS:
            break
    return made


def _packed(layer: nn.Module) -> Packed:
    return layer["weight"], layer["scales"], layer.get("biases")


def _rows(packed: Packed, start: int, count: int) -> Packed:
    """Some of a layer's outputs."""
    return _at(packed, (..., slice(start, start + count), slice(None)))


def _at(packed: Packed, places: object) -> Packed:
    weight, scales, biases = packed
    return weight[places], scales[places], None if biases is None else biases[places]


def _numbers(weight: mx.array, bits: int) -> int:
    return int(weight.size * 32 // bits)


def _block_outputs(weight: mx.array, bits: int, numbers: int) -> int:
    """Outputs of a block of about `numbers` values."""
    return max(1, numbers * weight.shape[-2] // _numbers(weight, bits))


def _widen(how: Format, layer: nn.Module, kind: type) -> None:
    """Make a layer what it was before it was quantised, with float32 weights."""
    remember(layer, how)
    layer.weight = how.unpack(_packed(layer))
    mx.eval(layer.weight)
    for name in ("scales", "biases"):
        layer.pop(name, None)
    layer.__class__ = kind


def _multiply(
    layer: nn.Module, x: mx.array, product: Callable[[mx.array, mx.array], mx.array], block_numbers: int
) -> mx.array:
    """`[..., inputs]` -> `[..., outputs]`, without a bias, of the dtype that packed weights would give.

    Blocks of outputs are multiplied one after another, and each is unpacked when the one before is done: in a lazy
    graph all layers' weights could be unpacked at once otherwise.
    """
    packed = weight, scales, _ = _packed(layer)
    how = Format(layer.mode, layer.bits, layer.group_size)
    dtype = mx.result_type(x, scales) if how.mode == "affine" else x.dtype
    before = x = x.astype(mx.float32)
    outputs, step = weight.shape[-2], _block_outputs(weight, how.bits, block_numbers)
    made = []
    for start in range(0, outputs, step):
        weight, scales, biases = _rows(packed, start, step)
        [scales] = mx.depends([scales], [before])
        before = product(x, how.unpack((weight, scales, biases)).swapaxes(-1, -2))
        made.append(before)
    y = made[0] if len(made) == 1 else mx.concatenate(made, axis=-1)
    return y.astype(dtype)


@functools.lru_cache(maxsize=64)
def _unpacked_class(kind: type) -> type | None:
    """The class of a layer whose weights are unpacked for wide passes; None where there is none."""
    if kind.__name__ == "QuantizedSwitchLinear":
        return _unpacked_experts(kind)
    return {nn.QuantizedLinear: UnpackedLinear, nn.QuantizedEmbedding: UnpackedEmbedding}.get(kind)


def _unpacked_experts(kind: type) -> type:
    class UnpackedSwitchLinear(kind):  # type: ignore[misc]
        """Experts' weights, all unpacked where each of them has many rows on average."""

        unpack_from = 0

        def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
            if indices.size < self.unpack_from * self.num_experts:
                y: mx.array = super().__call__(x, indices, sorted_indices=sorted_indices)
                return y
            gather = functools.partial(mx.gather_mm, rhs_indices=indices, sorted_indices=sorted_indices)
            y = _multiply(self, x, gather, EXPERTS_BLOCK_NUMBERS)
            return y + mx.expand_dims(self["bias"][indices], -2) if "bias" in self else y

    return UnpackedSwitchLinear


def _wide_classes() -> dict[type, type]:
    """Classes of quantised layers, and what these were before, of the libraries that are imported."""
    kinds: dict[type, type] = {nn.QuantizedLinear: nn.Linear, nn.QuantizedEmbedding: nn.Embedding}
    vlm = [sys.modules.get(f"mlx_vlm.models.{name}") for name in ("switch_layers", "mla")]
    for module in (switch_layers, mla, *vlm):
        for name in ("SwitchLinear", "MultiLinear"):
            if hasattr(module, name) and hasattr(module, f"Quantized{name}"):
                kinds[getattr(module, f"Quantized{name}")] = getattr(module, name)
    return kinds
