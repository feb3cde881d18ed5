"""Which cases of a long sweep `make test` runs: a few, the same each time. `make test-all` runs all of them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

MOST_CASES = 10  # of a test in `make test`

exhaustive = pytest.mark.exhaustive
"""A sweep that make test-all runs and make test leaves out."""


def sample(cases: Iterable[T], count: int, seed: object = 0) -> list[T]:
    """So many of the cases, in their order: the first, the last, and others that are drawn with the seed."""
    cases = list(cases)
    if len(cases) <= count:
        return cases
    drawn = random.Random(repr(seed)).sample(range(1, len(cases) - 1), count - 2)
    return [cases[i] for i in (0, *sorted(drawn), len(cases) - 1)]


def sampled(cases: Iterable[Any], count: int, seed: object = 0) -> list[Any]:
    """Values for `parametrize`: all of the cases, of which those outside the `sample` are exhaustive."""
    cases = list(cases)
    quick = set(sample(range(len(cases)), count, seed))
    return [case if i in quick else _marked(case) for i, case in enumerate(cases)]


def only(quick: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`: all of the cases, of which only these are quick and the others exhaustive."""
    quick = list(quick)
    return [case if case in quick else _marked(case) for case in cases]


def in_part(name: str, part: str | None) -> bool:
    """Whether a file or a test is of a part: "0/3" is one third of all names, None and "" all of them."""
    if not part:
        return True
    number, parts = map(int, part.split("/"))
    return zlib.crc32(name.encode()) % parts == number


def mark_many(items: Iterable[pytest.Item]) -> None:
    """Mark all but a `sample` of the cases of each test that has more than `MOST_CASES`, those without marks of their
    own.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not {"exhaustive", "timed"} & {mark.name for mark in item.iter_markers()}:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        quick = set(sample(range(len(cases)), MOST_CASES, name))
        for i, item in enumerate(cases):
            if i not in quick:
                item.add_marker(exhaustive)


def _marked(case: Any) -> Any:
    """A tuple is several arguments."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, exhaustive])
    return pytest.param(*case if isinstance(case, tuple) else (case,), marks=exhaustive)
