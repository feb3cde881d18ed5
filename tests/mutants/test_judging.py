from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.drawing import Mutant, draw
from tests.mutants.judging import Verdict, judge, nearest
from tests.mutants.table import Group

ADULT = """
def adult(age):
    return age >= 18
"""
COUNTED = """
def counted(items, seen):
    count = 0
    while count < len(items):
        count += 1
    return count
"""
TESTS = """
import pytest
from small.{module} import {module}

def test_{module}() -> None:
    assert {check}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the package's plugin imports the SDK
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_timeout")
    files = {
        "small/__init__.py": "",
        "small/adult.py": ADULT,
        "small/counted.py": COUNTED,
        "tests/test_adult.py": TESTS.format(module="adult", check="adult(30) and not adult(7)"),
        "tests/test_counted.py": TESTS.format(module="counted", check="counted('abc', 0) == 3"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def mutant_of(project: Path, module: str, kind: str, near: str, far: str) -> Mutant:
    group = Group([f"small/{module}.py"], 1, [near], [far])
    for seed in range(100):
        (mutant,) = draw(project, {"small": group}, seed, count=1)
        if mutant.change.kind == kind:
            return mutant
    raise AssertionError(f"no mutant of the kind {kind}")


def test_a_test_kills_a_mutant_and_another_survives(project: Path) -> None:
    tests = "tests/test_adult.py", "tests/test_counted.py"
    killed = judge(project, mutant_of(project, "adult", "return None", *tests), limit=100)
    assert (killed.killed, killed.by, killed.whole) == (True, "tests/test_adult.py::test_adult", True)
    # No test has a person of 18 years.
    survived = judge(project, mutant_of(project, "adult", "compare", *tests), limit=100)
    assert (survived.killed, survived.by, survived.whole) == (False, "", True)
    assert (project / "small" / "adult.py").read_text(encoding="utf-8") == ADULT


def test_a_mutant_that_never_ends_is_cut_off(project: Path) -> None:
    mutant = mutant_of(project, "counted", "drop statement", "tests/test_counted.py", "tests/test_adult.py")
    cut_off = judge(project, mutant, limit=2)
    assert cut_off == Verdict(killed=False, whole=False, seconds=cut_off.seconds)


def test_tests_named_like_the_module_run_first(project: Path) -> None:
    (project / "tests" / "test_all.py").write_text("from small import adult, counted\n", encoding="utf-8")
    module = project / "small" / "counted.py"
    assert nearest(project, module, ["tests", "tests/test_adult.py"]) == [
        "tests/test_counted.py",
        "tests/test_adult.py",
        "tests/test_all.py",
    ]
