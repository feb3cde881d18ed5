"""A window of attention is computed as the config says, or a log line says that it is not."""

from __future__ import annotations

import copy
import importlib
import json
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import base
from mlx_lm.models.cache import make_prompt_cache

from localai_shim.engine.engine import Engine
from localai_shim.engine.ports import StepInput
from localai_shim.models.config.translation import translated
from localai_shim.models.config.windows import compute_windows
from localai_shim.models.loading import load_model
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.architectures import architectures, config_of, randomise
from tests.engine.harness import generate, request
from tests.saved_configs import Config
from tests.tiny import make_model

WINDOW = 8
TOKENS = [[5, 9, 13, 21, 8, 3, 40, 7, 11, 2, 6, 30, 44, 1, 17, 20, 31, 4, 12, 25]]
ALL_LAYERS = {"llama": "mistral", "mixtral": "mixtral", "phi3": "phi3", "phimoe": "phimoe", "starcoder2": "starcoder2"}
"""Modules of mlx-lm, and the kind of model that has a window in each layer."""


def made(name: str, **settings: Any) -> tuple[Any, Config]:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = copy.deepcopy(config_of(name))
    config.pop("layer_types", None)
    config |= {"model_type": ALL_LAYERS.get(name, name), "sliding_window": WINDOW, **settings}
    config = translated(config, module)
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(config)))
    randomise(model)
    return model, config


def logits(model: Any, pieces: int = 1) -> Any:
    cache, tokens = make_prompt_cache(model), mx.array(TOKENS)
    return np.array(mx.concatenate([model(each, cache) for each in mx.split(tokens, pieces, axis=1)], 1))


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_a_window_of_all_layers_is_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is the mask of such a window over the whole prompt."""
    model, config = made(name)
    whole = logits(model)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    with monkeypatch.context() as patch:
        mask = base.create_causal_mask(len(TOKENS[0]), window_size=WINDOW)
        patch.setattr(module, "create_attention_mask", lambda h, cache=None, **how: mask)
        expected = logits(model)
    compute_windows(model, config)
    ours = logits(model)
    assert np.allclose(ours, expected, atol=2e-4)
    assert np.allclose(logits(model, 4), expected, atol=2e-4)
    assert np.allclose(logits(model, 20), expected, atol=2e-4)
    assert np.abs(whole - expected).max() > 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        {"sliding_window": None},
        {"sliding_window": 1024},
        {"max_position_embeddings": WINDOW},
        {"sliding_window": 0},
    ],
)
def test_a_window_that_no_prompt_exceeds_changes_nothing(settings: Config, caplog: pytest.LogCaptureFixture) -> None:
    model, config = made("llama", **settings)
    compute_windows(model, config)
    assert "make_cache" not in vars(model) and caplog.text == ""


def test_a_shorter_context_needs_no_window() -> None:
    model, config = made("llama")
    compute_windows(model, config, context_length=WINDOW)
    assert "make_cache" not in vars(model)


QWEN = {"use_sliding_window": True, "max_window_layers": 2}


@pytest.mark.parametrize(("name", "settings"), [("gemma2", {}), ("qwen2", QWEN), ("qwen3", QWEN)])
def test_a_window_of_some_layers_that_a_class_does_not_know_is_logged(
    name: str, settings: Config, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "localai_shim"):
        compute_windows(*made(name, **settings))
    expected = (
        f"sliding_window is {WINDOW}, but the code of '{name}' computes no window: answers change beyond {WINDOW}"
    )
    assert expected in caplog.text


@pytest.mark.parametrize("settings", [{}, {"use_sliding_window": False}, {**QWEN, "max_window_layers": 4}])
def test_a_window_that_is_switched_off_is_quiet(settings: Config, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        compute_windows(*made("qwen2", **settings))
    assert caplog.text == ""


def test_a_window_in_other_layers_than_the_config_says_is_an_error() -> None:
    types = ["sliding_attention", "full_attention"] * 2
    model, config = made("gemma3_text", layer_types=types)
    compute_windows(model, config)
    with pytest.raises(ModelLoadError, match=r"layer 0 does not have a window, but the code of 'gemma3_text'"):
        compute_windows(model, {**config, "layer_types": types[::-1]})


def test_a_family_that_transformers_does_not_have_is_judged_by_what_its_code_reads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, config = made("internlm2", bias=False)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        compute_windows(model, config)
    assert "the code of 'internlm2' computes no window" in caplog.text


OTHERS = {"olmo"}


@pytest.mark.parametrize("name", sorted(set(architectures()) - OTHERS))
def test_no_architecture_is_refused_with_its_own_windows(name: str) -> None:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = translated(copy.deepcopy(config_of(name)), module)
    compute_windows(module.Model(module.ModelArgs.from_dict(copy.deepcopy(config))), config)


def folder_of(path: Path, **settings: Any) -> Path:
    folder = make_model(path, "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


def test_a_folder_with_a_window_loads_with_it(tmp_path: Path) -> None:
    plain: Any = load_model(str(folder_of(tmp_path / "plain")), LoadOptions())
    limited: Any = load_model(
        str(folder_of(tmp_path / "limited", model_type="mistral", sliding_window=WINDOW)), LoadOptions()
    )
    step = [StepInput(mx.array(TOKENS), model.new_cache()) for model in (plain, limited)]
    one, other = (np.array(model.forward(each).logits) for model, each in zip((plain, limited), step, strict=True))
    assert np.abs(one - other).max() > 1e-3


def test_rows_with_a_window_do_not_depend_on_their_neighbors(tmp_path: Path) -> None:
    path = str(folder_of(tmp_path / "limited", model_type="mistral", sliding_window=WINDOW))
    prompts = [TOKENS[0], TOKENS[0][:3], TOKENS[0][::-1] * 2]
    alone = []
    for prompt in prompts:
        with closing(Engine(lambda: load_model(path, LoadOptions()))) as engine:
            alone += generate(engine, request(prompt))
    with closing(Engine(lambda: load_model(path, LoadOptions()))) as engine:
        assert generate(engine, *map(request, prompts)) == alone
