"""Pythons that are said to work, and those that the tests run on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
WEEKLY: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/weekly.yml").read_text(encoding="utf-8"))

SAID = [found[1] for each in PROJECT["classifiers"] if (found := re.fullmatch(r".*:: (3\.\d+)", each))]


def test_the_workflow_tests_each_version_that_is_said_to_work_from_the_oldest_on() -> None:
    tested = WORKFLOW["jobs"]["linux"]["strategy"]["matrix"]["python"]
    assert tested[: len(SAID)] == SAID and len(SAID) > 1
    assert PROJECT["requires-python"] == f">={SAID[0]}"


def test_the_contributing_page_names_them() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"Python {SAID[0]} to {SAID[-1]}" in page


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        (WORKFLOW, {"install", "demo", "test"}),
        (
            WEEKLY,
            {
                "test-frameworks-all",
                "test-templates",
                "test-openai2",
                "test-exhaustive",
                "test-metal",
                "test-parallel",
                "test-soak",
                "test-ray",
                "test-weights",
                "test-reference",
                "install",
                "demo",
                "test",
            },
        ),
    ],
    ids=["ci", "weekly"],
)
def test_each_command_of_the_workflow_is_there(workflow: dict[str, Any], expected: set[str]) -> None:
    targets = {found for command in commands(workflow) for found in re.findall(r"make (\S+)", command)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == expected
    assert all(re.search(rf"^{target}\b[^=]*:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("workflow", [WORKFLOW, WEEKLY], ids=["ci", "weekly"])
def test_no_job_of_the_workflow_runs_without_limit(workflow: dict[str, Any]) -> None:
    for name, job in workflow["jobs"].items():
        steps = [step for step in job["steps"] if "run" in step]
        assert "timeout-minutes" in job, name
        assert not name.startswith("macos") or all("timeout-minutes" in step for step in steps), name


def test_the_workflow_runs_all_that_has_to_hold() -> None:
    assert ".ci/run" in commands(WORKFLOW)


def test_all_of_what_runs_in_parts_with_each_commit_runs_each_week() -> None:
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    in_parts = set(re.findall(r"^make (test-\S+) PART=", run, re.MULTILINE))
    assert len(in_parts) == 7
    assert {f"make {target}" for target in in_parts} <= {*commands(WEEKLY)}


def test_the_newest_python_here_is_one_that_can_make_environments() -> None:
    found = subprocess.run([ROOT / ".ci/newest-python"], capture_output=True, text=True, check=True).stdout.strip()
    said = subprocess.run([found, "-V"], capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, said.removeprefix("Python ").split(".")[:2])) >= (3, 11)
    subprocess.run([found, "-c", "import ensurepip"], check=True)
