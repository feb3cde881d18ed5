"""Whisper's folders, in the forms that are published; what is wrong with one is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import mlx.core as mx
import numpy as np
import pytest

from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model, only_tasks
from localai_shim.models.speech.whisper import WhisperModel
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.cli.caches import cache_model
from tests.speech_models import whisper
from tests.transcribing import opening, prompt, window


def logits_of(folder: Path, number: int = 1) -> np.ndarray:
    """The logits behind a prompt."""
    model = load_model(str(folder), {})
    assert isinstance(model, WhisperModel)
    made = prompt(window(model, number), opening(model.text.settings))
    features = model.embed(made.media[0].media)
    step = StepInput(mx.array([made.tokens]), model.new_cache(), media=[(made.media[0], features)])
    return np.array(model.forward(step).logits[0, -1])


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "model"))


def change(folder: Path, **changes: object) -> Path:
    file = folder / "config.json"
    config: dict[str, Any] = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(config))
    return folder


def test_forms_of_one_model_compute_the_same() -> None:
    assert np.array_equal(logits_of(whisper("mlx")), logits_of(whisper("transformers")))


def test_archive_of_numpy_is_read_as_well(tmp_path: Path) -> None:
    folder = copy_of(whisper("mlx"), tmp_path)
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.savez(str(folder / "weights.npz"), **weights)
    (folder / "model.safetensors").unlink()
    assert np.array_equal(logits_of(folder), logits_of(whisper("mlx")))


def test_file_with_another_name_is_read_as_well(tmp_path: Path) -> None:
    folder = copy_of(whisper("mlx"), tmp_path)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert np.array_equal(logits_of(folder), logits_of(whisper("mlx")))


def test_second_copy_in_float32_is_left_alone(tmp_path: Path) -> None:
    folder = copy_of(whisper("mlx"), tmp_path)
    mx.save_safetensors(str(folder / "model.fp32-00001-of-00001.safetensors"), {"other": mx.zeros(3)})
    assert np.array_equal(logits_of(folder), logits_of(whisper("mlx")))


def test_quantized_model_is_close_to_the_other() -> None:
    plain, packed = logits_of(whisper("mlx")), logits_of(whisper("mlx", bits=8))
    assert 0 < np.abs(plain - packed).max() < 0.2 * np.abs(plain).max()


@pytest.mark.parametrize("form", ["mlx", "transformers"])
def test_task_is_known_before_a_model_is_loaded(form: Any) -> None:
    assert only_tasks(whisper(form)) == ("transcribe", "align")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose cache is the hub's, which has no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_folder_without_tokenizer_says_which_one_it_needs(hub: Path) -> None:
    folder = copy_of(whisper(), hub / "model")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"Run `hf download openai/whisper-tiny tokenizer\.json`"):
        load_model(str(folder), {})


def test_folder_without_tokenizer_has_that_of_openai_s_checkpoint_with_its_vocabulary(hub: Path) -> None:
    folder = copy_of(whisper(), hub / "model")
    shutil.move(folder / "tokenizer.json", hub / "tokenizer.json")
    cache_model(hub, "openai/whisper-tiny", None, tokenizer_json=(hub / "tokenizer.json").read_text())
    assert load_model(str(folder), {}).settings == load_model(str(whisper()), {}).settings


def test_model_of_the_hub_s_cache_has_the_weights_that_only_whispers_have(hub: Path) -> None:
    folder = copy_of(whisper(), hub / "model")
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    cache_model(hub, "somebody/whisper", folder)
    assert load_model("somebody/whisper", {}).tasks == ("transcribe", "align")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"n_audio_ctx": 700}, "1500 are made"),
        ({"n_text_layer": 0}, "n_text_layer is 0"),
        ({"n_mels": "80"}, "n_mels"),
        ({"n_text_layer": 3}, r"decoder\.blocks\.2"),
        ({"n_vocab": 51_866}, "token_embedding"),
    ],
)
def test_config_of_another_model_is_refused_with_the_field_or_the_tensor(
    changes: dict[str, object], why: str, tmp_path: Path
) -> None:
    folder = change(copy_of(whisper(), tmp_path), **changes)
    with pytest.raises(ModelLoadError, match=why):
        load_model(str(folder), {})


@pytest.mark.parametrize(
    "changes", [{"activation_function": "relu"}, {"scale_embedding": True}], ids=["activation", "scale"]
)
def test_setting_that_is_not_computed_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    folder = change(copy_of(whisper("transformers"), tmp_path), **changes)
    with pytest.raises(ModelLoadError, match=next(iter(changes))):
        load_model(str(folder), {})


def test_positions_that_a_checkpoint_has_are_used(tmp_path: Path) -> None:
    folder = copy_of(whisper("transformers"), tmp_path)
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    weights["model.encoder.embed_positions.weight"] *= -1
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    assert not np.allclose(logits_of(folder), logits_of(whisper("transformers")), atol=1e-3)
    weights["model.encoder.embed_positions.weight"] = mx.zeros((7, 64))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    with pytest.raises(ModelLoadError, match="embed_positions"):
        load_model(str(folder), {})


def test_cut_off_file_is_refused(tmp_path: Path) -> None:
    folder = copy_of(whisper(), tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors"):
        load_model(str(folder), {})


@pytest.mark.parametrize(
    "options", [LoadOptions(kv_bits=8), LoadOptions(adapter_path="somewhere")], ids=["kv_bits", "adapter_path"]
)
def test_option_without_effect_is_refused(options: LoadOptions) -> None:
    with pytest.raises(ModelLoadError, match=next(iter(options))):
        load_model(str(whisper()), options)
