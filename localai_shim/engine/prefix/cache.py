"""Cache of what prompts and finished turns left, so that the next turn prefills its new tokens only.

Rows are inserted after their tokens were delivered: a prompt after its row's first token, or before that where other
prompts that may begin alike wait or come; all of a row after its last. The cache never gives out its arrays: rows
are made of copies.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import mlx.core as mx

from ...stats import show_bytes
from ...types import log
from ..cache_contents import Contents, is_trimmable
from ..costs.cost_model import Stopwatch
from ..failures.gpu import note_gpu_fault
from ..kv import RowCache, read_row
from ..kv.row import copy_of, leaves
from ..kv.segments import build_row, has_nan, nbytes, part_of, ratios, take_segment, take_snapshot
from ..kv.shared import Prefix
from ..mirror.journal import Mirrored, journal, mirrored
from ..ports import host
from .store import PrefixStore, Stored
from .tree import Match, PrefixTree

_async_eval: Callable[..., None] = mx.async_eval

MIN_PREFIX_TOKENS = 16  # fewer are sooner run than copied
PREFIX_RAM_SHARE = 0.1  # of all memory, on the CPU back end
PREFIX_GPU_SHARE = 0.25  # of the memory that the weights leave


class PrefixCache(Mirrored):
    """Holds rows by keys (see `Prompt`) and evicts the least recently used. Runs on the engine thread; never raises.

    Args:
        empty: the cache of an empty row, of the kind that all rows are.
        fingerprint: identifies all that the contents of rows depend on; not used without a folder.
        budget: most bytes in memory.
        folder: where rows survive the process; None: they do not.
        folder_budget: most bytes in the folder.

    Attributes:
        cuts_anywhere: rows can be trimmed to any shorter length.
        hits: prompts of which a prefix was found.
        misses: prompts of which none was.
        reused: tokens of those prefixes.
    """

    def __init__(
        self,
        empty: RowCache,
        fingerprint: str,
        budget: int,
        folder: str | os.PathLike[str] | None = None,
        folder_budget: int = 0,
    ) -> None:
        self.hits = self.misses = self.reused = 0
        self._budget = self._most = self._spare = self._limit = budget
        self._held: int | None = None
        """Bytes that were held before it had to shrink."""
        self._like = read_row(empty)
        self.cuts_anywhere = all(is_trimmable(layer) for layer in self._like)
        self._ratios = ratios(self._like)
        self._tree = PrefixTree(self._ratios, needs_snapshot=not self.cuts_anywhere)
        self._failed = False
        self._companion: PrefixCache | None = None
        self._share = 0.0
        """The companion's part of the budget."""
        self._folder, self._folder_budget = folder, folder_budget
        self._saving: Generator[None] | None = None
        self._unread: list[tuple[str | None, Sequence[int], int, mx.array]] = []
        """Rows that were inserted and not looked at yet: salt, keys, first new token, and if something is NaN."""
        self._open_folder(fingerprint)

    def _open_folder(self, fingerprint: str) -> None:
        self._store: PrefixStore | None = None
        self._writes = self._folder is not None
        if self._folder is not None:
            try:
                self._store = PrefixStore(self._folder, fingerprint, self._folder_budget)
            except Exception as error:
                self._abandon_folder(error)

    def companion(self, empty: RowCache) -> PrefixCache:
        """A cache of what else is kept of the same prompts, such as by a head that drafts: part of this one's bytes.

        Args:
            empty: of the kind that all its rows are. Its part is that of its layers.
        """
        self._share = len(empty) / (len(empty) + len(self._like))
        self._companion = PrefixCache(empty, "", int(self._share * self._budget))
        self._apply_limit()
        return self._companion

    def renew(self, fingerprint: str) -> None:
        """Drop everything in memory, a file that is half written too, and continue under another fingerprint."""
        self._stop_saving()
        self._clear()
        self._open_folder(fingerprint)

    def _clear(self) -> None:
        self._unread.clear()
        self._tree.clear()
        if self._companion is not None:
            self._companion._clear()

    @property
    def bytes(self) -> int:
        """Bytes held in memory."""
        return self._tree.bytes + (0 if self._companion is None else self._companion.bytes)

    def shape(self) -> object:
        return self.bytes, self.hits, self.reused

    @property
    def unsaved(self) -> bool:
        """There is something to `save`."""
        return self._writes and (self._saving is not None or any(not node.saved for node in self._tree))

    def save(self) -> None:
        """Write a piece, of a few MB, of what is not on disk yet."""
        self._drop_spoiled()
        if self._store is None or not self._writes:
            return
        try:
            if self._saving is None:
                self._saving = self._save_node(self._store)
            for _ in self._saving:
                return
        except Exception as error:
            self._write_no_more(error)
        self._saving = None

    def close(self, seconds: float) -> None:
        """Write what is not on disk yet, for at most these seconds, and drop everything."""
        watch = Stopwatch()
        while self.unsaved and watch.seconds < seconds:
            self.save()
        self._stop_saving()
        self._clear()

    def _stop_saving(self) -> None:
        saving, self._saving = self._saving, None
        try:
            if saving is not None:
                saving.close()
        except Exception as error:  # of a full disk, as the file is closed
            self._write_no_more(error)

    def _write_no_more(self, error: Exception) -> None:
        self._writes = False
        log.warning("the prefix cache's folder cannot be written to, and nothing more is: %s", error)

    def start(
        self, salt: str | None, keys: list[int], least: int = 0, shared: Prefix | None = None
    ) -> tuple[RowCache, int] | None:
        """A row with the longest prefix of a prompt that was found, and its length: at least `least` tokens, and fewer
        than the prompt's.

        Args:
            salt: see `Prompt`.
            keys: the prompt's.
            least: tokens.
            shared: first tokens of the prompt, which the row shares with others; all further ones are copied.
        """
        self._drop_spoiled()
        return self._start(salt, keys, least, *([] if shared is None else [shared]))

    @mirrored
    def _start(
        self, salt: str | None, keys: list[int], least: int, shared: Prefix | None = None
    ) -> tuple[RowCache, int] | None:
        with self._reporting():
            found = self._find(salt, keys[:-1])
            if found is not None and found.length >= max(MIN_PREFIX_TOKENS, least):
                before = None if shared is None or shared.length > found.length else shared.arrays
                row = build_row(self._like, found.segments, found.snapshot, found.length, len(keys), before)
                self.hits += 1
                self.reused += found.length
                return row, found.length
        self.misses += 1
        return None

    def match_prefix(self, salt: str | None, keys: Sequence[int]) -> int:
        """Number of tokens with these keys, from the first on, with which a row could start, as far as they are in
        memory.
        """
        self._drop_spoiled()
        with self._reporting():  # followers are not asked, so that it may not change what is dropped first
            if (found := self._tree.match_prefix(salt, keys, touch=journal() is None)) is not None:
                return found.length
        return 0

    def share(
        self, salt: str | None, keys: Sequence[int], read: Callable[[int], list[Contents]] | None = None
    ) -> Prefix | None:
        """The first tokens of rows, which several of these read while they run; None: they are not at hand. It may be
        fewer tokens, of which other rows hold more already.

        Args:
            salt: see `Prompt`.
            keys: of the tokens.
            read: gives a copy of what a row with these tokens holds, from this token on; None: there is no such row.
        """
        self._drop_spoiled()
        with self._reporting():
            tree = self._tree
            tree.release()
            _, start = tree.walk(salt, keys)
            if start < len(keys) and read is not None:
                arrays = [array[:, :, : len(keys) - start] for layer in leaves(read(start)) for array in layer.growing]
                segment = [mx.contiguous(array) for array in arrays]
                if has_nan(segment, None).item():  # no other row may see that
                    return None
                tree.insert(salt, keys, start, segment, None)
            prefix = tree.share(salt, keys)
            tree.evict(self._limit)
            return prefix
        return None

    @mirrored
    def limit(self, budget: int) -> None:
        """Hold at most `budget` bytes, and at most the budget that it was made with, until the next call."""
        self._spare = budget
        self._apply_limit()

    @mirrored
    def shrink(self, share: float | None) -> None:
        """Hold at most this share of what is held, or was before the first of such calls; None: as much as before."""
        if share is None:
            self._held, self._most = None, self._budget
        else:
            self._held = self.bytes if self._held is None else self._held
            self._most = int(share * self._held)
        self._apply_limit()

    def _apply_limit(self) -> None:
        whole = max(0, min(self._most, self._spare))
        self._limit = whole - int(self._share * whole)
        if self._companion is not None:
            self._companion.limit(whole - self._limit)
        with self._reporting():
            self._tree.evict(self._limit)

    def insert(self, salt: str | None, keys: Sequence[int], read: Callable[[int], list[Contents]]) -> None:
        """Insert a row's keys and values, as far as the tree does not have them. If some are NaN, no prompt gets them:
        whether they are is computed behind them, and read when the cache is used next, so that nothing waits for it.

        Args:
            salt: see `Prompt`.
            keys: of all tokens that have run through the row.
            read: gives a copy of what the row holds; of layers with one position per token, from this token on.
        """
        if len(keys) >= MIN_PREFIX_TOKENS:
            inserted = self._insert(salt, keys, read)
            if inserted is not None:
                self._unread.append((salt, keys, *inserted))

    # -----------------------------------------------------------------------------------------------------------

    @mirrored
    def _insert(
        self, salt: str | None, keys: Sequence[int], read: Callable[[int], list[Contents]]
    ) -> tuple[int, mx.array] | None:
        """Insert a row; returns from which token on it is new, and if something of it is NaN."""
        with self._reporting():
            tree = self._tree
            if tree.covers(salt, keys):
                return None
            _, start = tree.walk(salt, keys)
            row = read(start)
            segment = take_segment(row, start, len(keys)) if start < len(keys) else []
            snapshot = None if self.cuts_anywhere else take_snapshot(row, len(keys))
            if nbytes(segment, snapshot) <= self._limit:
                spoiled = has_nan(segment, snapshot)
                _async_eval(spoiled)
                tree.insert(salt, keys, start, segment, snapshot)
                tree.evict(self._limit)
                return start, spoiled
        return None

    def _drop_spoiled(self) -> None:
        """Drop the inserted rows that turned out to hold NaN. Followers do not look: they are told what to drop."""
        unread, self._unread = self._unread, []
        for salt, keys, start, spoiled in unread:
            with self._reporting():
                if spoiled.item():
                    log.debug("a row of %d tokens was NaN, and is not kept for other prompts", len(keys))
                    self._drop(salt, keys, start)

    @mirrored
    def _drop(self, salt: str | None, keys: Sequence[int], start: int) -> None:
        self._tree.drop(salt, keys, start)

    def _find(self, salt: str | None, keys: list[int]) -> Match | None:
        """The longest prefix in memory, or on disk where that has more."""
        if self._store is not None:
            try:
                self._load(self._store, salt, keys, self.match_prefix(salt, keys))
            except Exception as error:
                self._abandon_folder(error)
            self._tree.evict(self._limit)
        return self._tree.match_prefix(salt, keys)

    def _load(self, store: PrefixStore, salt: str | None, keys: list[int], in_memory: int) -> None:
        """Load the longest stored prefix of these tokens into the tree, if it is long enough and fits."""
        while True:
            chain, length = store.match_prefix(salt, keys, needs_snapshot=not self.cuts_anywhere)
            if length < in_memory + MIN_PREFIX_TOKENS or sum(stored.bytes for stored in chain) > self._limit:
                return
            if all(self._load_file(store, salt, [*keys[: s.start], *s.keys], s) for s in chain):
                return  # otherwise one is damaged or gone, and others may do

    def _load_file(self, store: PrefixStore, salt: str | None, keys: list[int], stored: Stored) -> bool:
        """Load a file's tokens into the tree, which has those before; False where that fails."""
        _, start = self._tree.walk(salt, keys)
        if start == len(keys) and (stored.min_length is None or self._tree.covers(salt, keys)):
            return True
        loaded = store.load(stored)
        if loaded is None:
            return False
        segment, snapshot = loaded
        if start > stored.start:
            rest = part_of(segment, self._ratios, stored.start, start, stored.end) if start < stored.end else []
            segment = [copy_of(array) for array in rest]
        self._tree.insert(salt, keys, start, segment, snapshot).saved = True
        return True

    def _save_node(self, store: PrefixStore) -> Generator[None]:
        """Write a node that is not on disk, and before it those of its parents whose files are gone."""
        node = next((node for node in self._tree if not node.saved), None)
        if node is None:
            return
        node.saved = True
        keys = node.path()
        if store.match_prefix(node.salt, keys, needs_snapshot=node.snapshot is not None)[1] == len(keys):
            return  # in a file that another process wrote, or in that of a node which was split
        _, length = store.match_prefix(node.salt, keys, needs_snapshot=False)
        for each in self._tree.walk(node.salt, keys)[0]:
            if each is node or each.end > length:
                each.saved = True
                yield from store.write(each.salt, each.path(), each.start, each.segment, each.snapshot)

    def _abandon_folder(self, error: Exception) -> None:
        self._store, self._writes = None, False
        log.warning("the prefix cache's folder cannot be used, and is not: %s", error)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Log a failure, which costs a prompt time and nothing else; the first one as a warning."""
        try:
            yield
        except BaseException as error:
            note_gpu_fault(error)
            level = logging.DEBUG if self._failed else logging.WARNING
            self._failed = True
            log.log(level, "the prefix cache failed, requests go on without it: %r", error, exc_info=error)


def default_budget(weight_bytes: int) -> int:
    """Bytes for a prefix cache: a share of the machine's memory, or of what the weights leave of a GPU's."""
    machine = host().machine
    gpu = machine.gpu_memory()
    if gpu is None:
        return int(PREFIX_RAM_SHARE * machine.total_memory())
    return int(PREFIX_GPU_SHARE * max(0, gpu - weight_bytes))


LOOK_SECONDS = 1.0  # between two looks
SHARES = {"normal": None, "warning": 0.5, "critical": 0.0}
"""By pressure: how much of what the prefix cache held before it may stay; None: all, and more."""


class Pressure:
    """Runs on the engine thread.

    Args:
        prefixes: the cache.
        now: a clock.
    """

    def __init__(self, prefixes: PrefixCache, now: Callable[[], float]) -> None:
        self._prefixes, self._now = prefixes, now
        self._level = "normal"
        self._next_look = now()

    def look(self) -> bool:
        """Look how short of memory the system is, unless that was less than a second ago.

        Returns:
            True if the cache has shrunk: free buffers should be returned to the system.
        """
        now = self._now()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        level = host().machine.memory_pressure()
        if level == self._level:
            return False
        self._level, held = level, self._prefixes.bytes
        self._prefixes.shrink(SHARES[level])
        freed = held - self._prefixes.bytes
        if level == "normal":
            log.info("the system has enough memory again: the prefix cache may grow")
        else:
            log.warning(
                "the system is short of memory (%s): the prefix cache shrinks from %s to %s",
                level,
                show_bytes(held),
                show_bytes(self._prefixes.bytes),
            )
        return freed > 0
