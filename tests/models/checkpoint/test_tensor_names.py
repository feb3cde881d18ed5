"""Names of tensors say if a model has its own head; tensors without a place are skipped with a log line, or refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.ports import StepInput
from localai_shim.models.checkpoint.tensor_names import has_head, without_extra
from localai_shim.models.loading import load_model
from localai_shim.models.weights import folder_weights
from localai_shim.options import LoadOptions
from localai_shim.types import Json, ModelLoadError
from tests.tiny import make_weights, tiny
from tests.vision import tiny_vision


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "language_model.lm_head.weight",
        "language_model.model.lm_head.scales",
        "model.llm.unembed.weight",
        "head.weight",
        "output.weight",
    ],
)
def test_a_head_is_found_under_each_of_its_names(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "model.safetensors")
    mx.save_safetensors(file, {"model.embed_tokens.weight": mx.zeros(2), name: mx.zeros(2)})
    assert has_head(tmp_path) is True
    mx.save_safetensors(file, {"model.embed_tokens.weight": mx.zeros(2), "vision.head.weight": mx.zeros(2)})
    assert has_head(tmp_path) is False


def test_a_folder_without_weights_says_nothing_about_a_head(tmp_path: Path) -> None:
    assert has_head(tmp_path) is None


SMALL = mx.ones((2, 2))
FOUND: dict[str, list[str]] = {
    "encoders": [
        "vision_tower.encoder.layers.0.mlp.fc1.weight",
        "model.vision_tower.blocks.0.attn.qkv.weight",
        "visual.blocks.0.norm1.weight",
        "model.visual.merger.mlp.0.bias",
        "multi_modal_projector.linear_1.weight",
        "model.embed_vision.embedding_projection.weight",
        "audio_tower.layers.0.fc1.weight",
        "mm_projector.0.weight",
        "model.image_newline",
        "model.connector.modality_projection.proj.weight",
    ],
    "layers that draft tokens": [
        "mtp.layers.0.self_attn.q_proj.weight",
        "model.mtp.fc.weight",
        "mtp_block.enorm.weight",
        "model.layers.2.eh_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
    ],
    "buffers": [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "rotary_emb.inv_freq",
        "model.rotary_emb.cos_cached",
        "transformer.h.0.attn.masked_bias",
        "h.0.attn.bias",
        "embeddings.position_ids",
    ],
}
UNKNOWN = [
    "model.layers.0.self_attn.q_proj.bias",
    "model.layers.0.self_attn.sinks",
    "model.layers.0.mlp.router.weight",
    "model.layers.3.self_attn.q_proj.weight",  # behind those that draft
    "model.foo.weight",
    "v_head.summary.weight",
    "h.0.attn.bias",
    "model.layers.0.self_attn.output.weight",
    "model.layers.0.self_attn.k_scale",
]
CONFIG = {"model_type": "qwen3", "num_hidden_layers": 2, "num_nextn_predict_layers": 1}


def folder_of(made: Path, kind: str, extra: dict[str, mx.array], **config: Any) -> Path:
    """A tiny model's checkpoint with more tensors and another config."""
    shutil.copytree(tiny(kind), made)
    add(made, extra)
    path = made / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return made


def add(folder: Path, extra: dict[str, mx.array]) -> None:
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    weights = {**weights, **extra}
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})


def logits(model: Any) -> np.ndarray:
    return np.array(model.forward(StepInput(mx.array([[5, 9, 13, 21]]), model.new_cache())).logits)


KNOWN = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight"]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in FOUND.items() for name in names])
def test_tensors_are_known_by_their_names(kind: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert without_extra(KNOWN, {name: SMALL[None, None]}, CONFIG) == {}
    assert f"1 tensor(s) that the model does not need are skipped (1.6e-05 MB): {kind} (1)" in caplog.text


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_tensor_that_the_model_may_need_is_left(name: str) -> None:
    assert list(without_extra(KNOWN, {name: SMALL}, CONFIG)) == [name]


def test_tensors_of_an_encoder_that_is_loaded_are_left() -> None:
    known = [*KNOWN, "vision_tower.encoder.layers.0.mlp.fc1.weight"]
    weights = {"vision_tower.encoder.layers.0.mlp.fc9.weight": SMALL, "audio_tower.conv.weight": SMALL}
    assert list(without_extra(known, weights, CONFIG)) == ["vision_tower.encoder.layers.0.mlp.fc9.weight"]


def test_tensors_of_layers_that_will_be_packed_are_left() -> None:
    names = ["model.layers.0.mlp.up_proj.scales", "model.layers.0.mlp.up_proj.biases"]
    assert list(without_extra(KNOWN, dict.fromkeys(names, SMALL), CONFIG)) == names


def test_a_checkpoint_with_more_than_its_model_needs_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    extra = {name: SMALL for names in FOUND.values() for name in names if "h.0" not in name}
    folder = folder_of(tmp_path / "more", "qwen3", extra, num_nextn_predict_layers=1)
    with caplog.at_level(logging.INFO, "localai_shim"):
        model = load_model(str(folder), LoadOptions())
    [text] = [record.getMessage() for record in caplog.records if "does not need" in record.getMessage()]
    assert text.endswith("buffers (4), encoders (10), layers that draft tokens (5)")
    assert np.array_equal(logits(model), logits(load_model(str(tiny("qwen3")), LoadOptions())))


@pytest.mark.parametrize("name", ["model.foo.weight", "model.layers.0.self_attn.q_proj.bias"])
def test_any_other_tensor_without_a_place_is_an_error(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "more", "qwen3", {name: SMALL}, attention_bias=True)
    with pytest.raises(ModelLoadError, match=rf"Received 1 parameters not in model: {name}"):
        load_model(str(folder), LoadOptions())


def test_a_bias_that_the_config_names_and_the_checkpoint_lacks_is_an_error(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "less", "llama", {}, attention_bias=True)
    with pytest.raises(ModelLoadError, match="Missing 8 parameters"):
        load_model(str(folder), LoadOptions())


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    """A model whose class has no output layer beside its embeddings."""
    config: Json = {**json.loads((tiny("llama") / "config.json").read_text()), "model_type": "gemma", "head_dim": 16}
    shutil.copytree(tiny("llama"), tmp_path / "tied")
    made = make_weights(tmp_path / "tied", config)
    embeddings = mx.load(str(made / "model.safetensors"))["model.embed_tokens.weight"]  # type: ignore[index, call-overload]
    add(made, {"lm_head.weight": embeddings})
    return made


def test_an_output_layer_that_is_the_embeddings_is_skipped(tied: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        load_model(str(tied), LoadOptions())
    assert "tied output layers (1)" in caplog.text


def test_another_output_layer_is_an_error(tied: Path) -> None:
    embeddings = mx.load(str(tied / "model.safetensors"))["lm_head.weight"]  # type: ignore[index, call-overload]
    add(tied, {"lm_head.weight": embeddings + 1})
    with pytest.raises(ModelLoadError, match=r"'lm_head.weight' is another matrix than 'model.embed_tokens.weight'"):
        load_model(str(tied), LoadOptions())
    path = tied / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": True}))
    load_model(str(tied), LoadOptions())


def test_a_model_that_sees_skips_them_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "more"
    shutil.copytree(tiny_vision("qwen2_vl"), folder)
    add(folder, {"language_model.model.rotary_emb.inv_freq": SMALL, "mtp.fc.weight": SMALL})
    with caplog.at_level(logging.INFO, "localai_shim"):
        load_model(str(folder), LoadOptions())
    assert "2 tensor(s) that the model does not need are skipped" in caplog.text
    add(folder, {"vision_tower.blocks.0.foo.weight": SMALL})
    with pytest.raises(ModelLoadError, match=r"vision_tower.blocks.0.foo.weight"):
        load_model(str(folder), LoadOptions())


def test_an_update_from_a_folder_skips_them_too(tmp_path: Path) -> None:
    model: Any = load_model(str(tiny("qwen3")), LoadOptions())
    model.read_weights(folder_weights(folder_of(tmp_path / "more", "qwen3", {"visual.patch.weight": SMALL})))()
    unknown = folder_of(tmp_path / "unknown", "qwen3", {"model.foo.weight": SMALL})
    with pytest.raises(ModelLoadError, match=r"'model.foo.weight' .* is no tensor of this model"):
        model.read_weights(folder_weights(unknown))
