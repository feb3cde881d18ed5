"""What finished prompts and turns left behind, so that the next turn prefills its new tokens only."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from ..adapters.row_cache import cut, fill, take_snapshot
from ..core import Prompt
from .kv import RowCache
from .prefix_tree import PrefixTree

log = logging.getLogger("localai_shim")

_LEAST = 16  # tokens; fewer are sooner run than looked after
_RAM_SHARE = 0.1  # of all, on the CPU back end
_GPU_SHARE = 0.25  # of what the weights leave


class Cacheable(Protocol):
    """What the prefix cache needs of a model."""

    @property
    def cuts_anywhere(self) -> bool:
        """Rows can be cut to any shorter length."""
        ...

    def new_cache(self) -> RowCache: ...


class PrefixCache:
    """Keeps rows by their tokens, the least recently used go first. Runs on the engine thread; never raises.

    Args:
        model: what makes empty rows.
        budget: most bytes to hold.

    Attributes:
        hits: prompts of which a beginning was found.
        misses: prompts of which none was.
        reused: tokens of those beginnings.
    """

    def __init__(self, model: Cacheable, budget: int) -> None:
        self.hits = self.misses = self.reused = 0
        self._model, self._budget = model, budget
        self._tree = PrefixTree(whole=not model.cuts_anywhere)
        self._failed = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self._tree.bytes

    def start(self, prompt: Prompt) -> tuple[RowCache, int] | None:
        """A row with the longest beginning of a prompt that is known, and its length: less than the prompt's."""
        try:
            found = self._tree.match(prompt.salt, prompt.tokens[:-1])
            if found is not None and found.length >= _LEAST:
                row = self._model.new_cache()
                fill(row, found.segments, found.snapshot, found.length, len(prompt.tokens))
                self.hits += 1
                self.reused += found.length
                return row, found.length
        except Exception as error:
            self._report(error)
        self.misses += 1
        return None

    def keep(self, salt: str | None, tokens: Sequence[int], row: RowCache) -> None:
        """Keep a row.

        Args:
            salt: see `Prompt`.
            tokens: all that have run through the row.
            row: its cache. It stays the caller's: what is kept are copies.
        """
        if len(tokens) < _LEAST:
            return
        try:
            self._keep(salt, tokens, row)
        except Exception as error:
            self._report(error)

    # -----------------------------------------------------------------------------------------------------------

    def _keep(self, salt: str | None, tokens: Sequence[int], row: RowCache) -> None:
        tree = self._tree
        if tree.covers(salt, tokens):
            return
        _, start = tree.walk(salt, tokens)
        segment = cut(row, start, len(tokens), len(tokens)) if start < len(tokens) else []
        snapshot = None if self._model.cuts_anywhere else take_snapshot(row, len(tokens))
        arrays: list[Any] = segment + (snapshot.arrays if snapshot is not None else [])
        if sum(array.nbytes for array in arrays) > self._budget:
            return
        tree.add(salt, tokens, start, segment, snapshot)
        tree.shrink(self._budget)

    def _report(self, error: Exception) -> None:
        """A prompt that cannot be kept costs time and nothing else."""
        log.log(
            logging.DEBUG if self._failed else logging.WARNING,
            "the prefix cache failed, requests go on without it: %r",
            error,
            exc_info=error,
        )
        self._failed = True


def default_budget() -> int:
    """Bytes for a prefix cache: a share of the machine's memory, or of what the weights leave of a GPU's."""
    if mx.default_device() == mx.Device(mx.gpu):
        info = mx.device_info()
        sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
        total = next((int(size) for size in sizes if size), 0)
        return int(_GPU_SHARE * max(0, total - mx.get_active_memory()))
    return int(_RAM_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
