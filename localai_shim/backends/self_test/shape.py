"""Parts of the self-test: the shape of a model, numbers, cases, and their checks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..machine import is_out_of_memory

log = logging.getLogger("localai_shim")

ROWS, SLOTS = 2, 3  # rows are in the first slots
KEYS = (40, 1_100, 4_200)
MOST_KEY_HEADS = 8  # more compute the same
EPSILONS = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-10}
"""Distance of 1 to the next number. GPUs may multiply float32 as TF32, which has the digits of float16."""
ROUNDINGS = 8  # plain bfloat16 products and softmax are off by 2 to 3

Floats = npt.NDArray[np.float32]


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
    """Sizes and dtypes of a model's operations."""

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


class Case(NamedTuple):
    operation: str
    case: str
    allowed: float
    compute: Callable[[], mx.array]
    """Builds the device's result, `[..., numbers]`."""
    expected: npt.NDArray[np.number]


def checked(cases: Iterable[Case]) -> list[Check]:
    return [Check(case.operation, case.case, distance(case.compute, case.expected), case.allowed) for case in cases]


def distance(compute: Callable[[], mx.array], expected: npt.NDArray[np.number]) -> float:
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


def draw(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.int8]:
    """Random numbers in units of 1/64, from -2 to 2."""
    return np.frombuffer(rng.bytes(math.prod(shape)), np.int8).reshape(shape)


def floats(drawn: npt.NDArray[np.int8]) -> Floats:
    return drawn.astype(np.float32) / np.float32(64)


def on_device(drawn: npt.NDArray[np.int8], shape: Shape) -> mx.array:
    return mx.array(drawn).astype(getattr(mx, shape.dtype)) / 64
