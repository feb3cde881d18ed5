"""Layers whose rows may each have an adapter of their own.

`y = base(x) + x @ a[i] @ b[i]`, where i is the row's slot; the base alone where no row has one. Slot 0 is zero, and a
scale is part of b. On CUDA a kernel adds it to a few tokens, of all layers that read the same. Elsewhere plain products
do where all rows have the same adapter. Rows of one token multiply with the factors of all adapters together, and what
is not their own is masked between the two: operations are what a step costs, not so few columns. Longer passes use
`gather_mm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import mlx.core as mx
from mlx import nn

from ...backends.cuda.adapters import Kernel
from ...backends.cuda.products import shared_kernel_of
from .folder import Product

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
    """The factors of all adapters for one layer.

    Attributes:
        low: `[slots, ..., rank, in]`, contiguous.
        a: `[slots, ..., in, rank]`, the same, ranks padded with zeros; an embedding's `[slots, tokens, rank]`.
        b: `[slots, ..., rank, out]`.
        used: slots between which all adapters are.
        wide_a: `[in, used * rank]`, the factors of these side by side.
        wide_b: `[used * rank, out]`.
    """

    def __init__(self, dtype: mx.Dtype, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
        self.dtype, self._products = dtype, dict[int, Product]()
        self.rank = 1
        self.used = range(0)
        self.each_a: list[mx.array] = []
        self.each_b: list[mx.array] = []
        """The factors of each slot."""
        self._a_shape, self._b_shape = a_shape, b_shape
        self.low = self.a = self.b = self.wide_a = self.wide_b = mx.zeros((1, 1, 1))

    def __len__(self) -> int:
        return len(self._products)

    @property
    def nbytes(self) -> int:
        return int(self.a.nbytes + self.b.nbytes) if self._products else 0

    @property
    def columns(self) -> int:
        """Of all factors side by side."""
        return len(self.used) * self.rank

    @property
    def arrays(self) -> list[mx.array]:
        """All that passes use: of the memory of two."""
        return [self.low, self.a, self.b, *self.each_a, *self.each_b, self.wide_a, self.wide_b]

    def set(self, slot: int, product: Product | None, slots: int) -> None:
        """Have a slot of so many hold an adapter's factors, or none."""
        if product is None:
            self._products.pop(slot, None)
        else:
            self._products[slot] = product
        self.build(slots)

    def build(self, slots: int) -> None:
        """Make the arrays anew: passes that were built with the others keep those."""
        rank = max((product.a.shape[-1] for product in self._products.values()), default=1)
        a, b = [], []
        zero_a = mx.zeros((*self._a_shape, rank), self.dtype)
        zero_b = mx.zeros((*self._b_shape[:-1], rank, self._b_shape[-1]), self.dtype)
        for slot in range(slots):
            product = self._products.get(slot)
            if product is None:
                a.append(zero_a)
                b.append(zero_b)
                continue
            missing = rank - product.a.shape[-1]
            wide = [(0, 0)] * (product.a.ndim - 1)
            a.append(mx.pad(product.a.astype(self.dtype), [*wide, (0, missing)]))
            scaled = (product.b.astype(mx.float32) * product.scale).astype(self.dtype)
            tall = [(0, 0)] * (product.b.ndim - 2)
            b.append(mx.pad(scaled, [*tall, (0, missing), (0, 0)]))
        self.low = low = mx.contiguous(mx.stack(a).swapaxes(-1, -2))
        self.a, self.b, self.rank = low.swapaxes(-1, -2), mx.stack(b), rank
        self.each_a, self.each_b = [*self.a], [*self.b]
        self.used = range(min(self._products, default=1), max(self._products, default=0) + 1)
        if low.ndim == 3 and self.used:  # a slice has the memory of what it is taken from
            used = slice(self.used.start, self.used.stop)
            self.wide_a, self.wide_b = low[used].flatten(0, 1).T, self.b[used].flatten(0, 1)
        mx.eval(self.arrays)


class Adapted(nn.Module):  # type: ignore[misc]
    """A layer with adapters around it; what else one asks of the layer is the layer's.

    Args:
        base: the layer, as `backends` prepared it.
        stack: the adapters' factors.
        current: what rows have.
    """

    def __init__(self, base: nn.Module, stack: Stack, current: Current) -> None:
        super().__init__()
        self.base = base
        self._stack, self._current = stack, current

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "_stack", "_current"):
            return super().__getattr__(name)
        return getattr(self["base"], name)

    def _selected(self, x: mx.array) -> tuple[Selection | None, mx.array]:
        """The selection, and x as `[rows, tokens, ...]`; it may have come with rows and tokens in one axis."""
        selection = self._current.selection
        if selection is None:
            return None, x
        return selection, x.reshape(len(selection.slots), -1, x.shape[-1])


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
            made = mx.addmm(out, tokens.astype(stack.dtype) @ stack.each_a[one], stack.each_b[one])
        elif len(tokens) == len(selection.slots) and stack.columns <= MAX_MASKED_COLUMNS:
            low = tokens.astype(stack.dtype) @ stack.wide_a
            low = mx.where(selection.mask(stack.used, stack.rank), low, 0)
            made = mx.addmm(out, low, stack.wide_b)
        else:
            rows = x.reshape(len(selection.slots), -1, x.shape[-1])
            made = out + multiply(rows, selection, stack.a, stack.b).reshape(out.shape)
        return made.astype(y.dtype).reshape(y.shape)


class Siblings:
    """Layers that read the same, as those for queries, keys and values do, and the kernel that adds to all of them.

    The first one that is asked has the others' products made, too: the number of operations is what a step costs.
    """

    def __init__(self, layers: Sequence[AdaptedLinear], kernel: Kernel) -> None:
        self._places, self._bases = [id(each) for each in layers], [each["base"] for each in layers]
        self._shared = shared_kernel_of(self._bases)
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
        return y + mx.gather_mm(low, self._stack.b, rhs_indices=selection.index).astype(y.dtype).reshape(y.shape)

    def as_linear(self, x: mx.array) -> mx.array:
        y: mx.array = self.base.as_linear(x)
        selection, rows = self._selected(x)
        if selection is None:
            return y
        a, b = self._stack.b.swapaxes(1, 2), self._stack.a.swapaxes(1, 2)
        return y + multiply(rows, selection, a, b).astype(y.dtype).reshape(y.shape)


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
        z = mx.gather_mm(x, self._stack.a[selection.one], rhs_indices=indices, sorted_indices=sorted_indices)
        z = mx.gather_mm(z, self._stack.b[selection.one], rhs_indices=indices, sorted_indices=sorted_indices)
        return y + z.astype(y.dtype)


class AdaptedBlock(nn.Module):  # type: ignore[misc]
    """A block of experts, which runs once for the rows of each adapter."""

    def __init__(self, base: nn.Module, current: Current) -> None:
        super().__init__()
        self.base = base
        self._current = current

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "_current"):
            return super().__getattr__(name)
        return getattr(self["base"], name)

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


def multiply(x: mx.array, selection: Selection, a: mx.array, b: mx.array) -> mx.array:
    """`x[i] @ a[slot of i] @ b[slot of i]` for x `[rows, tokens, in]`."""
    if (one := selection.one) is not None:
        return x @ a[one] @ b[one]
    low = mx.gather_mm(x, a, rhs_indices=selection.index)
    return mx.gather_mm(low, b, rhs_indices=selection.index)
