"""Headers of files of tensors, *.safetensors: https://github.com/huggingface/safetensors#format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

MAX_HEADER_BYTES = 100_000_000  # as the format says
_BITS = {"F32": 32, "F16": 16, "BF16": 16}  # of the types whose values are read here


class Tensor(NamedTuple):
    """Entry of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Where its bytes begin in the file."""
    stop: int


def read_header(file: BinaryIO, size: int) -> dict[str, Tensor]:
    """The tensors of a file of this size by name. None of their values are read.

    Raises:
        ValueError: it is no such file, or it is cut off; says what is wrong.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise ValueError("it is no safetensors file, or is cut off")
    try:
        entries = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is no JSON: {error}") from None
    if not isinstance(entries, Mapping):
        raise ValueError("its header is no JSON object")
    first = 8 + length
    tensors = {name: _tensor(name, entry, first, size) for name, entry in entries.items() if name != "__metadata__"}
    if sum(tensor.stop - tensor.start for tensor in tensors.values()) > size - first:
        raise ValueError("its tensors overlap")
    return tensors


def _tensor(name: str, entry: Any, first: int, size: int) -> Tensor:
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, stop]
        fits = all(type(number) is int and number >= 0 for number in numbers) and start <= stop
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits or not isinstance(dtype, str):
        raise ValueError(f"the entry of '{name}' in its header is damaged")
    if first + stop > size:
        raise ValueError(f"it is cut off: '{name}' ends behind the end of the file")
    if dtype in _BITS and math.prod(shape) * _BITS[dtype] != 8 * (stop - start):
        raise ValueError(f"'{name}' has {stop - start} bytes, which its shape {tuple(shape)} in {dtype} does not take")
    return Tensor(dtype, tuple(shape), first + start, first + stop)
