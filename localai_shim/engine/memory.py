"""How much memory rows take, and how much they may."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from ..adapters import caches
from ..adapters.caches import KeyValues, Quantised
from . import kv
from .kv import RowCache
from .kv.row import leaves
from .kv.slots import bucket, rounded

log = logging.getLogger("localai_shim")

_GPU_SHARE = 0.9  # of a GPU's memory, weights included
_WORKSPACE = 0.1  # of what the weights leave, for the steps' own arrays and for a buffer that grows
_GROWTH = 1.25  # by which slots grow
_LEAST = 0.02  # of the limit, where the weights leave less and nobody has named one


class Prefills(Protocol):
    """What is needed of a model."""

    def new_cache(self) -> RowCache: ...

    def prefill(self, tokens: Sequence[int], cache: RowCache, *, wait: bool = True) -> None: ...

    def forward(self, tokens: Any, cache: RowCache) -> Any: ...


class Memory:
    """What caches take, as measured on a row of one token.

    Args:
        model: whose caches they are. It is run once or twice.
        limit: most bytes for everything that MLX holds, weights included; None for `default_limit`.
        how: how keys and values are kept in the batch and in the prefix cache.

    Attributes:
        budget: bytes for the caches of all rows and for the prefix cache.
        per_token: bytes that one more token takes, as it is kept.
        per_token_unquantised: and without `how`.

    Raises:
        ValueError: the weights leave nothing of a limit that was named, this model's caches cannot be quantised, or
            how large they are cannot be told.
    """

    def __init__(self, model: Prefills, limit: int | None, how: Quantised | None = None) -> None:
        row = model.new_cache()
        model.prefill([0], row)
        contents = leaves(kv.read_row(row))
        self._kept = _Sizes(contents)
        self._plain = self._kept
        if how is not None:
            self._plain, self._kept = self._kept, _Sizes([caches.quantise(layer, how) for layer in contents])
            if self._kept.token == self._plain.token:
                raise ValueError("kv_bits: this model has no layers whose keys and values could be quantised")
            cache, _ = kv.join(None, [row], how)
            mx.eval(model.forward(mx.array([0]), cache.advance()))  # raises where its attention cannot read them
        self.per_token, self.per_token_unquantised = self._kept.token, self._plain.token
        del row, contents
        self.budget = _budget(limit)

    def longest(self) -> int | None:
        """Most tokens of a row that is alone; None where more tokens take no more memory."""
        plain, kept = self._plain, self._kept
        token = plain.token if kept is plain else plain.token + kept.token  # it is there twice while it joins
        if not token:
            return None
        return max(0, (self.budget - plain.state - plain.window_bytes) // token - 1)

    def row(self, tokens: int) -> int:
        """Bytes of a row that is being prefilled."""
        return self._plain.of(rounded(tokens))

    def batch(self, lengths: Sequence[int]) -> int:
        """Most bytes of a batch whose rows grow to these lengths."""
        if not lengths:
            return 0
        if len(lengths) == 1:
            return self._kept.of(rounded(lengths[0]))
        return bucket(len(lengths)) * self._kept.of(rounded(int(max(lengths) * _GROWTH)))


class _Sizes:
    """Bytes per row: of each token, of what windows keep at most, and of states."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.token = self.state = 0
        self.windows: list[tuple[int, int]] = []
        """(bytes per token, most tokens) of each."""
        for layer in layers:
            size = sum(array.nbytes for array in layer.arrays if array is not None)
            if not isinstance(layer, KeyValues):
                self.state += size
            elif layer.ring is not None:
                self.windows.append((size, layer.ring.size))
            else:
                self.token += size

    @property
    def window_bytes(self) -> int:
        return sum(size * most for size, most in self.windows)

    def of(self, tokens: int) -> int:
        return self.state + self.token * tokens + sum(size * min(tokens, most) for size, most in self.windows)


def _budget(limit: int | None) -> int:
    """Bytes for caches: what the weights leave of the limit, less some for the steps' own arrays."""
    total = default_limit() if limit is None else limit
    weights = mx.get_active_memory()
    left = int((total - weights) * (1 - _WORKSPACE))
    if limit is None:
        return max(left, int(total * _LEAST))
    if left <= 0:
        raise ValueError(f"memory_limit is {limit} bytes, and MLX holds {weights} already, the weights among them")
    return left


def default_limit() -> int:
    """Bytes that MLX may hold: most of a GPU's memory, and on the CPU back end what MLX takes as its own limit."""
    if mx.default_device() == mx.Device(mx.gpu):
        info = mx.device_info()
        sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
        return int(_GPU_SHARE * next((int(size) for size in sizes if size), _ram()))
    return min(int(mx.get_memory_limit()), _ram())


def _ram() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
