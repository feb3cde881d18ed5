"""Caches of a row that mlx-lm does not have: with only the row's tokens, and with quantized keys and values.

A row whose first tokens other rows share holds the rest in an `OwnKVCache`. A `PackedKVCache` is quantized from the
first token on, and prefills through fused attention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from ..backends.machine import is_out_of_memory
from ..engine.cache_contents import UPSTREAMS, LayerCache, Quantised, RowCache, Shared, SharedPart, Upstream
from ..engine.ports import PassOutput, StepInput, host
from ..types import ModelLoadError


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

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        fetched: tuple[mx.array, mx.array] = self.own.update_and_fetch(keys, values)
        return fetched

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        held: tuple[mx.array, mx.array] = self.own.keys_and_values()
        return held

    @property
    def state(self) -> tuple[mx.array, ...]:
        return () if self.own.keys is None else (self.own.keys, self.own.values)

    def make_mask(self, n: int, return_array: bool = False, window_size: int | None = None) -> object:
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


log = logging.getLogger("localai_shim")

_TRIED = [3, 14, 25, 36, 47]  # tokens that every vocabulary has
# Packed and unpacked products differ by rounding; by 1 and more where a model reads packed arrays as something else.
_TOLERANCE = 0.1


class PackedKVCache(KVCache):  # type: ignore[misc]
    """A `KVCache` that stores keys and values quantised, and returns them dequantised.

    mlx-lm's `QuantizedKVCache` computes attention over packed keys by matrix products that hold all scores at once:
    good for one token, where slots do the same, and not for a long prompt. Here each layer is unpacked for its
    attention. A token's keys and values do not depend on where a chunk or a reused prefix ends.

    Args:
        how: how keys and values are quantised.
        packed: packed keys, scales and biases, then those of the values, `[1, heads, tokens, ...]`; () for none.
        upstream: the library whose model it is for; mlx-vlm's take it as they take their own `KVCache`.
    """

    def __init__(self, how: Quantised, packed: Sequence[mx.array] = (), upstream: Upstream = "mlx_lm") -> None:
        super().__init__()
        self.how, self.packed, self.upstream = how, tuple(packed), upstream
        self.offset = packed[0].shape[2] if packed else 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        how = self.how
        if not self.packed:
            _check(how, (keys.shape[-1], values.shape[-1]))
        packed = [a for new in (keys, values) for a in mx.quantize(new, group_size=how.group_size, bits=how.bits)]
        if self.packed:
            packed = [mx.concatenate([*pair], axis=2) for pair in zip(self.packed, packed, strict=True)]
        self.packed = tuple(packed)
        self.offset += keys.shape[2]
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Unpacked keys and values, for attention and for models whose layers share them."""
        return self._unpacked(self.packed[:3]), self._unpacked(self.packed[3:])

    def _unpacked(self, packed: Sequence[mx.array]) -> mx.array:
        weights, scales, biases = packed
        return mx.dequantize(weights, scales, biases, group_size=self.how.group_size, bits=self.how.bits)

    @property
    def state(self) -> tuple[mx.array, ...]:
        return self.packed

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.packed)

    def trim(self, n: int) -> int:
        n = min(self.offset, n)
        self.offset -= n
        self.packed = tuple(array[:, :, : self.offset] for array in self.packed)
        return n

    def empty(self) -> bool:
        return not self.packed


def _check(how: Quantised, widths: Sequence[int]) -> None:
    """Raise ValueError where groups do not divide the numbers of a head's key or value."""
    if not any(width % how.group_size for width in widths):
        return
    fitting = [size for size in (128, 64, 32) if not any(width % size for width in widths)]
    advice = f"pass kv_group_size={fitting[0]}" if fitting else "this model's cannot be quantized"
    numbers = " and ".join(str(width) for width in dict.fromkeys(widths))
    raise ValueError(
        f"kv_bits: keys and values have {numbers} numbers per head here, and groups of {how.group_size} "
        f"(kv_group_size) do not divide them; {advice}"
    )


def pack(row: RowCache, how: Quantised) -> RowCache:
    """An empty row with packed caches instead of plain ones. Windows and states stay as they are."""
    return [_replaced(layer, "KVCache", lambda upstream, _: PackedKVCache(how, upstream=upstream)) for layer in row]


Make = Callable[[Upstream, LayerCache], LayerCache]


def _replaced(layer: LayerCache, name: str, make: Make) -> LayerCache:
    """A new layer, or one with parts, of this class."""
    kind = type(layer)
    upstream = getattr(layer, "upstream", None) or UPSTREAMS.get(kind.__module__)
    if upstream is not None and kind.__name__ == "CacheList":
        return kind(*(_replaced(part, name, make) for part in layer.caches))
    return make(upstream, layer) if upstream is not None and kind.__name__ == name else layer


# -- trying it -------------------------------------------------------------------------------------------------------


class _Model(Protocol):
    @property
    def name(self) -> str: ...

    def new_cache(self) -> RowCache: ...

    def forward(self, step: StepInput) -> PassOutput[mx.array]: ...


class _AsHeld(PackedKVCache):
    """The same, which gives attention packed arrays, as slots do."""

    def __init__(self, like: LayerCache) -> None:
        super().__init__(like.how, like.packed, like.upstream)
        self.bits, self.group_size = self.how.bits, self.how.group_size

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        super().update_and_fetch(keys, values)
        return self.packed[:3], self.packed[3:]


def fitting(how: Quantised, model: _Model) -> Quantised:
    """The same settings, with `unpacks` if the model's own code cannot multiply packed keys and values.

    Raises:
        ModelLoadError: none of its keys and values can be quantized, or not in this way.
    """
    row, caches = model.new_cache(), host().caches
    if not any(map(caches.is_packed, row)):
        raise ModelLoadError(f"kv_bits: '{model.name}' has no layers whose keys and values could be quantized.")
    if alone := [type(layer).__name__ for layer in row if caches.read(layer) is None]:
        raise ModelLoadError(
            f"kv_bits: '{model.name}' cannot be batched because of its layers ({alone[0]}). Leave it out."
        )
    try:
        expected = _last_logits(model, row)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if isinstance(error, ValueError) and str(error).startswith("kv_bits"):
            raise ModelLoadError(str(error)) from error
        why = f"{type(error).__name__}: {str(error).splitlines()[0]:.200}"
        raise ModelLoadError(
            f"kv_bits: the code of '{model.name}' reads its keys and values otherwise than attention does "
            f"({why}), so that they cannot be quantized. Leave kv_bits out."
        ) from error
    try:
        agrees = _agrees(_last_logits(model, model.new_cache(), held=True), expected)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        log.debug("this model's attention reads no packed keys and values: they are unpacked", exc_info=error)
        agrees = False
    return how if agrees else replace(how, unpacks=True)


def _last_logits(model: _Model, row: RowCache, *, held: bool = False) -> mx.array:
    """Logits of one token behind some others.

    Args:
        held: for that token attention gets packed arrays.
    """
    mx.eval(model.forward(StepInput(mx.array([_TRIED[:-1]]), row)).logits)
    if held:
        row = [_replaced(layer, PackedKVCache.__name__, lambda _, packed: _AsHeld(packed)) for layer in row]
    logits: mx.array = model.forward(StepInput(mx.array([_TRIED[-1:]]), row)).logits
    mx.eval(logits)
    return logits


def _agrees(found: mx.array, expected: mx.array) -> bool:
    known = mx.isfinite(found) & mx.isfinite(expected)  # some models ban tokens by an infinite logit
    found, expected = mx.where(known, found, 0), mx.where(known, expected, 0)
    off, size = mx.linalg.norm(found - expected), mx.linalg.norm(expected - expected.mean())
    return bool((off <= _TOLERANCE * size).item())
