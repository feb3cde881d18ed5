"""Contents of one layer of a row's cache: plain dataclasses, which need neither MLX nor the classes of any cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import mlx.core as mx

Upstream = Literal["mlx_lm", "mlx_vlm"]
"""The library whose classes hold a layer. Each has its own, and its models use what only these have."""
UPSTREAMS: dict[str, Upstream] = {"mlx_lm.models.cache": "mlx_lm", "mlx_vlm.models.cache": "mlx_vlm"}
"""By the module that defines them."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Settings by which a `RotatingKVCache` forgets."""

    size: int
    """Most tokens that it holds."""
    keep: int
    """So many of the first tokens are never forgotten."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """Settings by which keys and values are quantised, along their last axis."""

    group_size: int
    bits: int
    unpacks: bool = False
    """Attention gets them unpacked, since the model's own code multiplies with plain ones only."""


@dataclass(frozen=True, slots=True)
class KeyValues:
    """One attention layer: `KVCache`, `QuantizedKVCache`, our `PackedKVCache` or `RotatingKVCache`."""

    length: int
    """Tokens that it has seen."""
    arrays: tuple[mx.array, ...] = ()
    """Keys, then values, each `[1, heads, tokens, dim]`, oldest token first; quantised, each is (packed, scales,
    biases), so that there are six. A ring's are the last `Ring.size` tokens, less those that gave way to the `keep`
    first ones, which come first. () while there are none."""
    ring: Ring | None = None
    quantised: Quantised | None = None
    upstream: Upstream = "mlx_lm"


@dataclass(frozen=True, slots=True)
class States:
    """One recurrent layer (`ArraysCache`): arrays `[rows, ...]` of a size that does not grow, None before the first."""

    arrays: tuple[mx.array | None, ...]
    upstream: Upstream = "mlx_lm"


@dataclass(frozen=True, slots=True)
class Pooled:
    """One layer's tokens, pooled in groups of `ratio`: a `Pool` of models/attention/pooled.py."""

    length: int
    """Tokens that it has seen."""
    ratio: int
    kinds: int = 1
    """Arrays of pooled tokens."""
    last: tuple[mx.array, ...] = ()
    """Values and gates of the last two groups' tokens, `[1, 2 * ratio, dim]`; () while there are none."""
    pooled: tuple[mx.array, ...] = ()
    """`[1, 1, length // ratio, dim]` of each kind."""
    upstream: Upstream = "mlx_lm"

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        return (*self.last, *self.pooled)


@dataclass(frozen=True, slots=True)
class ContentsList:
    """One layer with several caches (`CacheList`)."""

    parts: tuple[Contents, ...]

    @property
    def upstream(self) -> Upstream:
        return self.parts[0].upstream


Leaf = KeyValues | States | Pooled
Contents = Leaf | ContentsList


class LayerCache(Protocol):
    """Cache of one layer for a pass: an object of mlx-lm or mlx-vlm, or slots instead of one."""

    def __getattr__(self, name: str) -> Any:
        """Whatever its class has, such as its arrays as `state`."""


RowCache = list[LayerCache]
"""One row's cache: an object per layer."""


def is_trimmable(contents: Contents) -> bool:
    """True if a layer can be trimmed to any shorter length."""
    if isinstance(contents, ContentsList):
        return all(is_trimmable(part) for part in contents.parts)
    return isinstance(contents, KeyValues) and contents.ring is None
