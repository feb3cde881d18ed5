"""A short soak as `python -m benchmarks --soak --quick` runs it: nothing lost, nothing wrong, nothing that grows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.soak.requests import KINDS, MISHAPS

ROOT = Path(__file__).parents[2]
SECONDS = 900  # some 50 on two cores that have nothing else to do
SOURCES = {"prediction", "lookup", "grammar", "model"}

pytestmark = pytest.mark.timeout(SECONDS + 60)
Soak = Mapping[str, Any]


def test_a_short_soak(tmp_path: Path) -> None:
    """One test, since it takes a minute and workers share nothing."""
    file = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks", "--soak", "--quick", "--json", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout
    found: Soak = json.loads(file.read_text())
    each_request_ends_as_it_has_to(found)
    no_figure_with_a_target_is_missed(found)
    all_that_is_to_be_on_was_on(found)


def each_request_ends_as_it_has_to(soak: Soak) -> None:
    outcomes = soak["soak"]["outcomes"]
    assert sum(outcomes.values()) == soak["soak"]["requests"] == 1_000
    assert not soak["soak"]["shown"] or set(outcomes) >= {"tie"}
    allowed = {"answered", "tie", *(f"refused: {status}" for status in (400, 404, 429))}
    allowed |= {f"failed: {how}" for how in ("abandoned", "cancelled", "timeout", "closed")}
    assert set(outcomes) <= allowed


def no_figure_with_a_target_is_missed(soak: Soak) -> None:
    targets = {figure["figure"]: figure["verdict"] for figure in soak["figures"] if figure["target"] is not None}
    assert len(targets) == 9 and set(targets.values()) == {"PASS"}


def all_that_is_to_be_on_was_on(soak: Soak) -> None:
    found, figures = soak["soak"], {each["figure"]: each["values"][0] for each in soak["figures"]}
    assert set(found["kinds"]) == {make(Random(0)).kind for make in KINDS}
    assert set(found["mishaps"]) == set(MISHAPS)
    assert {name for name, (drafted, _) in found["drafts"].items() if drafted} == SOURCES
    for name in (
        "rows that shared their first tokens",
        "rows preempted",
        "requests that waited for a place",
        "loads of the model that comes and goes",
    ):
        assert figures[f"soak: {name}"] > 0
    assert {"failed: abandoned", "failed: cancelled", "failed: timeout", "refused: 400", "refused: 404"} <= set(
        found["outcomes"]
    )
    assert found["stats"]["vision"]["tower_runs"] > 0 and found["stats"]["text"]["adapter_bytes"] > 0
    assert found["stats"]["text"]["cache_hits"] > 0 and found["spans"] > 0
