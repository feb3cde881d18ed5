"""Tests that take longest: `make test` leaves them out, `make test-exhaustive` runs them.

`python -m tests.slow REPORT...` lists them anew, from the reports of runs of everything (`--junitxml`).
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.samples import MOST_CASES

LIST = Path(__file__).with_suffix(".txt")
QUICK_SHARE = 0.08
"""Of the time of all tests, with at most `MOST_CASES` of each, that the others may take."""


def slow() -> frozenset[str]:
    """Names of the tests, `tests/test_it.py::test_something`."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


ALWAYS = frozenset({"caches", "docstrings", "exceptions", "layers", "suite"})
"""Files that hold the structure of the package and of its tests, `tests/test_layers.py`: all of these are quick."""


def slowest(seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """The tests that take longest, so that all others take no more than their share. A test of each file is quick.

    Args:
        seconds: of each case, by test.
    """
    mean = {name: sum(cases) / len(cases) for name, cases in seconds.items()}
    total = {name: mean[name] * min(MOST_CASES, len(cases)) for name, cases in seconds.items()}
    left = sum(total.values())
    most, found = QUICK_SHARE * left, list[str]()
    by_time = sorted(mean, key=lambda name: (-mean[name], name))
    fastest = {name.partition("::")[0]: name for name in by_time}
    structure = {f"tests/test_{name}.py" for name in ALWAYS}
    for name in by_time:
        file = name.partition("::")[0]
        if left <= most:
            break
        if fastest[file] != name and file not in structure:
            found.append(name)
            left -= total[name]
    return sorted(found)


def read(reports: Iterable[Path]) -> dict[str, list[float]]:
    """Seconds of each case in some reports, by test. What was skipped, or has a clock of its own, takes none."""
    found: dict[str, list[float]] = {}
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase"):
            module, *classes = _module(case.get("classname", ""))
            name = "::".join([module, *classes, case.get("name", "").partition("[")[0]])
            found.setdefault(name, []).append(float(case.get("time", 0)))
    return found


def _module(name: str) -> list[str]:
    """`tests.test_it.TestClass` -> the file, and the classes in it."""
    parts = name.split(".") if name else []
    for count in range(len(parts), 0, -1):
        file = Path(*parts[:count]).with_suffix(".py")
        if file.is_file():
            return [file.as_posix(), *parts[count:]]
    return [name]


if __name__ == "__main__":
    LIST.write_text("\n".join(slowest(read(map(Path, sys.argv[1:])))) + "\n", encoding="utf-8")
