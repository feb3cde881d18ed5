"""docs/model-architectures.md says truly with whose logits each architecture is compared (`make test-reference`)."""

from __future__ import annotations

import re

import pytest
from transformers import CONFIG_MAPPING

from localai_shim.models.faults.table import FAULTS, is_known
from localai_shim.models.faults.vision import FAULTS as VISION_FAULTS
from localai_shim.models.gguf.architectures import ARCHITECTURES
from tests.models_page import DOCUMENT, compared_with, text_models
from tests.reference import vision_cases as vision
from tests.reference.text_cases import CASES, EXCEPTIONS, OTHER_NAMES

HERE = ("batched", "one request at a time")
ANOTHER_MODEL = {"bailing_hybrid"}
"""Names that transformers has for another model."""


def shared() -> set[str]:
    """Architectures of mlx-lm that transformers or llama.cpp have."""
    known = {name for name in text_models() if OTHER_NAMES.get(name, name) in CONFIG_MAPPING}
    return known | {each.model_type for each in ARCHITECTURES.values()}


def test_each_architecture_that_transformers_has_is_compared_or_has_a_reason() -> None:
    assert CASES.keys() | EXCEPTIONS.keys() == shared()
    assert not CASES.keys() & EXCEPTIONS.keys()
    assert all(EXCEPTIONS.values())


@pytest.mark.parametrize("name", text_models())
def test_the_document_says_with_whose_logits_an_architecture_is_compared(name: str) -> None:
    oracles = ["transformers"] if name in CASES else []
    if name in {each.model_type for each in ARCHITECTURES.values()}:
        oracles.append("llama.cpp")
    assert compared_with()[name] == (", ".join(oracles) or "mlx-lm")


def test_nearly_all_that_can_be_compared_are_compared() -> None:
    runs = {name for name in shared() - ANOTHER_MODEL if text_models()[name] in HERE}
    compared = {name for name in runs if compared_with()[name] != "mlx-lm"}
    assert len(compared) >= 0.95 * len(runs), f"{len(compared)} of {len(runs)}; not {sorted(runs - compared)}"


def test_the_document_lists_the_families_that_read_images_by_their_comparison() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("those of transformers, for tiny")[2]
    items = [set(re.findall(r"`(\w+)`", item)) for item in section.partition("All others")[0].split("\n* ")[1:]]
    seeing = {
        name
        for name in vision.HELD - vision.TEXT_ONLY
        if any(case.pictures is not None for case in vision.CASES[name].values())
    }
    assert items == [seeing, vision.HELD - seeing, vision.OPEN.keys()]
    assert all(vision.OPEN.values())


@pytest.mark.parametrize("module", VISION_FAULTS)
def test_a_fault_of_a_model_that_reads_images_is_mended_in_the_installed_version(module: str) -> None:
    for fault in VISION_FAULTS[module]:
        assert is_known(module, fault), fault.what


@pytest.mark.parametrize("module", FAULTS)
def test_a_fault_is_mended_in_the_installed_version(module: str) -> None:
    for fault in FAULTS[module]:
        assert is_known(module, fault), fault.what
        assert fault.what and fault.issue
