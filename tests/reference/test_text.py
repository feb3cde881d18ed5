"""Text models: a folder that transformers saves gives transformers' logits."""

from __future__ import annotations

from pathlib import Path

import pytest

from localai_shim.types import ModelLoadError
from tests.reference import comparison
from tests.reference.cases import CONTEXT, Case
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


@pytest.mark.parametrize("name", [name for name, cases in CASES.items() if "longrope" in cases])
def test_longrope_has_its_factors_for_short_contexts_up_to_the_original_context(name: str, tmp_path: Path) -> None:
    original, prompt = comparison.build(CASES[name]["longrope"]), comparison.PROMPT[:CONTEXT]
    folder = comparison.save(original, tmp_path)
    expected = comparison.expected_logits(original, prompt)
    short, long = (comparison.load(folder, context_length=length) for length in (CONTEXT, CONTEXT + 1))
    assert comparison.difference(comparison.logits_in_one_pass(short, prompt), expected) < 1e-3
    assert comparison.difference(comparison.logits_in_one_pass(long, prompt), expected) > 1e-2


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_computed_is_refused(name: str, tmp_path: Path) -> None:
    folder = comparison.save(comparison.build(REFUSED[name]), tmp_path)
    with pytest.raises(ModelLoadError):
        comparison.load(folder)
