"""Self-test of a device: operations that a model needs, compared with what NumPy computes of the same numbers.

The numbers are small multiples of 1/64, which every dtype holds exactly, so nothing is rounded before an operation.
What is allowed depends on the dtype and on NumPy's result. Faults of kernels are far larger than rounding: rows of
zeros, another row's numbers, keys that are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt

from .machine import is_out_of_memory, multiplies_packed, on_cuda

log = logging.getLogger("localai_shim")

QUERIES = (1, 3, 5, 8, 9, 64)
KEYS = (40, 1_100, 4_200)
MASKED_COLUMNS = 64  # a GPU reads multiples of so many places where rows differ in length
ROWS, SLOTS, CAPACITY = 2, 3, 4_352
MOST_KEY_HEADS = 8  # more compute the same
SHARPNESS = 1.5  # of the softmax: some keys weigh more than others, and no key is all
PRODUCT_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 33, 64, 128)
OUTPUTS, MOST_INPUTS = 512, 4_096
PACKED_QUERIES = (1, 5, 64)
POSITIONS = (3, 37, 1_037)  # of rows that rotate, or of all of them
TOP = 20
EPSILONS = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-10}
"""Distance of 1 to the next number. GPUs may multiply float32 as TF32, which has the digits of float16."""
ROUNDINGS = 8  # plain bfloat16 products and softmax are off by 2 to 3

Floats = npt.NDArray[np.float32]
Attend = Callable[..., mx.array]
"""Attention with the arguments `(queries, keys, values, cache, scale, mask, sinks)`."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one operation in one case."""

    operation: str
    case: str
    error: float
    """Distance to NumPy's result as a share of its size, of the worst row; infinite if the device raised an error."""
    allowed: float

    @property
    def passed(self) -> bool:
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class Shape:
    """What the operations of a model depend on."""

    head_dim: int
    heads: int
    kv_heads: int
    dtype: str
    vocabulary: int
    bits: int | None = None
    """Bits of quantized weights; None: they are not quantized."""
    group_size: int = 64
    mode: str = "affine"
    inputs: int = 4_096
    """Inputs of a product."""
    value_dim: int | None = None
    """Defaults to `head_dim`."""
    rope_dims: int | None = None
    """Defaults to `head_dim`; 0: nothing rotates."""
    traditional: bool = False
    """Rope rotates neighbors, as opposed to halves."""
    sinks: bool = False
    kv_bits: int | None = None
    """Bits of quantized keys and values that attention reads as they are."""
    kv_group_size: int = 64

    @property
    def allowed(self) -> float:
        """Distance that rounding may make of a result, as a share of its size."""
        return ROUNDINGS * EPSILONS[self.dtype]

    @property
    def allowed_packed(self) -> float:
        """The same of products with quantized numbers, which MLX's CPU back end sums up in the dtype itself."""
        return self.allowed * (4 if mx.default_device() == mx.Device(mx.cpu) else 1)

    @property
    def tested_heads(self) -> tuple[int, int]:
        """Heads of keys and of queries; both are few, with the model's factor."""
        kv_heads = min(self.kv_heads, MOST_KEY_HEADS)
        return kv_heads, kv_heads * (self.heads // self.kv_heads)


class Size(NamedTuple):
    """Size of a call of attention."""

    queries: int
    keys: int
    ragged: bool
    """Rows differ in length: a mask array says which keys each query sees."""

    @property
    def columns(self) -> int:
        """Keys that are read of each row."""
        longest = max(self.keys, self.queries)
        return -(-longest // MASKED_COLUMNS) * MASKED_COLUMNS if self.ragged else longest

    def __str__(self) -> str:
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        return f"{queries} x {self.keys:,} keys, {'ragged' if self.ragged else 'equal'} rows"


SIZES = tuple(Size(queries, keys, ragged) for keys in KEYS for queries in QUERIES for ragged in (False, True))


class _Case(NamedTuple):
    operation: str
    case: str
    allowed: float
    compute: Callable[[], mx.array]
    """What the device computes, `[..., numbers]`."""
    expected: npt.NDArray[Any]


def run(shape: Shape, attend: Attend | None = None) -> list[Check]:
    """Test all operations of a shape on the default device.

    Args:
        shape: a model's.
        attend: attention as the model computes it; defaults to `mx.fast.scaled_dot_product_attention`.
    """
    attended = list(attention(shape, attend or fused).values())
    return [*attended, *products(shape), *packed_products(shape), *rotations(shape), *whole_vocabulary(shape)]


def products(shape: Shape) -> list[Check]:
    """Test products of the model's weights with 1 to 128 rows, as steps and as passes of one prompt."""
    return _checked(_product_cases(shape))


def packed_products(shape: Shape) -> list[Check]:
    """Test products with quantized keys and values, if the model's attention computes them."""
    if shape.kv_bits is None or not multiplies_packed():
        return []
    return _checked(_packed_cases(shape, shape.kv_bits))


def rotations(shape: Shape) -> list[Check]:
    """Test rope with one offset for all rows and with an offset for each."""
    return _checked(_rope_cases(shape))


def whole_vocabulary(shape: Shape) -> list[Check]:
    """Test scatter into slots, and operations that sample from the vocabulary."""
    return _checked([*_scatter_cases(shape), *_sampling_cases(shape)])


def _checked(cases: Iterable[_Case]) -> list[Check]:
    return [Check(case.operation, case.case, _error(case.compute, case.expected), case.allowed) for case in cases]


def _error(compute: Callable[[], mx.array], expected: npt.NDArray[Any]) -> float:
    """Largest relative distance of a row, infinite if it is not finite or an error was raised."""
    try:
        found = np.array(compute().astype(mx.float32), np.float64)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        log.warning("the self-test raised an error", exc_info=error)
        return float("inf")
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    size = np.maximum(np.linalg.norm(expected, axis=-1), np.finfo(np.float32).tiny)
    return float((np.linalg.norm(found - expected, axis=-1) / size).max())


def _drawn(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.int8]:
    """Numbers in units of 1/64, with a variance of about 1."""
    return rng.integers(-112, 113, shape, dtype=np.int8)


def _floats(drawn: npt.NDArray[np.int8]) -> Floats:
    return drawn.astype(np.float32) / np.float32(64)


def _on_device(drawn: npt.NDArray[np.int8], shape: Shape) -> mx.array:
    return mx.array(drawn).astype(getattr(mx, shape.dtype)) / 64


# -- attention -------------------------------------------------------------------------------------------------------


def fused(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    cache: object,
    scale: float,
    mask: mx.array | str | None,
    sinks: mx.array | None = None,
    **more: Any,
) -> mx.array:
    """MLX's attention."""
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks, **more)


def attention(shape: Shape, attend: Attend, sizes: Iterable[Size] = SIZES) -> dict[Size, Check]:
    """Test attention of queries over slices of slots. Its results are compared for two heads of keys of two rows, which
    are the first and the last; those of the others have to be finite.
    """
    trial = _Attention(shape, np.random.default_rng(1))
    return {size: Check("attention", str(size), trial.error(size, attend), shape.allowed) for size in sizes}


class _Attention:
    """Queries, keys, and values of all sizes, and weights of keys before a mask."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        kv_heads, heads = shape.tested_heads
        value_dim = shape.value_dim or shape.head_dim
        self._factor, self._scale = heads // kv_heads, SHARPNESS / shape.head_dim**0.5
        queries = _drawn(rng, ROWS, QUERIES[-1], heads, shape.head_dim)
        keys = _drawn(rng, SLOTS, kv_heads, CAPACITY, shape.head_dim)
        values = _drawn(rng, SLOTS, kv_heads, CAPACITY, value_dim)
        self._queries = _on_device(queries, shape)
        self._keys, self._values = (self._slots(array, shape) for array in (keys, values))
        sinks = _drawn(rng, heads)
        self._sinks = _on_device(sinks, shape) if shape.sinks else None
        self._compared = [(0, 0), (ROWS - 1, kv_heads - 1)]  # row and head of keys
        self._weights, self._sums, self._seen_values = [], [], []
        for row, head in self._compared:
            group = slice(head * self._factor, (head + 1) * self._factor)
            q, k = _floats(queries[row, :, group]).swapaxes(0, 1), _floats(keys[row, head])
            scores = (q.reshape(-1, shape.head_dim) @ k.T).reshape(self._factor, QUERIES[-1], CAPACITY) * self._scale
            most = scores.max(axis=-1, keepdims=True)
            self._weights.append(np.exp(scores - most))
            extra = np.exp(_floats(sinks)[group, None, None] - most) if shape.sinks else np.zeros_like(most)
            self._sums.append(extra)
            self._seen_values.append(_floats(values[row, head]))

    @staticmethod
    def _slots(drawn: npt.NDArray[np.int8], shape: Shape) -> mx.array:
        """Slots as `kv.layers` stores them: flat."""
        flat = _on_device(drawn.reshape(-1, drawn.shape[-1]), shape)
        mx.eval(flat)
        return flat.reshape(drawn.shape)

    def error(self, size: Size, attend: Attend) -> float:
        lengths = [max(size.keys, size.queries)] * ROWS
        if size.ragged:
            lengths[1:] = [max(size.queries, size.keys * 2 // 5)] * (ROWS - 1)
        last = np.array(lengths)[:, None] - size.queries + np.arange(size.queries)  # that each query sees
        seen = np.arange(size.columns) <= last[:, :, None]  # [rows, queries, columns]
        expected = np.stack([self._expected(i, seen[row]) for i, (row, _) in enumerate(self._compared)])
        return _error(lambda: self._found(size, attend, seen), expected)

    def _expected(self, which: int, seen: npt.NDArray[np.bool_]) -> Floats:
        """`[heads of one group, queries, value_dim]`."""
        queries, columns = seen.shape
        weights = self._weights[which][:, :queries, :columns] * seen
        made = weights.reshape(-1, columns) @ self._seen_values[which][:columns]
        sums = weights.sum(axis=-1, keepdims=True) + self._sums[which][:, :queries]
        out: Floats = made.reshape(self._factor, queries, -1) / sums
        return out

    def _found(self, size: Size, attend: Attend, seen: npt.NDArray[np.bool_]) -> mx.array:
        queries = mx.contiguous(self._queries[:, : size.queries]).swapaxes(1, 2)
        keys, values = (array[:ROWS, :, : size.columns] for array in (self._keys, self._values))
        mask: mx.array | str | None = None if size.queries == 1 else "causal"
        if size.ragged:
            mask = mx.array(seen)[:, None]
        out = attend(queries, keys, values, None, self._scale, mask, self._sinks)
        groups = [(row, slice(head * self._factor, (head + 1) * self._factor)) for row, head in self._compared]
        finite = mx.where(mx.isfinite(out).all(), 0.0, mx.nan)
        return mx.stack([out[row, group] for row, group in groups]) + finite


# -- products --------------------------------------------------------------------------------------------------------


def _product_cases(shape: Shape) -> Iterator[_Case]:
    rng = np.random.default_rng(2)
    width = shape.inputs if shape.inputs <= MOST_INPUTS else MOST_INPUTS
    x, w = _drawn(rng, PRODUCT_ROWS[-1], width), _drawn(rng, OUTPUTS, width)
    layer, weights = _layer(_on_device(w, shape), _floats(w), shape)
    inputs, expected = _on_device(x, shape), _floats(x) @ weights.T
    operation, allowed = "products", shape.allowed
    if shape.bits is not None:
        operation, allowed = "quantized products", shape.allowed_packed
    for rows in PRODUCT_ROWS:
        step, prompt = (rows, 1), (1, rows)
        for lead, what in ((step, "step"), (prompt, "prompt")):
            reshaped = (*lead, width)
            yield _Case(
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
    if on_cuda():
        from .cuda.dense import use_dense_kernels
        from .cuda.quantised import batch_quantised_layers

        batch_quantised_layers(holder)
        use_dense_kernels(holder)
    return holder.layer, weights


def _unpacked(packed: Sequence[mx.array], group_size: int, bits: int, mode: str = "affine") -> Floats:
    """Weights in float32, computed by the CPU."""
    wide = [each if each.dtype == mx.uint8 else each.astype(mx.float32, stream=mx.cpu) for each in packed[1:]]
    scales, biases = wide if len(wide) > 1 else (wide[0], None)
    made = mx.dequantize(packed[0], scales, biases, group_size, bits, mode, dtype=mx.float32, stream=mx.cpu)
    return np.array(made)


def _packed_cases(shape: Shape, bits: int) -> Iterator[_Case]:
    """Products of attention with slices of slots of quantized keys and values."""
    rng = np.random.default_rng(3)
    how: dict[str, Any] = {"group_size": shape.kv_group_size, "bits": bits}
    factor, kv_heads, dim = shape.heads // shape.kv_heads, min(shape.kv_heads, 2), shape.head_dim
    capacity = -(-KEYS[1] // 256) * 256
    packed = mx.quantize(_on_device(_drawn(rng, SLOTS, kv_heads, capacity, dim), shape), **how, stream=mx.cpu)
    held = _unpacked(packed, **how)[:, :, None]
    queries = _drawn(rng, ROWS, kv_heads, factor, PACKED_QUERIES[-1], dim)
    weights = _drawn(rng, ROWS, kv_heads, factor, PACKED_QUERIES[-1], capacity)
    for keys in KEYS[:2]:
        slots = [array[:ROWS, :, None, :keys] for array in packed]
        theirs = held[:ROWS, :, :, :keys]
        for n in PACKED_QUERIES:
            for left, transpose in ((queries[..., :n, :], True), (weights[..., :n, :keys], False)):
                right = theirs.swapaxes(-1, -2) if transpose else theirs
                yield _Case(
                    "products with quantized keys and values",
                    f"{n} quer{'y' if n == 1 else 'ies'} x {keys:,} keys, transpose={transpose}",
                    shape.allowed_packed,
                    lambda left=left, slots=slots, transpose=transpose: mx.quantized_matmul(  # type: ignore[misc]
                        _on_device(left, shape), *slots, transpose=transpose, **how
                    ),
                    _floats(left) @ right,
                )


# -- rope ------------------------------------------------------------------------------------------------------------


def _rope_cases(shape: Shape) -> Iterator[_Case]:
    dims = shape.head_dim if shape.rope_dims is None else shape.rope_dims
    if not dims:
        return
    _, heads = shape.tested_heads
    drawn = _drawn(np.random.default_rng(4), len(POSITIONS), 3, heads, shape.head_dim)
    for tokens in (1, 3):
        x = drawn[:, :tokens].swapaxes(1, 2)
        for offset in (POSITIONS[-1], POSITIONS):
            given = offset if isinstance(offset, int) else mx.array(offset, mx.int32)
            for base, freqs in ((10_000.0, None), (None, mx.array(_frequencies(dims), mx.float32))):
                which = "one offset" if isinstance(offset, int) else "an offset per row"
                yield _Case(
                    "rope",
                    f"{which}, {tokens} token{'s' * (tokens > 1)}{', with freqs' if base is None else ''}",
                    shape.allowed,
                    lambda x=x, given=given, base=base, freqs=freqs: mx.fast.rope(  # type: ignore[misc]
                        _on_device(x, shape),
                        dims,
                        traditional=shape.traditional,
                        base=base,
                        scale=1.0,
                        offset=given,
                        freqs=freqs,
                    ),
                    _rotated(_floats(x), np.broadcast_to(offset, len(POSITIONS)), dims, shape.traditional),
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


def _scatter_cases(shape: Shape) -> Iterator[_Case]:
    """Writing tokens into slots, as steps do."""
    rng = np.random.default_rng(5)
    kv_heads, _ = shape.tested_heads
    places = 512
    before = _drawn(rng, SLOTS * kv_heads * places, shape.head_dim)
    for tokens in (1, 3):
        runs = np.arange(SLOTS * kv_heads)[:, None] * places
        lengths = np.repeat([7, 300, places - tokens], kv_heads)[:, None]
        index = (runs + lengths + np.arange(tokens)).reshape(-1, 1).astype(np.uint32)
        new = _drawn(rng, len(index), shape.head_dim)
        after = before.copy()
        after[index[:, 0]] = new
        yield _Case(
            "scatter",
            f"{tokens} token{'s' * (tokens > 1)} into {SLOTS} slots",
            0.0,
            lambda index=index, new=new: mx.put_along_axis(  # type: ignore[misc]
                _on_device(before, shape), mx.array(index), _on_device(new, shape), axis=0
            ),
            _floats(after),
        )


def _sampling_cases(shape: Shape) -> Iterator[_Case]:
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
    yield _Case("scatter", case, 0.0, limited, banned)
    yield _Case("sort", case, 0.0, lambda: mx.sort(numbers, axis=-1), ordered)
    yield _Case("argsort", case, 0.0, lambda: mx.argsort(numbers, axis=-1), np.argsort(host, axis=-1))
    yield _Case("argpartition", case, 0.0, partitioned, ordered[:, -top:])
    yield _Case("argmax", case, 0.0, lambda: mx.argmax(numbers, axis=-1, keepdims=True), host.argmax(-1)[:, None])
    # One after another, float32 numbers add up with an error like this; in blocks with less.
    rounding = float(np.finfo(np.float32).eps) * max(n, 64) ** 0.5 * 4
    sums = np.cumsum(host.astype(np.float64), axis=-1)
    yield _Case("cumsum", case, rounding, lambda: mx.cumsum(numbers, axis=-1), sums)
