"""A row's cache that keeps keys and values quantised from the first token on, and prefills through fused attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache

from .contents import Quantised


class PackedKVCache(KVCache):  # type: ignore[misc]
    """Towards the model a plain `KVCache`, whose keys and values are what is left of them after quantisation.

    mlx-lm's `QuantizedKVCache` computes attention over packed keys by matrix products that hold all scores at once:
    good for one token, which slots do so, too, and not for a long prompt. Here each layer is unpacked while it is
    attended to. What a token becomes does not depend on where a chunk or a reused prefix ends.

    Args:
        how: how keys and values are quantised.
        packed: packed keys, scales and biases, then those of the values, `[1, heads, tokens, ...]`; () for none.
    """

    def __init__(self, how: Quantised, packed: Sequence[Any] = ()) -> None:
        super().__init__()
        self.how, self.packed = how, tuple(packed)
        self.offset = packed[0].shape[2] if packed else 0

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        how = self.how
        if not self.packed:
            _check(how, (keys.shape[-1], values.shape[-1]))
        new = [
            part for array in (keys, values) for part in mx.quantize(array, group_size=how.group_size, bits=how.bits)
        ]
        if self.packed:
            new = [mx.concatenate(list(parts), axis=2) for parts in zip(self.packed, new, strict=True)]
        self.packed = tuple(new)
        self.offset += keys.shape[2]
        return self._unpacked(self.packed[:3]), self._unpacked(self.packed[3:])

    def _unpacked(self, packed: Sequence[Any]) -> Any:
        weights, scales, biases = packed
        return mx.dequantize(weights, scales, biases, group_size=self.how.group_size, bits=self.how.bits)

    @property
    def state(self) -> Any:
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


def pack(row: Sequence[Any], how: Quantised) -> list[Any]:
    """An empty row with packed layers in the place of plain ones. Windows and states stay as they are."""
    return [_packed(layer, how) for layer in row]


def _packed(layer: Any, how: Quantised) -> Any:
    if type(layer) is CacheList:
        return CacheList(*(_packed(part, how) for part in layer.caches))
    return PackedKVCache(how) if type(layer) is KVCache else layer
