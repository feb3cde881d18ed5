"""Prefix caches over folders, with rows that say what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from localai_shim.engine.cache_contents import Contents, KeyValues, States
from localai_shim.engine.kv import RowCache, read_row
from localai_shim.engine.prefix.cache import PrefixCache
from localai_shim.models import caches
from localai_shim.runtime.host import connect
from tests.engine.segments import arrays_of

connect()  # scripts import this without the other parts of the suite

PLENTY = 2**30


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.safetensors") if not path.name.endswith(".part.safetensors"))


def parts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part.safetensors"))


def sizes_now(folder: Path) -> list[int]:
    """Of the files, while others may delete some."""
    out = []
    for path in files(folder):
        try:
            out.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return out


class Fake:
    """Keys and values that tell position and sum of the tokens so far, and, if wanted, a state with their sum."""

    def __init__(self, *, states: bool = False, fingerprint: str = "fp_fake") -> None:
        self.states, self.fingerprint = states, fingerprint

    def new_cache(self) -> RowCache:
        return [caches.write(KeyValues(0)), *([caches.write(States((None,)))] if self.states else [])]

    def row(self, tokens: Sequence[int], start: int = 0) -> list[Contents]:
        arrays = tuple(arrays_of(tokens, start))
        return [KeyValues(len(tokens), arrays), *([States((mx.array([[sum(tokens)]]),))] if self.states else [])]

    def insert(self, cache: PrefixCache, tokens: Sequence[int], salt: str | None = None) -> None:
        cache.insert(salt, tokens, lambda start: self.row(tokens, start))

    def found(self, cache: PrefixCache, tokens: Sequence[int], salt: str | None = None) -> int:
        """How many of the tokens a row is made of; that it holds what it should is checked."""
        started = cache.start(salt, [*tokens, 0])
        if started is None:
            return 0
        row, length = started
        for layer, like in zip(read_row(row), self.row(tokens[:length]), strict=True):
            assert isinstance(layer, KeyValues | States) and isinstance(like, KeyValues | States)
            assert all(mx.array_equal(a, b) for a, b in zip(layer.arrays, like.arrays, strict=True))
        return length

    def cache(self, folder: Path, budget: int = PLENTY, folder_budget: int = PLENTY, **more: Any) -> PrefixCache:
        return PrefixCache(self.new_cache(), self.fingerprint, budget, folder, folder_budget, **more)


def insert_and_write(cache: PrefixCache, *row: Any) -> None:
    """What to put in the place of `PrefixCache.insert`, for a folder that never waits for a quiet moment."""
    _insert(cache, *row)
    flush(cache)


_insert: Any = PrefixCache.insert


def flush(cache: PrefixCache) -> None:
    while cache.unsaved:
        cache.save()


def left_by(model: Fake, folder: Path, *rows: Sequence[int]) -> None:
    """Have a cache of its own write these."""
    cache = model.cache(folder)
    for row in rows:
        model.insert(cache, row)
    flush(cache)


LONG = list(range(3, 103))
"""A hundred tokens."""
