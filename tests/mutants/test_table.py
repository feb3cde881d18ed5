from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.drawing import draw
from tests.mutants.table import TABLE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", ["modules", "near", "far"])
def test_every_path_of_the_table_exists(part: str) -> None:
    paths = {path for group in TABLE.values() for path in getattr(group, part)}
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_a_seed_draws_the_same_mutants_each_time() -> None:
    first, again, other = (
        [mutant.described(ROOT) for mutant in draw(ROOT, {"state": TABLE["state"]}, seed, count=3)]
        for seed in (1, 1, 2)
    )
    assert len(first) == 3
    assert first == again != other


def test_every_group_has_mutants() -> None:
    drawn = draw(ROOT, TABLE, seed=1, count=len(TABLE))
    assert {id(mutant.group) for mutant in drawn} == {id(group) for group in TABLE.values()}
