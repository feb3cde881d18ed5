"""What finished prompts and turns left behind, so that the next turn prefills its new tokens only."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import mlx.core as mx

from ...adapters.backend import total_memory
from ...adapters.contents import Contents, cuts
from ..kv import RowCache, read_row
from ..kv.row import copy_of
from ..kv.segments import cut, fill, take_snapshot
from .store import PrefixStore, Stored
from .tree import Match, PrefixTree

log = logging.getLogger("localai_shim")

_LEAST = 16  # tokens; fewer are sooner run than looked after
_RAM_SHARE = 0.1  # of all, on the CPU back end
_GPU_SHARE = 0.25  # of what the weights leave


class Cacheable(Protocol):
    """What the prefix cache needs of a model."""

    @property
    def fingerprint(self) -> str:
        """Changes with whatever the contents of a row depend on."""
        ...

    def new_cache(self) -> RowCache: ...


class PrefixCache:
    """Keeps rows by their tokens, the least recently used go first. Runs on the engine thread; never raises.

    Args:
        model: what makes empty rows.
        budget: most bytes to hold.
        folder: where rows survive the process; None for nowhere.
        folder_budget: most bytes in the folder.

    Attributes:
        cuts_anywhere: rows can be cut to any shorter length.
        hits: prompts of which a beginning was found.
        misses: prompts of which none was.
        reused: tokens of those beginnings.
    """

    def __init__(
        self,
        model: Cacheable,
        budget: int,
        folder: str | os.PathLike[str] | None = None,
        folder_budget: int = 0,
    ) -> None:
        self.hits = self.misses = self.reused = 0
        self._budget = self._limit = budget
        self._like = read_row(model.new_cache())
        self.cuts_anywhere = all(cuts(layer) for layer in self._like)
        self._tree = PrefixTree(whole=not self.cuts_anywhere)
        self._failed = False
        self._store: PrefixStore | None = None
        self._writes = folder is not None
        self._saving: Generator[None] | None = None
        if folder is not None:
            try:
                self._store = PrefixStore(folder, model.fingerprint, folder_budget)
            except Exception as error:
                self._give_up_folder(error)

    @property
    def bytes(self) -> int:
        """Bytes held in memory."""
        return self._tree.bytes

    @property
    def unsaved(self) -> bool:
        """There is something to `save`."""
        return self._writes and (self._saving is not None or any(not node.saved for node in self._tree))

    def save(self) -> None:
        """Write a piece, of a few MB, of what is not on disk yet."""
        if self._store is None or not self._writes:
            return
        try:
            if self._saving is None:
                self._saving = self._save_node(self._store)
            for _ in self._saving:
                return
        except Exception as error:
            self._writes = False
            log.warning("the prefix cache's folder cannot be written to, and nothing more is: %s", error)
        self._saving = None

    def close(self, seconds: float) -> None:
        """Write what is not on disk yet, for at most so long, and let go of everything."""
        deadline = time.monotonic() + seconds
        while self.unsaved and time.monotonic() < deadline:
            self.save()
        if self._saving is not None:
            self._saving.close()
            self._saving = None
        self._tree.clear()

    def start(self, salt: str | None, tokens: list[int]) -> tuple[RowCache, int] | None:
        """A row with the longest beginning of a prompt that is known, and its length: less than the prompt's."""
        try:
            found = self._find(salt, tokens[:-1])
            if found is not None and found.length >= _LEAST:
                row = fill(self._like, found.segments, found.snapshot, found.length, len(tokens))
                self.hits += 1
                self.reused += found.length
                return row, found.length
        except Exception as error:
            self._report(error)
        self.misses += 1
        return None

    def known(self, salt: str | None, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first on, a row could start with from memory."""
        found = self._tree.match(salt, tokens)
        return found.length if found is not None else 0

    def limit(self, budget: int) -> None:
        """Hold no more than this, nor than the budget that it was made with, until further notice."""
        self._limit = min(self._budget, max(0, budget))
        self._tree.shrink(self._limit)

    def keep(self, salt: str | None, tokens: Sequence[int], read: Callable[[int], list[Contents]]) -> None:
        """Keep a row.

        Args:
            salt: see `Prompt`.
            tokens: all that have run through the row.
            read: gives a copy of what the row holds; of layers with one position per token, from a token on.
        """
        if len(tokens) < _LEAST:
            return
        try:
            self._keep(salt, tokens, read)
        except Exception as error:
            self._report(error)

    # -----------------------------------------------------------------------------------------------------------

    def _keep(self, salt: str | None, tokens: Sequence[int], read: Callable[[int], list[Contents]]) -> None:
        tree = self._tree
        if tree.covers(salt, tokens):
            return
        _, start = tree.walk(salt, tokens)
        row = read(start)
        segment = cut(row, start, len(tokens)) if start < len(tokens) else []
        snapshot = None if self.cuts_anywhere else take_snapshot(row, len(tokens))
        arrays: list[Any] = segment + (snapshot.arrays if snapshot is not None else [])
        if sum(array.nbytes for array in arrays) > self._limit:
            return
        tree.add(salt, tokens, start, segment, snapshot)
        tree.shrink(self._limit)

    def _find(self, salt: str | None, tokens: list[int]) -> Match | None:
        """The longest beginning in memory, or on disk where that has more."""
        found = self._tree.match(salt, tokens)
        if self._store is None:
            return found
        try:
            if not self._bring_in(self._store, salt, tokens, found.length if found is not None else 0):
                return found
        except Exception as error:
            self._give_up_folder(error)
        self._tree.shrink(self._limit)
        return self._tree.match(salt, tokens)

    def _bring_in(self, store: PrefixStore, salt: str | None, tokens: list[int], known: int) -> bool:
        """Put what is on disk of these tokens into the tree; False where it is not worth it."""
        while True:
            chain, length = store.find(salt, tokens, whole=not self.cuts_anywhere)
            if length < known + _LEAST or sum(stored.bytes for stored in chain) > self._limit:
                return False
            if all(self._bring_in_file(store, salt, [*tokens[: s.start], *s.tokens], s) for s in chain):
                return True  # otherwise one is damaged or gone, and others may do

    def _bring_in_file(self, store: PrefixStore, salt: str | None, tokens: list[int], stored: Stored) -> bool:
        """Put a file's tokens into the tree, which has those before; False when that is not possible."""
        _, start = self._tree.walk(salt, tokens)
        if start == len(tokens) and (stored.least is None or self._tree.covers(salt, tokens)):
            return True
        loaded = store.load(stored)
        if loaded is None:
            return False
        segment, snapshot = loaded
        if start > stored.start:
            segment = (
                [copy_of(array[..., start - stored.start :, :]) for array in segment] if start < stored.end else []
            )
        self._tree.add(salt, tokens, start, segment, snapshot).saved = True
        return True

    def _save_node(self, store: PrefixStore) -> Generator[None]:
        """Write a node that is not on disk, after those of its parents that are not there any more."""
        node = next((node for node in self._tree if not node.saved), None)
        if node is None:
            return
        node.saved = True
        tokens = node.path()
        if store.find(node.salt, tokens, whole=node.snapshot is not None)[1] == len(tokens):
            return  # in a file that another process wrote, or in that of a node which was cut in two
        _, length = store.find(node.salt, tokens, whole=False)
        for each in self._tree.walk(node.salt, tokens)[0]:
            if each is node or each.end > length:
                each.saved = True
                yield from store.write(each.salt, each.path(), each.start, each.segment, each.snapshot)

    def _give_up_folder(self, error: Exception) -> None:
        self._store, self._writes = None, False
        log.warning("the prefix cache's folder cannot be used, and is not: %s", error)

    def _report(self, error: Exception) -> None:
        """A prompt that cannot be kept costs time and nothing else."""
        log.log(
            logging.DEBUG if self._failed else logging.WARNING,
            "the prefix cache failed, requests go on without it: %r",
            error,
            exc_info=error,
        )
        self._failed = True


def default_budget(weight_bytes: int) -> int:
    """Bytes for a prefix cache: a share of the machine's memory, or of what the weights leave of a GPU's."""
    if mx.default_device() == mx.Device(mx.gpu):
        info = mx.device_info()
        sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
        total = next((int(size) for size in sizes if size), 0)
        return int(_GPU_SHARE * max(0, total - weight_bytes))
    return int(_RAM_SHARE * total_memory())
