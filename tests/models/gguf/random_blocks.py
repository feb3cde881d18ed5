"""Random blocks of GGUF's types: every bit pattern of codes and scales, and factors that make values of a size."""

from __future__ import annotations

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FACTORS = {
    Type.Q4_0: (0,),
    Type.Q4_1: (0, 2),
    Type.Q5_0: (0,),
    Type.Q5_1: (0, 2),
    Type.Q8_0: (0,),
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.IQ4_NL: (0,),
    Type.IQ4_XS: (0,),
    Type.MXFP4: (),
}
"""Places of the float16 factors in a block of each type."""
EXPONENT = 119  # of MXFP4's scales, of which each block has one byte
_LARGEST = {
    Type.Q4_K: 15 * 63,
    Type.Q5_K: 31 * 63,
    Type.Q6_K: 32 * 128,
    Type.Q3_K: 4 * 32,
    Type.Q2_K: 3 * 15,
    Type.IQ4_XS: 127 * 32,
    Type.IQ4_NL: 127,
    Type.Q8_0: 127,
    Type.Q5_0: 16,
    Type.Q5_1: 31,
}


def random_blocks(type_: Type, shape: tuple[int, ...], seed: int = 0, size: float = 0.1) -> np.ndarray:
    """Bytes of a tensor, `[..., bytes of a row]`.

    Args:
        shape: of its values.
        size: about that of its largest values.
    """
    values, bytes_ = gguf.constants.GGML_QUANT_SIZES[type_]
    *rows, columns = shape
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (int(np.prod(rows)) * columns // values, bytes_), dtype=np.uint8)
    largest = size / _LARGEST.get(type_, 15)
    for place in FACTORS[type_]:
        factors = (rng.random((len(raw), 1)) * largest).astype(np.float16)
        raw[:, place : place + 2] = factors.view(np.uint8)
    if type_ == Type.MXFP4:
        raw[:, 0] = EXPONENT + rng.integers(0, 4, len(raw))
    return raw.reshape(*rows, -1)


def dequantized(raw: np.ndarray, type_: Type) -> np.ndarray:
    """Their values, by llama.cpp's package."""
    values: np.ndarray = gguf.quants.dequantize(raw, type_)
    return values
