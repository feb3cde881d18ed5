"""The same weights say the same beside config.json as transformers 4 wrote it and as transformers 5 does."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from localai_shim.engine.ports import StepInput
from localai_shim.models.config.reading import query_heads
from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.text import TextModel
from localai_shim.models.vision.model import VisionModel
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.embedding_models import tiny_classifier, tiny_embedder, tiny_judge
from tests.models.vision.seeing import WHOLE, generate, pictures, prompt_of
from tests.saved_configs import save_again
from tests.tiny import CONFIGS, make_model, tiny
from tests.vision import FAMILIES, tiny_vision

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
NEVER_OLD = {"gemma4", "gemma4_bidirectional", "glm_ocr", "mistral3", "qwen3_5"}
"""Families whose configs have had `rope_parameters` from the first."""
UNKNOWN = {"internvl_chat", "kimi_vl"}
"""Those that transformers has no class for."""


def logits(model: Any) -> np.ndarray:
    cache = model.new_cache()
    return np.array(model.forward(StepInput(mx.array([[5, 9, 13, 21, 8, 3] * 6]), cache)).logits[0, -1])


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers' classes, which take the old names
        yield


@pytest.mark.parametrize("kind", CONFIGS)
def test_text_models(kind: str, tmp_path: Path) -> None:
    scaling = {"rope_scaling": LLAMA3} if kind in ("qwen3", "llama") else {}
    folder = make_model(tmp_path / "old", kind, rope_theta=300.0, **scaling)
    again = save_again(folder, tmp_path / "new")
    expected = logits(load_model(str(folder), {}))
    assert np.array_equal(logits(load_model(str(again), {})), expected)
    if kind == "llama":
        alone, _ = mlx_lm.load(str(again))
        assert np.abs(np.array(alone(mx.array([[5, 9, 13, 21, 8, 3] * 6]))[0, -1]) - expected).max() > 0.1


def test_draft_models(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "old", "llama", rope_theta=300.0)
    again = save_again(folder, tmp_path / "new")
    model = load_model(str(folder), {})
    draft = load_draft_model(str(again), {}, model)
    assert isinstance(draft, TextModel)
    assert np.array_equal(logits(draft), logits(model))


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind not in NEVER_OLD | UNKNOWN])
def test_models_that_see(kind: str, tmp_path: Path) -> None:
    old = tiny_vision(kind)
    again = save_again(old, tmp_path / "new")
    answers = []
    for path in (old, again):
        model = load_model(str(path), {})
        assert isinstance(model, VisionModel)
        items = [model.text.process(item) for item in pictures(1)]
        answers.append(generate(model, prompt_of(model, items), [model.embed(item) for item in items], WHOLE))
    for one, other in zip(*answers, strict=True):
        assert one[0] == other[0] and np.array_equal(one[1], other[1])
    texts = [load_model(str(path), LoadOptions(text_only=True)) for path in (old, again)]
    assert np.array_equal(logits(texts[0]), logits(texts[1]))


@pytest.mark.parametrize("kind", ["modernbert", "qwen3", "gemma3_text", "lfm2", "ministral3"])
def test_embedders(kind: str, tmp_path: Path) -> None:
    theta = {"rope_theta": 300.0}
    changes: dict[str, Any] = {
        "modernbert": {"global_rope_theta": 300.0, "local_rope_theta": 70.0},
        "gemma3_text": {"rope_global_base_freq": 300.0, "rope_local_base_freq": 70.0, **theta},
        "ministral3": {},
    }.get(kind, theta)
    folder = tiny_embedder(kind, **changes)
    again = save_again(folder, tmp_path / "new")
    models: list[Any] = [load_model(str(path), {}) for path in (folder, again)]
    tokens = [models[0].text.encode("The quick brown fox jumps over the lazy dog.")]
    one, other = (np.array(model.encode(tokens)) for model in models)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["modernbert", "judge"])
def test_rerankers(kind: str, tmp_path: Path) -> None:
    if kind == "judge":
        folder = tiny_judge(rope_theta=300.0)
    else:
        folder = tiny_classifier("modernbert", global_rope_theta=300.0, local_rope_theta=70.0)
    again = save_again(folder, tmp_path / "new")
    scores = []
    for path in (folder, again):
        model: Any = load_model(str(path), {})
        scores.append(np.array(model.score([[5, 9, 13, 21, 8, 3] * 3])))
    assert np.array_equal(*scores)


def test_settings_that_the_code_does_not_compute_are_an_error_of_loading(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", "qwen3_moe")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": LLAMA3}))
    with pytest.raises(ModelLoadError, match=r"could not be loaded: config\.json has RoPE settings .* 'llama3'"):
        load_model(str(folder), {})


def test_a_checkpoint_of_before_computes_as_before() -> None:
    alone, _ = mlx_lm.load(str(tiny("llama")))
    expected = np.array(alone(mx.array([[5, 9, 13, 21, 8, 3] * 6]))[0, -1])
    assert np.allclose(logits(load_model(str(tiny("llama")), {})), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"num_attention_heads": 32, "num_key_value_heads": 8}, 32),
        ({"n_head": 12}, 12),
        ({"text_config": {"num_attention_heads": 6}, "vision_config": {"num_attention_heads": 3}}, 6),
        ({"thinker_config": {"text_config": {"num_attention_heads": 28}}}, 28),
        ({"num_attention_heads": [4, 8], "text_config": None}, 8),
        ({"hidden_size": 64}, 1),
    ],
)
def test_heads_of_queries_are_the_text_layers(config: dict[str, Any], heads: int) -> None:
    assert query_heads(config) == heads
