"""A row's cache that holds quantised keys and values from the first token on, and prefills through fused attention."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from ..engine.cache_contents import UPSTREAMS, LayerCache, Quantised, RowCache, Upstream


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
    advice = f"pass kv_group_size={fitting[0]}" if fitting else "this model's cannot be quantised"
    numbers = " and ".join(str(width) for width in dict.fromkeys(widths))
    raise ValueError(
        f"kv_bits: keys and values have {numbers} numbers per head here, and groups of {how.group_size} "
        f"(kv_group_size) do not divide them; {advice}"
    )


def pack(row: RowCache, how: Quantised) -> RowCache:
    """An empty row with packed caches in place of plain ones. Windows and states stay as they are."""
    return [_packed(layer, how) for layer in row]


def _packed(layer: LayerCache, how: Quantised) -> LayerCache:
    kind = type(layer)
    upstream = UPSTREAMS.get(kind.__module__)
    if upstream is not None and kind.__name__ == "CacheList":
        return kind(*(_packed(part, how) for part in layer.caches))
    return PackedKVCache(how, upstream=upstream) if upstream is not None and kind.__name__ == "KVCache" else layer
