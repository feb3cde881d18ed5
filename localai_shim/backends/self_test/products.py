"""Products with a model's weights, and with quantized keys and values, compared with NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..forms import forms
from ..machine import multiplies_packed
from .shape import KEYS, ROWS, SLOTS, Case, Check, Floats, Shape, checked, draw, floats, on_device

PRODUCT_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 33, 64, 128)
OUTPUTS, MOST_INPUTS = 512, 4_096
PACKED_QUERIES = (1, 5, 64)
PACKED = "products with quantized keys and values"


def check_products(shape: Shape) -> list[Check]:
    """Test products of the model's weights with 1 to 128 rows, as steps and as passes of one prompt."""
    return checked(_product_cases(shape))


def check_packed_products(shape: Shape) -> list[Check]:
    """Test products with quantized keys and values, if the model's attention computes them."""
    if shape.kv_bits is None or not multiplies_packed():
        return []
    return checked(_packed_cases(shape, shape.kv_bits))


def _product_cases(shape: Shape) -> Iterator[Case]:
    rng = np.random.default_rng(2)
    width = shape.inputs if shape.inputs <= MOST_INPUTS else MOST_INPUTS
    x, w = draw(rng, PRODUCT_ROWS[-1], width), draw(rng, OUTPUTS, width)
    layer, weights = _layer(on_device(w, shape), floats(w), shape)
    inputs, expected = on_device(x, shape), floats(x) @ weights.T
    operation, allowed = "products", shape.allowed
    if shape.bits is not None:
        operation, allowed = "quantized products", shape.allowed_packed
    for rows in PRODUCT_ROWS:
        step, prompt = (rows, 1), (1, rows)
        for lead, what in ((step, "step"), (prompt, "prompt")):
            reshaped = (*lead, width)
            yield Case(
                operation,
                f"{what} of {rows} row{'s' * (rows > 1)}",
                allowed,
                lambda rows=rows, reshaped=reshaped: layer(inputs[:rows].reshape(reshaped)),  # type: ignore[misc]
                expected[:rows].reshape(*lead, OUTPUTS),
            )


def _layer(device: mx.array, weights: Floats, shape: Shape) -> tuple[Callable[[mx.array], mx.array], Floats]:
    """A layer of a model, with its machine's form, and the weights that it multiplies with."""
    layer: nn.Module
    if shape.bits is None:
        layer = nn.Linear.__new__(nn.Linear)  # no weights are drawn: a program's random numbers stay the same
        nn.Module.__init__(layer)
        layer.weight = device
    else:
        how: dict[str, Any] = {"group_size": shape.group_size, "bits": shape.bits, "mode": shape.mode}
        packed = mx.quantize(device, **how, stream=mx.cpu)
        layer = nn.QuantizedLinear.__new__(nn.QuantizedLinear)
        nn.Module.__init__(layer)
        for name, value in (*how.items(), *zip(("weight", "scales", "biases"), packed, strict=False)):
            setattr(layer, name, value)
        weights = _unpacked(packed, **how)
    mx.eval(layer.parameters())
    holder = nn.Module()
    holder.layer = layer
    forms().prepare_products(holder)
    return holder.layer, weights


def _unpacked(packed: Sequence[mx.array], group_size: int, bits: int, mode: str = "affine") -> Floats:
    """Weights in float32, computed by the CPU."""
    wide = [each if each.dtype == mx.uint8 else each.astype(mx.float32, stream=mx.cpu) for each in packed[1:]]
    scales, biases = wide if len(wide) > 1 else (wide[0], None)
    made = mx.dequantize(packed[0], scales, biases, group_size, bits, mode, dtype=mx.float32, stream=mx.cpu)
    return np.array(made)


def _packed_cases(shape: Shape, bits: int) -> Iterator[Case]:
    """Products of attention with slices of slots of quantized keys and values."""
    rng = np.random.default_rng(3)
    how: dict[str, Any] = {"group_size": shape.kv_group_size, "bits": bits}
    factor, kv_heads, dim = shape.heads // shape.kv_heads, min(shape.kv_heads, 2), shape.head_dim
    capacity = -(-KEYS[1] // 256) * 256
    packed = mx.quantize(on_device(draw(rng, SLOTS, kv_heads, capacity, dim), shape), **how, stream=mx.cpu)
    held = _unpacked(packed, **how)[:, :, None]
    queries = draw(rng, ROWS, kv_heads, factor, PACKED_QUERIES[-1], dim)
    weights = draw(rng, ROWS, kv_heads, factor, PACKED_QUERIES[-1], capacity)
    for keys in KEYS[:2]:
        slots = [array[:ROWS, :, None, :keys] for array in packed]
        theirs = held[:ROWS, :, :, :keys]
        for n in PACKED_QUERIES:
            for left, transpose in ((queries[..., :n, :], True), (weights[..., :n, :keys], False)):
                right = theirs.swapaxes(-1, -2) if transpose else theirs
                yield Case(
                    PACKED,
                    f"{n} quer{'y' if n == 1 else 'ies'} x {keys:,} keys, transpose={transpose}",
                    shape.allowed_packed,
                    lambda left=left, slots=slots, transpose=transpose: mx.quantized_matmul(  # type: ignore[misc]
                        on_device(left, shape), *slots, transpose=transpose, **how
                    ),
                    floats(left) @ right,
                )
