"""A radix tree of token sequences whose nodes hold what their tokens left in a row's cache.

A node holds the keys and values of its own tokens only, so that rows share what they have in common. Where a model's
layers cannot be cut (see `kv/parts.py`), nodes may hold a snapshot of these, too, taken at their end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from ...types import common_length
from ..kv.segments import Segment, Snapshot

Salt = str | None
_NEVER = 2**63
_async_eval: Callable[..., None] = mx.async_eval


class Node:
    """Some tokens, after those of its parents."""

    __slots__ = (
        "bytes",
        "children",
        "parent",
        "queued",
        "salt",
        "saved",
        "segment",
        "served",
        "snapshot",
        "start",
        "tokens",
        "used",
    )

    def __init__(
        self, salt: Salt, parent: Node | None, tokens: list[int], segment: Segment, snapshot: Snapshot | None = None
    ) -> None:
        self.salt, self.parent, self.tokens = salt, parent, tokens
        self.start: int = 0 if parent is None else parent.end
        self.segment, self.snapshot = segment, snapshot
        self.children: dict[int, Node] = {}
        """By first token."""
        self.used = self.served = 0
        """When tokens of the node were last wanted, and when its snapshot was."""
        self.queued = _NEVER
        """The age under which the tree will ask whether to drop it."""
        self.saved = False
        """It is on disk as it is."""
        self.bytes = 0
        self.weigh()

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def path(self) -> list[int]:
        """All tokens up to the node's end."""
        parts: list[list[int]] = []
        node: Node | None = self
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return [token for part in reversed(parts) for token in part]

    def weigh(self) -> int:
        """Bring `bytes` up to date; returns by how much it changed."""
        before = self.bytes
        self.bytes = sum(array.nbytes for array in self.segment)
        if self.snapshot is not None:
            self.bytes += sum(array.nbytes for array in self.snapshot.arrays)
        return self.bytes - before


@dataclass(slots=True)
class Match:
    """The longest beginning of a prompt that a row can be made of."""

    length: int
    segments: list[Segment]
    snapshot: Snapshot | None


class PrefixTree:
    """What rows left, by salt and tokens.

    Args:
        whole: rows have layers that cannot be cut, and are found only where there is a snapshot of these.
    """

    def __init__(self, *, whole: bool) -> None:
        self.bytes = 0
        self._whole = whole
        self._roots: dict[Salt, Node] = {}
        self._nodes: dict[Node, None] = {}
        self._queue: list[tuple[int, int, Node]] = []  # (age when it was put in or younger, unique number, node)
        self._queued = self._clock = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """All nodes, oldest first."""
        return iter(self._nodes)

    def match(self, salt: Salt, tokens: Sequence[int]) -> Match | None:
        """The longest beginning of these tokens that can be had, and mark it as used."""
        path, length = self.walk(salt, tokens)
        snapshot = None
        if self._whole:
            length, holder = _usable(path, length)
            if holder is None:
                return None
            snapshot, holder.served = holder.snapshot, self._tick()
        if not length:
            return None
        path = [node for node in path if node.start < length]
        self._touch(path)
        segments = [_views(node, 0, length - node.start) for node in path]
        return Match(length, segments, snapshot)

    def covers(self, salt: Salt, tokens: Sequence[int]) -> bool:
        """Whether there is nothing to `add` for these tokens; marks them as used."""
        path, length = self.walk(salt, tokens)
        self._touch(path)
        return length == len(tokens) and (not self._whole or _usable(path, length)[0] == length)

    def walk(self, salt: Salt, tokens: Sequence[int]) -> tuple[list[Node], int]:
        """The nodes along these tokens, of which the last may be left on the way, and how many tokens that is."""
        path: list[Node] = []
        at, children = 0, self._roots[salt].children if salt in self._roots else {}
        while at < len(tokens) and (node := children.get(tokens[at])) is not None:
            path.append(node)
            common = common_length(node.tokens, tokens[at : at + len(node.tokens)])
            at += common
            if common < len(node.tokens):
                break
            children = node.children
        return path, at

    def add(self, salt: Salt, tokens: Sequence[int], start: int, segment: Segment, snapshot: Snapshot | None) -> Node:
        """Put in what is missing of these tokens; returns the node at their end.

        Args:
            salt: rows with another one are not found.
            tokens: all from the start.
            start: how many of them are there already, as `walk` says.
            segment: keys and values of the others.
            snapshot: taken at the end of the tokens.
        """
        _async_eval(segment, snapshot.arrays if snapshot is not None else [])
        path, length = self.walk(salt, tokens)
        assert length == start
        parent = path[-1] if path else self._roots.setdefault(salt, Node(salt, None, [], []))
        if length < parent.end:
            parent = self._split(parent, length - parent.start)
            path[-1] = parent
        if length < len(tokens):
            node = Node(salt, parent, list(tokens[length:]), segment, snapshot)
            parent.children[tokens[length]] = node
            self._nodes[node] = None
            self.bytes += node.bytes
            self._enqueue(parent)
            path.append(node)
        elif snapshot is not None:
            node = path[-1]
            node.snapshot, node.saved = snapshot, False
            self.bytes += node.weigh()
        self._touch(path)
        path[-1].served = self._clock
        self._enqueue(path[-1])
        return path[-1]

    def shrink(self, budget: int) -> None:
        """Let go of what was not wanted for the longest time, until the rest fits."""
        while self.bytes > budget and self._nodes:
            node = self._oldest()
            if not node.children:
                self._remove(node)
            else:  # the tokens are part of younger rows
                node.snapshot = None
                self.bytes += node.weigh()

    def clear(self) -> None:
        """Let go of everything. Nodes and their parents hold each other: without this only the garbage collector,
        which knows nothing of what MLX holds, would free them."""
        for node in self._nodes:
            node.parent = None
            node.children.clear()
        self._nodes.clear()
        self._roots.clear()
        self._queue.clear()
        self.bytes = 0

    # -----------------------------------------------------------------------------------------------------------

    def _enqueue(self, node: Node) -> None:
        """Have a node asked for at its age; ages that grow need nothing, see `_oldest`."""
        age = _age(node)
        if age < node.queued:
            node.queued = age
            self._queued += 1
            heapq.heappush(self._queue, (age, self._queued, node))

    def _oldest(self) -> Node:
        """The node of which something can be dropped and was not wanted for the longest time."""
        while True:
            age, _, node = heapq.heappop(self._queue)
            if age != node.queued or node not in self._nodes:
                continue  # it was put in again with a lower age, or is gone
            node.queued = _NEVER
            if _age(node) == age:
                return node
            self._enqueue(node)

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node in two; returns the first half."""
        assert node.parent is not None
        halves = _views(node, 0, at), _views(node, at, len(node.tokens))
        first, rest = ([mx.contiguous(array) for array in half] for half in halves)  # views would keep the whole
        _async_eval(first, rest)
        upper = Node(node.salt, node.parent, node.tokens[:at], first)
        upper.used, upper.children = node.used, {node.tokens[at]: node}
        node.parent.children[node.tokens[0]] = upper
        node.parent, node.tokens, node.start = upper, node.tokens[at:], upper.end
        node.segment, node.saved = rest, False
        self._nodes[upper] = None
        self.bytes += upper.bytes + node.weigh()
        return upper

    def _remove(self, node: Node) -> None:
        """Drop a leaf, and those of its parents that are of no use without it."""
        while True:
            parent = node.parent
            assert parent is not None and not node.children
            del self._nodes[node], parent.children[node.tokens[0]]
            self.bytes -= node.bytes
            if parent.children:
                return
            if parent.parent is None:
                del self._roots[parent.salt]
                return
            if not self._whole or parent.snapshot is not None:
                self._enqueue(parent)
                return
            node = parent

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _touch(self, path: Sequence[Node]) -> None:
        now = self._tick()
        for node in path:
            node.used = now


def _usable(path: Sequence[Node], length: int) -> tuple[int, Node | None]:
    """How much of a path a snapshot allows to use, and the node that holds it."""
    if not path:
        return 0, None
    below = [path[-1]]
    while below:  # sliding windows that were not full at the end of a longer row
        node = below.pop()
        if node.snapshot is not None and node.snapshot.least <= length <= node.end:
            return length, node
        below += node.children.values()
    for node in reversed(path):
        if node.snapshot is not None and node.end <= length:
            return node.end, node
    return 0, None


def _views(node: Node, start: int, stop: int) -> Segment:
    if start == 0 and stop >= len(node.tokens):
        return node.segment
    return [array[..., start:stop, :] for array in node.segment]


def _age(node: Node) -> int:
    """When a node, or what can be dropped of it, was last wanted."""
    if not node.children:
        return node.used
    return node.served if node.snapshot is not None else _NEVER
