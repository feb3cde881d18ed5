"""Entries of a head for rows that left: rows whose prompts begin alike continue from there.

The prefix cache gives such rows the model's keys and values of these tokens, and no hidden states. Without the head's
own entries for them the head would guess from the last tokens alone: of the bundled model's guesses 0.70 are right
then instead of 0.95.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ..cache_contents import Contents
from ..kv import RowCache
from ..prefix.cache import PrefixCache
from ..row import Row

MAX_BEGINNINGS = 32  # that are compared with each new prompt: of long prompts a head reads the end only
MAX_MISSING = 64  # tokens between the entries that were found and the first known state


class Found(NamedTuple):
    """Entries of the head for a row."""

    cache: RowCache
    start: int
    """Number of the row's tokens before the first one whose state was read."""
    ran: int
    """Number of its tokens up to the last one whose state was read."""


class Past:
    """Entries by the tokens that they are for. Runs on the engine thread; never raises.

    Args:
        kept: holds them. A row's keys are those of the tokens that the head has read, each with the state before it.
    """

    def __init__(self, kept: PrefixCache) -> None:
        self._kept = kept
        self._beginnings = deque[tuple[int, str]](maxlen=MAX_BEGINNINGS)
        """Places at which entries begin, with their salts; the latest are last."""

    def keep(self, row: Row, start: int, ran: int, read: Callable[[int], list[Contents]]) -> None:
        """Keep a row's entries.

        Args:
            row: whose they are.
            start, ran: see `Found`.
            read: gives a copy of them, from this one on.
        """
        if start < len(row.prompt_tokens):
            keys = _keys(row, ran + 1)
            beginning = start, _salt(row, keys, start)
            if beginning in self._beginnings:
                self._beginnings.remove(beginning)
            self._beginnings.append(beginning)
            self._kept.insert(beginning[1], keys[start + 1 :].tolist(), read)

    def find(self, row: Row, ran: int) -> Found | None:
        """A copy of the entries of a row's first tokens; None: there are none, or too few.

        Args:
            row: that begins.
            ran: its tokens before the first one whose state is known; a few entries before that may be missing.
        """
        keys = _keys(row, ran + 1)
        salts = {at: salt for at, salt in self._beginnings if at < ran and salt == _salt(row, keys, at)}
        known = {at: self._kept.match_prefix(salt, keys[at + 1 :].tolist()) for at, salt in salts.items()}
        start = max(known, key=lambda at: (at + known[at], -at), default=None)
        if start is None or not known[start] or ran - start - known[start] > MAX_MISSING:
            return None
        found = self._kept.start(salts[start], [*keys[start + 1 :], -1])  # it finds fewer than these
        return None if found is None else Found(found[0], start, start + found[1])


def _keys(row: Row, count: int) -> array[int]:
    """Keys of a row's first tokens."""
    keys = row.request.prompt.packed_keys[:count]
    keys.extend(row.output_tokens[: count - len(keys)])
    return keys


def _salt(row: Row, keys: array[int], start: int) -> str:
    """Name of the entries that begin with the state of this token. All tokens before it count."""
    return f"{row.request.prompt.salt or ''} {start} {hash(keys[: start + 1].tobytes())}"
