"""The decode batch's caches as slots: a row joins by one copy of itself, leaves by none, and the others stay put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import mlx.core as mx
import numpy as np

from ..cache_contents import Contents, ContentsList, KeyValues, Leaf, Pooled, RowCache, States
from ..mirror.journal import Mirrored, mirrored
from ..ports import host
from .constant import ConstantSlots
from .layers import Current, KeyValueSlots, LayerSlots, QuantisedSlots, StateSlots, abreast
from .row import copy_of, is_shareable, leaves, mapped, read_row, tokens_from
from .shared import Groups, Prefix
from .step import Lengths, Step

SLOT_STEP_TOKENS = 256  # a slot's capacity is a multiple of this
FREE_SLOT_STEPS = 4  # for which a slot may be free among live ones, before a row behind it is moved there


@dataclass(slots=True)
class BuiltSlots:
    """A step that was built before it was known how many tokens its rows hold."""

    step: Step
    layers: RowCache
    before: list[list[mx.array]]
    """Buffers of each layer that it writes to."""
    after: list[list[mx.array]] = field(default_factory=list)
    """Those that hold what it has written."""


class SlotCache(Mirrored):
    """Rows in slots of preallocated buffers; a row starts at position 0 of its slot and has its own length. Of a row
    that shares its first tokens with others, the slot holds those behind them.

    Slots are numbered from 0. A step runs all up to the last live one: free ones among them, too, until a row takes
    them or `compact` closes them.

    Args:
        spare: tokens of a step that can be taken back from a full sliding window: places that its ring has to spare.
    """

    def __init__(self, spare: int = 0) -> None:
        self._current = Current(spare=spare)
        self._recurrent = False
        self._counts: dict[int, int] = {}  # tokens of the step that is not settled yet
        self._kinds: list[Contents] = []  # of a row's layers, without arrays
        self._layers: list[LayerSlots] = []  # lists of caches taken apart
        self._given: RowCache = []  # what the model is called with
        self._lengths: dict[int, int] = {}  # tokens of the rows in the live slots
        self._prefixes: dict[int, Prefix] = {}  # what these share, of those that share something
        self._groups: Groups | None = None  # of the slots of the last step; None: to be made
        self._spoiled: set[int] = set()  # slots that may hold NaN: masked attention would still pass it on
        self._steps_with_free = 0

    @property
    def width(self) -> int:
        """Slots that a step runs: up to the last live one."""
        return max(self._lengths, default=-1) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, free slots and places included."""
        return sum(array.nbytes for layer in self._layers for array in layer.arrays())

    @property
    def capacity(self) -> int:
        """Places of each slot."""
        return self._current.capacity

    @property
    def looks_back(self) -> bool:
        """Layers have asked for masks that leave out first tokens, which could not be shared then."""
        return self._current.looks_back

    def lengths(self) -> list[int]:
        """Tokens of each row that its slot holds."""
        return [self._own_length(slot) for slot in self._lengths]

    def join(self, rows: Sequence[RowCache], prefixes: Sequence[Prefix | None] = ()) -> list[int]:
        """Copy prefilled rows into free slots, the lowest first. Returns their slots, ascending.

        Args:
            rows: a cache of each.
            prefixes: what each shares of its first tokens, which is not copied. (): none shares any.

        Raises:
            ValueError: a row's cache is of another kind; the batch's cache must not be used any more.
        """
        shared = prefixes or [None] * len(rows)
        contents = [_own(read_row(row), prefix) for row, prefix in zip(rows, shared, strict=True)]
        lengths = [length_of(row) for row in contents]
        if not self._layers:
            self._kinds = mapped(lambda layer: replace(layer, arrays=()), contents[0])
            self._layers = _layers_for(leaves(contents[0]), self._current)
            self._given = _given(self._kinds, iter(self._layers))
            self._recurrent = any(isinstance(its, States) and not its.constant for its in leaves(contents[0]))
        free = (slot for slot in range(len(self._lengths) + len(rows)) if slot not in self._lengths)
        joined = [next(free) for _ in rows]
        self._lengths.update(zip(joined, lengths, strict=True))
        self._prefixes.update({s: p for s, p in zip(joined, shared, strict=True) if p is not None})
        self._groups = None
        self._grow()
        self._resize()
        self._write(joined, contents)
        return joined

    def share(self, slot: int, prefix: Prefix) -> None:
        """Let go of a row's first tokens, which are in a prefix as well; the row shared none before."""
        own = self._read_own(slot, prefix.length)
        self._prefixes[slot], self._groups = prefix, None
        self._write([slot], [own])
        if self._current.capacity > capacity_for(self._needed()):  # it was a copy of these that took the room
            self._current.capacity = capacity_for(self._needed())
            self._resize()

    def leave(self, slots: Sequence[int], spoiled: Sequence[int] = ()) -> None:
        """Free slots, at no cost. `spoiled` ones are emptied before a row takes them."""
        self._spoiled.update(spoiled)
        self._groups = None
        for slot in slots:
            del self._lengths[slot]
            self._prefixes.pop(slot, None)

    @mirrored
    def advance(self, counts: Mapping[int, int] | None = None) -> RowCache:
        """Begin a step. Returns the layers that the model is called with.

        Args:
            counts: by slot, how many tokens each row gets; the model is given as many of each as the most of these, and
                `settle` is called before the next step. None: one each, and nothing is to be settled.
        """
        width, tokens = self.width, max(counts.values()) if counts else 1
        has_free = width > len(self._lengths)
        self._steps_with_free = self._steps_with_free + 1 if has_free else 0
        if self._grow(tokens):
            self._resize()
        lengths = self._lengths_of(width)
        self._current.step = Step(lengths, has_free, tokens, self._current.spare, groups=self._groups_of(width))
        self._note_counts(counts)
        in_all = None if counts is None else [counts.get(slot, tokens) for slot in range(width)]
        for layer in self._layers:
            layer.begin_step(width, in_all)
        return self._given

    @property
    def starts(self) -> int | mx.array | None:
        """The first position of all slots in the step that was begun, or `[width]` of each."""
        step = self._current.step
        return None if step is None else step.offset

    @contextmanager
    def build(self, tokens: int) -> Iterator[BuiltSlots | None]:
        """While a step of several tokens runs, get layers to build one behind it with, of `tokens` per slot, before it
        is known how many of the first one's stay. None: that needs larger buffers first, or states from before it.

        Layers build a graph only, which runs in `begin_built`.
        """
        if (
            self._recurrent
            or self._needed(tokens) > self._current.capacity
            or self._reach(tokens) > self._current.reach
        ):
            yield None
            return
        running, width = self._current.step, self.width
        spare, groups = self._current.spare, self._groups_of(width)
        step = Step(self._lengths_of(width), False, tokens, spare, known=False, groups=groups)
        built = BuiltSlots(step, self._given, [layer.arrays() for layer in self._layers])
        self._current.step = step
        try:
            for layer in self._layers:
                layer.begin_step(width)
            yield built
        finally:
            built.after = [layer.arrays() for layer in self._layers]
            for layer, arrays in zip(self._layers, built.before, strict=True):
                layer.set_arrays(arrays)
            self._current.step = running

    def can_begin(self, built: BuiltSlots, counts: Mapping[int, int]) -> bool:
        """True if `begin_built` may be called: nothing was written since, and `counts` tokens per row fit, which are
        half of its tokens at least.
        """
        arrays = [array for layer in self._layers for array in layer.arrays()]
        before = [array for its in built.before for array in its]
        same = len(arrays) == len(before) and all(a is b for a, b in zip(arrays, before, strict=True))
        most, tokens = max(counts.values()), built.step.tokens
        return same and self.width <= built.step.width and most <= tokens <= 2 * most

    def begin_built(self, built: BuiltSlots, counts: Mapping[int, int]) -> None:
        """Begin a step that was built, as `advance` begins one of `counts` tokens per row."""
        self._steps_with_free = self._steps_with_free + 1 if self.width > len(self._lengths) else 0
        built.step.fill(self._lengths_of(built.step.width))
        self._current.step = built.step
        self._note_counts(counts)
        for layer, arrays in zip(self._layers, built.after, strict=True):
            layer.set_arrays(arrays)
        built.before, built.after = [], []  # who else held a buffer would have it copied

    def settle(self, kept: Mapping[int, int]) -> dict[int, int]:
        """After a step of several tokens: take back what is not kept.

        Args:
            kept: by slot, how many of the row's tokens stay.

        Returns:
            By slot, how many did: none of a row that does not keep all, if the model has recurrent layers that cannot
            be cut.
        """
        counts, self._counts = self._counts, {}
        can_cut = all(layer.can_cut for layer in self._layers)
        stay = {slot: n if n == counts[slot] or can_cut else 0 for slot, n in kept.items()}
        for slot, n in stay.items():
            self._lengths[slot] -= counts[slot] - n
        step = self._current.step
        width = self.width if step is None else step.width  # the last rows may have left while it ran
        most = max(counts.values(), default=0)  # free slots have run as many
        left = [stay.get(slot, 0 if slot in counts else most) for slot in range(width)]
        for layer in self._layers:
            layer.end_step(left)
        return stay

    @property
    def wants_compaction(self) -> bool:
        """No row has taken a free slot among live ones, or buffers are far too large."""
        has_free = self._steps_with_free >= FREE_SLOT_STEPS and self.width > len(self._lengths)
        return has_free or self._is_oversized()

    def compact(self) -> dict[int, int]:
        """Move the last rows into free slots, by one copy of each, and shrink buffers that are far too large.

        Returns:
            Old slot -> new slot of the rows that moved.
        """
        live = sorted(self._lengths)
        holes = [slot for slot in range(len(live)) if slot not in self._lengths]
        moves = dict(zip(live[len(live) - len(holes) :], holes, strict=True))
        self._groups = None
        for source, target in moves.items():  # one after another, so that no more than one row is there twice
            self._write([target], [self._read_own(source)])
        for source, target in moves.items():
            self._lengths[target] = self._lengths.pop(source)
            if source in self._prefixes:
                self._prefixes[target] = self._prefixes.pop(source)
        self._steps_with_free = 0
        if self._is_oversized():
            now = self._current
            now.slots, now.capacity = slots_for(len(live)), capacity_for(self._needed())
            now.reach = capacity_for(max(self._lengths.values(), default=0) + 1)
            self._resize()
        return moves

    def read(self, slot: int, start: int = 0) -> list[Contents]:
        """A copy of a row, the step in flight included, which is waited for; from the token `start` on, in layers with
        one position per token.
        """
        prefix = self._prefixes.get(slot)
        before = 0 if prefix is None else prefix.length
        row = self._read_own(slot, max(0, start - before))
        if prefix is not None and start < before:
            shared = iter(prefix.arrays)
            row = mapped(lambda layer: _with_first(layer, shared, start), row)
            mx.eval([array for layer in leaves(row) for array in layer.arrays if array is not None])
        return row

    def _read_own(self, slot: int, start: int = 0) -> list[Contents]:
        """A copy of what a slot holds: of layers with one position per token, from this place on."""
        length, own, layers = self._lengths[slot], self._own_length(slot), iter(self._layers)
        row = mapped(lambda kind: next(layers).read(slot, own if is_shareable(kind) else length, start), self._kinds)
        row = mapped(lambda layer: replace(layer, length=length) if isinstance(layer, KeyValues) else layer, row)
        mx.eval([array for layer in leaves(row) for array in layer.arrays if array is not None])
        return row

    def rollback(self, slot: int, tokens: int) -> None:
        """Remove a row's last tokens, at no cost: as many as steps of several had, where no layer is recurrent."""
        self._lengths[slot] -= tokens

    # -----------------------------------------------------------------------------------------------------------

    def _lengths_of(self, width: int) -> Lengths:
        """`[width]` tokens that each slot holds; none in free ones."""
        return np.array([self._lengths.get(slot, 0) for slot in range(width)], dtype=np.int64)

    def _own_length(self, slot: int) -> int:
        """Tokens of a row behind those that it shares."""
        prefix = self._prefixes.get(slot)
        return self._lengths[slot] - (0 if prefix is None else prefix.length)

    def _groups_of(self, width: int) -> Groups | None:
        """The slots of a step by what they share; None: nothing."""
        if not self._prefixes:
            return None
        if self._groups is None or len(self._groups.lengths) != width:
            self._groups = Groups(width, self._prefixes)
        return self._groups

    def _note_counts(self, counts: Mapping[int, int] | None) -> None:
        """So many tokens of each row are written; None: one each, and nothing is to be settled."""
        for slot in self._lengths:
            self._lengths[slot] += counts[slot] if counts else 1
        self._counts = dict(counts or {})

    def _needed(self, tokens: int = 1) -> int:
        """Places that a slot must have for the next step, of `tokens` tokens."""
        return max(self.lengths(), default=0) + tokens

    def _reach(self, tokens: int = 1) -> int:
        """Places that a ring without a size must have for it: shared tokens are in rings as well."""
        return max(self._lengths.values(), default=0) + tokens if self._prefixes else self._needed(tokens)

    def _grow(self, tokens: int = 1) -> bool:
        """Set the size that buffers need for the next step; whether it has changed."""
        now, grows = self._current, False
        if self.width > now.slots:
            now.slots, grows = slots_for(self.width), True
        needed = self._needed(tokens)
        if needed > now.capacity:
            now.capacity, grows = capacity_for(max(needed, now.capacity + now.capacity // 4)), True
        reach = max(self._reach(tokens), now.capacity)
        if reach > now.reach:
            now.reach, grows = capacity_for(reach), True
        return grows

    def _is_oversized(self) -> bool:
        now = self._current
        few = slots_for(len(self._lengths)) * 4 <= now.slots
        return few or (now.capacity > 16 * SLOT_STEP_TOKENS and self._needed() * 4 <= now.capacity)

    def _resize(self) -> None:
        for layer in self._layers:  # one after another, so that no more than one is there twice
            layer.resize()

    def _write(self, slots: Sequence[int], rows: Sequence[Sequence[Contents]]) -> None:
        columns = zip(*map(leaves, rows), strict=True)
        writings = (layer.write(slots, its, self._spoiled) for layer, its in zip(self._layers, columns, strict=True))
        for arrays in abreast(writings):
            mx.eval(arrays)
        self._spoiled.difference_update(slots)


def _layers_for(row: Sequence[Leaf], current: Current) -> list[LayerSlots]:
    """Slots for rows whose layers have contents of these kinds.

    Raises:
        ValueError: there are none.
    """
    layers: list[LayerSlots] = []
    number = 0
    for like in row:
        if isinstance(like, Pooled):
            raise ValueError("pooled tokens cannot be kept in slots")
        if isinstance(like, States):
            layers.append(ConstantSlots(like, current) if like.constant else StateSlots(like))
        elif like.quantised is not None:
            layers.append(QuantisedSlots(like, current))
        else:
            layers.append(KeyValueSlots(like, current, number if like.can_share else None))
            number += like.can_share
    return layers


def _own(row: Sequence[Contents], prefix: Prefix | None) -> list[Contents]:
    """A row without the first tokens that it shares from now on; it holds all others, whatever it shared before."""
    first = 0 if prefix is None else prefix.length
    return mapped(lambda layer: tokens_from(layer, first) if is_shareable(layer) else layer, row)


def _with_first(layer: Leaf, shared: Iterator[mx.array], start: int) -> Leaf:
    """A layer of a row with the shared tokens from `start` on before its own ones."""
    if not is_shareable(layer):
        return layer
    first = [copy_of(next(shared)[:, :, start:]) for _ in range(2)]
    if layer.arrays:
        first = [mx.concatenate([*pair], axis=2) for pair in zip(first, layer.arrays, strict=True)]
    return replace(layer, arrays=tuple(first))


def _given(kinds: Sequence[Contents], layers: Iterator[LayerSlots]) -> RowCache:
    """The layer caches of a model whose rows' layers are of these kinds: lists of caches are its library's own."""
    return [
        host().caches.as_list(_given(kind.parts, layers), kind.upstream)
        if isinstance(kind, ContentsList)
        else next(layers).given()
        for kind in kinds
    ]


def slots_for(rows: int) -> int:
    """Slots that are allocated for a number of rows: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, ..."""
    size = 1
    while size < rows:
        size *= 2
    return size * 3 // 4 if size >= 4 and rows <= size * 3 // 4 else size


def length_of(row: Sequence[Contents]) -> int:
    """Tokens of a row so far; layers without attention do not say.

    Raises:
        ValueError: its layers have seen different numbers of tokens.
    """
    lengths = {layer.length for layer in leaves(row) if isinstance(layer, KeyValues) and (layer.arrays or layer.before)}
    if len(lengths) > 1:
        raise ValueError("the layers of this row's cache have seen different numbers of tokens")
    return lengths.pop() if lengths else 0


def capacity_for(tokens: int) -> int:
    """Places that are allocated for a row of a number of tokens."""
    return -(-tokens // SLOT_STEP_TOKENS) * SLOT_STEP_TOKENS
