"""Blocks of GGUF's commonest types, converted by MLX on the GPU: the CPU only reads the file.

The results are those of `blocks`, up to the last place of Q6_K's codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mlx.core as mx

Parts = tuple["mx.array", "mx.array", "mx.array"]
"""Packed codes `[blocks, bytes]`, and scales and biases `[blocks, groups]` in float32."""

_TOP, _CODES = 63.75, 255  # see `blocks._repacked`


def _halves(raw: mx.array, first: int, end: int) -> mx.array:
    """Numbers in float16 of each block, in float32."""
    import mlx.core as mx

    return mx.contiguous(raw[:, first:end]).view(mx.float16).astype(mx.float32)


def _q8_0(raw: mx.array) -> Parts:
    scale = _halves(raw, 0, 2)
    return raw[:, 2:] ^ 128, scale, -128 * scale


def _q4_k(raw: mx.array) -> Parts:
    import mlx.core as mx

    factors = _halves(raw, 0, 4)
    low, high, rest = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    scales = mx.concatenate([low & 63, (rest & 15) | ((low >> 2) & 48)], axis=1)
    minima = mx.concatenate([high & 63, (rest >> 4) | ((high >> 2) & 48)], axis=1)
    runs = raw[:, 16:].reshape(-1, 4, 32)
    nibbles = mx.stack([runs & 15, runs >> 4], axis=2).reshape(-1, 128, 2)
    codes = nibbles[..., 0] | (nibbles[..., 1] << 4)
    return codes, scales.astype(mx.float32) * factors[:, :1], minima.astype(mx.float32) * -factors[:, 1:]


def _q6_k(raw: mx.array) -> Parts:
    import mlx.core as mx

    nibbles, twos = raw[:, :128].reshape(-1, 2, 64), raw[:, 128:192].reshape(-1, 2, 1, 32)
    low = mx.concatenate([nibbles & 15, nibbles >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = (twos >> mx.array([0, 2, 4, 6], mx.uint8)[:, None]) & 3
    codes = (low | (high << 4)).reshape(-1, 8, 2, 16).astype(mx.float32)
    scales = mx.contiguous(raw[:, 192:208]).view(mx.int8).astype(mx.float32) * _halves(raw, 208, 210)
    scales = scales.reshape(-1, 8, 2)
    ends = mx.stack([-32 * scales, (_TOP - 32) * scales])
    bias = _as_half(ends.min(axis=(0, 3)))
    scale = _as_half((ends.max(axis=(0, 3)) - bias) / _CODES)
    values = (codes - 32) * scales[..., None] - bias[..., None, None]
    rounded = mx.round(values / mx.where(scale > 0, scale, 1)[..., None, None])
    return mx.clip(rounded, 0, _CODES).astype(mx.uint8).reshape(-1, 256), scale, bias


def _as_half(values: mx.array) -> mx.array:
    import mlx.core as mx

    return values.astype(mx.float16).astype(mx.float32)


CONVERT: dict[int, Callable[[mx.array], Parts]] = {8: _q8_0, 12: _q4_k, 14: _q6_k}
"""By the number of the type: see `blocks.READABLE`."""
