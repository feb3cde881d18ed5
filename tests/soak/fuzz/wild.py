"""Values that nobody expects where they stand, and changes at random places of a JSON value."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any


def nested(depth: int, inner: Any = 0) -> Any:
    """Lists in lists."""
    for _ in range(depth):
        inner = [inner]
    return inner


NUMBERS: list[Any] = [0, -1, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, 1e-300]
ODD_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf]
TEXTS: list[Any] = [
    "",
    " ",
    "x",
    "\0",
    "null",
    "1",
    "../../outside",
    "/etc/passwd",
    "é" * 100,
    "\u202e\ufeff",
    "a" * 9999,
]
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"": None}, [1, "a", None], {"type": "x"}, nested(60)]
VALUES = NUMBERS + ODD_NUMBERS + TEXTS + OTHERS


def value(rng: random.Random, before: Any = None) -> Any:
    """A wild value, or what was there, changed."""
    if isinstance(before, int | float) and not isinstance(before, bool) and rng.random() < 0.5:
        return rng.choice([before + 1, before - 1, -before, before * 2, before * 1000, str(before), [before]])
    if isinstance(before, str) and rng.random() < 0.3:
        return rng.choice([before + "x", before[:-1], before * 50, [before], {before: before}])
    return copy.deepcopy(rng.choice(VALUES))


Place = tuple[Any, Any]
"""A container, and a key or an index of it."""


def places(tree: Any, depth: int = 0) -> Iterator[Place]:
    """All places of a JSON value that lie no deeper than 50."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, inner in entries:
        yield tree, key
        if depth < 50:
            yield from places(inner, depth + 1)


def changed(tree: Any, rng: random.Random, deep: bool = True) -> str:
    """Change one place of a JSON value. Returns the change in words.

    Args:
        tree: an object or an array, which is changed.
        rng: decides.
        deep: it may be any place, and not only one of the outermost.
    """
    found = list(places(tree)) if deep and rng.random() < 0.7 else [(tree, key) for key, _ in _entries(tree)]
    if not found:
        return "nothing"
    where, key = rng.choice(found)
    if rng.random() < 0.15:
        del where[key]
        return f"{key!r} is gone"
    where[key] = value(rng, where[key])
    return f"{key!r} is {where[key]!r}"[:200]


def _entries(tree: Any) -> list[tuple[Any, Any]]:
    return list(tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ())
