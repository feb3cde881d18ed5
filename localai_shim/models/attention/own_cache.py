"""A row's cache that holds only its own tokens; it shares the first ones with other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from ...engine.cache_contents import Shared, SharedPart, Upstream


class OwnKVCache(KVCache):  # type: ignore[misc]
    """A `KVCache` whose positions begin behind shared tokens, which attention finds as `shared`.

    Args:
        before: the shared keys and values, `[1, heads, tokens, dim]`.
        own: the rows', `[rows, heads, tokens, dim]`; () for none.
        upstream: the library whose model it is for; mlx-vlm's take it as they take their own `KVCache`.
    """

    def __init__(self, before: Sequence[mx.array], own: Sequence[mx.array] = (), upstream: Upstream = "mlx_lm") -> None:
        self.before, self.upstream = tuple(before), upstream
        self.shared = Shared([SharedPart(before[0], before[1])])
        self.own = KVCache()
        if own:
            self.own.keys, self.own.values = own
            self.own.offset = own[0].shape[2]

    @property
    def offset(self) -> int:
        """Each row's next position."""
        return int(self.before[0].shape[2] + self.own.offset)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        return self.own.update_and_fetch(keys, values)

    def keys_and_values(self) -> Any:
        return self.own.keys_and_values()

    @property
    def state(self) -> tuple[mx.array, ...]:
        return () if self.own.keys is None else (self.own.keys, self.own.values)

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """The mask of the own keys.

        Raises:
            ValueError: attention looks back less far than to the first token.
        """
        if window_size is not None and self.offset + n > window_size:
            raise ValueError("rows cannot share tokens that a window may leave out")
        return self.own.make_mask(n, return_array=return_array, window_size=None)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.state)

    def size(self) -> int:
        return self.offset

    def trim(self, n: int) -> int:
        return int(self.own.trim(n))

    def empty(self) -> bool:
        return False
