"""Blocks of GGUF's tensor types, as MLX's packed weights, scales, and biases in groups of 32.

Written for NumPy in pieces that fit into a CPU's cache: there its operations are fast, and release the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)
FloatType = type[np.float16] | type[np.float32]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Words = NDArray[np.uint64]
PackedBlocks = tuple[NDArray[np.generic], Floats, Floats]
"""Packed codes (of any type), scales, and biases of some blocks."""

GROUP = 32
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
_IQ4_CODES = (IQ4 + 128).astype(np.uint8)[np.arange(256)[:, None] >> [0, 4] & 15].view(np.uint16)[:, 0]
"""Codes in 8 bits of the low and the high nibble of each byte."""
_FIFTH_BITS = (np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, bitorder="little") << 4).view(np.uint64)[:, 0]
"""The bits of a byte, each as the fifth bit of a byte."""


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
    convert: Callable[[Bytes], PackedBlocks] | None = None
    error: float = 0.0
    mode: str = "affine"


def _field(raw: Bytes, at: int, kind: type[T]) -> NDArray[T]:
    """One value of each block, `[blocks]`."""
    return np.ndarray((len(raw),), kind, raw, at, (raw.shape[1],))


def _half(raw: Bytes, at: int) -> Floats:
    """A float16 of each block."""
    return _field(raw, at, np.float16).astype(np.float32)


def _column(values: NDArray[T]) -> NDArray[T]:
    return values[:, None]


def _words(raw: Bytes) -> Words:
    return np.ascontiguousarray(raw).view(np.uint64)


def _each(byte: int) -> np.uint64:
    """A word whose bytes are all the same."""
    return np.uint64(byte * 0x0101010101010101)


def _low(words: Words, out: Words | None = None) -> Words:
    return np.bitwise_and(words, _each(15), out=out)


def _high(words: Words, out: Words | None = None) -> Words:
    out = np.right_shift(words, np.uint64(4), out=out)
    out &= _each(15)
    return out


def _packed_nibbles(words: Words, run: type[np.generic]) -> Bytes:
    """Codes in 4 bits: of each two runs of bytes first the low nibbles, then the high ones.

    Args:
        words: the runs.
        run: a type of half as many bytes as a run has.
    """
    halves = []
    for nibbles in (_low(words), _high(words)):
        nibbles |= nibbles >> np.uint64(4)  # the lower byte of each two has both nibbles
        halves.append(nibbles.view(np.uint16).astype(np.uint8).reshape(-1).view(run))
    packed = np.empty((len(halves[0]), 2), run)
    packed[:, 0], packed[:, 1] = halves
    return packed.view(np.uint8)


def _squeeze(planes: Words, bits: int) -> NDArray[np.uint32]:
    """Codes in less than 8 bits as a stream of bits, least significant first.

    Args:
        planes: `[4, ...]`: words of eight codes, of which four follow each other in the stream. They are overwritten.
        bits: of a code.

    Returns:
        `[..., bits]`
    """
    high = np.empty_like(planes)
    for lanes, width in ((2, bits), (4, 2 * bits), (8, 4 * bits)):  # two neighbors become one lane of twice the bits
        low = sum(((1 << width) - 1) << at for at in range(0, 64, 8 * lanes))
        np.bitwise_and(planes, np.uint64(low << 4 * lanes), out=high)
        high >>= np.uint64(4 * lanes - width)
        planes &= np.uint64(low)
        planes |= high
    stream = np.empty((*planes.shape[1:], bits), np.uint32)
    parts: list[list[Words]] = [[] for _ in range(bits)]
    for number, plane in enumerate(planes):
        at, shift = divmod(8 * bits * number, 32)
        parts[at].append(plane << np.uint64(shift) if shift else plane)
        if shift + 8 * bits > 32:
            parts[at + 1].append(plane >> np.uint64(32 - shift))
    for at, (first, *others) in enumerate(parts):
        stream[..., at] = reduce(np.bitwise_or, others, first)
    return stream


def _q4_0(raw: Bytes) -> PackedBlocks:
    scale = _column(_half(raw, 0))
    return _packed_nibbles(_words(raw[:, 2:]), np.uint64), scale, -8 * scale


def _q4_1(raw: Bytes) -> PackedBlocks:
    return _packed_nibbles(_words(raw[:, 4:]), np.uint64), _column(_half(raw, 0)), _column(_half(raw, 2))


def _five_bits(raw: Bytes, at: int) -> NDArray[np.uint32]:
    """Four bytes of fifth bits, and sixteen of nibbles, from a position in each block."""
    planes = np.empty((4, len(raw)), np.uint64)
    for i in range(2):
        words = _field(raw, at + 4 + 8 * i, np.uint64).copy()
        _low(words, planes[i])
        _high(words, planes[2 + i])
    for i, plane in enumerate(planes):
        plane |= _FIFTH_BITS.take(_field(raw, at + i, np.uint8))
    return _squeeze(planes, 5)


def _q5_0(raw: Bytes) -> PackedBlocks:
    scale = _column(_half(raw, 0))
    return _five_bits(raw, 2), scale, -16 * scale


def _q5_1(raw: Bytes) -> PackedBlocks:
    return _five_bits(raw, 4), _column(_half(raw, 0)), _column(_half(raw, 2))


def _q8_0(raw: Bytes) -> PackedBlocks:
    scale = _column(_half(raw, 0))
    codes = _words(raw[:, 2:])
    codes ^= _each(128)
    return codes, scale, -128 * scale


def _scales_and_biases(raw: Bytes) -> tuple[Floats, Floats]:
    """Of a block's first 16 bytes: two factors, and eight scales and minima in 6 bits."""
    low, high, rest = (_field(raw, at, np.uint32) for at in (4, 8, 12))
    six, four, two = (np.uint32(byte * 0x01010101) for byte in (63, 15, 48))
    packed = np.empty((len(raw), 4), np.uint32)
    packed[:, 0] = low & six
    packed[:, 1] = (rest & four) | ((low >> np.uint32(2)) & two)
    packed[:, 2] = high & six
    packed[:, 3] = ((rest >> np.uint32(4)) & four) | ((high >> np.uint32(2)) & two)
    integers = packed.view(np.uint8).astype(np.float32)
    return integers[:, :8] * _column(_half(raw, 0)), integers[:, 8:] * _column(-_half(raw, 2))


def _q4_k(raw: Bytes) -> PackedBlocks:
    return _packed_nibbles(raw.view(np.uint64)[:, 2:], np.complex128), *_scales_and_biases(raw)


def _q5_k(raw: Bytes) -> PackedBlocks:
    words = np.ascontiguousarray(raw.view(np.uint64)[:, 2:].T)  # [words of a block, blocks]
    nibbles = words[4:].reshape(4, 4, -1).swapaxes(0, 1)
    planes = np.empty((4, 8, len(raw)), np.uint64)
    _low(nibbles, planes[:, ::2])
    _high(nibbles, planes[:, 1::2])
    fifth = words[:4, None] >> np.arange(8, dtype=np.uint64)[:, None]
    fifth &= _each(1)
    fifth <<= np.uint64(4)
    planes |= fifth
    return np.ascontiguousarray(_squeeze(planes, 5).swapaxes(0, 1)), *_scales_and_biases(raw)


def _iq4(raw: Bytes) -> Bytes:
    """Runs of sixteen bytes of nibbles as codes in 8 bits."""
    both = _IQ4_CODES.take(raw).reshape(-1)
    codes = np.empty((len(both) // 16, 2), np.complex128)
    codes[:, 0] = both.astype(np.uint8).view(np.complex128)
    codes[:, 1] = (both >> np.uint16(8)).astype(np.uint8).view(np.complex128)
    return codes.view(np.uint8)


def _iq4_nl(raw: Bytes) -> PackedBlocks:
    scale = _column(_half(raw, 0))
    return _iq4(raw[:, 2:]), scale, -128 * scale


def _iq4_xs(raw: Bytes) -> PackedBlocks:
    low = np.stack([raw[:, 4:8] & np.uint8(15), raw[:, 4:8] >> np.uint8(4)], -1).reshape(-1, 8)
    high = _column(_field(raw, 2, np.uint16)) >> np.arange(0, 16, 2, dtype=np.uint16)
    scale = _column(_half(raw, 0)) * ((low | (high & 3) << 4).astype(np.float32) - 32)
    return _iq4(raw[:, 8:]), scale, -128 * scale


def _mxfp4(raw: Bytes) -> PackedBlocks:
    """Scales are the exponents' bytes; there are no biases."""
    codes = _packed_nibbles(_words(raw[:, 1:]), np.uint64)
    return codes, raw[:, :1].astype(np.float32), np.empty((len(raw), 0), np.float32)


def _sixteens(raw: Bytes, number: int) -> Words:
    """`[..., 16 * number]` bytes -> `[number, rows, 2]` words: the first sixteen bytes of all rows, and so on."""
    runs = np.ascontiguousarray(raw).view(np.complex128).reshape(-1, number)
    return np.ascontiguousarray(runs.T).view(np.uint64).reshape(number, -1, 2)


def _twos(raw: Bytes) -> Words:
    """64 bytes of each block, of four codes in 2 bits each -> `[8, rows, 2]` words of eight codes."""
    words = _sixteens(raw, 2) >> np.arange(0, 8, 2, dtype=np.uint64)[:, None, None, None]
    words &= _each(3)
    return words.reshape(8, -1, 2)


def _repacked(codes: Words, scales: Floats, offsets: Floats, top: float, bits: int) -> PackedBlocks:
    """Values of 16 groups of 16, `codes * scales + offsets`, rounded to `bits` bits in groups of 32.

    Args:
        codes: `[8, rows, 2]` words of eight codes; a block has two rows of 8 groups.
        scales: `[16, blocks]`; offsets likewise.
        top: no code is larger. Chosen so that the values of the group with the larger scale are kept as they are.
        bits: of the rounded codes.
    """
    scales, offsets = scales.reshape(8, 2, -1), offsets.reshape(8, 2, -1)
    others = offsets + np.float32(top) * scales
    least, largest = np.minimum(offsets, others), np.maximum(offsets, others)
    bias = _as_half(np.minimum(least[:, 0], least[:, 1]))
    scale = _as_half((np.maximum(largest[:, 0], largest[:, 1]) - bias) / ((1 << bits) - 1))

    # In fixed point, 16 bits: the integer part is the rounded code. Relative to a middle code, steps err least.
    one = np.float32(1 << (16 - bits))
    factor = (one / np.where(scale > 0, scale, 1))[:, None]
    most = np.float32(65535 // int(top))  # more only if a scale became another one as a subnormal float16
    steps = np.rint(scales * factor).clip(-most, most)
    middle = np.float32((int(top) + 1) // 2)
    before, after = -middle * steps, (int(top) - middle) * steps
    middles = np.rint((offsets - bias[:, None] + middle * scales) * factor + one / 2)
    middles = middles.clip(-np.minimum(before, after), 65535 - np.maximum(before, after))
    values = codes.view(np.uint8).astype(np.uint16).reshape(8, -1, 16)
    values *= _lanes(steps)
    values += _lanes(middles + before)
    values >>= np.uint16(16 - bits)
    runs = values.astype(np.uint8).view(np.complex128)[..., 0]
    words = np.ascontiguousarray(runs.T).view(np.uint64)
    return _narrow(words, bits), scale.T, bias.T


def _lanes(values: Floats) -> NDArray[np.uint16]:
    """Numbers of groups modulo 2 ** 16, as often as a group has codes: `[8, 2, blocks]` -> `[8, rows, 16]`."""
    words = values.reshape(2, 8, -1).transpose(1, 2, 0).astype(np.int64, order="C").view(np.uint64).reshape(8, -1)
    words &= np.uint64(0xFFFF)
    words *= np.uint64(0x0001000100010001)
    return words.repeat(4, -1).view(np.uint16).reshape(8, -1, 16)


def _narrow(words: Words, bits: int) -> NDArray[np.generic]:
    """Words of eight codes, packed in 4, 5, or 8 bits."""
    if bits == 4:
        return (words | words >> np.uint64(4)).view(np.uint16).astype(np.uint8)
    return _squeeze(np.ascontiguousarray(words.reshape(-1, 4).T), bits) if bits == 5 else words


def _as_half(values: NDArray[np.generic]) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _columns(raw: Bytes, first: int, end: int) -> Bytes:
    """Bytes of each block, `[bytes, blocks]`."""
    return np.ascontiguousarray(raw[:, first:end].T)


def _q6_k(raw: Bytes) -> PackedBlocks:
    nibbles = _sixteens(raw[:, :128], 4)
    codes = _twos(raw[:, 128:192])
    codes <<= np.uint64(4)
    codes |= np.concatenate([_low(nibbles), _high(nibbles)])
    scales = _columns(raw, 192, 208).view(np.int8) * _half(raw, 208)
    return _repacked(codes, scales, -32 * scales, 63.75, 8)


def _q3_k(raw: Bytes) -> PackedBlocks:
    third = np.repeat(_sixteens(raw[:, :32], 2), 2, 1).reshape(2, -1, 2, 2)
    third[:, :, 1] >>= np.uint64(4)
    third = third.reshape(2, -1, 2) >> np.arange(4, dtype=np.uint64)[:, None, None, None]
    third &= _each(1)
    third <<= np.uint64(2)
    codes = _twos(raw[:, 32:96]) | third.reshape(8, -1, 2)
    packed, shifts = _columns(raw, 96, 108), np.arange(0, 8, 2, dtype=np.uint8)[:, None, None]
    low = np.concatenate([packed[:8] & np.uint8(15), packed[:8] >> np.uint8(4)])
    high = ((packed[8:] >> shifts) & np.uint8(3)).reshape(16, -1) << np.uint8(4)
    scales = _half(raw, 108) * ((low | high).astype(np.float32) - 32)
    return _repacked(codes, scales, -4 * scales, 7.75, 5)


def _q2_k(raw: Bytes) -> PackedBlocks:
    packed = _columns(raw, 0, 16)
    scales, minima = _half(raw, 80) * (packed & np.uint8(15)), _half(raw, 82) * (packed >> np.uint8(4))
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
