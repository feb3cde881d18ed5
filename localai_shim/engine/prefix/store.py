"""Nodes of a prefix tree as files, so that they survive the process; several processes may share the folder.

A file holds some tokens after others. Its name is `PREFIX.DIGEST.safetensors`: the first is a hash of the salt and the
keys of all tokens up to the file's end, the second one of its content. Files are written under another name and
renamed, and never change afterwards: none is seen half written. Processes may split the same tokens differently:
files that hold a prefix together are concatenated.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
import secrets
import stat
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx
import numpy as np

from ...types import Json, common_length, log
from ..cache_contents import read_described
from ..kv.segments import Segment, Snapshot, nbytes

FORMAT = "localai_shim prefix 3"
STALE_SECONDS = 3600.0  # after which an unfinished file was left by a process that died
MTIME_TICK_NS = 2 * 10**9  # no file system's times are coarser
_NAME = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.safetensors")
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.part\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A node on disk."""

    path: Path
    prefix_id: str
    """The first half of its name."""
    parent: str
    """The `prefix_id` of the tokens before."""
    start: int
    keys: array[int]
    min_length: int | None
    """The shortest length that its snapshot can be trimmed to; None: it has no snapshot."""
    bytes: int

    @property
    def end(self) -> int:
        return self.start + len(self.keys)


class PrefixStore:
    """The files of one model. Runs on the engine thread.

    Args:
        folder: created where it does not exist; each model has its own folder in it.
        kind: name of that folder: identifies the model and all else that the arrays depend on.
        budget: most bytes in `folder`, those of other models included; the least recently used are evicted.

    Raises:
        OSError: the folder cannot be created or read.
    """

    def __init__(self, folder: str | os.PathLike[str], kind: str, budget: int) -> None:
        self._root, self._kind, self._budget = Path(folder).expanduser(), kind, budget
        self._folder = self._root / kind
        self._folder.mkdir(parents=True, exist_ok=True)
        self._listed: dict[str, Stored | None] = {}
        """By file name; None for what is not a node."""
        self._after: dict[str, list[Stored]] = {}
        """By `Stored.parent`."""
        self._starts: list[int] = []
        self._listed_at = -1
        self._evict()
        self._refresh()

    def match_prefix(self, salt: str | None, keys: Sequence[int], *, needs_snapshot: bool) -> tuple[list[Stored], int]:
        """The files that hold the longest prefix of a prompt, in order, and its length; marks them as used.

        Args:
            salt: see `Prompt`.
            keys: the prompt's, see `Prompt`.
            needs_snapshot: rows cannot be trimmed, so that the last file has to have a snapshot for the length.

        Raises:
            OSError: the folder cannot be read.
        """
        self._refresh()
        found = list(self._overlapping(salt, keys))
        chain, length = _cover(found, len(keys))
        if needs_snapshot:
            chain, length = [], 0
            for stored, end in sorted(found, key=lambda pair: -pair[1]):
                if stored.min_length is not None and stored.min_length <= end:
                    before, at = _cover(found, stored.start)
                    if at == stored.start:
                        chain, length = [*before, stored], end
                        break
        now = time.time_ns()
        for stored in chain:  # what others build on is younger, and evicted after them
            with contextlib.suppress(OSError):
                os.utime(stored.path, ns=(now, now - 1000 * stored.start))
        return chain, length

    def load(self, stored: Stored) -> tuple[Segment, Snapshot | None] | None:
        """A file's arrays; None where it is gone, and, with a warning, where it is damaged."""
        name = stored.path.name
        try:
            content = stored.path.read_bytes()
            if _digest(hashlib.sha256(content)) != name.split(".")[1]:
                raise ValueError("its content is damaged")
            return parse_file(content)
        except FileNotFoundError:  # another process evicted it
            self._forget(name)
        except Exception as error:
            self._ignore(stored.path, error)
        return None

    def write(
        self, salt: str | None, keys: Sequence[int], start: int, segment: Segment, snapshot: Snapshot | None
    ) -> Iterator[None]:
        """Write a row's tokens from `start` on; a piece of a few MB per iteration.

        Raises:
            OSError: it cannot be written.
        """
        if nbytes(segment, snapshot) > self._budget:
            return
        parent, prefix_id = _prefix_ids(salt, keys, (start, len(keys)))
        metadata = {
            "format": FORMAT,
            "kind": self._kind,
            "parent": parent,
            "start": str(start),
            "keys": base64.b64encode(_packed(keys[start:]).tobytes()).decode(),
        }
        digest = hashlib.sha256()
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{secrets.token_hex(8)}.part.safetensors"
        try:
            with unfinished.open("xb") as file:
                for piece in file_pieces(metadata, segment, snapshot):
                    file.write(piece)
                    digest.update(piece)
                    yield
            name = f"{prefix_id}.{_digest(digest)}.safetensors"
            with contextlib.suppress(FileNotFoundError):  # another process took it for one that was left
                unfinished.replace(self._folder / name)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
        for other in self._after.get(parent, ()):
            if other.prefix_id == prefix_id and other.path.name != name:
                with contextlib.suppress(OSError):
                    other.path.unlink()  # the same tokens, without the snapshot
        self._forget(name)
        self.match_prefix(salt, keys, needs_snapshot=snapshot is not None)
        yield
        self._evict()

    # -----------------------------------------------------------------------------------------------------------

    def _overlapping(self, salt: str | None, keys: Sequence[int]) -> Iterator[tuple[Stored, int]]:
        """All files that have tokens in common with these, and up to where, by their start."""
        starts = [start for start in self._starts if start < len(keys)]
        packed = _packed(keys)
        for start, prefix_id in zip(starts, _prefix_ids(salt, keys, starts), strict=True):
            for stored in self._after.get(prefix_id, ()):
                common = common_length(stored.keys, packed[start : start + len(stored.keys)])
                if common:
                    yield stored, start + common

    def _refresh(self) -> None:
        """Bring the list of the folder's files up to date."""
        names: set[str] = set()
        changed = 0
        with contextlib.suppress(FileNotFoundError):
            changed = self._folder.stat().st_mtime_ns
            if changed == self._listed_at:
                return
            names = {name for name in os.listdir(self._folder) if not (name[0] == "." or _UNFINISHED.fullmatch(name))}
        # What changed a moment ago may change again without a later time.
        self._listed_at = changed if abs(time.time_ns() - changed) > MTIME_TICK_NS else -1
        for name in self._listed.keys() - names:
            self._forget(name)
        for name in names - self._listed.keys():
            path = self._folder / name
            try:
                stored = self._listed[name] = self._read_header(path)
                self._after.setdefault(stored.parent, []).append(stored)
            except FileNotFoundError:
                continue
            except Exception as error:
                self._ignore(path, error)
        self._starts = sorted({stored.start for stored in self._listed.values() if stored is not None})

    def _read_header(self, path: Path) -> Stored:
        if not _NAME.fullmatch(path.name):
            raise ValueError("it is not a file of the prefix cache")
        with path.open("rb") as file:
            metadata = read_metadata(file)
            size = os.fstat(file.fileno()).st_size
        if metadata["format"] != FORMAT or metadata["kind"] != self._kind:
            raise ValueError("it was written for another model or by another version")
        keys = array("q", base64.b64decode(metadata["keys"]))
        start, min_length = int(metadata["start"]), least_length(metadata)
        if start < 0:
            raise ValueError("its header is damaged")
        return Stored(path, path.name[:32], metadata["parent"], start, keys, min_length, size)

    def _forget(self, name: str) -> None:
        stored = self._listed.pop(name, None)
        if stored is not None:
            self._after[stored.parent].remove(stored)
            if not self._after[stored.parent]:
                del self._after[stored.parent]

    def _ignore(self, path: Path, error: Exception) -> None:
        self._forget(path.name)
        self._listed[path.name] = None
        log.warning("%s is ignored: %s", path, error)

    def _evict(self) -> None:
        """Delete the files that were used least recently until the rest fits."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._budget:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)
                total -= size

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """(last use, bytes, path) of the files of all models; removes unfinished ones that are not written any more."""
        for path in glob.iglob(os.path.join(glob.escape(str(self._root)), "*", "*.safetensors")):
            name = os.path.basename(path)
            unfinished = _UNFINISHED.fullmatch(name)
            if not (unfinished or _NAME.fullmatch(name)):
                continue
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if not unfinished:
                    yield status.st_mtime_ns, status.st_size, path
                elif status.st_mtime < time.time() - STALE_SECONDS:
                    os.unlink(path)


def _cover(found: Sequence[tuple[Stored, int]], length: int) -> tuple[list[Stored], int]:
    """The fewest of these files that hold the first `length` tokens or most of them."""
    chain: list[Stored] = []
    at = 0
    while at < length:
        reachable = (pair for pair in found if pair[0].start <= at)
        stored, end = max(reachable, key=lambda pair: pair[1], default=(None, at))
        if stored is None or end <= at:
            break
        chain.append(stored)
        at = end
    return chain, min(at, length)


def _prefix_ids(salt: str | None, keys: Sequence[int], lengths: Sequence[int]) -> list[str]:
    """Identifiers of the first tokens, for each of these ascending lengths."""
    digest = hashlib.sha256(json.dumps(salt).encode())
    at, out = 0, []
    for length in lengths:
        digest.update(_packed(keys[at:length]).tobytes())
        at = length
        out.append(digest.hexdigest()[:32])
    return out


def _packed(keys: Sequence[int]) -> array[int]:
    return array("q", keys)  # content hashes of media take 64 bits


def _digest(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]


# -- the files: https://github.com/huggingface/safetensors#format ------------------------------------------------------
# Written here and not by MLX so that they can be written piece by piece, between two checks of the engine's inbox.

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
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def file_pieces(metadata: Mapping[str, str], segment: Segment, snapshot: Snapshot | None) -> Iterator[memoryview]:
    """A file's content, at most 4 MB at a time.

    Args:
        metadata: what else the header says; all names but "segment" and "snapshot" are free.
        segment: see `kv.segments`.
        snapshot: see `kv.segments`.
    """
    arrays = {f"segment{i}": its for i, its in enumerate(segment)}
    if snapshot is not None:
        arrays |= {f"snapshot{i}": its for i, its in enumerate(snapshot.arrays)}
    own = {"segment": str(len(segment)), "snapshot": json.dumps(_describe(snapshot))}
    header: dict[str, object] = {"__metadata__": {**metadata, **own}}
    at = 0
    for name, its in arrays.items():
        header[name] = {"dtype": _DTYPE_NAMES[its.dtype], "shape": its.shape, "data_offsets": [at, at + its.nbytes]}
        at += its.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield from _in_pieces(memoryview(len(text).to_bytes(8, "little") + text))
    for its in arrays.values():
        raw: Any = mx.view(mx.flatten(its), mx.uint8)  # Python's buffers know no bfloat16
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


def least_length(metadata: Mapping[str, str]) -> int | None:
    """The shortest length that the file's snapshot can be trimmed to; None where there is no snapshot."""
    described = json.loads(metadata["snapshot"])
    return None if described is None else int(described["least"])


def parse_file(content: bytes) -> tuple[Segment, Snapshot | None]:
    """The arrays of a file whose digest was checked."""
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])

    def read(name: str) -> mx.array:
        described = header[name]
        start, stop = described["data_offsets"]
        raw = mx.array(np.frombuffer(content, np.uint8, stop - start, data + start))
        return mx.view(raw, _DTYPES[described["dtype"]]).reshape(described["shape"])

    metadata = header["__metadata__"]
    segment = [read(f"segment{i}") for i in range(int(metadata["segment"]))]
    arrays = (read(f"snapshot{i}") for i in itertools.count())
    return segment, _read_snapshot(json.loads(metadata["snapshot"]), arrays)


def _in_pieces(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _describe(snapshot: Snapshot | None) -> dict[str, object] | None:
    """A snapshot without its arrays, as JSON."""
    if snapshot is None:
        return None
    layers = [
        {"arrays": [its is not None for its in layer.arrays], "upstream": layer.upstream, **layer.described()}
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
