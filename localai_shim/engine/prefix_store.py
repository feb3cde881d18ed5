"""Nodes of a prefix tree as files, so that they survive the process; several processes may share the folder.

A file holds one node. Its name is `KEY.DIGEST.safetensors`: the key stands for the salt and all tokens up to the node's
end, the digest for the content. Files are written beside their place and renamed, and never change afterwards.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import logging
import os
import re
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..adapters.caches import KeyValues, Ring, States
from ..core import common_length
from .kv.parts import Segment, Snapshot

log = logging.getLogger("localai_shim")

_FORMAT = "localai_shim prefix 1"
_NAME = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{16}\.safetensors")
_PART = ".part.safetensors"  # what is being written
_STALE = 3600.0  # seconds after which a part was left behind by a process that died
_LARGEST_HEADER = 2**26

_save: Any = mx.save_safetensors
_load: Any = mx.load


@dataclass(frozen=True, slots=True)
class Stored:
    """A node on disk."""

    path: Path
    key: str
    parent: str
    start: int
    tokens: list[int]
    whole: bool
    """It holds a snapshot."""
    bytes: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class PrefixStore:
    """The files of one model. Runs on the engine thread.

    Args:
        folder: is made if it is not there; each model has a folder of its own in it.
        fingerprint: of the model and whatever else the arrays depend on.
        budget: most bytes in `folder`, those of other models included; the least recently used go first.
    """

    def __init__(self, folder: str | os.PathLike[str], fingerprint: str, budget: int) -> None:
        self._root, self._budget = Path(folder), budget
        self._folder = self._root / fingerprint
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fingerprint = fingerprint
        self._known: dict[str, Stored | None] = {}
        """By file name; None for what is no node."""
        self._children: dict[str, list[Stored]] = {}
        self._seen = -1
        self._parts = itertools.count()

    def chain(self, salt: str | None, tokens: Sequence[int], ends: Sequence[int], *, whole: bool) -> list[Stored]:
        """The nodes that lead furthest along these tokens, in order.

        Args:
            salt: see `core.Prompt`.
            tokens: what to find the longest beginning of.
            ends: lengths from which on nodes are looked for; 0 is one in any case.
            whole: the last node has to hold a snapshot, otherwise it may have more tokens than are wanted.
        """
        self._look()
        if not self._children:
            return []
        keys = dict(zip((0, *ends), keys_of(salt, tokens, (0, *ends)), strict=True))
        best: list[Stored] = []
        furthest = 0
        paths: list[tuple[int, str, list[Stored]]] = [(end, key, []) for end, key in keys.items()]
        while paths:
            at, key, path = paths.pop()
            for stored in self._children.get(key, ()):
                common = common_length(stored.tokens, tokens[at : at + len(stored.tokens)])
                all_of_it = common == len(stored.tokens)
                if at + common > furthest and (all_of_it and stored.whole if whole else common):
                    furthest, best = at + common, [*path, stored]
                if all_of_it:
                    paths.append((stored.end, stored.key, [*path, stored]))
        return best

    def load(self, stored: Stored) -> tuple[Segment, Snapshot | None] | None:
        """A node's arrays; None, and a warning, when the file is not what it says."""
        try:
            content = stored.path.read_bytes()
            if _digest(content) != stored.path.name.split(".")[1]:
                raise ValueError("its content is damaged")
            arrays, metadata = _load(io.BytesIO(content), format="safetensors", return_metadata=True)
            os.utime(stored.path)
        except FileNotFoundError:
            self._forget(stored)  # another process had no room for it
            return None
        except Exception as error:
            self._forget(stored)
            log.warning("%s is ignored: %s", stored.path, error)
            return None
        segment, kept = ([arrays[f"{kind}{i}"] for i in range(int(metadata[kind]))] for kind in ("segment", "snapshot"))
        return segment, _read_snapshot(json.loads(metadata["state"]), kept)

    def save(
        self, salt: str | None, tokens: Sequence[int], start: int, segment: Segment, snapshot: Snapshot | None
    ) -> None:
        """Write a node: the tokens from `start` on, of all from the beginning.

        Raises:
            OSError: it cannot be written.
        """
        parent, key = keys_of(salt, tokens, (start, len(tokens)))
        kept = snapshot.arrays if snapshot is not None else []
        arrays = {
            f"{kind}{i}": a for kind, many in (("segment", segment), ("snapshot", kept)) for i, a in enumerate(many)
        }
        metadata = {
            "format": _FORMAT,
            "fingerprint": self._fingerprint,
            "parent": parent,
            "start": str(start),
            "tokens": base64.b64encode(array("i", tokens[start:]).tobytes()).decode(),
            "segment": str(len(segment)),
            "snapshot": str(len(kept)),
            "state": json.dumps(_describe(snapshot)),
        }
        part = self._folder / f"{os.getpid()}-{id(self):x}-{next(self._parts)}{_PART}"
        try:
            _save(str(part), arrays, metadata)
            path = self._folder / f"{key}.{_digest(part.read_bytes())}.safetensors"
            part.replace(path)
        except Exception as error:
            part.unlink(missing_ok=True)
            raise OSError(f"{part} could not be written: {error}") from error
        for name in [name for name in self._known if name.startswith(key) and name != path.name]:
            (self._folder / name).unlink(missing_ok=True)  # the same node before it was cut in two
        self._make_room()

    # -----------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take note of what has come to the folder and what has gone from it."""
        changed = self._folder.stat().st_mtime_ns
        if changed == self._seen:
            return
        self._seen = changed
        names = {name for name in os.listdir(self._folder) if not name.endswith(_PART)}
        for name in self._known.keys() - names:
            stored = self._known.pop(name)
            if stored is not None:
                self._children[stored.parent].remove(stored)
        for name in names - self._known.keys():
            try:
                stored = self._known[name] = self._read_header(self._folder / name)
            except FileNotFoundError:
                continue
            except Exception as error:
                self._known[name] = None
                log.warning("%s is ignored: %s", self._folder / name, error)
                continue
            self._children.setdefault(stored.parent, []).append(stored)

    def _read_header(self, path: Path) -> Stored:
        if not _NAME.fullmatch(path.name):
            raise ValueError("this is no file of the prefix cache")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _LARGEST_HEADER:
                raise ValueError("its header is damaged")
            metadata = json.loads(file.read(length))["__metadata__"]
        if metadata["format"] != _FORMAT or metadata["fingerprint"] != self._fingerprint:
            raise ValueError("it was written for another model or by another version")
        tokens = array("i", base64.b64decode(metadata["tokens"])).tolist()
        whole = metadata["state"] != "null"
        size = path.stat().st_size
        return Stored(path, path.name[:32], metadata["parent"], int(metadata["start"]), tokens, whole, size)

    def _forget(self, stored: Stored) -> None:
        self._known[stored.path.name] = None
        self._children[stored.parent].remove(stored)

    def _make_room(self) -> None:
        """Delete the files that nobody has used for the longest time, until the rest fits."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for used, size, path in files:
            stale = path.name.endswith(_PART) and used < time.time() - _STALE
            if total > self._budget or stale:
                path.unlink(missing_ok=True)
                total -= size

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """(last use, bytes, path) of what the caches of all models have written."""
        for path in self._root.glob("fp_*/*.safetensors"):
            if path.name.endswith(_PART) or _NAME.fullmatch(path.name):
                try:
                    told = path.stat()
                except FileNotFoundError:
                    continue
                yield told.st_mtime, told.st_size, path


def keys_of(salt: str | None, tokens: Sequence[int], lengths: Sequence[int]) -> list[str]:
    """What stands for the first so many tokens, for each of these ascending lengths."""
    digest = hashlib.sha256(json.dumps(salt).encode())
    at, out = 0, []
    for length in lengths:
        digest.update(array("i", tokens[at:length]).tobytes())
        at = length
        out.append(digest.hexdigest()[:32])
    return out


def _describe(snapshot: Snapshot | None) -> dict[str, Any] | None:
    """A snapshot without its arrays."""
    if snapshot is None:
        return None
    layers: list[dict[str, Any]] = []
    for layer in snapshot.layers:
        if isinstance(layer, States):
            layers.append({"states": [array is not None for array in layer.arrays]})
        else:
            assert layer.ring is not None
            layers.append({"length": layer.length, "size": layer.ring.size, "keep": layer.ring.keep})
    return {"length": snapshot.length, "layers": layers}


def _read_snapshot(told: dict[str, Any] | None, arrays: Sequence[Any]) -> Snapshot | None:
    if told is None:
        return None
    left = iter(arrays)
    layers: list[KeyValues | States] = []
    for layer in told["layers"]:
        if "states" in layer:
            layers.append(States(tuple(next(left) if there else None for there in layer["states"])))
        else:
            layers.append(KeyValues(layer["length"], (next(left), next(left)), Ring(layer["size"], layer["keep"])))
    return Snapshot(told["length"], layers)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
