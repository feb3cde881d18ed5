"""Blocks of GGUF's tensor types, as MLX's packed weights, scales, and biases in groups of 32.

Written for NumPy in pieces that fit into a CPU's cache: there its operations are fast, and release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Parts = tuple[Bytes, Floats, Floats]
"""Packed codes, scales, and biases of some blocks."""

GROUP = 32
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
_IQ4_TABLES = [(_IQ4 + 128).astype(np.uint8)[np.arange(256) >> shift & 15].tobytes() for shift in (0, 4)]
"""Codes in 8 bits of the low and the high nibble of each byte."""
_FIFTH_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") << 4
_SHORTS = np.uint64(0x0001000100010001)


class Blocks(NamedTuple):
    """A type of tensors.

    Attributes:
        name: as llama.cpp writes it.
        values: of a block.
        size: of a block, in bytes.
        bits: of a packed weight; 0: the values are stored as they are.
        convert: `[blocks, size]` bytes -> their parts; None: nothing is to be converted.
        error: what packing adds, relative to the weights (root mean square); 0: nothing but rounding to float16.
        mode: of MLX's quantization.
    """

    name: str
    values: int
    size: int
    bits: int = 0
    convert: Callable[[Bytes], Parts] | None = None
    error: float = 0.0
    mode: str = "affine"


def _half(raw: Bytes) -> Floats:
    """Pairs of bytes as float16."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _words(raw: Bytes, kind: type[Any] = np.uint64) -> NDArray[Any]:
    return np.ascontiguousarray(raw).view(kind)


def _squeeze(codes: Bytes, bits: int) -> Bytes:
    """`[..., 32 n]` codes -> `[..., 4 bits n]` bytes: a stream of bits, least significant first."""
    words = _words(codes)
    for lanes, width in ((2, bits), (4, 2 * bits), (8, 4 * bits)):  # two neighbors become one lane of twice the bits
        low = sum(((1 << width) - 1) << at for at in range(0, 64, 8 * lanes))
        high = words >> np.uint64(4 * lanes - width)
        high &= np.uint64(low << width)
        words = words & np.uint64(low)
        words |= high
    eights = words.reshape(-1, 4)
    stream = np.zeros((len(eights), bits), np.uint32)
    for number in range(4):
        at, shift = divmod(8 * bits * number, 32)
        stream[:, at] |= (eights[:, number] << np.uint64(shift)).astype(np.uint32)
        if shift + 8 * bits > 32:
            stream[:, at + 1] |= (eights[:, number] >> np.uint64(32 - shift)).astype(np.uint32)
    return stream.view(np.uint8).reshape(*codes.shape[:-1], -1)


def _nibbles(raw: Bytes) -> Bytes:
    """`[..., n]` bytes -> `[..., 2, n]` codes: those of the low nibbles, then those of the high ones."""
    return np.stack([raw & np.uint8(15), raw >> np.uint8(4)], -2)


def _packed_nibbles(raw: Bytes) -> Bytes:
    """The same packed in 4 bits, `[..., n]` bytes: of each two bytes the inner nibbles change places."""
    words = _words(raw)
    mixed = words & (np.uint64(0xF00F) * _SHORTS)
    mixed |= (words >> np.uint64(4)) & (np.uint64(0x00F0) * _SHORTS)
    mixed |= (words << np.uint64(4)) & (np.uint64(0x0F00) * _SHORTS)
    pairs: Bytes = mixed.view(np.uint8).reshape(*raw.shape[:-1], -1, 2)
    return np.ascontiguousarray(pairs.swapaxes(-1, -2)).reshape(raw.shape)


def _q4_0(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return _packed_nibbles(raw[:, 2:]), scale, -8 * scale


def _q4_1(raw: Bytes) -> Parts:
    return _packed_nibbles(raw[:, 4:]), _half(raw[:, :2]), _half(raw[:, 2:4])


def _five_bits(fifth: Bytes, nibbles: Bytes) -> Bytes:
    """Four bytes of fifth bits, and sixteen of nibbles."""
    codes = _nibbles(nibbles).reshape(-1, GROUP)
    codes |= _FIFTH_BITS[fifth].reshape(-1, GROUP)
    return _squeeze(codes, 5)


def _q5_0(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return _five_bits(raw[:, 2:6], raw[:, 6:]), scale, -16 * scale


def _q5_1(raw: Bytes) -> Parts:
    return _five_bits(raw[:, 4:8], raw[:, 8:]), _half(raw[:, :2]), _half(raw[:, 2:4])


def _q8_0(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return raw[:, 2:] ^ np.uint8(128), scale, -128 * scale


def _scales_and_biases(raw: Bytes) -> tuple[Floats, Floats]:
    """Of 16 bytes: two factors, and eight scales and minima in 6 bits."""
    factors, words = _half(raw[:, :4]), _words(raw[:, 4:], np.uint32)
    low, high, rest = words[:, 0], words[:, 1], words[:, 2]
    six, four, two = (np.uint32(byte * 0x01010101) for byte in (63, 15, 48))
    packed = np.empty((len(raw), 4), np.uint32)
    packed[:, 0] = low & six
    packed[:, 1] = (rest & four) | ((low >> np.uint32(2)) & two)
    packed[:, 2] = high & six
    packed[:, 3] = ((rest >> np.uint32(4)) & four) | ((high >> np.uint32(2)) & two)
    integers = packed.view(np.uint8).astype(np.float32)
    return factors[:, :1] * integers[:, :8], -factors[:, 1:] * integers[:, 8:]


def _q4_k(raw: Bytes) -> Parts:
    return _packed_nibbles(raw[:, 16:].reshape(-1, 4, GROUP)), *_scales_and_biases(raw[:, :16])


def _q5_k(raw: Bytes) -> Parts:
    codes = _nibbles(raw[:, 48:].reshape(-1, 4, GROUP)).reshape(-1, 8, GROUP)
    fifth = raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]
    codes |= (fifth & np.uint8(1)) << np.uint8(4)
    return _squeeze(codes, 5), *_scales_and_biases(raw[:, :16])


def _iq4(raw: Bytes) -> Bytes:
    """Sixteen bytes of nibbles as codes in 8 bits."""
    content = raw.tobytes()
    halves = [np.frombuffer(content.translate(table), np.uint8).reshape(raw.shape) for table in _IQ4_TABLES]
    return np.stack(halves, -2)


def _iq4_nl(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return _iq4(raw[:, 2:]), scale, -128 * scale


def _iq4_xs(raw: Bytes) -> Parts:
    low = _nibbles(raw[:, 4:8]).swapaxes(-1, -2).reshape(-1, 8)
    high = _words(raw[:, 2:4], np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16)
    scale = _half(raw[:, :2]) * ((low | (high & 3) << 4).astype(np.float32) - 32)
    return _iq4(raw[:, 8:].reshape(-1, 8, 16)), scale, -128 * scale


def _mxfp4(raw: Bytes) -> Parts:
    """Scales are the exponents' bytes; there are no biases."""
    return _packed_nibbles(raw[:, 1:]), raw[:, :1].astype(np.float32), np.empty((len(raw), 0), np.float32)


def _repacked(codes: Bytes, scales: Floats, offsets: Floats, top: float, bits: int) -> Parts:
    """Values of 16 groups of 16, `codes * scales + offsets`, rounded to so many bits in groups of 32.

    Args:
        codes: `[blocks, 16, 16]`
        scales: `[blocks, 16]`; offsets likewise.
        top: no code is larger. Chosen so that the values of the group with the larger scale are kept as they are.
        bits: of the rounded codes.
    """
    others = offsets + np.float32(top) * scales
    least, largest = np.minimum(offsets, others), np.maximum(offsets, others)
    bias = _as_half(np.minimum(least[:, ::2], least[:, 1::2]))
    scale = _as_half((np.maximum(largest[:, ::2], largest[:, 1::2]) - bias) / ((1 << bits) - 1))
    divisor = np.repeat(np.where(scale > 0, scale, 1), 2, -1)
    values = codes.astype(np.float32)
    values *= (scales / divisor)[..., None]
    values += ((offsets - np.repeat(bias, 2, -1)) / divisor + np.float32(0.5))[..., None]
    rounded = values.clip(0, (1 << bits) - 1, out=values).astype(np.uint8).reshape(-1, 8, GROUP)
    return rounded if bits == 8 else _squeeze(rounded, bits), scale, bias


def _as_half(values: NDArray[Any]) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _twos(raw: Bytes) -> Bytes:
    """`[blocks, 32 n]` bytes of four codes in 2 bits -> `[blocks, 8 n, 16]`."""
    parts = [(raw >> np.uint8(shift)) & np.uint8(3) for shift in (0, 2, 4, 6)]
    return np.stack([part.reshape(len(raw), -1, 32) for part in parts], 2).reshape(len(raw), -1, 16)


def _q6_k(raw: Bytes) -> Parts:
    codes = _nibbles(raw[:, :128].reshape(-1, 2, 64)).reshape(-1, 16, 16) | (_twos(raw[:, 128:192]) << np.uint8(4))
    scales = raw[:, 192:208].view(np.int8) * _half(raw[:, 208:])
    return _repacked(codes, scales, -32 * scales, 63.75, 8)


def _q3_k(raw: Bytes) -> Parts:
    third = (raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    codes = _twos(raw[:, 32:96]) | (third << np.uint8(2)).reshape(-1, 16, 16)
    low = _nibbles(raw[:, 96:104]).reshape(-1, 16)
    high = np.stack([(raw[:, 104:108] >> np.uint8(shift)) & np.uint8(3) for shift in (0, 2, 4, 6)], 1).reshape(-1, 16)
    scales = _half(raw[:, 108:]) * ((low | high << np.uint8(4)).astype(np.float32) - 32)
    return _repacked(codes, scales, -4 * scales, 7.75, 5)


def _q2_k(raw: Bytes) -> Parts:
    factors, packed = _half(raw[:, 80:]), raw[:, :16]
    scales, minima = factors[:, :1] * (packed & np.uint8(15)), factors[:, 1:] * (packed >> np.uint8(4))
    return _repacked(_twos(raw[:, 16:80]), scales, -minima, 3, 4)


READABLE = {
    0: Blocks("F32", 1, 4),
    1: Blocks("F16", 1, 2),
    2: Blocks("Q4_0", 32, 18, 4, _q4_0),
    3: Blocks("Q4_1", 32, 20, 4, _q4_1),
    6: Blocks("Q5_0", 32, 22, 5, _q5_0),
    7: Blocks("Q5_1", 32, 24, 5, _q5_1),
    8: Blocks("Q8_0", 32, 34, 8, _q8_0),
    10: Blocks("Q2_K", 256, 84, 4, _q2_k, 0.1),
    11: Blocks("Q3_K", 256, 110, 5, _q3_k, 0.04),
    12: Blocks("Q4_K", 256, 144, 4, _q4_k),
    13: Blocks("Q5_K", 256, 176, 5, _q5_k),
    14: Blocks("Q6_K", 256, 210, 8, _q6_k, 0.006),
    20: Blocks("IQ4_NL", 32, 18, 8, _iq4_nl),
    23: Blocks("IQ4_XS", 256, 136, 8, _iq4_xs),
    30: Blocks("BF16", 1, 2),
    39: Blocks("MXFP4", 32, 17, 4, _mxfp4, 0.0, "mxfp4"),
}
"""Types of tensors that can be read, by llama.cpp's number."""
