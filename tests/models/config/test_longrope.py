"""LongRoPE: all rows of a model rotate by one list of factors, which its context chooses."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from localai_shim.models.config.rope_variants import choose_factors
from localai_shim.models.config.translation import translated
from tests.architectures import config_of

SIZE, THETA, ORIGINAL = 16, 10000.0, 4096
FACTORS = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
CONFIG: dict[str, Any] = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 100,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": ORIGINAL,
    "rope_theta": THETA,
    "rope_scaling": {"type": "longrope", **FACTORS},
}


class Layers(nn.Module):
    """A model of nothing but layers that rotate."""

    def __init__(self, library: str) -> None:
        super().__init__()
        kind = importlib.import_module(f"{library}.rope_utils").SuScaledRoPE
        self.rotary = [kind(SIZE, THETA, 131072, ORIGINAL, **FACTORS) for _ in range(2)]


def expected(x: Any, starts: list[int], name: str) -> np.ndarray:
    """Rotated as the paper says, `[rows, 1, tokens, SIZE]`; all are scaled by the context's factor."""
    angles = (np.array(starts)[:, None] + np.arange(x.shape[2]))[..., None] / (
        np.array(FACTORS[name]) * THETA ** (np.arange(0, SIZE, 2) / SIZE)
    )
    cos, sin, (first, second) = np.cos(angles)[:, None], np.sin(angles)[:, None], np.split(np.array(x), 2, axis=-1)
    scale = np.sqrt(1 + np.log(131072 / ORIGINAL) / np.log(ORIGINAL))
    made: np.ndarray = scale * np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return made


@pytest.mark.parametrize("library", ["mlx_lm.models", "mlx_vlm.models"])
@pytest.mark.parametrize(
    ("context", "name"),
    [(None, "long_factor"), (ORIGINAL + 1, "long_factor"), (ORIGINAL, "short_factor"), (100, "short_factor")],
)
def test_the_context_chooses_the_factors_of_all_rows(library: str, context: int | None, name: str) -> None:
    """mlx-vlm looks at the longest row of a batch."""
    model = Layers(library)
    choose_factors(model, CONFIG, context)
    x = mx.random.normal((2, 1, 3, SIZE), key=mx.random.key(0))
    for starts in ([0, 5000], [0, 10]):
        for layer in model.rotary:
            assert np.allclose(np.array(layer(x, mx.array(starts))), expected(x, starts, name), atol=2e-3)


def test_mlx_vlm_alone_lets_a_long_row_change_a_short_one() -> None:
    [layer, _] = Layers("mlx_vlm.models").rotary
    x = mx.random.normal((2, 1, 3, SIZE), key=mx.random.key(0))
    alone, together = layer(x[:1], mx.array([0])), layer(x, mx.array([0, 5000]))[:1]
    assert np.abs(np.array(alone - together)).max() > 0.1


def test_a_model_of_mlx_lm_has_the_factors_that_its_context_needs(caplog: pytest.LogCaptureFixture) -> None:
    module = importlib.import_module("mlx_lm.models.phi3")
    config = translated(CONFIG, module)
    with caplog.at_level(logging.INFO, "localai_shim"):
        for context, name in ((None, "long_factor"), (ORIGINAL, "short_factor")):
            model = module.Model(module.ModelArgs.from_dict(dict(config)))
            choose_factors(model, config, context)
            tables = [np.array(layer._freqs) for layer in model.modules() if type(layer).__name__ == "SuScaledRoPE"]
            assert len(tables) == 2
            for table in tables:
                assert np.allclose(table, np.array(FACTORS[name]) * THETA ** (np.arange(0, SIZE, 2) / SIZE), rtol=1e-6)
    assert "'long_factor', because the context has 131072 tokens" in caplog.text
    assert "'short_factor', because the context has 4096 tokens" in caplog.text


def test_a_model_whose_config_has_no_factors_rotates_by_theta_alone() -> None:
    """MiniCPM3, whose class always has such layers."""
    module = importlib.import_module("mlx_lm.models.minicpm3")
    config = {**config_of("minicpm3"), "rope_theta": THETA, "max_position_embeddings": 512}
    config["rope_scaling"] = {"original_max_position_embeddings": 512}
    model = module.Model(module.ModelArgs.from_dict(dict(config)))
    choose_factors(model, config, None)
    for layer in model.modules():
        if type(layer).__name__ == "SuScaledRoPE":
            sizes = np.arange(0, layer.dim, 2) / layer.dim
            assert np.allclose(np.array(layer._freqs), THETA**sizes, rtol=1e-6)


def test_models_without_longrope_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        choose_factors(nn.Linear(4, 4), {}, None)
    assert not caplog.records
