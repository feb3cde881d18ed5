"""Whatever stands in a model's folder: an answer or an error that names it; nothing else is touched, run or slowed."""

from __future__ import annotations

import pytest

from tests.soak.fuzz.blocks import BLOCKS
from tests.soak.fuzz.folders.pool import attempts

FOLDERS = 50


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.timeout(600)
def test_a_broken_folder_answers_or_is_refused(block: int) -> None:
    made = attempts(block * FOLDERS, (block + 1) * FOLDERS)
    assert [one["number"] for one in made] == [*range(block * FOLDERS, (block + 1) * FOLDERS)]
    assert [one for one in made if one["wrong"]] == []
    assert len({one["outcome"] for one in made}) > FOLDERS / 10
