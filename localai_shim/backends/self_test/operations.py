"""Operations and products with a model's weights and caches, compared with NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from ..forms import forms
from ..layers import Format
from ..machine import multiplies_packed
from .shape import KEYS, ROWS, SLOTS, Case, Check, Floats, Shape, checked, draw, floats, on_device

POSITIONS = (3, 37, 1_037)  # of rows that rotate, or of all of them
TOP = 20


def check_rope(shape: Shape) -> list[Check]:
    """Test rope with one offset for all rows and with an offset for each."""
    return checked(_rope_cases(shape))


def check_vocabulary(shape: Shape) -> list[Check]:
    """Test scatter into slots, and operations that sample from the vocabulary."""
    return checked([*_scatter_cases(shape), *_sampling_cases(shape)])


# -- rope ------------------------------------------------------------------------------------------------------------


def _rope_cases(shape: Shape) -> Iterator[Case]:
    dims = shape.head_dim if shape.rope_dims is None else shape.rope_dims
    if not dims:
        return
    _, heads = shape.tested_heads
    drawn = draw(np.random.default_rng(4), len(POSITIONS), 3, heads, shape.head_dim)
    for tokens in (1, 3):
        x = drawn[:, :tokens].swapaxes(1, 2)
        for offset in (POSITIONS[-1], POSITIONS):
            given = offset if isinstance(offset, int) else mx.array(offset, mx.int32)
            for base, freqs in ((10_000.0, None), (None, mx.array(_frequencies(dims), mx.float32))):
                which = "one offset" if isinstance(offset, int) else "an offset per row"
                yield Case(
                    "rope",
                    f"{which}, {tokens} token{'s' * (tokens > 1)}{', with freqs' if base is None else ''}",
                    shape.allowed,
                    lambda x=x, given=given, base=base, freqs=freqs: mx.fast.rope(  # type: ignore[misc]
                        on_device(x, shape),
                        dims,
                        traditional=shape.traditional,
                        base=base,
                        scale=1.0,
                        offset=given,
                        freqs=freqs,
                    ),
                    _rotated(floats(x), np.broadcast_to(offset, len(POSITIONS)), dims, shape.traditional),
                )


def _frequencies(dims: int) -> npt.NDArray[np.float64]:
    """Positions per radian of each pair."""
    return np.power(10_000.0, np.arange(0, dims, 2) / dims)


def _rotated(x: Floats, offsets: npt.NDArray[np.int64], dims: int, traditional: bool) -> npt.NDArray[np.float64]:
    """`[rows, heads, tokens, head_dim]`, whose first `dims` numbers are rotated."""
    positions = offsets[:, None] + np.arange(x.shape[2])
    angles = (positions[..., None] / _frequencies(dims))[:, None]
    first, second = (
        (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(dims // 2), slice(dims // 2, dims))
    )
    out = x.astype(np.float64)
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return out


# -- scatter and sampling --------------------------------------------------------------------------------------------


def _scatter_cases(shape: Shape) -> Iterator[Case]:
    """Writing tokens into slots, as steps do."""
    rng = np.random.default_rng(5)
    kv_heads, _ = shape.tested_heads
    places = 512
    before = draw(rng, SLOTS * kv_heads * places, shape.head_dim)
    for tokens in (1, 3):
        runs = np.arange(SLOTS * kv_heads)[:, None] * places
        lengths = np.repeat([7, 300, places - tokens], kv_heads)[:, None]
        index = (runs + lengths + np.arange(tokens)).reshape(-1, 1).astype(np.uint32)
        new = draw(rng, len(index), shape.head_dim)
        after = before.copy()
        after[index[:, 0]] = new
        yield Case(
            "scatter",
            f"{tokens} token{'s' * (tokens > 1)} into {SLOTS} slots",
            0.0,
            lambda index=index, new=new: mx.put_along_axis(  # type: ignore[misc]
                on_device(before, shape), mx.array(index), on_device(new, shape), axis=0
            ),
            floats(after),
        )


def _sampling_cases(shape: Shape) -> Iterator[Case]:
    """Operations over the vocabulary, in float32 as logits are."""
    rng, n = np.random.default_rng(6), shape.vocabulary
    host = np.stack([rng.permutation(n) for _ in range(ROWS)]).astype(np.float32) / n  # no two of a row are equal
    ordered, numbers, top = np.sort(host, axis=-1), mx.array(host), min(TOP, n)
    case = f"{n:,} tokens"

    def partitioned() -> mx.array:
        places = mx.argpartition(-numbers, top - 1, axis=-1)[:, :top]
        return mx.sort(mx.take_along_axis(numbers, places, axis=-1), axis=-1)

    def limited() -> mx.array:
        return numbers.at[mx.array([0, 1]), mx.array([n // 3, n - 1])].minimum(mx.array([-1.0, -2.0]))

    banned = host.copy()
    banned[[0, 1], [n // 3, n - 1]] = [-1.0, -2.0]
    yield Case("scatter", case, 0.0, limited, banned)
    yield Case("sort", case, 0.0, lambda: mx.sort(numbers, axis=-1), ordered)
    yield Case("argsort", case, 0.0, lambda: mx.argsort(numbers, axis=-1), np.argsort(host, axis=-1))
    yield Case("argpartition", case, 0.0, partitioned, ordered[:, -top:])
    yield Case("argmax", case, 0.0, lambda: mx.argmax(numbers, axis=-1, keepdims=True), host.argmax(-1)[:, None])
    # One after another, float32 numbers add up with an error like this; in blocks with less.
    rounding = float(np.finfo(np.float32).eps) * max(n, 64) ** 0.5 * 4
    sums = np.cumsum(host.astype(np.float64), axis=-1)
    yield Case("cumsum", case, rounding, lambda: mx.cumsum(numbers, axis=-1), sums)


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
        how = Format(shape.mode, shape.bits, shape.group_size)
        packed = mx.quantize(device, **how._asdict(), stream=mx.cpu)
        layer = nn.QuantizedLinear.__new__(nn.QuantizedLinear)
        nn.Module.__init__(layer)
        for name, value in (*how._asdict().items(), *zip(("weight", "scales", "biases"), packed, strict=False)):
            setattr(layer, name, value)
        weights = _unpacked(packed, how)
    mx.eval(layer.parameters())
    holder = nn.Module()
    holder.layer = layer
    forms().prepare_products(holder)
    return holder.layer, weights


def _unpacked(packed: Sequence[mx.array], how: Format) -> Floats:
    """Weights in float32, computed by the CPU."""
    wide = [each if each.dtype == mx.uint8 else each.astype(mx.float32, stream=mx.cpu) for each in packed[1:]]
    scales, biases = wide if len(wide) > 1 else (wide[0], None)
    return np.array(mx.dequantize(packed[0], scales, biases, **how._asdict(), dtype=mx.float32, stream=mx.cpu))


def _packed_cases(shape: Shape, bits: int) -> Iterator[Case]:
    """Products of attention with slices of slots of quantized keys and values."""
    rng = np.random.default_rng(3)
    how = Format("affine", bits, shape.kv_group_size)
    factor, kv_heads, dim = shape.heads // shape.kv_heads, min(shape.kv_heads, 2), shape.head_dim
    capacity = -(-KEYS[1] // 256) * 256
    packed = mx.quantize(on_device(draw(rng, SLOTS, kv_heads, capacity, dim), shape), **how._asdict(), stream=mx.cpu)
    held = _unpacked(packed, how)[:, :, None]
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
                        on_device(left, shape), *slots, transpose=transpose, **how._asdict()
                    ),
                    floats(left) @ right,
                )
