"""The decode batch in buckets of rows of similar length: a short row does not pay for the longest one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import mlx.core as mx

from ..cache_contents import Contents, KeyValues, RowCache
from ..mirror.journal import Mirrored, mirrored
from ..ports import host
from .row import MergedCache, OneRow, can_batch, fits_slots, is_packed, leaves, whole
from .shared import Prefix
from .slots import BuiltSlots, SlotCache, length_of

MAX_BUCKETS = 4
FREE_PADDING_BYTES = 2**25  # in a bucket, however small the model is: another pass costs more than to read them

Place = tuple[int, int]
"""(bucket, slot)"""


BatchCache: TypeAlias = OneRow | SlotCache | MergedCache
"""The caches of rows that share a forward pass: a row that is alone stays in its own cache, several rows are held in
slots, and caches of unknown kinds are merged by the methods of their classes. See `SlotCache` for what its methods do.
A row is known by its slot, a place in the model's batch."""


@dataclass(frozen=True, slots=True)
class BucketStep:
    """One bucket's forward pass in a step."""

    layers: RowCache
    width: int
    """Slots, freed ones included."""
    slots: list[int]
    """Those of the rows, ascending."""
    tokens: int = 1
    """For each slot."""
    starts: int | mx.array | None = None
    """See `StepInput.starts`."""


@dataclass(frozen=True, slots=True)
class BuiltBuckets:
    """A step of several tokens that was built before it was known how many tokens its rows hold."""

    steps: list[BucketStep]
    slots: dict[int, BuiltSlots]
    """By bucket, in the order of `steps`."""


class Buckets(Mirrored):
    """The caches of all rows, by bucket. Attention reads every slot of a bucket up to its longest row, and a forward
    pass reads all weights: rows share a bucket as long as their padding takes fewer bytes than the weights.

    Args:
        weight_bytes: the model's.
        most_tokens: of a row in one step.
        builds_ahead: steps of several tokens are built while others run; a row that is alone takes slots for that.
    """

    def __init__(self, weight_bytes: int, most_tokens: int = 1, *, builds_ahead: bool = False) -> None:
        self._spare, self._builds_ahead = most_tokens - 1, builds_ahead
        self._max_padding_bytes = max(FREE_PADDING_BYTES, weight_bytes)
        self._buckets: dict[int, BatchCache] = {}
        self._made = 0

    @property
    def nbytes(self) -> int:
        return sum(bucket.nbytes for bucket in list(self._buckets.values()))

    def shape(self) -> object:
        return [(name, its.width, its.capacity, its.lengths()) for name, its in self._buckets.items()]

    @mirrored
    def choose(self, rows: Sequence[RowCache], shared: Sequence[int] = ()) -> dict[int, list[int]]:
        """Bucket -> which of some prefilled rows should join it. Changes no cache.

        Args:
            rows: a cache of each.
            shared: first tokens of each that it shares, and that take no place in a bucket; (): they share none.

        Raises:
            ValueError: a row cannot join, as its layers have seen different numbers of tokens.
        """
        chosen: dict[int, list[int]] = {}
        if len(rows) == 1 and not self._buckets:  # there is nothing to choose from
            chosen[self._made], self._made = [0], self._made + 1
        else:
            lengths = {name: bucket.lengths() for name, bucket in self._buckets.items()}
            for i, row in enumerate(rows):
                chosen.setdefault(self._choose(row, lengths, shared[i] if shared else 0), []).append(i)
        return chosen

    @mirrored
    def join(
        self,
        rows: Sequence[RowCache],
        chosen: Mapping[int, Sequence[int]] | None = None,
        prefixes: Sequence[Prefix | None] = (),
    ) -> list[Place]:
        """Add prefilled rows, to the buckets that `choose` chose; returns their places. No step should be in flight.

        Args:
            rows: a cache of each.
            chosen: what `choose` returned.
            prefixes: what each row shares of its first tokens, if it joins others; (): none shares any.

        Raises:
            ValueError: this kind of cache holds one row at a time.
        """
        if chosen is None:
            chosen = self.choose(rows)
        places: list[Place] = [(0, 0)] * len(rows)
        for name, which in chosen.items():
            some, theirs = [rows[i] for i in which], [prefixes[i] for i in which] if prefixes else ()
            self._buckets[name], slots = join(self._buckets.get(name), some, self._spare, theirs)
            for i, slot in zip(which, slots, strict=True):
                places[i] = (name, slot)
        return places

    def share(self, place: Place, prefix: Prefix) -> None:
        """Let go of a row's first tokens, which are in a prefix as well. No step should be in flight."""
        name, slot = place
        bucket = self._buckets[name]
        if not isinstance(bucket, MergedCache):
            bucket.share(slot, prefix)

    @mirrored
    def leave(self, places: Sequence[Place], spoiled: Collection[Place] = ()) -> None:
        """Free slots; a bucket without rows is dropped.

        Args:
            places: of the rows that leave.
            spoiled: those of them that may hold NaN.
        """
        for name in {name for name, _ in places}:
            bucket = self._buckets[name]
            slots = [slot for its, slot in places if its == name]
            if len(slots) == len(bucket.lengths()):
                del self._buckets[name]
            else:
                bucket.leave(slots, [slot for slot in slots if (name, slot) in spoiled])

    @mirrored
    def advance(self, places: Sequence[Place]) -> list[BucketStep]:
        """Begin a step with one token for each of the rows at these places: all rows, in the order of the batch."""
        steps = []
        for name, its in _by_bucket(dict.fromkeys(places, 1)).items():
            bucket = self._buckets[name]
            steps.append(BucketStep(bucket.advance(), bucket.width, list(its), starts=starts_of(bucket)))
        return steps

    @mirrored
    def advance_several(self, counts: Mapping[Place, int]) -> list[BucketStep]:
        """Begin a step with a number of tokens for each of all rows, by place, in the order of the batch.

        In a bucket, every row runs as many tokens as the one with the most. No step should be in flight, and `settle`
        is called before the next one.
        """
        steps = []
        for name, its in _by_bucket(counts).items():
            bucket = for_several(self._buckets[name], self._spare, built_ahead=self._builds_ahead)
            self._buckets[name] = bucket
            steps.append(BucketStep(bucket.advance(its), bucket.width, list(its), max(its.values()), starts_of(bucket)))
        return steps

    @contextmanager
    def build(self, running: Mapping[int, BucketStep]) -> Iterator[BuiltBuckets | None]:
        """Have layers to build a step with, of as many tokens as the one that runs: see `SlotCache.build`.

        Args:
            running: that step, by bucket.
        """
        with ExitStack() as stack:
            found: dict[int, BuiltSlots] = {}
            for name, step in running.items():
                bucket = self._buckets.get(name)
                built = stack.enter_context(bucket.build(step.tokens)) if isinstance(bucket, SlotCache) else None
                if built is None:
                    yield None
                    return
                found[name] = built
            steps = [
                replace(running[name], layers=its.layers, width=its.step.width, starts=its.step.offset)
                for name, its in found.items()
            ]
            yield BuiltBuckets(steps, found)

    @mirrored
    def begin_built(self, built: BuiltBuckets, counts: Mapping[Place, int]) -> list[BucketStep] | None:
        """Begin a step that was built, as `advance_several` begins one; None: it is not for these rows any more."""
        by_bucket, begun = _by_bucket(counts), []
        if list(by_bucket) != list(built.slots):
            return None
        for name, its in by_bucket.items():
            bucket = self._buckets[name]
            if not isinstance(bucket, SlotCache) or not bucket.can_begin(built.slots[name], its):
                return None
            begun.append((bucket, built.slots[name], its))
        for bucket, slots, its in begun:
            bucket.begin_built(slots, its)
        return [replace(step, slots=list(its)) for step, (_, _, its) in zip(built.steps, begun, strict=True)]

    @mirrored
    def settle(self, kept: Mapping[Place, int]) -> dict[Place, int]:
        """Keep the first `kept` of the tokens that each row got; returns how many were: none of those of a row that has
        recurrent layers and does not keep all, which must run again what should have stayed.
        """
        return {
            (name, slot): count
            for name, its in _by_bucket(kept).items()
            for slot, count in self._buckets[name].settle(its).items()
        }

    @mirrored
    def rollback(self, tokens: Mapping[Place, int]) -> None:
        """Remove the last tokens of rows, with their numbers by place: see `SlotCache.rollback`."""
        for (name, slot), count in tokens.items():
            self._buckets[name].rollback(slot, count)

    @property
    def wants_compaction(self) -> bool:
        """True if `compact` is worth its cost now."""
        return any(bucket.wants_compaction for bucket in self._buckets.values())

    @mirrored
    def compact(self) -> dict[Place, Place]:
        """Close freed slots; returns old place -> new place of the rows that moved. No step should be in flight."""
        moves: dict[Place, Place] = {}
        for name, bucket in self._buckets.items():
            if bucket.wants_compaction:
                moves.update({(name, old): (name, new) for old, new in bucket.compact().items()})
        return moves

    def read(self, place: Place, start: int = 0) -> list[Contents]:
        """A copy of a row: see `BatchCache.read`."""
        name, slot = place
        return self._buckets[name].read(slot, start)

    def _choose(self, row: RowCache, lengths: dict[int, list[int]], shared: int) -> int:
        """The bucket that a row joins, which may be a new one; adds the row to `lengths`."""
        length, per_token = size_of(row)
        length -= shared
        padding = {name: per_token * _padding_tokens([*its, length]) for name, its in lengths.items()}
        name = min(padding, key=padding.__getitem__, default=None)
        if name is None or (padding[name] > self._max_padding_bytes and len(lengths) < MAX_BUCKETS):
            name, self._made = self._made, self._made + 1
        lengths.setdefault(name, []).append(length)
        return name


@mirrored
def join(
    cache: BatchCache | None, rows: Sequence[RowCache], spare: int = 0, prefixes: Sequence[Prefix | None] = ()
) -> tuple[BatchCache, list[int]]:
    """Add prefilled rows to a batch; None is an empty one.

    Args:
        cache: the batch's; must not be used any more. Its rows keep their slots.
        rows: one cache per row; the same one may come several times. One that joins an empty batch alone is used
            from now on, not copied, unless it shares tokens, or its keys and values are quantised: only slots read
            these as they are.
        spare: see `SlotCache`.
        prefixes: see `SlotCache.join`; kinds that slots cannot hold, and a row that stays alone, share nothing.

    Returns:
        The batch's cache, and the slots of the rows that joined.

    Raises:
        ValueError: this kind of cache takes one row at a time.
    """
    if cache is None and len(rows) == 1 and not is_packed(rows[0]):
        return OneRow(whole(rows[0])), [0]
    if isinstance(cache, SlotCache):
        return cache, cache.join(rows, prefixes)
    if isinstance(cache, MergedCache):
        return cache, cache.join(rows)
    if cache is not None:
        prefixes = [cache.prefix, *(prefixes or [None] * len(rows))] if prefixes or cache.prefix is not None else ()
        rows = [cache.row, *rows]
    if not can_batch(rows[0]):
        raise ValueError(f"a {type(rows[0][0]).__name__} holds one row at a time")
    joined: SlotCache | MergedCache
    if fits_slots(rows[0]):
        joined = SlotCache(spare)
        slots = joined.join(rows, prefixes)
    else:
        joined = MergedCache()
        slots = joined.join(rows)
    return joined, slots if cache is None else slots[1:]


def for_several(cache: BatchCache, spare: int, *, built_ahead: bool = False) -> BatchCache:
    """Make a cache that takes several tokens of each row in a step: slots, where a row that is alone cannot on its own
    cache, or where such steps are built ahead.
    """
    if not isinstance(cache, OneRow) or (cache.takes_several and not built_ahead):
        return cache
    slots = SlotCache(spare)
    slots.join([cache.row], [cache.prefix])
    return slots


def starts_of(cache: BatchCache) -> int | mx.array | None:
    """See `StepInput.starts`: other caches count in arrays that they change in place."""
    return cache.starts if isinstance(cache, SlotCache) else None


def _by_bucket(counts: Mapping[Place, int]) -> dict[int, dict[int, int]]:
    """Numbers of places by bucket, then by slot."""
    out: dict[int, dict[int, int]] = {}
    for (name, slot), count in counts.items():
        out.setdefault(name, {})[slot] = count
    return out


def max_padding_bytes(weight_bytes: int) -> int:
    """Most bytes of padding in all buckets together, when their rows have just joined."""
    return MAX_BUCKETS * max(FREE_PADDING_BYTES, weight_bytes)


def _padding_tokens(lengths: Sequence[int]) -> int:
    """Padding where all rows are read up to the longest."""
    return max(lengths) * len(lengths) - sum(lengths)


def size_of(row: RowCache) -> tuple[int, int]:
    """(tokens, bytes per token) of a row; zeros where its caches do not say.

    Raises:
        ValueError: slots cannot hold it, as its layers have seen different numbers of tokens.
    """
    contents = [layer for layer in map(host().caches.read, row) if layer is not None]
    if len(contents) == len(row):
        length_of(contents)
    length, size = 0, 0
    for layer in leaves(contents):
        if isinstance(layer, KeyValues) and layer.ring is None and layer.length:
            length = layer.length
            size += sum(array.nbytes // max(1, array.shape[2]) for array in layer.arrays or layer.before)
    return length, size
