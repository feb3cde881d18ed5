"""Memory that rows take, and that they may take.

A limit is one model's: its own weights are taken off, and what other models hold is theirs, so the order of loading
does not matter. Models without a limit share what the others leave of the machine's. Without the weights, nine
tenths are for rows and the prefix cache, the rest for the steps' own arrays and MLX's free buffers. Attention without
a fused kernel holds the scores of a layer's queries and keys: half of that rest is for these, and a chunk of a prompt
has no more tokens than fit (`costs/chunks.py`).

Features of a prompt's media count before it begins: a placeholder's as the largest that were made so far. So does a
run of the tower where it once took more than the process had held before.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Sequence

import mlx.core as mx

from ..threads.system import Lock
from . import kv
from .cache_contents import KeyValues
from .drafts.ports import DraftHead, Drafting
from .kv.row import is_packed, leaves
from .kv.slots import capacity_for, slots_for
from .ports import Model, StepInput, host

GPU_SHARE = 0.9  # of a GPU's memory, weights included
SCORES_SHARE = 0.05  # of what the weights leave, for scores of attention: the part of the workspace of one pass
MIN_SCORES_BYTES = 2**24  # that scores may take however little that is
WORKSPACE_SHARE = 0.1  # of what the weights leave, for the steps' own arrays, a buffer that grows, and free buffers
FREE_BUFFERS_SHARE = 0.05  # of the same, for MLX's free buffers: the other half of the workspace
SLOT_GROWTH = 1.25  # by which slots grow
MAX_SLOTS_PER_ROW = 1.5
PASSES_MEMORY_SHARE = 0.03  # of what MLX may hold, for the passes of an engine without rows
MIN_LIMIT_SHARE = 0.02  # of the limit, where the weights leave less and nobody has named one
MIN_CONTEXT_TOKENS = 256  # shorter ones are of no use; most caches grow by as many at a time
MAX_CONTEXT_TOKENS = 2**31


class Memory:
    """The bytes that caches take, as measured on a row of one token, and the budget for them.

    Args:
        model: whose caches they are; it is run once or twice.
        limit: most bytes for everything that MLX holds, weights included; None for `default_limit`.
        chunk: most prompt tokens per forward pass: sliding windows hold as many more while a prompt is prefilled.
        draft: a model or a head that drafts, whose caches rows have as well; None: there is none.

    Attributes:
        limit: as given.
        weights: bytes of the model's, and of the one that drafts.
        budget: bytes for the caches of all rows and for the prefix cache. Engines without a limit share
            what the others leave, so that it changes as engines come and go.
        free: bytes of free buffers that MLX may hold in addition.
        scores: maximum bytes of a pass's attention scores, in addition to these.
        query_groups: heads of queries for each head of keys, by kind of layer.
        unfused: of each kind of layer whose attention holds its scores, the bytes of a score of all heads, and the
            window; None: it looks at all tokens.
        per_token: bytes that one more token takes in the caches.
        per_token_unquantised: what it would take if nothing were quantised.

    Raises:
        MemoryError: it has no limit, and the weights and other models leave no memory for a row.
        ValueError: its own limit leaves none; or this model's keys and values cannot be quantised in this way.
    """

    def __init__(self, model: Model, limit: int | None, chunk: int, draft: Drafting | None = None) -> None:
        self._chunk, self.limit, self.weights, self._adapters = chunk, limit, 0, 0
        self._padding = self._state = self.per_token = self.per_token_unquantised = 0
        self._windows: list[tuple[int, int]] = []
        """(bytes per token, most tokens) of each sliding window."""
        self.query_groups: set[int] = set()
        self.unfused: set[tuple[int, int | None]] = set()
        self._draft_per_token = 0
        """Bytes per token of the model that drafts, whose rows share nothing."""
        self._measure(model)
        if draft is not None:
            alone = self.per_token
            self._measure(draft)
            self._draft_per_token = self.per_token - alone
        self.budget = self.free = self.scores = 0
        with _lock:
            _memories.add(self)
            _share_out()
        if self.longest() == 0:
            self.close()
            raise (MemoryError if limit is None else ValueError)(self._too_little())

    def _measure(self, model: Drafting) -> None:
        """Add a model's weights, and what a row's caches take in it."""
        row = model.new_cache()
        if isinstance(model, DraftHead):
            model.forward(mx.array([[0]]), mx.zeros((1, 1, model.width)), row, [0])
            mx.eval([layer.state for layer in row])
        else:
            model.prefill(StepInput(mx.array([[0]]), row))
        if is_packed(row) and not isinstance(model, DraftHead):
            cache, _ = kv.join(None, [row])
            step = StepInput(mx.array([[0]]), cache.advance())
            mx.eval(model.forward(step).logits)  # raises where its attention cannot read them
        self.weights += model.weight_bytes
        self._padding += kv.max_padding_bytes(model.weight_bytes)
        for layer in leaves(kv.read_row(row)):
            size = sum(array.nbytes for array in layer.arrays if array is not None)
            if isinstance(layer, KeyValues):
                self.query_groups.add(max(1, model.query_heads // layer.arrays[0].shape[1]))
                if score := _score_bytes(layer, model.query_heads):
                    self.unfused.add((score, None if layer.ring is None else layer.ring.size))
            if not isinstance(layer, KeyValues):
                self._state += size
            elif layer.ring is not None:
                self._windows.append((size, layer.ring.size))
            else:
                self.per_token += size
                self.per_token_unquantised += _unquantised(layer, size)

    def set_adapters(self, size: int) -> None:
        """Count these bytes of adapters with the weights."""
        with _lock:
            self.weights += size - self._adapters
            self._adapters = size
            _share_out()

    def close(self) -> None:
        """Leave this engine's share to others; it has ended."""
        with _lock:
            _memories.discard(self)
            _share_out()

    def longest(self) -> int | None:
        """Most tokens of a row that is alone, prompt and output together; None where there is memory for any number.

        0 where there would be fewer than `MIN_CONTEXT_TOKENS`.
        """
        most = bisect.bisect_right(range(MAX_CONTEXT_TOKENS), self.budget, key=self.row) - 1
        return None if most >= MAX_CONTEXT_TOKENS - 1 else most if most >= MIN_CONTEXT_TOKENS else 0

    def row(self, tokens: int, first_pass: int = 0, shared: int = 0) -> int:
        """Most bytes of a row of `tokens` tokens while it is prefilled.

        Args:
            tokens: the row's.
            first_pass: the first of them, which are run in one pass.
            shared: the first of them, which other rows hold.
        """
        return self._of(capacity_for(tokens - shared), max(min(tokens, self._chunk), first_pass), tokens)

    def batch(self, lengths: Sequence[int], shared: Sequence[int] = ()) -> int:
        """Most bytes of a batch whose rows grow to these lengths, without what they share.

        Args:
            lengths: tokens of each row.
            shared: the first of these, which it shares; (): none shares any.
        """
        if not lengths:
            return 0
        own = [length - first for length, first in zip(lengths, shared, strict=True)] if shared else lengths
        if len(lengths) == 1:
            return self._of(capacity_for(own[0]), 0, lengths[0])
        longest = capacity_for(int(max(lengths) * SLOT_GROWTH))
        together = slots_for(len(lengths)) * self._of(capacity_for(int(max(own) * SLOT_GROWTH)), 0, longest)
        rows = [[capacity_for(int(tokens * SLOT_GROWTH)) for tokens in row] for row in zip(own, lengths, strict=True)]
        apart = sum(self._of(held, 0, length) for held, length in rows) + self._padding
        apart = int(MAX_SLOTS_PER_ROW * apart)
        return min(together, apart)

    def _too_little(self) -> str:
        limit = default_limit() if self.limit is None else self.limit
        needed = self.weights + int(self.row(MIN_CONTEXT_TOKENS) / (1 - WORKSPACE_SHARE)) + 1
        name = "memory_limit" if self.limit is not None else "the memory that MLX may hold"
        return f"{name} is {limit} bytes, and the shortest row needs {needed}: the weights take {self.weights} of them"

    def _of(self, tokens: int, beyond: int, length: int) -> int:
        """Bytes of a row that holds `tokens` tokens of `length`; windows hold `beyond` more than their size."""
        most = max(length, tokens, beyond)
        windows = sum(size * min(most, window + beyond) for size, window in self._windows)
        return self._state + self.per_token * tokens + self._draft_per_token * max(0, length - tokens) + windows


def _unquantised(layer: KeyValues, size: int) -> int:
    """Bytes that a layer of this size would take unquantised."""
    if layer.quantised is None:
        return size
    packed = (layer.arrays[0], layer.arrays[3])
    numbers = sum(array.size * 32 // layer.quantised.bits for array in packed)
    return int(numbers * layer.arrays[1].dtype.size)


def _score_bytes(layer: KeyValues, heads: int) -> int:
    """Bytes of one score of each head; 0 where a kernel computes attention without holding them."""
    arrays = layer.arrays
    if layer.quantised is not None:
        return heads * int(arrays[1].dtype.size)  # upstream multiplies these itself
    keys, values = arrays[0], arrays[1]
    fused = host().machine.fuses_attention(keys.shape[3], values.shape[3], half=keys.dtype.size == 2)
    return 0 if fused else heads * int(keys.dtype.size)


class Workspace:
    """The memory of an engine without rows: its weights, and a reserve for its passes. Used instead of `Memory`.

    Raises:
        ValueError: its limit leaves no such reserve.
    """

    per_token = per_token_unquantised = budget = 0

    def __init__(self, weights: int, limit: int | None) -> None:
        reserve = int(PASSES_MEMORY_SHARE * default_limit())
        if limit is not None and limit <= weights:
            raise ValueError(f"memory_limit is {limit} bytes, and the weights take {weights}")
        self.limit = limit
        self.taken = weights + reserve if limit is None else limit
        self.reserve = self.taken - weights
        self.free = self.reserve // 2
        with _lock:
            _workspaces.add(self)
            _share_out()

    def close(self) -> None:
        """Leave it to others; the engine has ended."""
        with _lock:
            _workspaces.discard(self)
            _share_out()


_workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()
_memories: weakref.WeakSet[Memory] = weakref.WeakSet()
"""Those of this process's engines."""
_lock = Lock()


def _share_out() -> None:
    """Set each engine's budget; neither the order in which they came nor what they hold changes it.

    The least that MLX needs for free buffers is not taken from what engines without a limit share: it is in the part of
    the GPU's memory that `default_limit` leaves.
    """
    total = default_limit()
    left = total - sum(memory.weights if memory.limit is None else memory.limit for memory in _memories)
    left -= sum(workspace.taken for workspace in _workspaces)
    sharing = sum(memory.limit is None for memory in _memories)
    passes, least_free = [each for each in _workspaces if each.limit is None], host().machine.free_buffers()
    for memory in _memories:
        if memory.limit is None:
            rest, least = max(int(total * MIN_LIMIT_SHARE), left // sharing), least_free // (sharing + len(passes))
        else:
            rest, least = max(0, memory.limit - memory.weights), 0
        memory.budget, memory.free = int(rest * (1 - WORKSPACE_SHARE)), max(least, int(rest * FREE_BUFFERS_SHARE))
        memory.scores = max(MIN_SCORES_BYTES, int(rest * SCORES_SHARE))
    for workspace in passes:
        workspace.free = max(workspace.reserve // 2, least_free // (sharing + len(passes)))


def default_limit() -> int:
    """Bytes that MLX may hold: most of a GPU's memory; on the CPU back end MLX's own limit."""
    machine = host().machine
    gpu = machine.gpu_memory()
    return min(int(mx.get_memory_limit()), machine.total_memory()) if gpu is None else int(GPU_SHARE * gpu)
