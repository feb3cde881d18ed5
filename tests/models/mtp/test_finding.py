"""A model's head is found wherever converters leave it, and computes what its checkpoint means."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm import fp8

from localai_shim.models.loading import load_draft_model, load_model
from localai_shim.models.mtp.files import without_fp8
from localai_shim.models.text import TextModel
from localai_shim.types import ModelLoadError
from tests import heads
from tests.mtp import loaded, logits, parts
from tests.samples import only
from tests.tiny import make_model

Tensors = dict[str, Any]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], np.ndarray[Any, Any]]:
    """The logits of a kind's head that is in MLX's form in the model's own file."""
    made: dict[str, np.ndarray[Any, Any]] = {}

    def of(kind: str) -> np.ndarray[Any, Any]:
        if kind not in made:
            weights, its, config = parts(kind)
            path = tmp_path_factory.mktemp("reference") / kind
            made[kind] = logits(loaded(heads.save(path, {**weights, **heads.named(kind, its, config)}, config)))
        return made[kind]

    return of


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", heads.QWEN)
def test_original_checkpoint_of_qwen_gets_1_added_to_its_norms(
    kind: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts(kind)
    published = heads.as_published(kind, {**weights, **heads.named(kind, its, config)})
    found = loaded(heads.save(tmp_path / kind, published, config, "pt"))
    np.testing.assert_allclose(logits(found), reference(kind), atol=1e-5)


@pytest.mark.parametrize("raw", [True, False])
def test_sidecar_without_a_form_is_read_by_its_norms_of_queries_and_keys(
    raw: bool, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts("qwen3_5")
    folder = heads.save(tmp_path / "model", weights, config)
    its = heads.named("qwen3_5", its, config)
    its = heads.as_published("qwen3_5", its) if raw else its
    mx.save_safetensors(str(folder / "mtp.safetensors"), its)
    found = loaded(folder)
    assert found[1] is not None and ("1 was added" in found[1].doubt) is raw
    np.testing.assert_allclose(logits(found), reference("qwen3_5"), atol=1e-5)


def test_head_of_a_model_whose_norms_had_1_added_twice_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights, its, config = parts("qwen3_5")
    twice = {name: array * 0 + 2.8 if name.endswith("q_norm.weight") else array for name, array in weights.items()}
    folder = heads.save(tmp_path / "model", {**twice, **heads.named("qwen3_5", its, config)}, config)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        assert loaded(folder)[1] is None
    assert "cannot be used, and none drafts: the model's own norms are too large" in caplog.text


@pytest.mark.parametrize("kind", only(["glm4_moe"], heads.NEXT))
def test_layer_behind_a_models_own_ones_is_read_with_experts_one_by_one(
    kind: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts(kind)
    apart: Tensors = {}
    for name, array in its.items():
        for expert in range(array.shape[0]) if "switch_mlp" in name else ():
            apart[name.replace("switch_mlp", f"experts.{expert}")] = array[expert]
        if "switch_mlp" not in name:
            apart[name] = array
    folder = heads.save(tmp_path / kind, {**weights, **heads.named(kind, apart, config)}, config)
    np.testing.assert_allclose(logits(loaded(folder)), reference(kind), atol=1e-5)


@pytest.mark.parametrize("packed", ["experts.gate_up_proj", "switch_mlp.gate_up_proj.weight"])
def test_experts_whose_gate_and_up_are_one_tensor_are_split(
    packed: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts("qwen3_5_moe")
    place = "layers.0.mlp."
    gate, up, down = (its.pop(f"{place}switch_mlp.{each}_proj.weight") for each in ("gate", "up", "down"))
    its[place + packed] = mx.concatenate([gate, up], axis=1)
    its[place + packed.replace("gate_up", "down")] = down
    folder = heads.save(tmp_path / "model", {**weights, **heads.named("qwen3_5_moe", its, config)}, config)
    np.testing.assert_allclose(logits(loaded(folder)), reference("qwen3_5_moe"), atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "group_size", "mode"),
    [(8, 32, "affine"), (4, 32, "affine"), (4, 32, "mxfp4"), (8, 32, "mxfp8"), (4, 16, "nvfp4")],
)
def test_packing_of_a_head_is_read_from_its_tensors(bits: int, group_size: int, mode: str, tmp_path: Path) -> None:
    weights, its, config = parts("qwen3_5")
    packed: Tensors = {}
    for name, array in list(its.items()):
        if array.ndim > 1:
            made = mx.quantize(array, group_size=group_size, bits=bits, mode=mode)
            packed |= dict(
                zip((name, *(name.replace("weight", each) for each in ("scales", "biases"))), made, strict=False)
            )
            its[name] = mx.dequantize(*made, group_size=group_size, bits=bits, mode=mode).astype(mx.float32)
    found = []
    for i, tensors in enumerate((its, {**its, **packed})):
        named = heads.named("qwen3_5", tensors, config)
        found.append(loaded(heads.save(tmp_path / f"model{i}", {**weights, **named}, config)))
    np.testing.assert_allclose(logits(found[1]), logits(found[0]), atol=2e-3)


SCALES = {
    "blocks": lambda array: mx.full([-(-size // 128) for size in array.shape], 0.01) + 0.001 * (array.ndim - 1),
    "rows": lambda array: mx.linspace(0.005, 0.02, array.shape[0])[:, None],
    "tensors": lambda array: mx.array(0.01),
}


@pytest.mark.parametrize("kind", only(["qwen3_5", "deepseek_v3"], heads.KINDS))
@pytest.mark.parametrize("scales", SCALES)
def test_head_in_fp8_is_multiplied_by_its_scales(kind: str, scales: str, tmp_path: Path) -> None:
    weights, its, config = parts(kind)
    small: Tensors = {}
    for name, array in list(its.items()):
        if name.endswith("_proj.weight") and array.ndim == 2:
            scale = SCALES[scales](array)
            eights, wide = mx.to_fp8(array / 0.01), scale if scale.ndim < 2 or scale.size > 1 else scale[0, 0]
            its[name] = (mx.from_fp8(eights, dtype=mx.float32) * wide).astype(mx.bfloat16)
            small |= {name: eights, f"{name}_scale{'_inv' if scales == 'blocks' else ''}": scale}
            small[name.replace(".weight", ".input_scale")] = mx.array(1.0)
    assert len(small) > 6
    found = []
    for i, tensors in enumerate((its, {**its, **small})):
        found.append(loaded(heads.save(tmp_path / f"{i}", {**weights, **heads.named(kind, tensors, config)}, config)))
    np.testing.assert_array_equal(logits(found[1]), logits(found[0]))


def test_blocks_of_fp8_scales_end_with_their_tensor() -> None:
    """Oracle: the function by which mlx-vlm reads such weights."""
    weight, scale = mx.to_fp8(mx.random.normal((200, 300))), mx.random.uniform(shape=(2, 3))
    made = without_fp8({"q_proj.weight": weight, "q_proj.weight_scale_inv": scale, "norm.weight": scale})
    theirs = fp8._dequantize_fp8_weight(weight, scale)
    assert set(made) == {"q_proj.weight", "norm.weight"}
    np.testing.assert_allclose(
        np.array(made["q_proj.weight"].astype(mx.float32)), np.array(theirs.astype(mx.float32)), rtol=0.01
    )


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (3,), (1, 1, 1)], ids=str)
def test_fp8_scales_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"'q_proj\.weight' of shape \(200, 300\) has .*FP8 scales"):
        without_fp8({"q_proj.weight": mx.zeros((200, 300), mx.uint8), "q_proj.weight_scale": mx.ones(shape)})


def test_head_says_what_mlx_vlms_drafter_says_of_the_same_files(tmp_path: Path) -> None:
    """Oracle: mlx-vlm's own reader and drafter of Qwen's heads, on a checkpoint in Hugging Face's form."""
    from mlx_vlm.speculative.drafters import load_drafter

    weights, its, config = parts("qwen3_5")
    published = heads.as_published("qwen3_5", {**weights, **heads.named("qwen3_5", its, config)})
    text = {**config["text_config"], "rope_parameters": {**_ROPE}}
    folder = heads.save(tmp_path / "model", published, {**config, "text_config": text}, "pt")
    model, head = loaded(folder)
    assert head is not None
    theirs = load_drafter(str(folder))
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    theirs.reset(model._model.language_model)
    mx.random.seed(3)
    tokens, states = mx.array([[5, 9, 31]]), mx.random.normal((1, 3, 64))
    hidden = theirs._forward_tokens(tokens, states, mx.int32)
    expected = np.array(theirs._lm_head_fn(hidden))[:, -1]
    made = head.forward(tokens, states, head.new_cache(), [2])
    np.testing.assert_allclose(np.array(made.logits), expected, atol=1e-4)
    assert made.hidden is not None
    np.testing.assert_allclose(np.array(made.hidden), np.array(hidden)[:, -1], atol=1e-4)


_ROPE = {
    "type": "default",
    "mrope_section": [2, 1, 1],
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
}


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "mtp.safetensors",
        "mtp/weights.safetensors",
        "mtp/model.safetensors",
        "model-mtp.safetensors",
        "extra/heads.safetensors",
    ],
)
@pytest.mark.parametrize("kind", only(["qwen3_5"], ["qwen3_5", "qwen3_next", "glm4_moe"]))
def test_file_beside_a_models_own_ones_is_found(
    place: str, kind: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts(kind)
    if place.startswith("extra"):
        config["mlx_lm_extra_tensors"] = {"mtp_file": place}
    folder = heads.save(tmp_path / "model", weights, config)
    (folder / place).parent.mkdir(exist_ok=True)
    mx.save_safetensors(str(folder / place), heads.named(kind, its, config))
    np.testing.assert_allclose(logits(loaded(folder)), reference(kind), atol=1e-5)


@pytest.mark.parametrize("prefix", ["language_model.mtp.", "model.mtp."])
def test_head_is_found_under_the_names_that_conversions_give_it(
    prefix: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts("qwen3_5")
    named = {prefix + name: array for name, array in its.items()}
    folder = heads.save(tmp_path / "model", {**weights, **named}, config)
    np.testing.assert_allclose(logits(loaded(folder)), reference("qwen3_5"), atol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3_5", "glm_moe_dsa", "nemotron_h"])
def test_folder_that_mlx_vlm_splits_off_is_a_draft_model(
    kind: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    from mlx_vlm.split_mtp import split_mtp

    weights, its, config = parts(kind)
    published = {**weights, **heads.named(kind, its, config)}
    published = heads.as_published(kind, published) if kind in heads.QWEN else published
    source = heads.save(tmp_path / "original", published, config, "pt")
    split = Path(split_mtp(str(source), str(tmp_path / "split")))
    heads.text_of(config).pop("mtp_num_hidden_layers" if kind in heads.QWEN else "num_nextn_predict_layers")
    folder = heads.save(tmp_path / "model", weights, config)
    assert loaded(folder)[1] is None
    np.testing.assert_allclose(logits(loaded(folder, split)), reference(kind), atol=1e-5)


@pytest.mark.parametrize("form", ["original", "head alone", "head without a config"])
def test_draft_model_may_be_a_folder_with_a_head(
    form: str, tmp_path: Path, reference: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    weights, its, config = parts("qwen3_5")
    folder = heads.save(tmp_path / "model", weights, config)
    named = heads.named("qwen3_5", its, config)
    if form == "original":
        other = heads.save(tmp_path / "other", heads.as_published("qwen3_5", {**weights, **named}), config, "pt")
    else:
        other = tmp_path / "other"
        other.mkdir()
        if form == "head alone":
            (other / "config.json").write_text(json.dumps({"model_type": "qwen3_5_mtp"}))
        mx.save_safetensors(str(other / "model.safetensors"), its, metadata={"format": "mlx"})
    np.testing.assert_allclose(logits(loaded(folder, other)), reference("qwen3_5"), atol=1e-5)


def test_smaller_model_with_its_own_head_is_a_draft_model_itself(tmp_path: Path) -> None:
    """A model of the same family, with fewer layers, whose head reads other states."""
    weights, its, config = parts("glm4_moe")
    folder = heads.save(tmp_path / "model", weights, config)
    small = {**config, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    kept = {name: array for name, array in weights.items() if ".layers.2." not in name and ".layers.3." not in name}
    other = heads.save(tmp_path / "small", {**kept, **heads.named("glm4_moe", its, small)}, small)
    model = load_model(str(folder), {})
    assert isinstance(load_draft_model(str(other), {}, model), TextModel)


def test_folder_with_a_head_that_does_not_fit_is_refused_as_a_draft_model(tmp_path: Path) -> None:
    weights, its, config = parts("qwen3_5")
    folder = heads.save(tmp_path / "model", weights, config)
    other = tmp_path / "other"
    other.mkdir()
    its["fc.weight"] = its["fc.weight"][:, :64]
    mx.save_safetensors(str(other / "mtp.safetensors"), heads.named("qwen3_5", its, config), metadata={"format": "mlx"})
    with pytest.raises(ModelLoadError, match=r"^draft_model: the MTP head in 'other' cannot draft: .*join\.weight"):
        loaded(folder, other)
    shutil.rmtree(other)
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "qwen3_5_mtp"}))
    with pytest.raises(ModelLoadError, match="cannot draft: it has no tensors of a head"):
        loaded(folder, other)


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", only(["qwen3_next", "glm4_moe"], heads.KINDS))
def test_conversion_that_dropped_its_head_logs_one_line(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights, _, config = parts(kind)
    folder = heads.save(tmp_path / "model", weights, config)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert loaded(folder)[1] is None
    [line] = [record.getMessage() for record in caplog.records if "MTP" in record.getMessage()]
    assert line.startswith("the config of 'model' declares an MTP head, which its conversion has dropped: none drafts.")
    assert "pass `draft_model` the original checkpoint" in line


def test_model_without_a_head_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights, _, config = parts("qwen3_next")
    config.pop("mtp_num_hidden_layers")
    folder = heads.save(tmp_path / "model", weights, config)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert loaded(folder)[1] is None
    assert "MTP" not in caplog.text


def test_head_of_another_architecture_is_named_as_not_supported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model(tmp_path / "model", "qwen3_moe", num_nextn_predict_layers=1)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert loaded(folder)[1] is None
    assert "'model' declares an MTP head. Heads of this architecture are not supported" in caplog.text


@pytest.mark.parametrize("lost", ["layers.0.self_attn.k_proj.weight", "norm.weight", "fc.weight"])
def test_head_without_some_of_its_tensors_is_not_used_and_the_model_is(
    lost: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights, its, config = parts("qwen3_5")
    del its[lost]
    folder = heads.save(tmp_path / "model", {**weights, **heads.named("qwen3_5", its, config)}, config)
    with caplog.at_level(logging.WARNING, "localai_shim"):
        assert loaded(folder)[1] is None
    assert "the MTP head of 'model' cannot be used, and none drafts" in caplog.text


def test_damaged_file_of_a_head_is_named_and_the_model_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights, its, config = parts("qwen3_5")
    folder = heads.save(tmp_path / "model", weights, config)
    mx.save_safetensors(str(folder / "mtp.safetensors"), heads.named("qwen3_5", its, config))
    whole = (folder / "mtp.safetensors").read_bytes()
    (folder / "mtp.safetensors").write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert loaded(folder)[1] is None
    assert "mtp.safetensors' is not searched for an MTP head: was cut off" in caplog.text
