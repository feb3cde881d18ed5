"""Nodes of a prefix tree as files, so that they survive the process; several processes may share the folder.

A file holds some tokens after others. Its name is `KEY.DIGEST.safetensors`: the key stands for the salt and all tokens
up to the file's end, the digest for its content. Files are written beside their place and renamed, and never change
afterwards, so that nobody sees half of one. Processes may cut the same tokens differently: whatever files hold a
beginning together are put together.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...types import common_length
from ..kv.segments import Segment, Snapshot
from . import file as prefix_file

log = logging.getLogger("localai_shim")

_FORMAT = "localai_shim prefix 2"
_NAME = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.safetensors")
_PART = re.compile(r"[0-9a-f]{16}\.part\.safetensors")  # what is being written
_STALE = 3600.0  # seconds after which a part was left behind by a process that died
_TICK = 2 * 10**9  # nanoseconds; no file system tells times apart more coarsely


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A node on disk."""

    path: Path
    key: str
    parent: str
    """Key of the tokens before."""
    start: int
    tokens: array[int]
    least: int | None
    """The shortest length that its snapshot can be cut to; None: it has no snapshot."""
    bytes: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class PrefixStore:
    """The files of one model. Runs on the engine thread.

    Args:
        folder: is made if it is not there; each model has a folder of its own in it.
        kind: of the model and whatever else the arrays depend on; a folder's name.
        budget: most bytes in `folder`, those of other models included; the least recently used go first.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, folder: str | os.PathLike[str], kind: str, budget: int) -> None:
        self._root, self._kind, self._budget = Path(folder).expanduser(), kind, budget
        self._folder = self._root / kind
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, Stored | None] = {}
        """By file name; None for what is no node."""
        self._after: dict[str, list[Stored]] = {}
        """By `Stored.parent`."""
        self._starts: list[int] = []
        self._seen = -1
        self._make_room()
        self._look()

    def find(self, salt: str | None, tokens: Sequence[int], *, whole: bool) -> tuple[list[Stored], int]:
        """The files that hold most of the beginning of these tokens, in order, and how much; marks them as used.

        Args:
            salt: see `core.Prompt`.
            tokens: what to find the beginning of.
            whole: rows cannot be cut, so that the last file has to have a snapshot for the length.

        Raises:
            OSError: the folder cannot be read.
        """
        self._look()
        found = list(self._along(salt, tokens))
        chain, length = _cover(found, len(tokens))
        if whole:
            chain, length = [], 0
            for stored, end in sorted(found, key=lambda pair: -pair[1]):
                if stored.least is not None and stored.least <= end:
                    before, at = _cover(found, stored.start)
                    if at == stored.start:
                        chain, length = [*before, stored], end
                        break
        now = time.time_ns()
        for stored in chain:  # what others build on is younger, and goes after them
            with contextlib.suppress(OSError):
                os.utime(stored.path, ns=(now, now - 1000 * stored.start))
        return chain, length

    def load(self, stored: Stored) -> tuple[Segment, Snapshot | None] | None:
        """A file's arrays; None, and a warning, when it is not what it says."""
        name = stored.path.name
        try:
            content = stored.path.read_bytes()
            if _digest(hashlib.sha256(content)) != name.split(".")[1]:
                raise ValueError("its content is damaged")
            return prefix_file.parse(content)
        except FileNotFoundError:  # another process had no room for it
            self._drop(name)
        except Exception as error:
            self._drop(name)
            self._ignore(stored.path, error)
        return None

    def write(
        self, salt: str | None, tokens: Sequence[int], start: int, segment: Segment, snapshot: Snapshot | None
    ) -> Iterator[None]:
        """Write the tokens from `start` on, of all from the beginning; a piece of a few MB whenever asked to go on.

        Raises:
            OSError: it cannot be written.
        """
        arrays = [*segment, *(snapshot.arrays if snapshot is not None else [])]
        if sum(array.nbytes for array in arrays) > self._budget:
            return
        parent, key = _keys(salt, tokens, (start, len(tokens)))
        metadata = {
            "format": _FORMAT,
            "kind": self._kind,
            "parent": parent,
            "start": str(start),
            "tokens": base64.b64encode(array("i", tokens[start:]).tobytes()).decode(),
        }
        digest = hashlib.sha256()
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{secrets.token_hex(8)}.part.safetensors"
        try:
            with part.open("xb") as file:
                for piece in prefix_file.pieces(metadata, segment, snapshot):
                    file.write(piece)
                    digest.update(piece)
                    yield
            name = f"{key}.{_digest(digest)}.safetensors"
            with contextlib.suppress(FileNotFoundError):  # it took so long that another process cleared it away
                part.replace(self._folder / name)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        for other in [other for other in self._after.get(parent, ()) if other.key == key and other.path.name != name]:
            with contextlib.suppress(OSError):
                other.path.unlink()  # the same tokens, without the snapshot
        self._drop(name)
        self.find(salt, tokens, whole=snapshot is not None)
        yield
        self._make_room()

    # -----------------------------------------------------------------------------------------------------------

    def _along(self, salt: str | None, tokens: Sequence[int]) -> Iterator[tuple[Stored, int]]:
        """All files that have tokens in common with these, and up to where, by their start."""
        starts = [start for start in self._starts if start < len(tokens)]
        whole = array("i", tokens)
        for start, key in zip(starts, _keys(salt, tokens, starts), strict=True):
            for stored in self._after.get(key, ()):
                common = common_length(stored.tokens, whole[start : start + len(stored.tokens)])
                if common:
                    yield stored, start + common

    def _look(self) -> None:
        """Take note of what has come to the folder and what has gone from it."""
        names: set[str] = set()
        changed = 0
        with contextlib.suppress(FileNotFoundError):
            changed = self._folder.stat().st_mtime_ns
            if changed == self._seen:
                return
            names = {name for name in os.listdir(self._folder) if not (name[0] == "." or _PART.fullmatch(name))}
        # What changed a moment ago may change again without looking younger.
        self._seen = changed if abs(time.time_ns() - changed) > _TICK else -1
        for name in self._known.keys() - names:
            self._drop(name)
        for name in names - self._known.keys():
            path = self._folder / name
            try:
                stored = self._known[name] = self._read_header(path)
                self._after.setdefault(stored.parent, []).append(stored)
            except FileNotFoundError:
                continue
            except Exception as error:
                self._ignore(path, error)
        self._starts = sorted({stored.start for stored in self._known.values() if stored is not None})

    def _read_header(self, path: Path) -> Stored:
        if not _NAME.fullmatch(path.name):
            raise ValueError("this is no file of the prefix cache")
        with path.open("rb") as file:
            metadata = prefix_file.read_metadata(file)
            size = os.fstat(file.fileno()).st_size
        if metadata["format"] != _FORMAT or metadata["kind"] != self._kind:
            raise ValueError("it was written for another model or by another version")
        tokens = array("i", base64.b64decode(metadata["tokens"]))
        start, least = int(metadata["start"]), prefix_file.least(metadata)
        if start < 0:
            raise ValueError("its header is damaged")
        return Stored(path, path.name[:32], metadata["parent"], start, tokens, least, size)

    def _drop(self, name: str) -> None:
        stored = self._known.pop(name, None)
        if stored is not None:
            self._after[stored.parent].remove(stored)
            if not self._after[stored.parent]:
                del self._after[stored.parent]

    def _ignore(self, path: Path, error: Exception) -> None:
        self._known[path.name] = None
        log.warning("%s is ignored: %s", path, error)

    def _make_room(self) -> None:
        """Delete the files that nobody has used for the longest time, until the rest fits."""
        files = list(self._files())
        total = sum(size for _, size, _ in files)
        if total <= self._budget:
            return
        for _, size, path in sorted(files):
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)
                total -= size
            if total <= self._budget:
                return

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """(last use, bytes, path) of the files of all models; parts that nobody writes any more are removed."""
        for folder in _entries(self._root):
            for entry in _entries(folder) if folder.is_dir() else ():
                is_part = _PART.fullmatch(entry.name)
                if not (is_part or _NAME.fullmatch(entry.name)) or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(OSError):
                    told = entry.stat(follow_symlinks=False)
                    if not is_part:
                        yield told.st_mtime_ns, told.st_size, entry.path
                    elif told.st_mtime < time.time() - _STALE:
                        os.unlink(entry.path)


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing where that is not to be learnt, such as in another user's."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _cover(found: Sequence[tuple[Stored, int]], length: int) -> tuple[list[Stored], int]:
    """The fewest files, of such in the order of their starts, that hold the first `length` tokens or most of them."""
    chain: list[Stored] = []
    left = deque(found)
    best: tuple[Stored, int] | None = None
    at = 0
    while at < length:
        while left and left[0][0].start <= at:
            stored, end = left.popleft()
            if best is None or end > best[1]:
                best = stored, end
        if best is None or best[1] <= at:
            break
        chain.append(best[0])
        at = best[1]
    return chain, min(at, length)


def _keys(salt: str | None, tokens: Sequence[int], lengths: Sequence[int]) -> list[str]:
    """What stands for the first so many tokens, for each of these ascending lengths."""
    digest = hashlib.sha256(json.dumps(salt).encode())
    at, out = 0, []
    for length in lengths:
        digest.update(array("i", tokens[at:length]).tobytes())
        at = length
        out.append(digest.hexdigest()[:32])
    return out


def _digest(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]
