"""Layers whose rows may each have their own adapter.

`y = base(x) + x @ a[i] @ b[i]`, where i is the row's slot; the base alone where no row has one. Slot 0 is zero, and a
scale is part of b. On CUDA a kernel adds it to a few tokens, of all layers that read the same. Elsewhere plain products
do where all rows have the same adapter. Rows of one token multiply with the factors of all adapters together, and what
is not their own is masked between the two: operations are what a step costs, not so few columns. Longer passes use
`gather_mm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx import nn

from ...engine.ports import AdapterKernel, host
from ...types import Product

MAX_MASKED_COLUMNS = 512  # of all adapters side by side, beyond which `gather_mm` computes less


class Selection:
    """Slots of the rows of passes, and what is made of them once: an array that MLX makes of numbers of the host's may
    wait for all that a GPU has in flight.

    Args:
        slots: of each row.

    Attributes:
        index: `[rows]` uint32.
        one: the slot of all rows, if they have the same.
        made: what siblings have read in this pass, and the products of those that were not asked yet.
    """

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.slots, self.index = slots, mx.array(slots, mx.uint32)
        self.one = slots[0] if len(set(slots)) == 1 else None
        self.made: dict[Siblings, tuple[mx.array, dict[int, mx.array]]] = {}
        self._masks: dict[tuple[range, int], mx.array] = {}

    def mask(self, slots: range, rank: int) -> mx.array:
        """Columns that are each row's own among those of these slots, each of so high a rank, `[rows, columns]`."""
        made = self._masks.get((slots, rank))
        if made is None:
            columns = mx.array([slot for slot in slots for _ in range(rank)], mx.uint32)
            made = self._masks[slots, rank] = columns[None] == self.index[:, None]
        return made

    @cached_property
    def parts(self) -> list[tuple[mx.array, Selection]]:
        """Places of the rows of each slot, and the selection of these alone."""
        places: dict[int, list[int]] = {}
        for i, slot in enumerate(self.slots):
            places.setdefault(slot, []).append(i)
        return [(mx.array(rows), Selection((slot,) * len(rows))) for slot, rows in places.items()]

    @cached_property
    def back(self) -> mx.array:
        """Places of the rows behind each other, where the parts are."""
        return mx.argsort(mx.concatenate([places for places, _ in self.parts]))


class Current:
    """Selection of the pass that is being built; None: no row of it has an adapter."""

    selection: Selection | None = None


class Stack:
    """The factors of all adapters for one layer. A slot is written in place if nothing else holds the arrays: no pass
    that was not run, and no `Siblings`.

    Args:
        dtype: of the factors.
        inputs: shape of `low` without slots and ranks.
        outputs: the same of `high`.
        slots: how many there are at first; they are zero.
        rank: of what they can hold at first.

    Attributes:
        low: `[slots, ..., rank, in]`, ranks padded with zeros. The rank is not the last axis: on CUDA, MLX 0.32.4's
            `gather_mm` fails with a misaligned address if rows of a factor are not a multiple of 16 bytes.
        high: `[slots, ..., rank, out]`.
        ranks: of the slots that hold an adapter's factors.
    """

    def __init__(
        self, dtype: mx.Dtype, inputs: tuple[int, ...], outputs: tuple[int, ...], slots: int, rank: int
    ) -> None:
        self.dtype = dtype
        self.low, self.high = (mx.zeros((slots, *each[:-1], rank, each[-1]), dtype) for each in (inputs, outputs))
        self.ranks: dict[int, int] = {}
        self._views: dict[object, tuple[mx.array, ...]] = {}
        """Views of the arrays for passes, of the same memory, made once."""

    @property
    def slots(self) -> int:
        return self.low.shape[0]

    @property
    def rank(self) -> int:
        return self.low.shape[-2]

    @property
    def nbytes(self) -> int:
        return int(self.low.nbytes + self.high.nbytes)

    @property
    def used(self) -> range:
        """Slots between which all adapters are."""
        return range(min(self.ranks, default=1), max(self.ranks, default=0) + 1)

    @property
    def columns(self) -> int:
        """Of all factors side by side."""
        return len(self.used) * self.rank

    @property
    def a(self) -> mx.array:
        """`[slots, ..., in, rank]`; an embedding's `[slots, tokens, rank]`."""
        [a] = self._view("a", lambda: (self.low.swapaxes(-1, -2),))
        return a

    def of(self, slot: int) -> tuple[mx.array, mx.array]:
        """Factors of one slot, `[..., in, rank]` and `[..., rank, out]`."""
        low, high = self._view(slot, lambda: (self.low[slot].swapaxes(-1, -2), self.high[slot]))
        return low, high

    def wide(self) -> tuple[mx.array, mx.array]:
        """Factors of the used slots side by side, `[in, columns]` and `[columns, out]`."""
        used = slice(self.used.start, self.used.stop)
        low, high = self._view("wide", lambda: (self.low[used].flatten(0, 1).T, self.high[used].flatten(0, 1)))
        return low, high

    def _view(self, key: object, make: Callable[[], tuple[mx.array, ...]]) -> tuple[mx.array, ...]:
        made = self._views.get(key)
        if made is None:
            made = self._views[key] = make()
        return made

    def resize(self, slots: int, rank: int) -> None:
        """Have this many slots and this rank. Copies all, unless nothing changes."""
        if (slots, rank) != (self.slots, self.rank):
            self._views.clear()
            low, high = _resized(self.low, slots, rank), _resized(self.high, slots, rank)
            mx.eval(low, high)
            self.low, self.high = low, high

    def write(self, slot: int, product: Product | None) -> None:
        """Have a slot hold an adapter's factors, of at most the rank that the stack has; None: it has none here."""
        self._views.clear()
        if product is None:
            self.ranks.pop(slot, None)
            self.low[slot] = self.high[slot] = 0
        else:
            low = self._array(product, product.low, 1.0, self.low.shape[1:])
            high = self._array(product, product.high, product.scale, self.high.shape[1:])
            mx.eval(low, high)
            self.ranks[slot] = product.low.shape[-2]
            self.low[slot], self.high[slot] = low, high
        mx.eval(self.low, self.high)

    def _array(
        self, product: Product, factor: npt.NDArray[np.generic], scale: float, shape: tuple[int, ...]
    ) -> mx.array:
        """A factor in the form of a slot."""
        array = mx.array(factor)
        array = array.view(mx.bfloat16) if product.half else array
        if scale != 1:
            array = array.astype(mx.float32) * scale
        array = array.astype(self.dtype)
        if (missing := shape[-2] - array.shape[-2]) > 0:
            array = mx.pad(array, [*[(0, 0)] * (array.ndim - 2), (0, missing), (0, 0)])
        if product.experts is not None:
            every = mx.zeros(shape, self.dtype)
            every[mx.array(product.experts)] = array
            array = every
        return array

    def move(self, slot: int, to: int) -> None:
        """Have another slot hold what a slot holds; this one keeps it as well."""
        self._views.clear()
        if slot in self.ranks:
            low, high = copy_of(self.low[slot]), copy_of(self.high[slot])
            mx.eval(low, high)  # which end the reading, so that the writing is in place
            self.low[to], self.high[to] = low, high
            self.ranks[to] = self.ranks[slot]
            mx.eval(self.low, self.high)
        else:
            self.write(to, None)

    def free(self, slot: int) -> None:
        """Forget a slot's factors. They stay where they are until the slot is used again."""
        self._views.clear()
        self.ranks.pop(slot, None)


def _resized(array: mx.array, slots: int, rank: int) -> mx.array:
    """A copy of other sizes: slots and ranks that are new are zero."""
    kept = array[:slots, ..., :rank, :]
    widths = [(0, 0)] * array.ndim
    widths[0], widths[-2] = (0, slots - kept.shape[0]), (0, rank - kept.shape[-2])
    return mx.pad(kept, widths) if any(after for _, after in widths) else copy_of(kept)


class Wrapper(nn.Module):  # type: ignore[misc]
    """A module around another one, whose attributes it has.

    Args:
        base: the module, as `backends` prepared it.
        current: what rows have.
    """

    def __init__(self, base: nn.Module, current: Current) -> None:
        super().__init__()
        self.base, self._current = base, current

    def __getattr__(self, name: str) -> object:
        if name in ("base", "_stack", "_current"):
            return super().__getattr__(name)
        return getattr(self["base"], name)


class Adapted(Wrapper):
    """A layer with adapters around it.

    Args:
        stack: the adapters' factors.
    """

    def __init__(self, base: nn.Module, stack: Stack, current: Current) -> None:
        super().__init__(base, current)
        self._stack = stack


class AdaptedLinear(Adapted):
    """A dense or quantised product.

    Attributes:
        siblings: with whose kernel it is made, if there is one.
    """

    siblings: Siblings | None = None

    def __call__(self, x: mx.array) -> mx.array:
        selection, stack = self._current.selection, self._stack
        if selection is not None and self.siblings is not None and self.siblings.kernel.takes(x):
            return self.siblings.product(self, x, selection)
        y: mx.array = self["base"](x)
        if selection is None:
            return y
        tokens, out = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])  # of three axes MLX makes a product a row
        if (one := selection.one) is not None:
            a, b = stack.of(one)
            made = mx.addmm(out, tokens.astype(stack.dtype) @ a, b)
        elif len(tokens) == len(selection.slots) and stack.columns <= MAX_MASKED_COLUMNS:
            wide_a, wide_b = stack.wide()
            low = mx.where(selection.mask(stack.used, stack.rank), tokens.astype(stack.dtype) @ wide_a, 0)
            made = mx.addmm(out, low, wide_b)
        else:
            rows = x.reshape(len(selection.slots), -1, x.shape[-1])
            made = out + multiply(rows, selection, stack.a, stack.high).reshape(out.shape)
        return made.astype(y.dtype).reshape(y.shape)


class Siblings:
    """Layers that read the same, as those for queries, keys and values do, and the kernel that adds to all of them.

    The first one that is asked has the others' products made, too: the number of operations is what a step costs.
    """

    def __init__(self, layers: Sequence[AdaptedLinear], kernel: AdapterKernel) -> None:
        self._places, self._bases = [id(each) for each in layers], [each["base"] for each in layers]
        self._shared = host().forms().shared_kernel(self._bases)
        self.kernel = kernel

    def product(self, layer: AdaptedLinear, x: mx.array, selection: Selection) -> mx.array:
        read, made = selection.made.get(self, _NONE)
        if read is not x or id(layer) not in made:
            made = dict(zip(self._places, self.kernel.add(x, self._products(x), selection.index), strict=True))
            if len(made) > 1:
                selection.made[self] = x, made
        return made.pop(id(layer))

    def _products(self, x: mx.array) -> list[mx.array]:
        """Products of the layers without adapters."""
        ys = None if self._shared is None else self._shared.multiply(x)
        if ys is None:
            return [base(x) for base in self._bases]
        return [y + base["bias"] if "bias" in base else y for y, base in zip(ys, self._bases, strict=True)]


_NONE: tuple[mx.array | None, dict[int, mx.array]] = (None, {})


class AdaptedEmbedding(Adapted):
    """A table of tokens, which may be the head as well."""

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.base(x)
        selection = self._current.selection
        if selection is None:
            return y
        rows = x.reshape(len(selection.slots), -1)
        low = self._stack.a[selection.index[:, None], rows]
        return y + mx.gather_mm(low, self._stack.high, rhs_indices=selection.index).astype(y.dtype).reshape(y.shape)

    def as_linear(self, x: mx.array) -> mx.array:
        y: mx.array = self.base.as_linear(x)
        selection = self._current.selection
        if selection is None:
            return y
        rows = x.reshape(len(selection.slots), -1, x.shape[-1])  # it may have rows and tokens in one axis
        made = multiply(rows, selection, self._stack.high.swapaxes(1, 2), self._stack.low)
        return y + made.astype(y.dtype).reshape(y.shape)


class AdaptedExperts(Adapted):
    """The products of a block of experts. `AdaptedBlock` sees to it that all rows of a call have the same adapter:
    the block sorts tokens by their experts, and no layer of it knows whose they are.
    """

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        y: mx.array = self.base(x, indices, sorted_indices=sorted_indices)
        selection = self._current.selection
        if selection is None:
            return y
        assert selection.one is not None
        a, b = self._stack.of(selection.one)
        z = mx.gather_mm(x, a, rhs_indices=indices, sorted_indices=sorted_indices)
        z = mx.gather_mm(z, b, rhs_indices=indices, sorted_indices=sorted_indices)
        return y + z.astype(y.dtype)


class AdaptedBlock(Wrapper):
    """A block of experts, which runs once for the rows of each adapter."""

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        selection = self._current.selection
        if selection is None or selection.one is not None:
            made: mx.array = self.base(x, indices)
            return made
        count = len(selection.slots)
        xs, chosen = x.reshape(count, -1, x.shape[-1]), indices.reshape(count, -1, indices.shape[-1])
        parts = list[mx.array]()
        try:
            for places, own in selection.parts:
                self._current.selection = own
                parts.append(self.base(xs[places], chosen[places]))
        finally:
            self._current.selection = selection
        y = mx.concatenate(parts)[selection.back]
        return y.reshape(*indices.shape, y.shape[-1])


def copy_of(array: mx.array) -> mx.array:
    """A lazy copy that shares nothing: `mx.contiguous` would share a view that is contiguous already."""
    return array * 1


def multiply(x: mx.array, selection: Selection, a: mx.array, b: mx.array) -> mx.array:
    """`x[i] @ a[slot of i] @ b[slot of i]` for x `[rows, tokens, in]`."""
    if (one := selection.one) is not None:
        return x @ a[one] @ b[one]
    low = mx.gather_mm(x, a, rhs_indices=selection.index)
    return mx.gather_mm(low, b, rhs_indices=selection.index)
