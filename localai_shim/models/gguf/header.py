"""Header of a GGUF file: its metadata, and names, types and shapes of its tensors. None of the weights are read.

Nothing in a file is trusted: sizes and places are checked here, before any memory is reserved for a tensor.
"""

from __future__ import annotations

import math
import os
import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...types import ModelLoadError
from .blocks import READABLE
from .detection import MAGIC, check_gguf

Value = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]
T = TypeVar("T", bool, int, float, str)

MAX_HEADER_BYTES = 1 << 26
"""Four times the header of a file with the largest vocabulary."""
MAX_ENTRIES = 1 << 16  # of metadata, and of tensors
MAX_VALUES = 1 << 21  # of a list that is read: four times the merges of the largest vocabulary
MAX_KEY_BYTES, MAX_NAME_BYTES = 65_535, 255
MAX_DIMENSIONS, MAX_DIMENSION = 4, (1 << 31) - 1  # as ggml has it, and as MLX does
MAX_ALIGNMENT = 1 << 16
_VERSIONS, _ALIGNMENT = (2, 3), 32
_LONG_LIST = 1_000  # texts
_KEYS = (b"tokenizer.", b"general.")  # beginnings of those that follow a vocabulary
_READ_LISTS = "tokenizer.ggml."  # others are passed over, unless they are short
_SHORT = 4096  # numbers, such as one for each layer
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
_SIZE = struct.Struct("<Q")
_UNREADABLE = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    40: "NVFP4",
    41: "Q1_0",
}
"""Names of the types that `blocks` does not convert, for errors."""


class Tensor(NamedTuple):
    """Entry of a tensor; its shape is as NumPy has it, rows first, and its offset that in the file."""

    kind: int
    shape: tuple[int, ...]
    offset: int


class Header(NamedTuple):
    """Contents of a file before its weights."""

    path: Path
    metadata: dict[str, Value]
    """A list that nothing needs is empty here."""
    tensors: dict[str, Tensor]

    def get(self, key: str, default: T) -> T:
        """A single value; a number may be there in another type.

        Raises:
            ModelLoadError: the value is a list, or of another kind.
        """
        value = self.metadata.get(key, default)
        if type(default) is float and type(value) is int:
            value = float(value)
        if not isinstance(value, type(default)) or type(value) is not type(default):
            raise ModelLoadError(
                f"'{self.path}': the metadata's '{key}' is a {type(value).__name__}, not a {type(default).__name__}."
            )
        return value

    def list_of(self, key: str, kind: type[T]) -> list[T]:
        """A list's values; none if there is no such list.

        Raises:
            ModelLoadError: the value is no list, or its values are of another kind.
        """
        values = self.metadata.get(key, [])
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise ModelLoadError(f"'{self.path}': the metadata's '{key}' is not a list of {kind.__name__}.")
        return [value for value in values if isinstance(value, kind)]


def read_header(path: Path, *, lists: bool = True) -> Header:
    """Read a file's header, and check that all its tensors can be read.

    Args:
        lists: read the tokenizer's lists, which takes most of the time; otherwise they are empty.

    Raises:
        ModelLoadError: it is no such file, it is cut off or damaged, or a tensor has a type that cannot be read.
    """
    header, start, size = _read(path, lists)
    try:
        start = _check_tensors(header, start, size)
    except ValueError as error:
        raise _damaged(path, error) from error
    tensors = {name: tensor._replace(offset=start + tensor.offset) for name, tensor in header.tensors.items()}
    return header._replace(tensors=tensors)


def peek(path: Path) -> Header:
    """A file's header without the tokenizer's lists, whether or not its tensors can be read; offsets are relative.

    Raises:
        ModelLoadError: it is no such file, or its header is cut off or damaged.
    """
    return _read(path, lists=False)[0]


def _read(path: Path, lists: bool) -> tuple[Header, int, int]:
    """A file's header, where that ends, and the file's size."""
    check_gguf(path)
    with path.open("rb") as file:
        content = file.read(MAX_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    for jumps in (False,) if lists else (True, False):  # a jump that fails may have led to a wrong place
        reader = _Reader(content, jumps)
        try:
            version = int(reader.number("I"))
            if version not in _VERSIONS:
                raise ModelLoadError(f"'{path}' is of GGUF version {version}; versions 2 and 3 can be read.")
            return Header(path, *reader.entries(lists)), reader.position, size
        except (struct.error, ValueError) as error:
            if not jumps:
                raise _damaged(path, error) from error
    raise AssertionError("the second try returns or raises")


def _damaged(path: Path, error: Exception) -> ModelLoadError:
    return ModelLoadError(f"'{path}' is damaged, or was not downloaded completely: {error}. Download it again.")


class _Reader:
    """Position in a file's first bytes, and the values that follow.

    Its methods raise `ValueError` if what follows is in no GGUF file.

    Args:
        content: the file's first bytes.
        jumps: go past long lists of texts by looking for the key after them. That is right for files as converters
            write them, and takes a tenth of the time.
    """

    def __init__(self, content: bytes, jumps: bool = False) -> None:
        self._content, self._jumps = content, jumps
        self.position = len(MAGIC)

    def entries(self, lists: bool) -> tuple[dict[str, Value], dict[str, Tensor]]:
        tensors, pairs = (int(count) for count in self.numbers("Q", 2))
        for count, what in ((tensors, "tensors"), (pairs, "keys of metadata")):
            if count > MAX_ENTRIES:
                raise ValueError(f"it has {count:,} {what}, and no model has more than {MAX_ENTRIES:,}")
        metadata: dict[str, Value] = {}
        for _ in range(pairs):
            key = self.text(MAX_KEY_BYTES)
            if key in metadata:
                raise ValueError(f"its metadata has '{key[:100]}' twice")
            kind = int(self.number("I"))
            if key == "general.alignment" and kind != 4:
                raise ValueError(f"its '{key}' is not an unsigned number of 32 bits")
            metadata[key] = self.value(kind, reads=lists and key.startswith(_READ_LISTS))
        found: dict[str, Tensor] = {}
        for _ in range(tensors):
            name = self.text(MAX_NAME_BYTES)
            if name in found:
                raise ValueError(f"it has two tensors of the name '{name}'")
            found[name] = self.tensor(name)
        return metadata, found

    def tensor(self, name: str) -> Tensor:
        dimensions = int(self.number("I"))
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise ValueError(f"tensor '{name}' has {dimensions:,} dimensions, and no tensor has more than 4, or none")
        shape = [int(size) for size in self.numbers("Q", dimensions)]
        if not all(1 <= size <= MAX_DIMENSION for size in shape):
            raise ValueError(f"tensor '{name}' has the shape {shape}")
        kind, offset = int(self.number("I")), int(self.number("Q"))
        return Tensor(kind, tuple(reversed(shape)), offset)

    def value(self, kind: int, *, reads: bool) -> Value:
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.number(_letter(kind))
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind == _ARRAY:
            raise ValueError("its metadata has a list of lists")
        if reads and count > MAX_VALUES:
            raise ValueError(f"its metadata has a list of {count:,} values, and no model has more than {MAX_VALUES:,}")
        if kind != _TEXT:
            letter = _letter(kind)
            if reads or count <= _SHORT:
                return list(self.numbers(letter, count))
            self._skip(count * struct.calcsize("<" + letter))
            return []
        if reads:
            return [self.text() for _ in range(count)]
        self._skip_texts(count)
        return []

    def _skip_texts(self, count: int) -> None:
        """Go past a list of texts."""
        if self._jumps and count > _LONG_LIST and (at := self._next_key()):
            self.position = at
            return
        for _ in range(count):
            self._skip(int(self.number("Q")))

    def _next_key(self) -> int | None:
        """Position of the next key of metadata whose name all files have; None if there is none."""
        starts = (self._content.find(b"\0\0\0\0" + name, self.position) for name in _KEYS)
        at = min((start - 4 for start in starts if start > 0), default=None)
        if at is None:
            return None
        [size] = _SIZE.unpack_from(self._content, at)
        return at if size < MAX_NAME_BYTES and self._content[at + 8 : at + 8 + size].isascii() else None

    def text(self, most: int = MAX_HEADER_BYTES) -> str:
        [size] = _SIZE.unpack_from(self._content, self._skip(_SIZE.size))
        if size > most:
            raise ValueError(f"it has a text of {size:,} bytes where no file has more than {most:,}")
        at = self._skip(size)
        return self._content[at : self.position].decode()

    def number(self, letter: str) -> int | float:
        return self.numbers(letter, 1)[0]

    def numbers(self, letter: str, count: int) -> tuple[int | float, ...]:
        at = self._skip(count * struct.calcsize("<" + letter))
        found: tuple[int | float, ...] = struct.unpack_from(f"<{count}{letter}", self._content, at)
        return found

    def _skip(self, size: int) -> int:
        """Go on by a number of bytes, all of which are there; returns where they begin."""
        at = self.position
        if size > len(self._content) - at:
            if len(self._content) == MAX_HEADER_BYTES:
                raise ValueError(f"its header has more than {MAX_HEADER_BYTES >> 20} MiB")
            raise ValueError("its header ends past the end of the file")
        self.position += size
        return at


def type_name(kind: int) -> str:
    """Name of a tensor's type."""
    return READABLE[kind].name if kind in READABLE else _UNREADABLE.get(kind, f"the unknown type {kind}")


def _letter(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"its metadata has a value of the unknown type {kind}")
    return _NUMBERS[kind]


def _check_tensors(header: Header, start: int, size: int) -> int:
    """Refuse what cannot be read, or is past the end of the file. Returns where the tensors begin.

    Raises:
        ModelLoadError: a type cannot be read.
        ValueError: the file is damaged.
    """
    alignment = header.get("general.alignment", _ALIGNMENT)
    if not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"its 'general.alignment' is {alignment:,}, which is no power of two up to {MAX_ALIGNMENT:,}")
    start = -(-start // alignment) * alignment
    places = []
    for name, tensor in header.tensors.items():
        if tensor.kind not in READABLE:
            raise ModelLoadError(
                f"'{header.path}': tensor '{name}' is {type_name(tensor.kind)}, which MLX has no form for. Choose "
                "another file of the same model, such as Q4_K_M or Q8_0, make one (`llama-quantize "
                "--allow-requantize FILE NEW Q4_K_M`), or take its MLX folder."
            )
        kind, values, block = READABLE[tensor.kind][:3]
        what = f"tensor '{name}' ({kind}, {list(tensor.shape)})"
        if tensor.shape[-1] % values:
            raise ValueError(f"{what} has rows that are no multiple of {values} values")
        if tensor.offset % alignment:
            raise ValueError(f"{what} begins at {tensor.offset}, which is no multiple of {alignment}")
        end = tensor.offset + math.prod(tensor.shape) // values * block
        if start + end > size:
            raise ValueError(f"{what} ends past the end of the file")
        places.append((tensor.offset, end, name))
    for (_, end, name), (offset, _, other) in pairwise(sorted(places)):
        if offset < end:
            raise ValueError(f"tensors '{name}' and '{other}' overlap")
    return start


MAX_NUMBER = (1 << 31) - 1  # as MLX counts


class Metadata:
    """Metadata of one part of a model, with errors that name the key.

    Args:
        header: of the file.
        prefix: of the part's keys, without the dot.
    """

    def __init__(self, header: Header, prefix: str) -> None:
        self.header, self.prefix = header, prefix

    def number(self, key: str, default: int = 0) -> int:
        """A number above 0; the default may be what is missing."""
        value = self.header.get(f"{self.prefix}.{key}", default)
        if not value:
            raise self.error(f"the metadata lacks '{self.prefix}.{key}', or it is 0")
        if not 0 < value <= MAX_NUMBER:
            raise self.error(f"the metadata's '{self.prefix}.{key}' is {value}")
        return value

    def count(self, key: str) -> int:
        """A number that may be 0, and is if it is missing."""
        value = self.header.get(f"{self.prefix}.{key}", 0)
        return self.number(key) if value else 0

    def real(self, key: str, default: float) -> float:
        value = self.header.get(f"{self.prefix}.{key}", default)
        if not 0 < value < math.inf:
            raise self.error(f"the metadata's '{self.prefix}.{key}' is {value}")
        return value

    def per_layer(self, key: str, layers: int) -> list[int]:
        """Numbers of all layers, where the file has a list or one number."""
        if not isinstance(self.header.metadata.get(f"{self.prefix}.{key}"), list):
            return [self.number(key)] * layers
        values = self.header.list_of(f"{self.prefix}.{key}", int)
        if len(values) != layers or not all(0 < value <= MAX_NUMBER for value in values):
            raise self.error(f"the metadata's '{self.prefix}.{key}' is not a number for each of {layers} layers")
        return values

    def error(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"'{self.header.path}': {what}.")
