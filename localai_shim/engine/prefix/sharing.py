"""Chooses which rows share their first tokens: their keys and values are then held once, and read once per step.

Rows share what their prompts begin with alike, on one level: a row has one prefix, and a batch few of them, because
each is another product in every layer. A row that shares with no other holds a copy, which costs no time per step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import Prompt
from ..cache_contents import Contents, RowCache
from ..kv import copied
from ..kv.row import leaves
from ..kv.shared import Prefix
from ..row import Row
from .cache import PrefixCache

MIN_SHARED_TOKENS = 256  # of fewer, a copy for each row takes less time than another product
MOST_SAVED_TOKENS = 4_096  # of copies: more are not worth the time that they save
MAX_GROUPS = 4  # of rows that share different tokens in a batch
MAX_OWN_TOKENS = 512  # of a prompt that are prefilled behind shared ones: of more, a copy of these takes less time

_Keys = npt.NDArray[np.int64]


class Sharing:
    """Runs on the engine thread.

    Args:
        prefixes: finds tokens by their keys, and owns them together with the rows; None: rows alone own them.
        least_saved: tokens of copies that rows save together, from which on sharing saves time as well. Rows that save
            `MOST_SAVED_TOKENS` share in any case.
    """

    def __init__(self, prefixes: PrefixCache | None, least_saved: int = 0) -> None:
        self._prefixes, self._least_saved = prefixes, min(least_saved, MOST_SAVED_TOKENS)
        self._live: list[weakref.ref[Prefix]] = []  # replaced and never changed: callers' threads read `bytes`
        self.others: Callable[[], Iterable[Prompt]] = tuple
        """Prompts of the rows that run or are about to, which others can share with."""

    @property
    def bytes(self) -> int:
        """Bytes that rows share, each counted once; any thread may ask."""
        return sum(prefix.nbytes for each in self._live if (prefix := each()) is not None)

    def common(self, prompt: Prompt, others: Iterable[Prompt]) -> int:
        """First tokens of a prompt that it should share with others, at most all but the last one; 0: none."""
        keys = _keys(prompt)
        lengths = sorted((_common(keys, _keys(other)) for other in others if other.salt == prompt.salt), reverse=True)
        saved = [(rows * length, length) for rows, length in enumerate(lengths, 1) if length >= MIN_SHARED_TOKENS]
        tokens, length = max(saved, default=(0, 0))
        return length if tokens >= self._least_saved else 0

    def expected(self, row: Row, others: Sequence[Row]) -> int:
        """First tokens that a row would share if it joined others; it may not have begun."""
        prompt, groups = row.request.prompt, {other.prefix for other in others if other.prefix is not None}
        shared = max((group.length for group in groups if group.begins(prompt.salt, _keys(prompt))), default=0)
        if len(groups) >= MAX_GROUPS:
            return shared
        return max(
            shared,
            self.common(prompt, (other.request.prompt for other in others if other.shares and other.prefix is None)),
        )

    def for_prompt(self, prompt: Prompt, found: int) -> Prefix | None:
        """First tokens that a starting prompt shares with others; None if there are none.

        Args:
            prompt: not the last tokens of a long one.
            found: tokens of it that the prefix cache has.
        """
        if self._prefixes is None or len(prompt.tokens) - found > MAX_OWN_TOKENS:
            return None
        at = min(found, self.common(prompt, (other for other in self.others() if other is not prompt)))
        return self._hold(prompt.salt, _keys(prompt)[:at], None) if at >= MIN_SHARED_TOKENS else None

    def choose(self, joining: Sequence[tuple[Row, RowCache]], running: Sequence[Row]) -> dict[Row, Prefix]:
        """First tokens that joining rows share, also with running rows that held a copy until now.

        Args:
            joining: the rows, and what each has in its cache.
            running: the rows of the batch.
        """
        chosen = dict[Row, Prefix]()
        alone = [row for row in running if row.shares and row.prefix is None]
        groups = {row.prefix: None for row in running if row.prefix is not None}
        for row, cache in joining:
            if not row.shares:
                continue
            prefix = self._longest(row, groups)
            common = self.common(row.request.prompt, (other.request.prompt for other in alone))
            if common > (0 if prefix is None else prefix.length) and len(groups) < MAX_GROUPS:
                new = self._hold(row.request.prompt.salt, _keys(row.request.prompt)[:common], partial(copied, cache))
                prefix = prefix if new is None or not _begins(new, row) else new
            if prefix is None:
                alone.append(row)
                continue
            groups[prefix] = None
            chosen.update(dict.fromkeys([row, *(other for other in alone if _begins(prefix, other))], prefix))
            alone = [other for other in alone if other not in chosen]
        return chosen

    def _longest(self, row: Row, groups: Iterable[Prefix]) -> Prefix | None:
        return max((each for each in groups if _begins(each, row)), key=lambda each: each.length, default=None)

    def _hold(self, salt: str | None, keys: _Keys, read: Callable[[int], list[Contents]] | None) -> Prefix | None:
        """These tokens, or those of them that rows share already; None: they are not at hand, or too few."""
        prefix = None
        if self._prefixes is not None:
            prefix = self._prefixes.share(salt, keys.tolist(), read)
        if prefix is None and read is not None:
            prefix = Prefix(salt, keys.copy(), _arrays(read(0), len(keys)))
        if prefix is None or prefix.length < MIN_SHARED_TOKENS:
            return None
        held = prefix.whole or prefix
        live = [each for each in self._live if each() not in (None, held)]
        self._live = [*live, weakref.ref(held)]
        return prefix


def _keys(prompt: Prompt) -> _Keys:
    return np.frombuffer(prompt.packed_keys, np.int64)


def _begins(prefix: Prefix, row: Row) -> bool:
    return row.shares and prefix.begins(row.request.prompt.salt, _keys(row.request.prompt))


def _common(a: _Keys, b: _Keys) -> int:
    """Number of keys that two prompts begin with alike, less than either has."""
    most = min(len(a), len(b)) - 1
    if most < MIN_SHARED_TOKENS or a[0] != b[0] or a[MIN_SHARED_TOKENS - 1] != b[MIN_SHARED_TOKENS - 1]:
        return 0
    differ = a[:most] != b[:most]
    first = int(differ.argmax())
    return first if differ[first] else most


def _arrays(row: Sequence[Contents], length: int) -> list[mx.array]:
    """The first tokens of a row's keys and values."""
    arrays = [mx.contiguous(array[:, :, :length]) for layer in leaves(row) for array in layer.growing]
    mx.eval(arrays)
    return arrays
