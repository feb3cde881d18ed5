"""How much memory rows take, and how much they may."""

from __future__ import annotations

import bisect
import threading
import weakref
from collections.abc import Sequence

import mlx.core as mx

from ..adapters.backend import total_memory
from ..adapters.contents import KeyValues
from . import kv
from .kv.row import is_packed, leaves
from .kv.slots import bucket, rounded
from .model import Model, StepInput

_GPU_SHARE = 0.9  # of a GPU's memory, weights included
_WORKSPACE = 0.1  # of what the weights leave, for the steps' own arrays, a buffer that grows, and free buffers
_FREE = 0.05  # of the same, for MLX's free buffers: the other half of the workspace
_GROWTH = 1.25  # by which slots grow
_SLOTS = 1.5  # slots per row, at most
_LEAST = 0.02  # of the limit, where the weights leave less and nobody has named one
_SHORTEST = 256  # tokens of a context that is worth having; most caches grow by as many at a time
_ENDLESS = 2**31  # tokens; no row is longer


class Memory:
    """What caches take, as measured on a row of one token.

    Args:
        model: whose caches they are. It is run once or twice.
        limit: most bytes for everything that MLX holds, weights included; None for `default_limit`.
        chunk: most prompt tokens per forward pass: sliding windows hold so many more while a prompt is prefilled.

    Attributes:
        limit: as given.
        weights: bytes of the model's own.
        budget: bytes for the caches of all rows and for the prefix cache. Engines whose limit nobody has named share
            what the others leave, and it changes as engines come and go.
        free: bytes of buffers that MLX may keep for later use, beside these.
        per_token: bytes that one more token takes, as it is kept.
        per_token_unquantised: and if nothing were quantised.

    Raises:
        MemoryError: without a limit of its own: the weights, and what others hold, leave no memory for a row.
        ValueError: a limit that was named does not, or quantised keys and values are of a size that this
            model's cannot have.
    """

    def __init__(self, model: Model, limit: int | None, chunk: int) -> None:
        row = model.new_cache()
        model.prefill(StepInput(mx.array([[0]]), row))
        if is_packed(row):
            cache, _ = kv.join(None, [row])
            step = StepInput(mx.array([[0]]), cache.advance())
            mx.eval(model.forward(step))  # raises where its attention cannot read them
        self._chunk, self._padding = chunk, kv.max_padding_bytes(model.weight_bytes)
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
        self.limit, self.weights = limit, model.weight_bytes
        self.budget = self.free = 0
        _plan(self)
        if self.longest() == 0:
            self.close()
            raise (MemoryError if limit is None else ValueError)(self._too_little())

    def close(self) -> None:
        """The engine has ended, and others may have what was its own."""
        _forget(self)

    def longest(self) -> int | None:
        """Most tokens of a row that is alone, prompt and output together; None where there is memory for any.

        0 where that would be less than a model is of any use with.
        """
        most = bisect.bisect_right(range(_ENDLESS), self.budget, key=self.row) - 1
        return None if most >= _ENDLESS - 1 else most if most >= _SHORTEST else 0

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
        apart = sum(self._of(rounded(int(length * _GROWTH)), 0) for length in lengths) + self._padding
        apart = int(_SLOTS * apart)
        return min(together, apart)

    def _too_little(self) -> str:
        limit = default_limit() if self.limit is None else self.limit
        needed = self.weights + int(self.row(_SHORTEST) / (1 - _WORKSPACE)) + 1
        name = "memory_limit" if self.limit is not None else "the memory that MLX may hold"
        return f"{name} is {limit} bytes, and the shortest row needs {needed}: the weights take {self.weights} of them"

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


_plans: weakref.WeakSet[Memory] = weakref.WeakSet()
"""What the engines of this process may hold."""
_lock = threading.Lock()


def _plan(memory: Memory) -> None:
    with _lock:
        _plans.add(memory)
        _share_out()


def _forget(memory: Memory) -> None:
    with _lock:
        _plans.discard(memory)
        _share_out()


def _share_out() -> None:
    """Say what each engine may hold, whatever the order in which they came and whatever they hold already."""
    sharing = []
    total = left = default_limit()
    for memory in _plans:
        if memory.limit is None:
            sharing.append(memory)
            left -= memory.weights
        else:
            rest = max(0, memory.limit - memory.weights)
            memory.budget, memory.free = int(rest * (1 - _WORKSPACE)), int(rest * _FREE)
            left -= memory.limit
    for memory in sharing:
        rest = max(int(total * _LEAST), left // len(sharing))
        memory.budget, memory.free = int(rest * (1 - _WORKSPACE)), int(rest * _FREE)


def default_limit() -> int:
    """Bytes that MLX may hold: most of a GPU's memory, and on the CPU back end what MLX takes as its own limit."""
    if mx.default_device() == mx.Device(mx.gpu):
        info = mx.device_info()
        sizes = (info.get(name) for name in ("max_recommended_working_set_size", "total_memory", "memory_size"))
        return int(_GPU_SHARE * next((int(size) for size in sizes if size), total_memory()))
    return min(int(mx.get_memory_limit()), total_memory())
