"""A row's KV cache in parts, and a row made of such parts again: what the prefix cache needs of mlx-lm's cache classes.

A row is a list of layers. Those with keys and values per token can be cut anywhere, and are kept as segments. All other
layers (sliding windows, SSM states) hold what is true at one length only, and are kept as snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

Segment = list[Any]
"""Arrays of the layers that can be cut, keys and values in turn, with the tokens on the axis before the last."""

_STEP = 256  # what KVCache grows by


@dataclass(slots=True)
class Snapshot:
    """The layers of a row that cannot be cut, as they are after `length` tokens."""

    length: int
    least: int
    """The shortest length that it can be cut to: sliding windows that are not full yet can be cut like the others."""
    states: list[Any]
    """Per layer, `state` of the cache class in nested lists; `{"array": i}` stands for `arrays[i]`."""
    arrays: list[Any]

    def restored(self, length: int) -> list[Any]:
        """The states of the layers, cut to a length from `least` on."""
        return [_restored(state, self.arrays, length if length < self.length else None) for state in self.states]


def cuts_anywhere(cache: Sequence[Any]) -> bool:
    """Whether rows of this kind can be cut to any shorter length."""
    return all(_cuts(leaf) for leaf in _leaves(cache))


def cut(cache: Sequence[Any], start: int, stop: int, length: int) -> Segment:
    """The keys and values of the tokens from `start` to `stop`, of a row of `length` tokens; lazy copies.

    Raises:
        ValueError: a layer does not hold one position per token.
    """
    segment: Segment = []
    for leaf in _leaves(cache):
        if _cuts(leaf):
            if leaf.keys is None or leaf.offset != length:
                raise ValueError(f"{type(leaf).__name__} holds {leaf.offset} positions of {length} tokens")
            segment += [mx.contiguous(array[..., start:stop, :]) for array in _arrays(leaf)]
    return segment


def take_snapshot(cache: Sequence[Any], length: int) -> Snapshot:
    """The layers of a row of `length` tokens that cannot be cut; lazy copies.

    Raises:
        TypeError: the state of a layer is of a kind that cannot be kept.
    """
    least = 0
    states: list[Any] = []
    arrays: list[Any] = []
    for leaf in _leaves(cache):
        if _cuts(leaf):
            continue
        if _slides(leaf):
            state = _window(leaf)
            if leaf.offset > leaf.max_size:
                least = length
        else:
            state, least = leaf.state, length
        states.append(_stored(state, arrays))
        if _slides(leaf):
            states[-1] = {"window": states[-1]}
    return Snapshot(length, least, states, arrays)


def fill(
    cache: Sequence[Any], segments: Sequence[Segment], snapshot: Snapshot | None, length: int, capacity: int
) -> None:
    """Bring an empty row to `length` tokens.

    Args:
        cache: the row, as the model makes it.
        segments: one after another they hold the tokens.
        snapshot: the layers that cannot be cut.
        length: tokens of the row afterwards.
        capacity: tokens that there will be room for without another copy.
    """
    columns = iter(list(zip(*segments, strict=True)))
    states = iter(snapshot.restored(length) if snapshot is not None else [])
    for leaf in _leaves(cache):
        if not _cuts(leaf):
            leaf.state = next(states)
            continue
        room = -(-max(capacity, length + 1) // _STEP) * _STEP if type(leaf).__name__ == "KVCache" else length
        if type(leaf).__name__ == "QuantizedKVCache":
            leaf.keys, leaf.values = ([_joined(next(columns), length, room) for _ in range(3)] for _ in range(2))
        else:
            leaf.keys, leaf.values = (_joined(next(columns), length, room) for _ in range(2))
        leaf.offset = length


# -------------------------------------------------------------------------------------------------------------------


def _leaves(cache: Sequence[Any]) -> Iterator[Any]:
    from mlx_lm.models.cache import CacheList

    for layer in cache:
        if type(layer) is CacheList:
            yield from _leaves(layer.caches)
        else:
            yield layer


def _cuts(leaf: Any) -> bool:
    from mlx_lm.models.cache import ConcatenateKVCache, KVCache, QuantizedKVCache

    return type(leaf) in (KVCache, QuantizedKVCache, ConcatenateKVCache)  # a subclass may hold more


def _slides(leaf: Any) -> bool:
    from mlx_lm.models.cache import RotatingKVCache

    return type(leaf) is RotatingKVCache


def _arrays(leaf: Any) -> list[Any]:
    if isinstance(leaf.keys, mx.array):
        return [leaf.keys, leaf.values]
    return [*leaf.keys, *leaf.values]


def _window(leaf: Any) -> tuple[Any, ...]:
    """State of a sliding window in the order of time, without what a prefill has left in front of it."""
    keys, values = (_last(leaf._temporal_order(a), leaf.keep, leaf.max_size) for a in (leaf.keys, leaf.values))
    return keys, values, leaf.offset, leaf.keep, leaf.max_size, keys.shape[-2]


def _last(array: Any, keep: int, size: int) -> Any:
    surplus = array.shape[-2] - size
    if surplus <= 0:
        return array
    if not keep:
        return array[..., surplus:, :]
    return mx.concatenate([array[..., :keep, :], array[..., surplus + keep :, :]], axis=-2)


def _stored(state: Any, arrays: list[Any]) -> Any:
    if isinstance(state, mx.array):
        arrays.append(mx.contiguous(state))  # a view would keep the buffer of a whole batch
        return {"array": len(arrays) - 1}
    if isinstance(state, list | tuple):
        return [_stored(part, arrays) for part in state]
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(f"a cache's state holds a {type(state).__name__}")


def _restored(state: Any, arrays: Sequence[Any], length: int | None) -> Any:
    if isinstance(state, list):
        return [_restored(part, arrays, length) for part in state]
    if not isinstance(state, dict):
        return state
    if "array" in state:
        return arrays[state["array"]][...]  # an object of its own: the cache classes write into theirs
    window = _restored(state["window"], arrays, None)
    if length is None:
        return window
    keys, values, _, keep, size, _ = window
    return [keys[..., :length, :], values[..., :length, :], length, keep, size, length]


def _joined(pieces: Sequence[Any], length: int, room: int) -> Any:
    parts = list(pieces)
    if room > length:
        shape = list(parts[0].shape)
        shape[-2] = room - length
        parts.append(mx.zeros(shape, parts[0].dtype))
    return mx.concatenate(parts, axis=-2) if len(parts) > 1 else parts[0][...]
