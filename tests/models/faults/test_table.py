"""Checkpoints that mlx-lm has made, or reads wrongly; `make test-reference` compares the rest with transformers."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import ModelLoadError
from tests import inside
from tests.architectures import config_of
from tests.tiny import make_tokenizer, make_weights

TOKENS = mx.array([[5, 17, 99, 3, 42]])


def save(folder: Path, name: str, **changes: Any) -> Path:
    """A folder as mlx-lm converts one: its own names of tensors."""
    make_tokenizer(folder)
    read = {field.name for field in dataclasses.fields(importlib.import_module(f"mlx_lm.models.{name}").ModelArgs)}
    known = {key: value for key, value in config_of(name).items() if key in read}
    return make_weights(folder, {**known, **changes})


def load(folder: Path) -> TextModel:
    model = load_model(str(folder), LoadOptions(), progress=False)
    assert isinstance(model, TextModel)
    return model


def logits(model: TextModel) -> np.ndarray:
    return np.array(model.forward(StepInput(TOKENS, model.new_cache())).logits)


def upstream_logits(folder: Path) -> np.ndarray:
    import mlx_lm.utils

    model, _ = mlx_lm.utils.load(str(folder))
    return np.array(model(TOKENS))


def test_a_converted_checkpoint_without_the_biases_of_experts_is_loaded_with_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save(tmp_path, "ernie4_5_moe")
    found = logits(load(folder))
    assert "the checkpoint has no e_score_correction_bias" in caplog.text
    assert np.allclose(found, upstream_logits(folder), atol=1e-4)


def test_attention_whose_weights_mlx_lm_reads_in_another_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="multi_query is false"):
        load(save(tmp_path, "gpt_bigcode", multi_query=False))


def test_a_model_without_faults_keeps_its_class(tmp_path: Path) -> None:
    assert type(inside.network(load(save(tmp_path, "llama")))) is importlib.import_module("mlx_lm.models.llama").Model


@pytest.mark.parametrize(("every", "sparse"), [(2, [True, False, True, False]), (3, [True, True, False, True])])
@pytest.mark.parametrize("homo", [False, True], ids=["by head", "one pattern"])
def test_phi3smalls_sparse_layers_are_those_of_its_authors(
    tmp_path: Path, every: int, sparse: list[bool], homo: bool
) -> None:
    changes = {"dense_attention_every_n_layers": every, "blocksparse_homo_head_pattern": homo}
    layers = [layer.self_attn for layer in inside.network(load(save(tmp_path, "phi3small", **changes))).layers]
    assert [layer.block_sparse for layer in layers] == sparse
    assert {(layer.blocksparse_block_size, layer.head_step) for layer in layers} == {(64, int(not homo))}
