"""A hash of a model's files that tells their contents from others, of the same size and time as well.

Small files are read to their end. Of large ones the header is, and pieces of each tensor, which takes milliseconds for
a model of 8B. Their times count as well: a change of a few rows may lie between the pieces.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from .tensors import read_header

WHOLE_BYTES = 32 * 2**20
PIECES = 8  # of each tensor, its first and its last bytes among them
PIECE_BYTES = 256
FILE_PIECES = 2_048  # of a file whose tensors are not known
_SUFFIXES = (".safetensors", ".gguf", ".py")  # a checkpoint's code decides what its weights compute


def contents_of(places: Iterable[Path]) -> str:
    """The hash for folders of checkpoints or adapters, and for GGUF files; a folder's JSON files do not count.

    Raises:
        OSError: a file cannot be read.
    """
    return digest_of(_files(places))


def stamps_of(places: Iterable[Path]) -> list[tuple[str, int, int, int]]:
    """Values that change when one of these files is written or replaced meanwhile."""
    found = ((str(path), path.stat()) for path in _files(places))
    return [(path, status.st_ino, status.st_size, status.st_mtime_ns) for path, status in found]


def _files(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += (path for path in sorted(place.rglob("*")) if path.suffix.lower() in _SUFFIXES and path.is_file())
        elif place.is_file():  # a GGUF file, whose name may have no such ending
            found.append(place)
    return found


def digest_of(files: Iterable[Path]) -> str:
    """The hash for some files, in their order.

    Raises:
        OSError: one of them cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} ".encode())
        with path.open("rb", buffering=0) as file:
            if status.st_size <= WHOLE_BYTES:
                while piece := file.read(2**20):
                    digest.update(piece)
                continue
            digest.update(f"{status.st_mtime_ns} ".encode())
            for at, size in _pieces(path, status.st_size):
                digest.update(os.pread(file.fileno(), size, at))
    return digest.hexdigest()


def _pieces(path: Path, size: int) -> Iterator[tuple[int, int]]:
    """Places and lengths of the pieces of a large file."""
    first, tensors = 0, [(0, size, FILE_PIECES)]
    if path.suffix == ".safetensors":
        try:
            with path.open("rb") as file:
                known = read_header(file, size)
                first = file.tell()
            tensors = [(tensor.start, tensor.stop, PIECES) for tensor in known.values()]
        except ValueError:  # a damaged file, which `check_file` names
            pass
    yield 0, first
    for start, stop, count in tensors:
        if stop - start <= count * PIECE_BYTES:
            yield start, stop - start
            continue
        for i in range(count):
            yield start + i * (stop - start - PIECE_BYTES) // (count - 1), PIECE_BYTES
