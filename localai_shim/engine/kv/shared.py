"""First tokens that several rows share: their keys and values are held once, and read once per step."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ..cache_contents import Shared, SharedPart

Keys = npt.NDArray[np.int64]


class Prefix:
    """First tokens of rows. They are kept as long as this object lives, which rows that read them hold.

    Args:
        salt: of the prompts; see `Prompt`.
        keys: of the tokens.
        arrays: keys and values of each layer that can be shared, `[1, heads, tokens, dim]`, layer after layer.
        whole: a longer prefix, in whose memory they are; None: they have their own.
    """

    __slots__ = ("__weakref__", "_firsts", "arrays", "keys", "salt", "whole")

    def __init__(self, salt: str | None, keys: Keys, arrays: Sequence[mx.array], whole: Prefix | None = None) -> None:
        self.salt, self.keys, self.arrays, self.whole = salt, keys, list(arrays), whole
        self._firsts: weakref.WeakValueDictionary[int, Prefix] = weakref.WeakValueDictionary()

    @property
    def length(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in addition to a longer one."""
        return 0 if self.whole is not None else sum(array.nbytes for array in self.arrays)

    def begins(self, salt: str | None, keys: Keys) -> bool:
        """True if a prompt begins with these tokens, and has more."""
        return salt == self.salt and len(keys) > self.length and bool(np.array_equal(keys[: self.length], self.keys))

    def first(self, length: int) -> Prefix:
        """The first of its tokens: one object for each length, so that rows with the same ones are one group."""
        if length >= self.length:
            return self
        whole = self.whole or self
        if (first := whole._firsts.get(length)) is None:
            arrays = [array[:, :, :length] for array in whole.arrays]
            first = whole._firsts[length] = Prefix(self.salt, self.keys[:length], arrays, whole)
        return first


class Groups:
    """The slots of a step by what their rows share.

    Args:
        width: slots of the step.
        prefixes: by slot; those that share nothing have none.
    """

    def __init__(self, width: int, prefixes: Mapping[int, Prefix]) -> None:
        self.lengths = np.zeros(width, np.int64)
        """`[width]` shared tokens of each slot's row."""
        members: dict[Prefix, list[int]] = {}
        for slot, prefix in sorted(prefixes.items()):
            self.lengths[slot] = prefix.length
            members.setdefault(prefix, []).append(slot)
        self._rows: list[tuple[Prefix, mx.array | None]] = [(prefix, None) for prefix in members]
        self._order: mx.array | None = None
        slots = [slot for its in members.values() for slot in its]
        if slots != list(range(width)) or len(members) > 1:
            order = np.full(width, len(slots), np.int32)
            order[slots] = np.arange(len(slots), dtype=np.int32)
            self._order = mx.array(order)
            self._rows = [(prefix, mx.array(its, mx.int32)) for prefix, its in members.items()]
        self._shared: dict[int, Shared] = {}

    def shared(self, layer: int) -> Shared:
        """Shared keys and values of a layer, the `layer`th of those that can be shared."""
        if layer not in self._shared:
            parts = [
                SharedPart(prefix.arrays[2 * layer], prefix.arrays[2 * layer + 1], rows) for prefix, rows in self._rows
            ]
            self._shared[layer] = Shared(parts, self._order)
        return self._shared[layer]
