"""Which library loads a checkpoint, what of it, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_vlm.utils
import numpy as np
import pytest
from mlx.utils import tree_flatten

from localai_shim.backends import own_forms
from localai_shim.backends.cuda import attention as cuda_attention
from localai_shim.backends.own_forms import OwnForms
from localai_shim.backends.x86 import activations as cpu_forms
from localai_shim.engine.ports import StepInput
from localai_shim.models.loading import load_model, refusal
from localai_shim.models.text import TextModel
from localai_shim.models.vision.families import _placeholders
from localai_shim.models.vision.families import model_type as family_of
from localai_shim.models.vision.model import VisionModel
from localai_shim.types import ModelLoadError
from tests import inside
from tests.machine_forms import use_forms
from tests.models.vision.seeing import WHOLE, generate, load, pictures, prompt_of
from tests.samples import only
from tests.tiny import tiny
from tests.vision import FAMILIES, families, make_model, picture, tiny_vision

EVIL = """
from pathlib import Path
Path({path!r}).write_text("it ran")
class Evil:
    @classmethod
    def from_pretrained(cls, *args, **kwargs): return cls()
EvilConfig = EvilProcessor = EvilTokenizer = EvilImageProcessor = Model = ModelArgs = ModelConfig = Evil
"""


def copied(folder: Path, kind: str, **changes: Any) -> Path:
    """A checkpoint of a family whose config says something else."""
    return make_model(folder / f"{kind}-changed", kind, **changes)


def rewritten(folder: Path, **changes: Any) -> Path:
    """The same, without a model of these: only the config says so."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def test_a_checkpoint_of_text_is_loaded_through_mlx_lm() -> None:
    assert type(load_model(str(tiny("qwen3")), {})) is TextModel


def test_a_checkpoint_that_sees_is_loaded_through_mlx_vlm() -> None:
    model = load("qwen2_vl")
    assert model.text.media_kinds == {"image", "video"}
    assert model.context_length == 2048
    assert model.new_cache()[0].__class__.__module__ == "mlx_vlm.models.cache"


def test_a_context_length_stands_in_the_config_of_the_language_model() -> None:
    assert "max_position_embeddings" not in FAMILIES["gemma3"].config
    assert load("gemma3").context_length == 2048


@pytest.mark.parametrize("kind", families())
def test_text_only_loads_the_language_model_alone(kind: str) -> None:
    whole = load(kind)
    model = load_model(str(tiny_vision(kind)), {"text_only": True})
    assert model.text.media_kinds == frozenset()
    assert model.weight_bytes < whole.weight_bytes
    with pytest.raises(ValueError, match="reads text only"):
        model.text.process(picture(4, 4))
    ids = model.text.apply_chat_template([{"role": "user", "content": "Hello there"}], {})
    logits = [each.forward(StepInput(mx.array([ids]), each.new_cache())).logits for each in (model, whole)]
    np.testing.assert_allclose(np.array(logits[0]), np.array(logits[1]), atol=1e-3)


def test_a_language_model_that_only_mlx_vlm_knows_runs_as_text(tmp_path: Path) -> None:
    model = load_model(str(tiny_vision("internvl_chat")), {"text_only": True})
    assert type(model) is VisionModel


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("mllama", "cross-attention"),
        ("florence2", "encoder-decoder"),
        ("nemotron_parse", "encoder-decoder"),
        ("diffusion_gemma", "diffusion"),
    ],
)
def test_models_that_do_not_generate_token_by_token_are_refused(tmp_path: Path, kind: str, why: str) -> None:
    folder = rewritten(copied(tmp_path, "llava"), model_type=kind)
    with pytest.raises(ModelLoadError, match=why) as caught:
        load_model(str(folder), {})
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("deepseek_ocr2", "deepseekocr_2"),
        ("ernie4_5_vl_moe", "ernie4_5_moe_vl"),
        ("fast_vlm", "llava_qwen2"),
        ("got_ocr2", "got"),
        ("phi4_multimodal", "phi4mm"),
    ],
)
def test_a_checkpoint_in_transformers_own_form_is_refused_with_the_name_of_the_other(
    tmp_path: Path, kind: str, own: str
) -> None:
    """The error is no longer needed when mlx-vlm knows transformers' name; it knows the other one."""
    assert family_of({"model_type": kind}) is None
    assert family_of({"model_type": own}) is not None
    folder = rewritten(copied(tmp_path, "llava"), model_type=kind)
    for options in ({}, {"text_only": True}):
        with pytest.raises(ModelLoadError, match=f"'{kind}'.*whose config.json has the model_type '{own}'"):
            load_model(str(folder), options)
    assert f"the model_type '{own}'" in refusal(folder)


@pytest.mark.parametrize("name", ["fastvlm", "llava_qwen2", "phi4-siglip", "phi4_siglip"])
def test_images_with_one_token_for_all_features_are_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mlx-vlm's processor writes one token for an image, and its model puts all features of the image there."""
    model = load("llava")
    assert model._processor is not None
    processor = model._processor._processor
    assert set(_placeholders(model._model, processor)) == {"image"}
    monkeypatch.setattr(model._model.config, "model_type", name)
    assert not _placeholders(model._model, processor)


def test_a_model_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder = rewritten(copied(tmp_path, "llava"), model_type="nobodys")
    with pytest.raises(ModelLoadError, match="nobodys"):
        load_model(str(folder), {})


@pytest.mark.parametrize("kind", ["qwen2_vl", "llava", "kimi_vl", "glm4v", "gemma4"])
def test_code_of_a_checkpoint_is_never_run(tmp_path: Path, kind: str) -> None:
    """mlx-vlm's patch of `AutoProcessor` and its `load_config` trust a checkpoint unless they are told not to."""
    ran = tmp_path / "ran"
    folder = copied(tmp_path, kind)
    (folder / "evil.py").write_text(EVIL.format(path=str(ran)))
    code = {f"Auto{name}": f"evil.Evil{name}" for name in ("Config", "Processor", "Tokenizer", "ImageProcessor")}
    for name in ("config", "preprocessor_config", "processor_config", "tokenizer_config"):
        path = folder / f"{name}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**content, "auto_map": code}))
    model = load_model(str(folder), {})
    assert "image" in model.text.media_kinds
    assert not ran.exists()


def test_a_model_that_is_a_program_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = rewritten(copied(tmp_path, "llava"), model_file="evil.py")
    (folder / "evil.py").write_text(EVIL.format(path=str(ran)))
    with pytest.raises(ModelLoadError, match="trust_remote_code=True"):
        load_model(str(folder), {})
    assert not ran.exists()


def test_the_fingerprint_is_that_of_the_weights_and_of_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    from localai_shim.models.checkpoint import files

    prints = {load("llava").fingerprint, load("llava").fingerprint}
    monkeypatch.setattr(files, "version", lambda name: "99" if name == "mlx-vlm" else "1")
    prints.add(load("llava").fingerprint)
    assert len(prints) == 2


def test_quantised_keys_and_values(tmp_path: Path) -> None:
    wide = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    family = FAMILIES["llava"]
    text = {**family.config["text_config"], **wide}
    folder = copied(tmp_path, "llava", text_config=text)
    model = load_model(str(folder), {"kv_bits": 8, "kv_group_size": 32})
    item = model.text.process(picture(56, 56))
    features = model.embed(item)
    assert features.rows.shape == (16, 64)
    cache = model.new_cache()
    model.prefill(StepInput(mx.array([[5, 6, 7, 8]]), cache))
    assert cache[0].packed


def test_a_chat_template_in_a_file_of_its_own(tmp_path: Path) -> None:
    family = dataclasses.replace(FAMILIES["llava"], template=None)
    FAMILIES["bare"] = family
    try:
        folder = make_model(tmp_path / "bare", "bare")
    finally:
        del FAMILIES["bare"]
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}!"}))
    model = load_model(str(folder), {})
    ids = model.text.apply_chat_template([{"role": "user", "content": "Hi"}], {})
    assert model.tokenizer.has_chat_template and model.tokenizer.decode(ids) == "Hi!"


@pytest.mark.parametrize("use", [cuda_attention.use_attention, cpu_forms.use_x86_forms], ids=["CUDA", "x86"])
def test_a_machine_s_attention_takes_the_place_of_mlx_vlm_s(
    use: Callable[[Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_forms(monkeypatch, OwnForms())
    monkeypatch.setattr(own_forms, "use_sharing", lambda *_: 0)  # which comes after a machine's attention
    model = load("llava")
    item, tokens = model.text.process(picture(56, 56)), mx.array([[5, 6, 7, 8] * 20])
    rows, logits = (
        np.array(model.embed(item).rows),
        np.array(model.forward(StepInput(tokens, model.new_cache())).logits),
    )
    assert use(inside.network(model)) >= 1
    assert use(inside.network(model)) == 0, "once"
    np.testing.assert_allclose(
        np.array(model.forward(StepInput(tokens, model.new_cache())).logits), logits, rtol=1e-4, atol=1e-3
    )
    np.testing.assert_allclose(np.array(model.embed(item).rows), rows, atol=1e-3)


def test_mlx_vlm_s_models_take_their_attention_from_base() -> None:
    base = importlib.import_module("mlx_vlm.models.base")
    for kind in ("qwen2_vl", "qwen3_vl", "gemma3", "gemma4", "llava"):
        module = importlib.import_module(f"mlx_vlm.models.{kind}.language")
        assert module.scaled_dot_product_attention is base.scaled_dot_product_attention, kind


def test_padding_of_a_pass_is_taken_out_of_mlx_vlm_s_caches() -> None:
    model = load("llava")
    cache = model.new_cache()
    tokens, padding = cuda_attention.fill(mx.zeros((1, 5), mx.int32), cache)
    assert tokens.shape == (1, 5 + padding) and padding == cuda_attention.filled(5) - 5
    model.prefill(StepInput(tokens, cache))
    cuda_attention.forget(cache, padding)
    assert {layer.offset for layer in cache} == {5}


@pytest.mark.parametrize("kind", only(["qwen2_vl"], ["qwen2_vl", "gemma3", "llava", "qwen3_5"]))
def test_adapters_are_applied_as_mlx_vlm_applies_them(tmp_path: Path, kind: str) -> None:
    """To the language model, the tower or what is between; a picture is looked at through them."""
    from mlx_vlm.trainer import get_peft_model, save_adapter

    path = tiny_vision(kind)
    base = mlx_vlm.utils.load_model(path, trust_remote_code=False)
    adapted = get_peft_model(base, rank=4, dropout=0.0, verbose=False)
    mx.random.seed(5)
    changed = {name: mx.random.normal(array.shape) for name, array in tree_flatten(adapted.trainable_parameters())}
    adapted.load_weights(list(changed.items()), strict=False)
    save_adapter(adapted, tmp_path / "adapters.safetensors")

    plain, model = load(kind), load(kind, adapter_path=str(tmp_path))
    assert model.fingerprint != plain.fingerprint
    media = pictures(1)
    prompt = prompt_of(model, [model.text.process(item) for item in media])
    theirs = load(kind)  # `generate_step` is no oracle for Gemma 3, whose images are computed otherwise
    mlx_vlm.utils.apply_lora_layers(inside.network(theirs), str(tmp_path))
    inside.network(theirs).eval()
    ours, want, alone = (
        generate(each, prompt, [each.embed(item.media) for item in prompt.media], WHOLE)
        for each in (model, theirs, plain)
    )
    assert [token for token, _ in ours] == [token for token, _ in want] != [token for token, _ in alone]
    for (_, logits), (_, others) in zip(ours, want, strict=True):
        np.testing.assert_allclose(logits, others, atol=1e-4)
    text = load(kind, adapter_path=str(tmp_path), text_only=True)
    ids = mx.array([[70, 71, 72]])
    logits = [np.array(each.forward(StepInput(ids, each.new_cache())).logits) for each in (text, model, plain)]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4)
    assert not np.allclose(logits[0], logits[2], atol=1e-2)
