"""Text models: a folder that transformers saves gives transformers' logits."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.types import ModelLoadError
from tests.reference import comparison
from tests.reference.cases import Case
from tests.reference.text_cases import CASES, REFUSED


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{name}-{what}") for name, cases in CASES.items() for what, case in cases.items()]
)
def test_a_folder_of_transformers_gives_its_logits(case: Case, tmp_path: Path) -> None:
    original = comparison.build(case)
    expected = comparison.expected_logits(original)
    model = comparison.load(comparison.save(original, tmp_path, case.inside))
    assert comparison.difference(comparison.logits_in_one_pass(model), expected) < case.tolerance
    assert comparison.difference(comparison.logits_in_pieces(model), expected) < case.tolerance


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_computed_is_refused(name: str, tmp_path: Path) -> None:
    folder = comparison.save(comparison.build(REFUSED[name]), tmp_path)
    with pytest.raises(ModelLoadError):
        comparison.load(folder)
