"""A node of the prefix tree as one safetensors file: https://github.com/huggingface/safetensors#format.

Written here and not by MLX so that it can be written piece by piece, between two checks of the engine's inbox.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import mlx.core as mx
import numpy as np

from ...types import Json
from ..cache_contents import read_described
from ..kv.segments import Segment, Snapshot

PIECE_BYTES = 4 * 2**20
MAX_HEADER_BYTES = 2**26

_DTYPES: dict[str, mx.Dtype] = {
    "BOOL": mx.bool_,
    "U8": mx.uint8,
    "U16": mx.uint16,
    "U32": mx.uint32,
    "U64": mx.uint64,
    "I8": mx.int8,
    "I16": mx.int16,
    "I32": mx.int32,
    "I64": mx.int64,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "F32": mx.float32,
    "F64": mx.float64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def pieces(metadata: Mapping[str, str], segment: Segment, snapshot: Snapshot | None) -> Iterator[memoryview]:
    """A file's content, at most 4 MB at a time.

    Args:
        metadata: what else the header says; all names but "segment" and "snapshot" are free.
        segment: see `kv.segments`.
        snapshot: see `kv.segments`.
    """
    arrays = {f"segment{i}": array for i, array in enumerate(segment)}
    if snapshot is not None:
        arrays |= {f"snapshot{i}": array for i, array in enumerate(snapshot.arrays)}
    own = {"segment": str(len(segment)), "snapshot": json.dumps(_describe(snapshot))}
    header: dict[str, object] = {"__metadata__": {**metadata, **own}}
    at = 0
    for name, array in arrays.items():
        header[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield from _in_pieces(memoryview(len(text).to_bytes(8, "little") + text))
    for array in arrays.values():
        raw: Any = mx.view(mx.flatten(array), mx.uint8)  # Python's buffers know no bfloat16
        yield from _in_pieces(memoryview(raw))


def read_metadata(file: BinaryIO) -> dict[str, str]:
    """The header's metadata, without reading any array.

    Raises:
        ValueError, KeyError, TypeError: this is not such a file.
    """
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= MAX_HEADER_BYTES:
        raise ValueError("it has no header")
    metadata: dict[str, str] = json.loads(file.read(length))["__metadata__"]
    return metadata


def min_length(metadata: Mapping[str, str]) -> int | None:
    """The shortest length that the file's snapshot can be trimmed to; None where there is no snapshot."""
    described = json.loads(metadata["snapshot"])
    return None if described is None else int(described["least"])


def parse(content: bytes) -> tuple[Segment, Snapshot | None]:
    """The arrays of a file whose digest was checked."""
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])

    def array(name: str) -> mx.array:
        described = header[name]
        start, stop = described["data_offsets"]
        raw = mx.array(np.frombuffer(content, np.uint8, stop - start, data + start))
        return mx.view(raw, _DTYPES[described["dtype"]]).reshape(described["shape"])

    metadata = header["__metadata__"]
    segment = [array(f"segment{i}") for i in range(int(metadata["segment"]))]
    arrays = (array(f"snapshot{i}") for i in itertools.count())
    return segment, _read_snapshot(json.loads(metadata["snapshot"]), arrays)


def _in_pieces(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _describe(snapshot: Snapshot | None) -> dict[str, object] | None:
    """A snapshot without its arrays, as JSON."""
    if snapshot is None:
        return None
    layers = [
        {"arrays": [array is not None for array in layer.arrays], "upstream": layer.upstream, **layer.described()}
        for layer in snapshot.layers
    ]
    return {"length": snapshot.length, "least": snapshot.min_length, "layers": layers}


def _read_snapshot(described: Json | None, arrays: Iterator[mx.array]) -> Snapshot | None:
    if described is None:
        return None
    layers = [
        read_described(each, [next(arrays) if there else None for there in each["arrays"]])
        for each in described["layers"]
    ]
    return Snapshot(described["length"], layers)
