"""New weights by a model's own names are what it computes with, whatever its architecture does with a checkpoint's."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from localai_shim.engine.ports import StepInput
from localai_shim.models.text import TextModel
from localai_shim.models.weights import copy_weights
from tests import inside, vlm_architectures
from tests.architectures import text_model
from tests.models_page import RUNS, families, text_models
from tests.samples import only

TOKENS = [5, 9, 17, 33, 40, 3]


def logits(model: TextModel) -> Any:
    """Of tokens one after the other, which all models take."""
    cache = model.new_cache()
    return np.concatenate([np.array(model.forward(StepInput(mx.array([[token]]), cache)).logits) for token in TOKENS])


def changed(model: TextModel) -> dict[str, mx.array]:
    """Other matrices, each tensor by the name that it has in the model."""
    mx.random.seed(4)
    return {
        name: array + 0.03 * mx.random.normal(array.shape).astype(array.dtype)
        if array.ndim > 1 and mx.issubdtype(array.dtype, mx.floating)
        else array
        for name, array in tree_flatten(inside.network(model).parameters())
    }


def hold(model: TextModel, other: TextModel) -> None:
    """Compare an updated model with one whose layers get the tensors themselves."""
    new, before = changed(model), logits(model)
    inside.network(other).load_weights([*new.items()], strict=False)
    model.read_weights(copy_weights(new))()
    wanted = logits(other)
    shown = np.isfinite(wanted)  # some never say certain tokens
    wanted, before = wanted[shown], before[shown]
    np.testing.assert_allclose(logits(model)[shown], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert np.abs(wanted - before).max() > 1e-3 * np.abs(wanted).max()


# baichuan_m1 norms the rows of each head that it loads.
TEXT = [name for name, how in text_models().items() if how in RUNS and name != "baichuan_m1"]
SEEING = [name for name, (how, *_) in families().items() if how in RUNS and name != "limite"]  # whose logits are zeros


@pytest.mark.parametrize("name", only(["llama", "gemma3n", "qwen3_next", "deepseek_v3", "mamba2"], TEXT))
def test_a_text_model(name: str) -> None:
    hold(text_model(name), text_model(name))


@pytest.mark.parametrize("name", only(["jina_vlm", "llama4", "qwen3_vl_moe"], SEEING))
def test_a_language_model_of_one_that_sees(name: str) -> None:
    hold(vlm_architectures.text_model(name), vlm_architectures.text_model(name))
