"""Which cases of a long sweep `make test` runs: a few, the same each time. `make test-all` runs all of them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Container, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

MOST_CASES = 3  # of a test in `make test`
FEWEST_COMBINED = 2  # of a test whose cases combine several parameters

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


def mark_many(items: Iterable[pytest.Item], slow: Container[str] = ()) -> None:
    """Mark tests that take long, and all but a few of the cases of each other test.

    Of cases of one parameter a `sample` stays, and of those that combine several parameters a `covering`.

    Args:
        items: tests of a run.
        slow: names of those that take long; see `tests/slow.py`.
    """
    tests: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        quick = () if name in slow else _quick(name, cases) if len(cases) > FEWEST_COMBINED else range(len(cases))
        for i, item in enumerate(cases):
            if i not in quick:
                item.add_marker(exhaustive)


def _quick(name: str, cases: Sequence[Any]) -> set[int]:
    """Numbers of a test's cases that are quick."""
    values = list(zip(*_parameters(cases), strict=True))
    if len(values[0]) == 1:
        return set(sample(range(len(cases)), MOST_CASES, name))
    return covering(values, name)


def _parameters(cases: Sequence[Any]) -> list[list[int]]:
    """For each parameter of a test, a number for its value in each case. `("a", "b")` is one parameter."""
    names = [mark.args[0] for mark in cases[0].iter_markers("parametrize")]
    groups = [name.replace(" ", "").split(",") if isinstance(name, str) else list(name) for name in names]
    groups += [[name] for name in cases[0].callspec.params if not any(name in group for group in groups)]
    made = []
    for group in groups:
        numbers: dict[tuple[int, ...], int] = {}
        values = [tuple(id(item.callspec.params[name]) for name in group) for item in cases]
        made.append([numbers.setdefault(value, len(numbers)) for value in values])
    return made


def covering(cases: Sequence[tuple[int, ...]], seed: object = 0) -> set[int]:
    """Positions of a few combinations that have each value of each parameter at least once.

    The first and the last are among them, there are at least `FEWEST_COMBINED`, and at most `MOST_CASES`: of a
    parameter with more values than that, some are left out.
    """
    values = [set(enumerate(case)) for case in cases]
    missing = set().union(*values)
    order = random.Random(repr(seed)).sample(range(len(cases)), len(cases))
    chosen: list[int] = []
    while len(chosen) < min(MOST_CASES, len(cases)) and (missing or len(chosen) < FEWEST_COMBINED):
        ends = [i for i in (0, len(cases) - 1) if i not in chosen]
        chosen.append((ends or [max(order, key=lambda i: (i not in chosen, len(values[i] & missing)))])[0])
        missing -= values[chosen[-1]]
    return set(chosen)


def _marked(case: Any) -> Any:
    """A tuple is several arguments."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, exhaustive])
    return pytest.param(*case if isinstance(case, tuple) else (case,), marks=exhaustive)
