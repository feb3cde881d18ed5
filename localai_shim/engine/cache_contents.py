"""Contents of one layer of a row's cache: plain dataclasses, which need neither MLX nor the classes of any cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..types import Json

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


@dataclass(frozen=True, slots=True, eq=False)
class SharedPart:
    """Keys and values of the first tokens of some of a pass's rows."""

    keys: mx.array
    """`[1, heads, tokens, dim]`."""
    values: mx.array
    rows: mx.array | None = None
    """`[n]` int32 places of these rows in the pass; None: all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """First tokens of rows, which attention finds as `shared` on a layer's cache with only the tokens behind these."""

    parts: Sequence[SharedPart]
    order: mx.array | None = None
    """`[rows]` int32: places of the pass's rows among those of all parts, one part behind the other; rows that share
    nothing have the place behind the last one. None: the one part is for all rows, in their order.
    """


@dataclass(frozen=True, slots=True)
class KeyValues:
    """One attention layer: `KVCache`, `QuantizedKVCache`, our `PackedKVCache`, `OwnKVCache`, or `RotatingKVCache`."""

    length: int
    """Tokens that it has seen."""
    arrays: tuple[mx.array, ...] = ()
    """Keys, then values, each `[1, heads, tokens, dim]`, oldest token first; quantised, each is (packed, scales,
    biases), so that there are six. A ring's are the last `Ring.size` tokens, less those that gave way to the `keep`
    first ones, which come first. () while there are none."""
    ring: Ring | None = None
    quantised: Quantised | None = None
    upstream: Upstream = "mlx_lm"
    before: tuple[mx.array, ...] = ()
    """Keys and values of the first tokens, `[1, heads, tokens, dim]`, which the row shares with others; `arrays` hold
    the tokens behind them."""
    fits_slots: ClassVar = True

    @property
    def start(self) -> int:
        """Number of the first tokens that `arrays` do not hold."""
        return self.before[0].shape[2] if self.before else 0

    @property
    def can_share(self) -> bool:
        """Rows that begin alike can share such a layer's first tokens."""
        return self.ring is None and self.quantised is None

    @property
    def growing(self) -> tuple[mx.array, ...]:
        return self.arrays if self.ring is None else ()

    @property
    def ratios(self) -> tuple[int, ...]:
        return () if self.ring is not None else (1, 1) if self.quantised is None else (1,) * 6

    @property
    def has_room(self) -> bool:
        return self.quantised is None  # quantized arrays are concatenated again with each chunk

    @property
    def fixed(self) -> KeyValues | None:
        return None if self.ring is None else self

    def with_growing(self, arrays: Iterable[mx.array], length: int) -> KeyValues:
        return replace(self, length=length, arrays=tuple(arrays))

    def each(self, make: Callable[[mx.array], mx.array]) -> KeyValues:
        return replace(self, arrays=tuple(map(make, self.arrays)))

    def described(self) -> dict[str, object]:
        assert self.ring is not None
        return {"length": self.length, "size": self.ring.size, "keep": self.ring.keep}


@dataclass(frozen=True, slots=True)
class States:
    """One recurrent layer (`ArraysCache`): arrays `[rows, ...]` of a size that does not grow, None before the first."""

    arrays: tuple[mx.array | None, ...]
    upstream: Upstream = "mlx_lm"
    constant: bool = False
    """A row's first pass computes them, and no later one changes them (our `ConstantArrays`)."""
    fits_slots: ClassVar = True
    growing: ClassVar[tuple[mx.array, ...]] = ()
    ratios: ClassVar[tuple[int, ...]] = ()
    has_room: ClassVar = False
    length: ClassVar = None

    @property
    def fixed(self) -> States:
        return self

    def with_growing(self, arrays: Iterable[mx.array], length: int) -> States:
        return self

    def each(self, make: Callable[[mx.array], mx.array]) -> States:
        return replace(self, arrays=tuple(None if array is None else make(array) for array in self.arrays))

    def described(self) -> dict[str, object]:
        return {"constant": True} if self.constant else {}


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
    growing: tuple[mx.array, ...] = ()
    """Pooled tokens, `[1, 1, length // ratio, dim]` of each kind."""
    upstream: Upstream = "mlx_lm"
    fits_slots: ClassVar = False
    has_room: ClassVar = False

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        return (*self.last, *self.growing)

    @property
    def ratios(self) -> tuple[int, ...]:
        return (self.ratio,) * self.kinds

    @property
    def fixed(self) -> Pooled:
        return replace(self, growing=())

    def with_growing(self, arrays: Iterable[mx.array], length: int) -> Pooled:
        return replace(self, growing=tuple(arrays))

    def each(self, make: Callable[[mx.array], mx.array]) -> Pooled:
        return replace(self, last=tuple(map(make, self.last)), growing=tuple(map(make, self.growing)))

    def described(self) -> dict[str, object]:
        return {"length": self.length, "ratio": self.ratio, "kinds": self.kinds}


@dataclass(frozen=True, slots=True)
class ContentsList:
    """One layer with several caches (`CacheList`)."""

    parts: tuple[Contents, ...]

    @property
    def upstream(self) -> Upstream:
        return self.parts[0].upstream


Leaf = KeyValues | States | Pooled
"""One layer with one cache. All kinds have what the prefix cache and copies of rows need:

* `length`: tokens that it has seen; None if it does not say.
* `growing`: arrays that grow with the tokens, which are on the axis before the last; they can be cut into segments.
  `ratios`: number of tokens that a place of each is for. `has_room`: they may have places for tokens to come.
* `fixed`: the layer without these, which is true at its length only; None if there is nothing else.
* `with_growing`: the layer with other such arrays, of a number of tokens. `each`: the layer with all arrays changed.
* `described`: its settings as JSON, for the file of a prefix, which `read_described` reads.
* `fits_slots`: several rows of this kind can be held in slots.
"""
Contents = Leaf | ContentsList


class LayerCache(Protocol):
    """Cache of one layer for a pass: an object of mlx-lm or mlx-vlm, or slots instead of one."""

    def __getattr__(self, name: str) -> Any:
        """Whatever its class has, such as its arrays as `state`."""

    def __setattr__(self, name: str, value: object, /) -> None:
        """Set what its class has."""


RowCache = list[LayerCache]
"""One row's cache: an object per layer."""


def is_trimmable(contents: Contents) -> bool:
    """True if a layer can be trimmed to any shorter length."""
    if isinstance(contents, ContentsList):
        return all(is_trimmable(part) for part in contents.parts)
    return contents.fixed is None


def read_described(described: Json, arrays: Sequence[mx.array | None]) -> Leaf:
    """The layer that `described` describes, without `growing`, with the arrays that it had."""
    upstream = described.get("upstream", "mlx_lm")  # older files do not say
    if "length" not in described:
        return States(tuple(arrays), upstream, described.get("constant", False))
    length, held = described["length"], tuple(array for array in arrays if array is not None)
    if "ratio" in described:
        return Pooled(length, described["ratio"], described["kinds"], held, upstream=upstream)
    return KeyValues(length, held, Ring(described["size"], described["keep"]), upstream=upstream)
