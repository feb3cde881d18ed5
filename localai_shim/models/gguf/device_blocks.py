"""Blocks of GGUF's tensor types, converted by MLX on a GPU: the CPU only reads the file.

The results are those of `blocks`, except that codes of Q6_K, Q3_K, and Q2_K may be rounded to a neighbor. There are
fewer operations here, and they read more memory: a GPU is fast enough.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from .blocks import IQ4, READABLE, FloatType

Convert = Callable[[mx.array], list[mx.array]]
"""`[blocks, bytes]` -> parts: packed codes `[blocks, bytes]`, and scales and biases `[blocks, groups]` in float32."""


def as_floats(kind: int, floats: FloatType, raw: mx.array) -> list[mx.array]:
    """Numbers that are not packed, in another type."""
    stored = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}[READABLE[kind].name]
    return [raw.view(stored).astype({np.float32: mx.float32, np.float16: mx.float16}[floats])]


def _halves(raw: mx.array, first: int, end: int) -> mx.array:
    """Numbers in float16 of each block, in float32."""
    return mx.contiguous(raw[:, first:end]).view(mx.float16).astype(mx.float32)


def _nibbles(raw: mx.array, run: int) -> mx.array:
    """Codes in 4 bits: of each run of bytes first the low nibbles, then the high ones."""
    runs = raw.reshape(len(raw), -1, run)
    return mx.concatenate([runs & 15, runs >> 4], axis=2).reshape(len(raw), -1)


def _bits(raw: mx.array, width: int) -> mx.array:
    """Codes of a few bits: of each run of 32 bytes first all lowest ones."""
    shifts = mx.arange(0, 8, width, dtype=mx.uint8)[:, None]
    return ((raw.reshape(len(raw), -1, 1, 32) >> shifts) & ((1 << width) - 1)).reshape(len(raw), -1)


def _bits_in_order(raw: mx.array) -> mx.array:
    """Single bits, least significant first."""
    return ((raw[..., None] >> mx.arange(8, dtype=mx.uint8)) & 1).reshape(len(raw), -1)


def _packed(codes: mx.array, bits: int) -> mx.array:
    """Codes in a byte each, as a stream of bits."""
    if bits == 8:
        return codes
    if bits == 4:
        return codes[:, ::2] | (codes[:, 1::2] << 4)
    words = codes.reshape(len(codes), -1, 8).astype(mx.uint64) << mx.arange(0, 8 * bits, bits, dtype=mx.uint64)
    return words.sum(axis=2, keepdims=True).view(mx.uint8)[..., :bits].reshape(len(codes), -1)


def _simple(codes: mx.array, bits: int, scale: mx.array, lowest: int) -> list[mx.array]:
    """Codes whose bias is the lowest value's."""
    return [_packed(codes, bits), scale, lowest * scale]


def _q4_0(raw: mx.array) -> list[mx.array]:
    return _simple(_nibbles(raw[:, 2:], 16), 4, _halves(raw, 0, 2), -8)


def _q4_1(raw: mx.array) -> list[mx.array]:
    return [_packed(_nibbles(raw[:, 4:], 16), 4), _halves(raw, 0, 2), _halves(raw, 2, 4)]


def _five_bits(raw: mx.array, at: int) -> mx.array:
    return _nibbles(raw[:, at + 4 :], 16) | (_bits_in_order(raw[:, at : at + 4]) << 4)


def _q5_0(raw: mx.array) -> list[mx.array]:
    return _simple(_five_bits(raw, 2), 5, _halves(raw, 0, 2), -16)


def _q5_1(raw: mx.array) -> list[mx.array]:
    return [_packed(_five_bits(raw, 4), 5), _halves(raw, 0, 2), _halves(raw, 2, 4)]


def _q8_0(raw: mx.array) -> list[mx.array]:
    return _simple(raw[:, 2:] ^ 128, 8, _halves(raw, 0, 2), -128)


def _scales_and_biases(raw: mx.array) -> list[mx.array]:
    """Of a block's first 16 bytes: two factors, and eight scales and minima in 6 bits."""
    factors = _halves(raw, 0, 4)
    low, high, rest = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    scales = mx.concatenate([low & 63, (rest & 15) | ((low >> 2) & 48)], axis=1)
    minima = mx.concatenate([high & 63, (rest >> 4) | ((high >> 2) & 48)], axis=1)
    return [scales.astype(mx.float32) * factors[:, :1], minima.astype(mx.float32) * -factors[:, 1:]]


def _q4_k(raw: mx.array) -> list[mx.array]:
    return [_packed(_nibbles(raw[:, 16:], 32), 4), *_scales_and_biases(raw)]


def _q5_k(raw: mx.array) -> list[mx.array]:
    codes = _nibbles(raw[:, 48:], 32) | (_bits(raw[:, 16:48], 1) << 4)
    return [_packed(codes, 5), *_scales_and_biases(raw)]


def _iq4(raw: mx.array) -> mx.array:
    return mx.array((IQ4 + 128).astype(np.uint8))[_nibbles(raw, 16)]


def _iq4_nl(raw: mx.array) -> list[mx.array]:
    return _simple(_iq4(raw[:, 2:]), 8, _halves(raw, 0, 2), -128)


def _iq4_xs(raw: mx.array) -> list[mx.array]:
    low = mx.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    high = (raw[:, 2:4, None] >> mx.arange(0, 8, 2, dtype=mx.uint8)).reshape(-1, 8) & 3
    scale = _halves(raw, 0, 2) * ((low | (high << 4)).astype(mx.float32) - 32)
    return _simple(_iq4(raw[:, 8:]), 8, scale, -128)


def _mxfp4(raw: mx.array) -> list[mx.array]:
    """Scales are the exponents' bytes; there are no biases."""
    return [_packed(_nibbles(raw[:, 1:], 16), 4), raw[:, :1]]


def _repacked(codes: mx.array, scales: mx.array, offsets: mx.array, top: float, bits: int) -> list[mx.array]:
    """Values of groups of 16, `codes * scales + offsets`, rounded to codes of some bits in groups of 32.

    Args:
        codes: `[blocks, values]`.
        scales: `[blocks, groups of 16]`.
        offsets: like the scales.
        top: see `blocks`.
        bits: of a code.
    """
    scales, offsets = (each.reshape(len(codes), -1, 2) for each in (scales, offsets))
    ends = mx.stack([offsets, offsets + top * scales])
    bias = _as_half(ends.min(axis=(0, 3)))
    scale = _as_half((ends.max(axis=(0, 3)) - bias) / ((1 << bits) - 1))
    values = codes.astype(mx.float32).reshape(*scales.shape, 16) * scales[..., None]
    steps = (values + (offsets - bias[..., None])[..., None]) / mx.where(scale > 0, scale, 1)[..., None, None]
    rounded = mx.clip(mx.round(steps), 0, (1 << bits) - 1).astype(mx.uint8)
    return [_packed(rounded.reshape(codes.shape), bits), scale, bias]


def _as_half(values: mx.array) -> mx.array:
    return values.astype(mx.float16).astype(mx.float32)


def _q6_k(raw: mx.array) -> list[mx.array]:
    codes = _nibbles(raw[:, :128], 64) | (_bits(raw[:, 128:192], 2) << 4)
    scales = mx.contiguous(raw[:, 192:208]).view(mx.int8).astype(mx.float32) * _halves(raw, 208, 210)
    return _repacked(codes, scales, -32 * scales, 63.75, 8)


def _q3_k(raw: mx.array) -> list[mx.array]:
    codes = _bits(raw[:, 32:96], 2) | (_bits(raw[:, :32], 1) << 2)
    packed = raw[:, 96:108]
    low = mx.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = (packed[:, None, 8:] >> mx.arange(0, 8, 2, dtype=mx.uint8)[:, None]) & 3
    scales = _halves(raw, 108, 110) * ((low | (high.reshape(-1, 16) << 4)).astype(mx.float32) - 32)
    return _repacked(codes, scales, -4 * scales, 7.75, 5)


def _q2_k(raw: mx.array) -> list[mx.array]:
    factors, packed = _halves(raw, 80, 84), raw[:, :16]
    scales = factors[:, :1] * (packed & 15).astype(mx.float32)
    minima = factors[:, 1:] * (packed >> 4).astype(mx.float32)
    return _repacked(_bits(raw[:, 16:80], 2), scales, -minima, 3, 4)


CONVERT: dict[int, Convert] = {
    2: _q4_0,
    3: _q4_1,
    6: _q5_0,
    7: _q5_1,
    8: _q8_0,
    10: _q2_k,
    11: _q3_k,
    12: _q4_k,
    13: _q5_k,
    14: _q6_k,
    20: _iq4_nl,
    23: _iq4_xs,
    39: _mxfp4,
}
"""By the number of the type: see `blocks.READABLE`."""
