"""Choice of the replica that answers a request: by what is kept where, by load, and by the prompts that each has seen.

Nothing here knows Ray: replicas are names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...threads.cache import LRUCache

BLOCK_CHARACTERS = 256
MAX_BLOCKS = 256
"""Blocks of a prompt that are looked at: its first 65,536 characters."""
MAX_KNOWN_BLOCKS = 16_384  # of a replica
MAX_KEPT_IDS = 100_000
NEAR_FACTOR, NEAR_REQUESTS = 1.25, 1
"""A replica is nearly the least loaded one with at most this factor times the least requests, plus this number."""

# Kinds of resources that a client lists: all of them have to be in one place.
_LISTED = re.compile(r"/(files|batches)(/|$)|/chat/completions(/.+)?$")
_KEPT = re.compile(r"/(responses|conversations)(?:/([^/]+))?")
_KEPT_ID = re.compile(rb'"id":\s*"((?:resp|conv)_[0-9a-f]+)"')
_HEAD_BYTES = 4096  # of an answer, in which its own id stands


class Wish(NamedTuple):
    """Facts of a request by which a replica is chosen."""

    listed: bool = False
    """It is about files, batches or stored completions: the first replica keeps them all."""
    kept: tuple[str, ...] = ()
    """Responses and conversations that the request continues."""
    keeps: bool = False
    """Its answer may be one of these."""
    cache_key: int | None = None
    """Hash of its `prompt_cache_key`."""
    blocks: tuple[int, ...] = ()
    """Hashes of the beginnings of its prompt, block by block."""


def read_wish(method: str, path: str, body: bytes) -> Wish:
    """Read what a request says about where it should go.

    Args:
        method: GET, POST or DELETE.
        path: of its URL.
        body: whatever it is; what is not JSON says nothing.
    """
    fields = _fields(body)
    in_path = _KEPT.search(path)
    if in_path is not None and in_path[2] and in_path[2].startswith(("resp_", "conv_")):
        return Wish(kept=(in_path[2],))
    listed = _LISTED.search(path)
    if listed is not None and (listed[1] or listed[3] or method != "POST" or fields.get("store") is True):
        return Wish(listed=True)
    if b'"file_id":' in body:
        return Wish(listed=True, keeps=in_path is not None)
    key = fields.get("prompt_cache_key")
    return Wish(
        kept=tuple(_named(fields)),
        keeps=in_path is not None,
        cache_key=None if key is None else hash(str(key)),
        blocks=tuple(_hashes(fields)),
    )


def kept_ids(head: bytes) -> Iterable[str]:
    """The ids of what an answer says that it keeps, by the beginning of its body."""
    found = _KEPT_ID.search(head[:_HEAD_BYTES])
    return () if found is None else (found[1].decode(),)


def _fields(body: bytes) -> dict[str, object]:
    if not body.startswith(b"{"):
        return {}
    try:
        found: dict[str, object] = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found


def _named(fields: dict[str, object]) -> Iterator[str]:
    conversation = fields.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    for id in (fields.get("previous_response_id"), conversation):
        if isinstance(id, str):
            yield id


def _hashes(fields: dict[str, object]) -> Iterator[int]:
    text, before = "", 0
    for part in _parts(fields):
        text += json.dumps(part)
        if len(text) >= MAX_BLOCKS * BLOCK_CHARACTERS:
            break
    for end in range(BLOCK_CHARACTERS, min(len(text), MAX_BLOCKS * BLOCK_CHARACTERS) + 1, BLOCK_CHARACTERS):
        before = hash((before, text[end - BLOCK_CHARACTERS : end]))
        yield before


def _parts(fields: dict[str, object]) -> Iterator[object]:
    """The parts of a prompt in the order in which templates have them, messages one by one."""
    for name in ("tools", "instructions", "messages", "input", "prompt"):
        part = fields.get(name)
        if isinstance(part, list):
            yield from part
        elif part is not None:
            yield part


@dataclass
class _Replica:
    """Requests of one replica, and what it has seen."""

    running: int = 0
    begun: int = 0
    """Requests so far."""
    known: LRUCache[bool] = field(default_factory=lambda: LRUCache(MAX_KNOWN_BLOCKS))
    """By hashes of the blocks and keys that it has seen."""

    def affinity(self, wish: Wish) -> tuple[bool, int]:
        """True if it knows the cache key, and the number of the prompt's first blocks that it knows."""
        unknown = (count for count, block in enumerate(wish.blocks) if block not in self.known)
        return wish.cache_key in self.known, next(unknown, len(wish.blocks))


class Router:
    """Replicas by name, in the order in which they came.

    Args:
        shared_store: all of them keep responses, files and batches in one file, so that each has them.
    """

    def __init__(self, names: Iterable[str] = (), *, shared_store: bool = False) -> None:
        self._replicas = {name: _Replica() for name in names}
        self._shared_store = shared_store
        self._kept: LRUCache[str] = LRUCache(MAX_KEPT_IDS)

    def add(self, name: str) -> None:
        """Take a new replica."""
        self._replicas[name] = _Replica()

    def remove(self, name: str) -> None:
        """Choose this one no longer; those of its requests that run end as before."""
        self._replicas.pop(name, None)

    def forget(self, name: str) -> None:
        """Take note that a replica has restarted: its prefix cache is empty."""
        if name in self._replicas:
            self._replicas[name].known = LRUCache(MAX_KNOWN_BLOCKS)

    def choose(self, wish: Wish, ready: Collection[str]) -> str | None:
        """The replica for a request; None if the request must wait for one.

        Args:
            wish: of the request.
            ready: the replicas that take requests now.
        """
        if wish.listed and not self._shared_store:
            first = next(iter(self._replicas), None)
            return first if first in ready else None
        for id in wish.kept:
            keeper = self._kept.get(id)
            if keeper is not None and keeper in ready:
                return keeper
        found = {name: replica for name, replica in self._replicas.items() if name in ready}
        if not found:
            return None
        most = min(replica.running for replica in found.values()) * NEAR_FACTOR + NEAR_REQUESTS
        near = [(name, replica) for name, replica in found.items() if replica.running <= most]
        return max(near, key=lambda each: (each[1].affinity(wish), -each[1].running, -each[1].begun))[0]

    def begin(self, name: str, wish: Wish) -> None:
        """Count a request that a replica gets."""
        replica = self._replicas[name]
        replica.running += 1
        replica.begun += 1
        for seen in (*wish.blocks, *(() if wish.cache_key is None else (wish.cache_key,))):
            replica.known.put(seen, True)

    def end(self, name: str) -> None:
        """Count down."""
        if name in self._replicas:
            self._replicas[name].running -= 1

    def keep(self, name: str, ids: Iterable[str]) -> None:
        """Note where something is kept."""
        for id in ids:
            self._kept.put(id, name)

    def running(self, name: str) -> int:
        """Requests that a replica has now."""
        return self._replicas[name].running
