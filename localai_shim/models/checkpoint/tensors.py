"""Headers of files of tensors, *.safetensors: https://github.com/huggingface/safetensors#format."""

from __future__ import annotations

import json
import math
from typing import BinaryIO, NamedTuple

from ...types import Json

MAX_HEADER_BYTES = 100_000_000  # as the format says
_BITS = {"F32": 32, "F16": 16, "BF16": 16}  # of the types whose values are read here


class Tensor(NamedTuple):
    """Entry of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Place of its first byte in the file."""
    stop: int


def read_header(file: BinaryIO, size: int) -> dict[str, Tensor]:
    """The tensors of a file of this size by name. None of their values are read.

    Raises:
        ValueError: it is no such file, or it is cut off; says what is wrong, for a sentence that begins with its name.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) == 8 and length > MAX_HEADER_BYTES:
        raise ValueError("is damaged: it does not begin with a header of safetensors")
    if len(start) < 8 or length > size - 8:
        raise ValueError(f"was cut off within its header, at {size:,} bytes")
    try:
        entries = json.loads(file.read(length))
        noted = entries.pop("__metadata__", None) or {}  # MLX writes null
        if not all(isinstance(text, str) for text in noted.values()):
            raise ValueError
        tensors = {name: _tensor(entry, 8 + length) for name, entry in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("is damaged: its header cannot be read") from None
    needed = max((tensor.stop for tensor in tensors.values()), default=0)
    if size < needed:
        raise ValueError(f"was cut off: it has {size:,} of {needed:,} bytes")
    if sum(tensor.stop - tensor.start for tensor in tensors.values()) > size - 8 - length:
        raise ValueError("is damaged: its tensors overlap")
    return tensors


def _tensor(entry: Json, first: int) -> Tensor:
    """An entry of the header, which ends at byte `first`; an error of Python's if it is none."""
    dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
        raise ValueError
    if start > stop or (dtype in _BITS and math.prod(shape) * _BITS[dtype] != 8 * (stop - start)):
        raise ValueError
    return Tensor(dtype, tuple(shape), first + start, first + stop)
