"""Products of few rows with weights in pieces, which OpenBLAS multiplies without copying the weights first.

OpenBLAS copies both matrices of a product into another order, except of small ones for processors with AVX-512: their
results have at most 1,200 numbers, and they take at most a million multiplications. For a few rows that copy takes most
of the time: one row and 3,072 x 1,024 weights take 1.1 ms, and 0.3 in pieces (two cores of an EPYC; OpenBLAS 0.3.21 and
0.3.31). Small products run on one core, so that more than some four cores may be faster with a copy: a trial decides.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from ..layers import plain_layers, use_products

log = logging.getLogger("localai_shim")

MOST_ROWS = 8  # for more of them a copy pays
MOST_RESULTS, MOST_STEPS = 1_200, 1_000_000  # of a small product: numbers, and multiplications
TRIAL_NUMBERS = 2**23  # of weights, which are more than processors' caches hold
TRIAL_LEAST = 2**18  # below it a trial measures nothing but chance, and two loads of a model would differ
TRIAL_TURNS = 3
LEAST_OUTPUTS = 16  # of a piece: smaller ones are slower
MARGIN = 1.2  # by which a trial has to find something faster

Run = Callable[[], list[mx.array]]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Products of up to `few` rows in pieces."""

    few: int

    def multiply(self, layer: nn.Module, x: mx.array) -> mx.array | None:
        return in_pieces(x, layer["weight"], self.few)


def use_pieces(model: nn.Module) -> int:
    """Make a model's layers multiply few rows in pieces if a trial finds that faster.

    Args:
        model: changed in place; see `plain_layers` for which of its layers are.

    Returns:
        how many layers changed.
    """
    large = [layer for layer in plain_layers(model) if _has_pieces(layer["weight"])]
    few = most_rows([layer["weight"] for layer in large if layer["weight"].dtype == mx.float32])
    return use_products((layer, Pieces(few)) for layer in large) if few else 0


def most_rows(weights: Sequence[mx.array]) -> int:
    """Most rows, up to `MOST_ROWS`, for which pieces are faster on this machine; 0: for none.

    One row is multiplied in pieces even if that gains nothing: then no thread of OpenBLAS waits for more work, and the
    other cores build the next step.
    """
    rows = MOST_ROWS if sum(weight.size for weight in weights) >= TRIAL_LEAST else 0
    while rows:
        some = _some(weights, rows)
        if some:
            whole, pieces = in_turns(*_products(some, rows))
            log.debug("products of %d rows: %.2f ms, in pieces %.2f", rows, whole * 1e3, pieces * 1e3)
            if (MARGIN if rows > 1 else 1) * pieces < whole:
                break
        rows //= 2
    return rows


def _some(weights: Iterable[mx.array], rows: int) -> list[mx.array]:
    """Some pieces of each layer that has pieces for this number of rows, until there are enough."""
    some, numbers = [], 0
    for weight in weights:
        pieces = pieces_of(rows, *weight.shape)
        if pieces > 1 and numbers < TRIAL_NUMBERS:
            piece = weight.shape[0] // pieces
            some.append(weight[: piece * max(2, TRIAL_NUMBERS // (piece * weight.shape[1]))])
            numbers += some[-1].size
    return some


def _products(weights: Sequence[mx.array], rows: int) -> tuple[Run, Run]:
    """Products of some rows with weights, and the same in pieces."""
    xs = [mx.ones((rows, weight.shape[1])) for weight in weights]
    mx.eval(xs)
    pairs = list(zip(xs, weights, strict=True))
    return lambda: [x @ w.T for x, w in pairs], lambda: [multiply(x, w, rows) for x, w in pairs]


def in_turns(*runs: Run) -> list[float]:
    """The least seconds of each, after one run that does not count: other work on the machine concerns all."""
    least = [math.inf] * len(runs)
    for turn in range(TRIAL_TURNS + 1):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            mx.eval(run())
            if turn:
                least[i] = min(least[i], time.perf_counter() - start)
    return least


def in_pieces(x: mx.array, weight: mx.array, few: int) -> mx.array | None:
    """`[..., inputs]` times `[outputs, inputs]`: `[..., outputs]`; None if there are more rows, or no pieces."""
    outputs, inputs = weight.shape
    rows = x.size // inputs
    if not 0 < rows <= few or x.dtype != mx.float32 or weight.dtype != mx.float32:
        return None
    filled = rows + (rows % 4 == 3)  # OpenBLAS takes 0.41 ms for three rows of 3,072 x 1,024 weights, 0.32 for four
    pieces = pieces_of(filled, outputs, inputs)
    if pieces == 1:
        return None
    shape, x = x.shape[:-1], x.reshape(1, rows, inputs)
    if filled > rows:
        x = mx.pad(x, [(0, 0), (0, 1), (0, 0)])
    # One operation: MLX multiplies the matrices of a batch one after the other.
    y = x @ weight.reshape(pieces, -1, inputs).swapaxes(-1, -2)
    return y.swapaxes(0, 1)[:rows].reshape(*shape, outputs)


def multiply(x: mx.array, weight: mx.array, few: int) -> mx.array:
    """`[..., inputs]` times `[outputs, inputs]`: `[..., outputs]`, in pieces if there are at most `few` rows."""
    y = in_pieces(x, weight, few)
    return x @ weight.T if y is None else y


def _has_pieces(weight: mx.array) -> bool:
    return any(pieces_of(rows, *weight.shape) > 1 for rows in range(1, MOST_ROWS + 1))


@functools.lru_cache(maxsize=1024)
def pieces_of(rows: int, outputs: int, inputs: int) -> int:
    """The fewest equal pieces of weights whose products are small; 1 if they need none, or have no such pieces."""
    most = min(MOST_RESULTS // rows, MOST_STEPS // (rows * inputs))
    fewest = -(-outputs // max(1, most))
    return next((pieces for pieces in range(fewest, outputs // LEAST_OUTPUTS + 1) if outputs % pieces == 0), 1)
