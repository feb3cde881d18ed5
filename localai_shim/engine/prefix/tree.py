"""A radix tree of prompts, by their keys (see `Prompt`), whose nodes hold what their tokens left in a row's cache.

A node holds the keys and values of only its own tokens, so that rows share what they have in common. Where a model's
layers cannot be trimmed (see `kv/segments.py`), nodes may also hold a snapshot of these, taken at their end.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from ...types import common_length
from ..kv.segments import Segment, Snapshot, nbytes, part_of
from ..kv.shared import Prefix

Salt = str | None
_NEVER = 2**63
_async_eval: Callable[..., None] = mx.async_eval


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A node of the radix tree: the tokens that follow its parent's, and their keys and values."""

    salt: Salt
    parent: Node | None
    keys: list[int]
    segment: Segment
    snapshot: Snapshot | None = None
    start: int = field(init=False)
    children: dict[int, Node] = field(default_factory=dict)
    """By first key."""
    used: int = 0
    """Time on the tree's clock when tokens of the node were last used."""
    served: int = 0
    """Time when its snapshot was."""
    queued: int = _NEVER
    """The age under which it is in the tree's queue for eviction."""
    saved: bool = False
    """It is on disk as it is now."""
    holder: weakref.ref[Prefix] | None = None
    """Shared prefix whose memory the segment is part of; running rows count it, and it is not evicted meanwhile."""
    least: int = _NEVER
    """The `min_length` of each snapshot of the node and below it is this or more."""
    bytes: int = 0

    def __post_init__(self) -> None:
        self.start = 0 if self.parent is None else self.parent.end
        self.update_bytes()

    @property
    def end(self) -> int:
        return self.start + len(self.keys)

    def path(self) -> list[int]:
        """The keys of all tokens up to the node's end."""
        runs: list[list[int]] = []
        node: Node | None = self
        while node is not None:
            runs.append(node.keys)
            node = node.parent
        return [key for run in reversed(runs) for key in run]

    def update_bytes(self) -> int:
        """Count `bytes` again; returns by how much they changed."""
        before = self.bytes
        self.bytes = nbytes([] if self.is_shared else self.segment, self.snapshot)
        return self.bytes - before

    @property
    def shared(self) -> Prefix | None:
        """The prefix that holds the segment, as long as rows share it."""
        return None if self.holder is None else self.holder()

    @property
    def is_shared(self) -> bool:
        return self.shared is not None


@dataclass(slots=True)
class Match:
    """The longest prefix of a prompt that a row can be made of."""

    length: int
    segments: list[Segment]
    snapshot: Snapshot | None


class PrefixTree:
    """Segments and snapshots of rows, by salt and keys.

    Args:
        needs_snapshot: rows have layers that cannot be trimmed, so that only prefixes with a snapshot of these match.
        ratios: of the arrays of segments: see `kv.segments.ratios`.
    """

    def __init__(self, ratios: Sequence[int], *, needs_snapshot: bool) -> None:
        self.bytes = 0
        self._ratios = ratios
        self._needs_snapshot = needs_snapshot
        self._roots: dict[Salt, Node] = {}
        self._nodes: dict[Node, None] = {}
        self._queue: list[tuple[int, int, Node]] = []  # (age when it was put in, or less; serial number; node)
        self._shared: list[Node] = []  # nodes that have, or had, a holder
        self._queued = self._clock = 0

    def __iter__(self) -> Iterator[Node]:
        """All nodes, oldest first."""
        return iter(self._nodes)

    def match_prefix(self, salt: Salt, keys: Sequence[int], *, touch: bool = True) -> Match | None:
        """The longest prefix of these keys that a row can be made of; marks it as used unless told not to."""
        path, length = self.walk(salt, keys)
        snapshot = None
        if self._needs_snapshot:
            length, holder = _usable_length(path, length)
            if holder is None:
                return None
            snapshot = holder.snapshot
            if touch:
                holder.served = self._tick()
        if not length:
            return None
        path = [node for node in path if node.start < length]
        if touch:
            self._touch(path)
        segments = [self._until(length, node) for node in path]
        return Match(length, segments, snapshot)

    def covers(self, salt: Salt, keys: Sequence[int]) -> bool:
        """True if there is nothing to `insert` for these keys; marks them as used."""
        path, length = self.walk(salt, keys)
        self._touch(path)
        return length == len(keys) and (not self._needs_snapshot or _usable_length(path, length)[0] == length)

    def walk(self, salt: Salt, keys: Sequence[int]) -> tuple[list[Node], int]:
        """The nodes along these keys, of which the last may match in part, and how many keys match."""
        path: list[Node] = []
        at, children = 0, self._roots[salt].children if salt in self._roots else {}
        while at < len(keys) and (node := children.get(keys[at])) is not None:
            path.append(node)
            common = common_length(node.keys, keys[at : at + len(node.keys)])
            at += common
            if common < len(node.keys):
                break
            children = node.children
        return path, at

    def insert(self, salt: Salt, keys: Sequence[int], start: int, segment: Segment, snapshot: Snapshot | None) -> Node:
        """Insert what the tree lacks of a row; returns the node at its end.

        Args:
            salt: prompts with another one do not match.
            keys: of all its tokens.
            start: how many of them match already, as `walk` says.
            segment: keys and values of the others.
            snapshot: taken at the end of the tokens.
        """
        _async_eval(segment, snapshot.arrays if snapshot is not None else [])
        path, length = self.walk(salt, keys)
        assert length == start
        parent = path[-1] if path else self._roots.setdefault(salt, Node(salt, None, [], []))
        if length < parent.end:
            parent = self._split(parent, length - parent.start)
            path[-1] = parent
        if length < len(keys):
            node = Node(salt, parent, list(keys[length:]), segment, snapshot)
            parent.children[keys[length]] = node
            self._nodes[node] = None
            self.bytes += node.bytes
            self._enqueue(parent)
            path.append(node)
        elif snapshot is not None:
            node = path[-1]
            node.snapshot, node.saved = snapshot, False
            self.bytes += node.update_bytes()
        self._touch(path)
        path[-1].served = self._clock
        self._enqueue(path[-1])
        if snapshot is not None:
            for node in path:
                node.least = min(node.least, snapshot.min_length)
        return path[-1]

    def drop(self, salt: Salt, keys: Sequence[int], start: int) -> None:
        """Drop what was inserted of a row from its token `start` on, and what follows it."""
        path, length = self.walk(salt, keys)
        if start == length == len(keys):  # its snapshot is all that was new
            path[-1].snapshot = None
            self.bytes += path[-1].update_bytes()
        below = [node for node in path if node.start >= start][:1]
        for node in below:  # which grows
            below += node.children.values()
        for node in reversed(below):
            if node in self._nodes:  # else it went with one that followed it
                self._remove(node)

    def share(self, salt: Salt, keys: Sequence[int]) -> Prefix | None:
        """The first tokens of rows, for several of these to read while they run; None: the tree does not have them.

        Shared tokens are never held twice: if rows share some of these, the result has these, and may be shorter.
        """
        path, length = self.walk(salt, keys)
        if length < len(keys) or not path:
            return None
        self._touch(path)
        held = [node for node in path if node.is_shared]
        if held and (prefix := held[-1].shared) is not None:
            return prefix.first(min(held[-1].end, len(keys)))  # behind its node, they may be other tokens than these
        if length < path[-1].end:
            path[-1] = self._split(path[-1], length - path[-1].start)
        arrays = path[0].segment
        if len(path) > 1:
            arrays = [mx.concatenate([*pieces], axis=2) for pieces in zip(*(n.segment for n in path), strict=True)]
            mx.eval(arrays)
        prefix = Prefix(salt, np.array(keys, np.int64), arrays)
        for node in path:
            node.segment = part_of(arrays, self._ratios, 0, node.start, node.end) if len(path) > 1 else arrays
            node.holder = weakref.ref(prefix)
            self.bytes += node.update_bytes()
        self._shared += path
        return prefix

    def release(self) -> None:
        """Take back what no running row shares any more."""
        if not self._shared or all(node.is_shared for node in self._shared):
            return
        ended = [node for node in self._shared if not node.is_shared]
        self._shared = [node for node in self._shared if node.is_shared]
        for node in ended:
            node.holder = None
            if node in self._nodes:
                node.segment = [mx.contiguous(array) for array in node.segment]  # a view would keep the whole
                _async_eval(node.segment)
                self.bytes += node.update_bytes()
                self._enqueue(node)

    def evict(self, budget: int) -> None:
        """Drop what was used least recently until the rest fits. Shared nodes stay."""
        self.release()
        while self.bytes > budget:
            node = self._oldest()
            if node is None:
                return
            if node.is_shared:  # it is queued again when it is released
                node.snapshot = None
                self.bytes += node.update_bytes()
            elif not node.children:
                self._remove(node)
            else:  # longer rows need its tokens
                node.snapshot = None
                self.bytes += node.update_bytes()

    def clear(self) -> None:
        """Drop everything. Nodes and their parents hold each other: without this only the garbage collector, which
        knows nothing of what MLX holds, would free them."""
        for node in self._nodes:
            node.parent = None
            node.children.clear()
        self._nodes.clear()
        self._roots.clear()
        self._queue.clear()
        self._shared.clear()
        self.bytes = 0

    # -----------------------------------------------------------------------------------------------------------

    def _enqueue(self, node: Node) -> None:
        """Queue a node for eviction at its age; one that was used since needs nothing, see `_oldest`."""
        age = _age(node)
        if age < node.queued:
            node.queued = age
            self._queued += 1
            heapq.heappush(self._queue, (age, self._queued, node))

    def _oldest(self) -> Node | None:
        """The node of which something can be dropped that was used least recently; None: there is none."""
        while self._queue:
            age, _, node = heapq.heappop(self._queue)
            if age != node.queued or node not in self._nodes:
                continue  # it was put in again with a lower age, or is gone
            node.queued = _NEVER
            if _age(node) == age:
                return node
            self._enqueue(node)
        return None

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node in two; returns the first half."""
        assert node.parent is not None
        cut = node.start + at
        halves = self._until(cut, node), part_of(node.segment, self._ratios, node.start, cut, node.end)
        first, rest = halves
        if not node.is_shared:
            first, rest = ([mx.contiguous(array) for array in half] for half in halves)  # views would keep the whole
            _async_eval(first, rest)
        upper = Node(node.salt, node.parent, node.keys[:at], first)
        if node.is_shared:
            upper.holder = node.holder
            upper.update_bytes()
            self._shared.append(upper)
        upper.used, upper.least, upper.children = node.used, node.least, {node.keys[at]: node}
        node.parent.children[node.keys[0]] = upper
        node.parent, node.keys, node.start = upper, node.keys[at:], upper.end
        node.segment, node.saved = rest, False
        self._nodes[upper] = None
        self.bytes += upper.bytes + node.update_bytes()
        return upper

    def _remove(self, node: Node) -> None:
        """Drop a leaf, and those of its parents that no prompt could use without it."""
        while True:
            parent = node.parent
            assert parent is not None and not node.children
            del self._nodes[node], parent.children[node.keys[0]]
            self.bytes -= node.bytes
            if parent.children:
                return
            if parent.parent is None:
                del self._roots[parent.salt]
                return
            if not self._needs_snapshot or parent.snapshot is not None or parent.is_shared:
                self._enqueue(parent)
                return
            node = parent

    def _until(self, length: int, node: Node) -> Segment:
        """A node's segment, as far as the tokens of a prompt of this length."""
        if length >= node.end:
            return node.segment
        return part_of(node.segment, self._ratios, node.start, node.start, length)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _touch(self, path: Sequence[Node]) -> None:
        now = self._tick()
        for node in path:
            node.used = now


def _usable_length(path: Sequence[Node], length: int) -> tuple[int, Node | None]:
    """Length of a path that can be used, given the places of snapshots, and the node with that snapshot."""
    if not path:
        return 0, None
    below, seen = [path[-1]], list[Node]()
    while below:  # sliding windows that were not full at the end of a longer row
        node = below.pop()
        if node.least > length:
            continue
        if node.snapshot is not None and node.snapshot.min_length <= length <= node.end:
            return length, node
        seen.append(node)
        below += [child for child in node.children.values() if child.least <= length]
    for node in reversed(seen):  # their snapshots have gone since `least` was set
        own = _NEVER if node.snapshot is None else node.snapshot.min_length
        node.least = min(own, *(child.least for child in node.children.values()), _NEVER)
    for node in reversed(path):
        if node.snapshot is not None and node.end <= length:
            return node.end, node
    return 0, None


def _age(node: Node) -> int:
    """Time of the last use of a node, or of what can be dropped of it."""
    if not node.children:
        return node.used
    return node.served if node.snapshot is not None else _NEVER
