"""Chooses which rows share their first tokens: their keys and values are then held once, and read once per step.

Rows share what their prompts begin with alike, on one level: a row has one prefix, and a batch few of them, because
each is another product in every layer. A row that shares with no other holds a copy, which costs no time per step. A
measurement when the model is loaded says how many tokens make sharing faster.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ...types import Prompt
from ..cache_contents import Contents, KeyValues, RowCache
from ..costs.cost_model import Stopwatch
from ..kv import copied
from ..kv.row import leaves
from ..kv.segments import build_row
from ..kv.shared import Prefix
from ..kv.slots import SlotCache
from ..ports import host
from ..row import Row
from .cache import PrefixCache

ROWS, OWN_TOKENS, LAYERS = 8, 32, 2  # of the steps that are measured
SHORT, LONG = 32, 512  # first tokens
TRIES = 4  # of which the shortest counts


def break_even(layer: KeyValues, query_heads: int) -> float:
    """Tokens of copies that rows save by sharing, from which on their step takes no longer; inf: it always does.

    A separate product for the shared tokens takes a fixed time, and less for each token than copies do: two lengths
    are measured, and the line between them tells where both take as long.

    Args:
        layer: of a row that holds something: its heads and types count.
        query_heads: of the model's attention.
    """
    keys, values = layer.arrays
    return _break_even(query_heads, keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)


@lru_cache(maxsize=16)
def _break_even(query_heads: int, heads: int, key_dim: int, value_dim: int, dtype: mx.Dtype) -> float:
    rows = [
        _Rows(query_heads, mx.zeros((1, heads, 1, key_dim), dtype), mx.zeros((1, heads, 1, value_dim), dtype), *each)
        for each in ((SHORT, True), (SHORT, False), (LONG, True), (LONG, False))
    ]
    seconds = [min(each) for each in zip(*([its.seconds() for its in rows] for _ in range(1 + TRIES)), strict=True)]
    return crossing(seconds[0] - seconds[1], seconds[2] - seconds[3])


def crossing(short: float, long: float) -> float:
    """Tokens of copies from which on sharing takes no longer.

    Args:
        short: by how many seconds it takes longer with `SHORT` first tokens.
        long: with `LONG` ones.
    """
    if max(short, long) <= 0:
        return 0.0
    if long >= short:
        return float("inf")
    return (ROWS - 1) * (SHORT + (LONG - SHORT) * short / (short - long))


class _Rows:
    """Rows with equal first tokens, in layers that do nothing but attend.

    Args:
        query_heads: of a layer.
        key: of one token.
        value: of one token.
        first: tokens that are equal.
        shared: they are held once.
    """

    def __init__(self, query_heads: int, key: mx.array, value: mx.array, first: int, shared: bool) -> None:
        kinds = [KeyValues(0)] * LAYERS
        arrays = [mx.repeat(array, first + OWN_TOKENS, axis=2) for array in (key, value)] * LAYERS
        prefix = Prefix(None, np.zeros(first, np.int64), [mx.contiguous(a[:, :, :first]) for a in arrays])
        row = build_row(kinds, [arrays], None, first + OWN_TOKENS, first + OWN_TOKENS)
        self._batch = SlotCache()
        self._batch.join([row] * ROWS, [prefix if shared else None] * ROWS)
        self._new = [mx.repeat(array, ROWS, axis=0) for array in (key, value)]
        self._queries = mx.zeros((ROWS, query_heads, 1, key.shape[3]), key.dtype)

    def seconds(self) -> float:
        """Seconds of one step."""
        forms, watch = host().forms(), Stopwatch()
        x = self._queries
        for layer in self._batch.advance():
            keys, values = layer.update_and_fetch(*self._new)
            x = x + forms.attend(x, keys, values, layer)[..., :1]
        mx.eval(x)
        return watch.seconds


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
