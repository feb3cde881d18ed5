"""Header of a GGUF file: its metadata, and names, types and shapes of its tensors. None of the weights are read."""

from __future__ import annotations

import math
import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...types import ModelLoadError

Value = bool | int | float | str | list["Value"]
T = TypeVar("T", bool, int, float, str)

_MAGIC, _VERSIONS, _ALIGNMENT = b"GGUF", (2, 3), 32
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}  # as struct has it
_TEXT, _ARRAY = 8, 9
READABLE = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""Types of tensors that MLX reads rightly: name, values and bytes of a block. It takes Q6_K apart to float16."""
_NAMES = {6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 15: "Q8_K", 39: "MXFP4"}


class Tensor(NamedTuple):
    """Entry of a tensor; its shape is as NumPy has it, rows first."""

    kind: int
    shape: tuple[int, ...]
    offset: int


class Header(NamedTuple):
    """Contents of a file before its weights."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, Tensor]

    def get(self, key: str, default: T) -> T:
        """A single value; a number may be there in another type.

        Raises:
            ModelLoadError: the value is a list, or of another kind.
        """
        value = self.metadata.get(key, default)
        if isinstance(default, float) and isinstance(value, int):
            value = float(value)
        if not isinstance(value, type(default)):
            raise ModelLoadError(
                f"'{self.path}': the metadata's '{key}' is a {type(value).__name__}, which is not known."
            )
        return value

    def list_of(self, key: str, kind: type[T]) -> list[T]:
        """A list's values; none where there is no such list."""
        values = self.metadata.get(key)
        return [value for value in values if isinstance(value, kind)] if isinstance(values, list) else []


def read_header(path: Path) -> Header:
    """Read a file's header, and check that MLX can read all its tensors.

    Raises:
        ModelLoadError: it is no such file, it is cut off, or a tensor has a type that MLX does not read.
    """
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise ModelLoadError(f"'{path}' is no GGUF file: it does not begin with 'GGUF'.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            reader = _Reader(content)
            try:
                version = reader.number("I")
                if version not in _VERSIONS:
                    raise ModelLoadError(f"'{path}' is of GGUF version {version}; versions 2 and 3 can be read.")
                header = Header(path, *reader.entries())
            except (struct.error, KeyError, ValueError) as error:
                raise ModelLoadError(f"'{path}' is damaged, or was not downloaded completely: {error}.") from error
            start = reader.position
    _check_tensors(header, start)
    return header


class _Reader:
    """Position in a file's bytes, and the values that follow."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self.position = 4

    def entries(self) -> tuple[dict[str, Value], dict[str, Tensor]]:
        tensors, pairs = self.numbers("Q", 2)
        metadata: dict[str, Value] = {}
        for _ in range(int(pairs)):
            key = self.text()
            metadata[key] = self.value(int(self.number("I")))
        return metadata, dict(self.tensor() for _ in range(int(tensors)))

    def tensor(self) -> tuple[str, Tensor]:
        name = self.text()
        shape = [int(size) for size in self.numbers("Q", int(self.number("I")))]
        kind, offset = int(self.number("I")), int(self.number("Q"))
        return name, Tensor(kind, tuple(reversed(shape)), offset)

    def value(self, kind: int) -> Value:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.number(_NUMBERS[kind])
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind in _NUMBERS:
            return list(self.numbers(_NUMBERS[kind], count))
        return [self.value(kind) for _ in range(count)]

    def text(self) -> str:
        size = int(self.number("Q"))
        raw = self._content[self.position : self.position + size]
        if len(raw) != size:
            raise ValueError("a text goes on behind the end of the file")
        self.position += size
        return raw.decode()

    def number(self, letter: str) -> int | float:
        return self.numbers(letter, 1)[0]

    def numbers(self, letter: str, count: int) -> tuple[int | float, ...]:
        size = struct.calcsize("<" + letter)
        if count > (len(self._content) - self.position) // size:
            raise ValueError("a list goes on behind the end of the file")
        found: tuple[int | float, ...] = struct.unpack_from(f"<{count}{letter}", self._content, self.position)
        self.position += count * size
        return found


def _check_tensors(header: Header, start: int) -> None:
    """Refuse what MLX reads wrongly, or past the end of the file."""
    alignment = header.get("general.alignment", _ALIGNMENT)
    start = -(-start // alignment) * alignment
    size = os.path.getsize(header.path)
    for name, tensor in header.tensors.items():
        if tensor.kind not in READABLE:
            kind = _NAMES.get(tensor.kind, f"type {tensor.kind}")
            raise ModelLoadError(
                f"'{header.path}': tensor '{name}' is {kind}, which MLX cannot read. Choose a file of the same model "
                "in Q8_0, Q4_0, Q4_1, F16, BF16 or F32, make one (`llama-quantize --allow-requantize FILE NEW Q8_0`), "
                "or take its MLX folder."
            )
        kind, values, block = READABLE[tensor.kind]
        count = math.prod(tensor.shape)
        if count % values or start + tensor.offset + count // values * block > size:
            raise ModelLoadError(
                f"'{header.path}' is damaged, or was not downloaded completely: tensor '{name}' ({kind}, "
                f"{list(tensor.shape)}) goes on behind the end of the file."
            )
