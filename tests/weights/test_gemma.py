"""Gemma 3 270M, a GGUF file in Q4_K_M: the mix of types that most programs download by default."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from localai_shim import LocalOpenAI
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from tests.weights import original

TEXT = (
    "The sun is a star at the center of the solar system. It is a ball of hot gas, and it gives light and heat to the "
    "planets that move around it. The Earth is the third planet from the sun."
)
pytestmark = pytest.mark.timeout(600)  # a slow machine takes minutes to convert the file
MOST_DIVERGENCE = 2e-3  # nats per token; llama.cpp's own Q4_K_M is some 0.03 away from the checkpoint


def test_a_q4_k_m_file_has_the_logits_of_the_weights_it_holds(gemma: Path, tmp_path: Path) -> None:
    """Q6_K is rounded once more, and scales are in float16: the likeliest token stays the same."""
    model = load_model(str(gemma), LoadOptions())
    assert isinstance(model, TextModel)
    tokens = mx.array([model.tokenizer.encode(TEXT)])
    found = np.array(model.forward(StepInput(tokens, model.new_cache())).logits[0], np.float64)
    exact, _ = mlx_lm.load(str(original.save(gemma, tmp_path / "gemma", original.GEMMA3)))
    mx.disable_compile()
    expected = np.array(exact(tokens)[0].astype(mx.float32), np.float64)
    mx.enable_compile()
    first, second = (values - np.logaddexp.reduce(values, axis=-1, keepdims=True) for values in (expected, found))
    divergence = (np.exp(first) * (first - second)).sum(-1)
    assert 0 < divergence.mean() < MOST_DIVERGENCE
    assert (found.argmax(-1) == expected.argmax(-1)).mean() > 0.95


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [("One, two, three, four,", "five"), ("Monday, Tuesday, Wednesday,", "Thursday")],
)
def test_texts_are_continued(prompt: str, answer: str, gemma: Path) -> None:
    with LocalOpenAI(model=gemma) as client:
        made = client.completions.create(model="any", prompt=prompt, max_tokens=8, temperature=0)
    assert answer in made.choices[0].text
