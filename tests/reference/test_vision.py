"""Models that read images: a folder that transformers saves gives transformers' logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.reference import comparison
from tests.reference import vision_comparison as vision
from tests.reference.vision_case import VisionCase
from tests.reference.vision_cases import CASES, HELD, TEXT_ONLY

WHOLE, PIECE = 10**6, 7


def cases(seeing: bool) -> list[Any]:
    found = [(name, what, case) for name in sorted(HELD) for what, case in CASES[name].items()]
    return [
        pytest.param(case, id=f"{name}-{what}")
        for name, what, case in found
        if not seeing or (case.pictures is not None and name not in TEXT_ONLY)
    ]


@pytest.mark.parametrize("case", cases(seeing=False))
def test_text_alone_gives_the_logits_of_transformers(case: VisionCase, tmp_path: Path) -> None:
    original, tokens = vision.build(case), comparison.text_prompt(case.length)
    expected = comparison.expected_logits(original, tokens)
    model = comparison.load(vision.save(original, tmp_path, case), text_only=True)
    assert comparison.difference(comparison.logits_in_one_pass(model, tokens), expected) < case.tolerance
    assert comparison.difference(comparison.logits_in_pieces(model, tokens), expected) < case.tolerance


@pytest.mark.timeout(900)  # Gemma 3n's encoder has one size, 300 million weights
@pytest.mark.parametrize("case", cases(seeing=True))
@pytest.mark.parametrize("count", [1, 2])
def test_images_give_the_logits_of_transformers(case: VisionCase, count: int, tmp_path: Path) -> None:
    assert case.pictures is not None
    original, pictures = vision.build(case), case.pictures()[:count]
    expected = vision.expected_logits(original, case, pictures)
    seeing = vision.Seeing(vision.load_seeing(vision.save(original, tmp_path, case)), pictures)
    assert comparison.difference(seeing.logits(WHOLE), expected) < case.tolerance
    if case.kind != "paligemma":  # all of its prompt is attended to in both directions
        assert comparison.difference(seeing.logits(PIECE), expected) < case.tolerance


def difference_with(plant: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> float:
    """Of Qwen2-VL with an image, while something is wrong."""
    case = CASES["qwen2_vl"]["plain"]
    assert case.pictures is not None
    original, pictures = vision.build(case), case.pictures()
    expected = vision.expected_logits(original, case, pictures)
    folder = vision.save(original, tmp_path, case)
    plant()
    return comparison.difference(vision.Seeing(vision.load_seeing(folder), pictures).logits(WHOLE), expected)


def test_swapped_sections_of_positions_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mlx_vlm.models.qwen2_vl import language

    upstream = language.LanguageModel.get_rope_index

    def swapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        positions, deltas = upstream(self, *args, **kwargs)
        return positions[mx.array([0, 2, 1])], deltas

    def plant() -> None:
        monkeypatch.setattr(language.LanguageModel, "get_rope_index", swapped)

    assert difference_with(plant, monkeypatch, tmp_path) > 0.01


def test_an_encoder_that_does_not_rotate_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mlx_vlm.models.qwen2_vl import vision as encoder

    def plant() -> None:
        upstream = encoder.VisionRotaryEmbedding.__call__
        monkeypatch.setattr(encoder.VisionRotaryEmbedding, "__call__", lambda self, count: 0 * upstream(self, count))

    assert difference_with(plant, monkeypatch, tmp_path) > 0.01


def test_images_of_a_test_differ() -> None:
    case = CASES["qwen2_vl"]["plain"]
    assert case.pictures is not None
    first, second = case.pictures()
    assert len(first.tokens) != len(second.tokens)
    assert not np.array_equal(first.theirs["pixel_values"][:4], second.theirs["pixel_values"][:4])
