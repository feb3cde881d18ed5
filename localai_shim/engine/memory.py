"""How much memory rows take, and how much they may."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from ..adapters.caches import KeyValues
from . import kv
from .kv import RowCache
from .kv.row import is_packed, leaves
from .kv.slots import bucket, rounded

log = logging.getLogger("localai_shim")

_GPU_SHARE = 0.9  # of a GPU's memory, weights included
_WORKSPACE = 0.1  # of what the weights leave, for the steps' own arrays and for a buffer that grows
_GROWTH = 1.25  # by which slots grow
_SLOTS = 1.5  # slots per row, at most
_LEAST = 0.02  # of the limit, where the weights leave less and nobody has named one


class Prefills(Protocol):
    """What is needed of a model."""

    weight_bytes: int

    def new_cache(self) -> RowCache: ...

    def prefill(self, tokens: Sequence[int], cache: RowCache, *, wait: bool = True) -> None: ...

    def forward(self, tokens: Any, cache: RowCache) -> Any: ...


class Memory:
    """What caches take, as measured on a row of one token.

    Args:
        model: whose caches they are. It is run once or twice.
        limit: most bytes for everything that MLX holds, weights included; None for `default_limit`.
        chunk: most prompt tokens per forward pass: sliding windows hold so many more while a prompt is prefilled.

    Attributes:
        budget: bytes for the caches of all rows and for the prefix cache.
        per_token: bytes that one more token takes, as it is kept.
        per_token_unquantised: and if nothing were quantised.

    Raises:
        ValueError: the weights leave nothing of a limit that was named, or quantised keys and values are of a size
            that this model's cannot have.
    """

    def __init__(self, model: Prefills, limit: int | None, chunk: int) -> None:
        row = model.new_cache()
        model.prefill([0], row)
        if is_packed(row):
            cache, _ = kv.join(None, [row])
            mx.eval(model.forward(mx.array([0]), cache.advance()))  # raises where its attention cannot read them
        self._chunk, self._wasted = chunk, kv.most_wasted(model.weight_bytes)
        self._state = self.per_token = self.per_token_unquantised = 0
        self._windows: list[tuple[int, int]] = []
        """(bytes per token, most tokens) of each."""
        for layer in leaves(kv.read_row(row)):
            size = sum(array.nbytes for array in layer.arrays if array is not None)
            if not isinstance(layer, KeyValues):
                self._state += size
            elif layer.ring is not None:
                self._windows.append((size, layer.ring.size))
            else:
                self.per_token += size
                self.per_token_unquantised += _unquantised(layer, size)
        del row
        self.budget = _budget(limit)

    def longest(self) -> int | None:
        """Most tokens of a row that is alone; None where more tokens take no more memory."""
        if not self.per_token:
            return None
        fixed = self._state + sum(size * (window + self._chunk) for size, window in self._windows)
        return max(0, (self.budget - fixed) // self.per_token - 1)

    def row(self, tokens: int) -> int:
        """Most bytes of a row of so many tokens that is being prefilled."""
        return self._of(rounded(tokens), min(tokens, self._chunk))

    def batch(self, lengths: Sequence[int]) -> int:
        """Most bytes of a batch whose rows grow to these lengths."""
        if not lengths:
            return 0
        if len(lengths) == 1:
            return self._of(rounded(lengths[0]), 0)
        together = bucket(len(lengths)) * self._of(rounded(int(max(lengths) * _GROWTH)), 0)
        apart = sum(self._of(rounded(int(length * _GROWTH)), 0) for length in lengths) + self._wasted
        apart = int(_SLOTS * apart)
        return min(together, apart)

    def _of(self, tokens: int, beyond: int) -> int:
        """A row of so many tokens, whose windows hold some beyond their size."""
        most = max(tokens, beyond)
        windows = sum(size * min(most, window + beyond) for size, window in self._windows)
        return self._state + self.per_token * tokens + windows


def _unquantised(layer: KeyValues, size: int) -> int:
    """Bytes of a layer of this size, were it not quantised."""
    if layer.quantised is None:
        return size
    packed = (layer.arrays[0], layer.arrays[3])
    numbers = sum(array.size * 32 // layer.quantised.bits for array in packed)
    return int(numbers * layer.arrays[1].dtype.size)


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
