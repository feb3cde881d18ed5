"""Rules that the tests themselves keep."""

from __future__ import annotations

import ast
import asyncio
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.heartbeat import stays_free
from tests.samples import FEWEST_COMBINED, MOST_CASES, covering, in_part, mark_many
from tests.scripts import run
from tests.slow import QUICK_SHARE, slow, slowest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
DEPENDENT = re.compile(r"test_(so|and|also|as_well|such|it|its|they|those|these|others?|either|one_(that|whose|in))_")
"""Beginnings of names that only the test before explains."""
CONFTESTS = [path for path in FILES if path.name == "conftest.py"]


def named(path: Path) -> str:
    return str(path.relative_to(TESTS))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
            yield node.module or ""


def patched_names(tree: ast.AST) -> Iterator[str]:
    """Names that `setattr(object, "name", ...)`, with or without monkeypatch, replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("setattr", "delattr"):
                yield from (
                    argument.value.rsplit(".", 1)[-1]
                    for argument in node.args[:2]
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                )


def test_no_test_file_is_imported() -> None:
    """What several need stands in a module without tests, so that a test file can be changed, or go, by itself."""
    imported = {}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if re.search(r"(?<!def )\btest_", text):  # parsing takes time
            modules = imported_modules(ast.parse(text))
            imported[named(path)] = [name for name in modules if name.startswith("tests.") and ".test_" in name]
    assert {name: modules for name, modules in imported.items() if modules} == {}


def test_the_name_of_a_test_stands_alone() -> None:
    definition = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
    found = [
        f"{named(path)}: {name}"
        for path in FILES
        for name in definition.findall(path.read_text(encoding="utf-8"))
        if DEPENDENT.match(name)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", CONFTESTS, ids=named)
def test_what_all_tests_run_under_replaces_public_names_only(path: Path) -> None:
    names = list(patched_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert [name for name in names if name.startswith("_")] == []


def test_no_test_file_is_longer_than_five_hundred_lines() -> None:
    lengths = {named(path): path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert [name for name, lines in lengths.items() if lines > 500] == []


def test_an_event_loop_that_is_blocked_is_found_out() -> None:
    async def blocks(number: int) -> None:
        for _ in range(8):
            computed = time.thread_time()
            while time.thread_time() < computed + 0.05:
                pass
            await asyncio.sleep(0.1)

    async def does_not(number: int) -> None:
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.1) for _ in range(3)))

    assert not asyncio.run(stays_free(blocks, 0.05, rounds=1))
    assert asyncio.run(stays_free(does_not, 1.0))


def test_a_run_leaves_no_temporary_files(tmp_path: Path) -> None:
    script = """
        from tests import temporary
        temporary.keep_in_one_folder()
        import os, subprocess, sys, tempfile
        tempfile.mkdtemp()
        subprocess.run([sys.executable, "-c", "import tempfile; tempfile.mkdtemp()"], check=True)
        print(len({*os.listdir(tempfile.gettempdir())} - {"mlx"}))  # kernels of other runs
        """
    assert run(script, TMPDIR=str(tmp_path)).stdout == "2\n"
    assert list(tmp_path.iterdir()) == []


def test_of_a_test_with_many_cases_a_sample_is_quick(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(
        """
        import pytest

        @pytest.mark.parametrize("case", range(40))
        def test_many(case): ...

        @pytest.mark.parametrize("case", range(3))
        def test_few(case): ...

        @pytest.mark.parametrize("a", range(5))
        @pytest.mark.parametrize(("b", "c"), [("b", "c"), ("d", "e"), ("f", "g")])
        def test_combined(a, b, c): ...
        """
    )
    mark_many(items)
    quick = [item.name for item in items if item.get_closest_marker("exhaustive") is None]
    many = [name for name in quick if name.startswith("test_many")]
    combined = [name for name in quick if name.startswith("test_combined")]
    assert len(many) == MOST_CASES and len(quick) == 2 * MOST_CASES + len(combined)
    assert len(combined) == MOST_CASES == len({name[-2] for name in combined})
    assert {name[-6:-3] for name in combined} == {"b-c", "d-e", "f-g"}
    assert {"test_many[0]", "test_many[39]"} <= {*many}


def test_of_a_test_that_takes_long_no_case_is_quick(pytester: pytest.Pytester) -> None:
    items = pytester.getitems("def test_long(): ...\n\ndef test_short(): ...\n")
    mark_many(items, {items[0].nodeid})
    assert [item.get_closest_marker("exhaustive") is None for item in items] == [False, True]


def test_what_takes_longest_is_slow_up_to_a_share_of_the_time_and_each_file_has_a_quick_test() -> None:
    seconds = {f"tests/test_a.py::test_{i}": [float(i)] for i in range(1, 11)}
    seconds |= {"tests/test_alone.py::test_it": [100.0], "tests/test_layers.py::test_it": [5.0, 5.0]}
    found = slowest({**seconds, "tests/test_layers.py::test_that": [50.0]})
    assert found == sorted(f"tests/test_a.py::test_{i}" for i in range(2, 11))  # the others cannot be slow
    many = slowest({f"tests/test_a.py::test_{i}": [float(i)] for i in range(1, 101)})
    assert sum(range(1, 101 - len(many))) <= QUICK_SHARE * sum(range(1, 101)) < sum(range(1, 102 - len(many)))


def test_each_test_that_is_listed_as_slow_exists() -> None:
    defined = {
        f"tests/{named(path)}::{node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    known = {"::".join((name.split("::")[0], name.split("::")[-1])) for name in slow()}
    assert sorted(known - defined) == []


@pytest.mark.parametrize("parts", [3, 6, 12])
def test_each_file_is_of_one_part_and_no_part_has_many(parts: int) -> None:
    files = [named(path) for path in FILES if path.name.startswith("test_")]
    counts = [sum(in_part(name, f"{number}/{parts}") for name in files) for number in range(parts)]
    assert sum(counts) == len(files) == sum(in_part(name, None) for name in files)
    assert len(files) / parts / 2 < min(counts) and max(counts) < len(files) / parts * 2


@pytest.mark.parametrize("sizes", [(2, 3), (3, 4, 2), (9, 5), (40, 3), (2, 2, 2, 2)])
def test_each_value_of_each_parameter_is_in_a_covering(sizes: tuple[int, ...]) -> None:
    cases = list(itertools.product(*map(range, sizes)))
    chosen = [cases[i] for i in covering(cases)]
    assert max(FEWEST_COMBINED, min(MOST_CASES, max(sizes))) <= len(chosen) <= MOST_CASES
    assert {cases[0], cases[-1]} <= {*chosen}
    for parameter, size in enumerate(sizes):
        seen = {case[parameter] for case in chosen}
        assert len(seen) == (size if size <= MOST_CASES else MOST_CASES)
