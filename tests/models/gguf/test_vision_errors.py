"""Vision encoders in GGUF files that do not fit, or are damaged."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from localai_shim.models.loading import load_model
from localai_shim.models.text import TextModel
from localai_shim.options import LoadOptions
from localai_shim.types import ModelLoadError
from tests.models.gguf import writing
from tests.models.gguf.converting import unpack
from tests.models.gguf.seeing import NAME, load, rewrite_encoder, unpack_both, write_encoder


def test_tensors_of_one_layer_must_have_one_type(tmp_path: Path) -> None:
    file = unpack_both("qwen25-vision", tmp_path)

    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_packed = tensor.endswith("attn_q.weight")
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    rewrite_encoder(file, packed)
    with pytest.raises(ModelLoadError, match=r"'v.blk.0.attn_q.weight', .* are one layer, and must have one type"):
        load(file)


@pytest.mark.parametrize("name", ["v.patch_embd.weight", "v.blk.0.ln1.weight", "mm.input_projection.weight"])
def test_a_quantized_tensor_of_no_layer_is_an_error(name: str, file: Path) -> None:
    def packed(tensor: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        raw = np.zeros((*values.shape[:-1], 32), np.float32)
        return (gguf.quants.quantize(raw, Type.Q8_0), Type.Q8_0) if tensor == name else None

    rewrite_encoder(file, packed)
    with pytest.raises(ModelLoadError, match=f"tensor '{re.escape(name)}' is quantized, which only layers can be"):
        load(file)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"clip.projector_type": "qwen9vl"},
            "encoders of the kind 'qwen9vl' cannot be read with 'gemma3', only dots_ocr with qwen2, gemma3 ",
        ),
        ({"clip.vision.projection_dim": 64}, "its features have 64 numbers, and the model's embeddings 32"),
    ],
)
def test_an_encoder_that_does_not_fit_is_not_used_and_logged(
    change: dict[str, Any], why: str, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_encoder(tmp_path / f"mmproj-{NAME}.gguf", change)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert type(load_model(str(file), LoadOptions())) is TextModel
    assert f"'{file.name}' is loaded as a text model: the vision encoder in 'mmproj-{NAME}.gguf'" in caplog.text
    assert why in caplog.text


@pytest.mark.parametrize(("name", "kind"), [("phi3", "phi4"), ("qwen3vlmoe", "qwen3a")])
def test_a_model_with_an_encoder_of_an_unsupported_kind_reads_text_and_the_log_says_why(
    name: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Phi-4 with images, and a file that has Qwen3-Omni's encoder for audio alone."""
    file = unpack(name, tmp_path)
    write_encoder(tmp_path / f"mmproj-{name}.gguf", {"clip.projector_type": kind})
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert type(load_model(str(file), LoadOptions())) is TextModel
    assert f"'{file.name}' is loaded as a text model: the vision encoder in 'mmproj-{name}.gguf'" in caplog.text
    assert f"encoders of the kind '{kind}' cannot be read with '{name}', only " in caplog.text


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (NAME, {"clip.vision.n_wa_pattern": 4}, "its metadata has 'clip.vision.n_wa_pattern', which is not known"),
        (NAME, {"clip.has_audio_encoder": True}, "'clip.has_audio_encoder' is True, and mlx-vlm computes with False"),
        ("qwen25-vision", {"clip.use_silu": False}, "'clip.use_silu' is False, and mlx-vlm computes with True"),
        ("minicpmv-vision", {"clip.vision.projector.scale_factor": 2}, "is 2, and mlx-vlm computes with 4"),
        ("gemma4-e2b-vision", {"clip.audio.window_size": 9}, "has 'clip.audio.window_size', which is not known"),
        ("gemma4-e2b-vision", {"clip.audio.num_mel_bins": 80}, "is 80, and mlx-vlm computes with 128"),
        (
            "qwen2-vision",
            {"clip.vision.attention.layer_norm_epsilon": 0.5},
            "'clip.vision.attention.layer_norm_epsilon' is 0.5, and mlx-vlm computes with 1e-06",
        ),
    ],
)
def test_an_encoder_with_other_settings_than_the_class_has_is_not_used_and_logged(
    name: str, change: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = unpack_both(name, tmp_path)
    rewrite_encoder(file, metadata=change)
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert type(load_model(str(file), LoadOptions())) is TextModel
    assert why in caplog.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda name: name.replace("v.blk.1.ln1", "v.blk.1.ln9"), "tensor 'v.blk.1.ln9.weight' is not known"),
        (lambda name: name.replace("v.blk.2.", "v.blk.7."), "there are tensors of 3 layers, up to number 7"),
        (lambda name: name.replace("mm.2.", "mm.blk.2."), "tensor 'mm.blk.2.bias' is not known"),
    ],
)
def test_tensors_with_wrong_names_are_an_error(change: Callable[[str], str], why: str, tmp_path: Path) -> None:
    file = unpack_both("qwen25-vision", tmp_path)
    rewrite_encoder(file, rename=change)
    with pytest.raises(ModelLoadError, match=re.escape(why)):
        load(file)


@pytest.mark.parametrize("value", [[], [3], [0, 1]])
def test_a_merger_that_is_behind_no_layer_is_an_error(value: list[int], tmp_path: Path) -> None:
    file = unpack_both("minicpmv-vision", tmp_path)
    rewrite_encoder(file, metadata={"clip.vision.wa_layer_indexes": value})
    with pytest.raises(ModelLoadError, match=r"'clip.vision.wa_layer_indexes' is \[.*\], not one of 3 layers"):
        load(file)


@pytest.mark.parametrize("value", [[0.5, 0.5, 0.5], [0.485, 0.456]])
def test_pixels_that_mlx_vlm_normalizes_otherwise_are_an_error(value: list[float], tmp_path: Path) -> None:
    file = unpack_both("internvl-qwen2", tmp_path)
    rewrite_encoder(file, metadata={"clip.vision.image_mean": value})
    with pytest.raises(ModelLoadError, match=r"'clip.vision.image_mean' is \[0\..*, and mlx-vlm has \[0.485"):
        load(file)


def test_a_table_of_positions_without_rows_and_columns_is_an_error(tmp_path: Path) -> None:
    file = unpack_both("gemma4-vision", tmp_path)
    rewrite_encoder(file, lambda name, values: (values[0], Type.F32) if name == "v.position_embd.weight" else None)
    with pytest.raises(ModelLoadError, match=r"'v.position_embd.weight' has the shape \[64, 32\], not one of"):
        load(file)


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("block_count", 1 << 30, "'clip.audio.block_count' is 1073741824, but there are tensors of 1 layers"),
        ("attention.head_count", 3, "'clip.audio.attention.head_count', 3, does not divide 32"),
        ("projector_type", "gemma4ua", "audio encoders of the kind 'gemma4ua' cannot be read, only gemma4a"),
    ],
)
def test_a_setting_of_an_audio_encoder_that_cannot_be_is_an_error(
    setting: str, value: int | str, why: str, tmp_path: Path
) -> None:
    file = unpack_both("gemma4-e2b-vision", tmp_path)
    rewrite_encoder(file, metadata={f"clip.audio.{setting}": value})
    with pytest.raises(ModelLoadError, match=rf"{re.escape(why)}.*\. Pass text_only=True to load the model without"):
        load(file)


def test_an_audio_encoder_without_a_tensor_is_an_error(tmp_path: Path) -> None:
    file = unpack_both("gemma4-e2b-vision", tmp_path)
    rewrite_encoder(file, rename=lambda name: name.replace("a.blk.0.conv_dw.weight", "a.blk.0.conv_dw.bias"))
    with pytest.raises(ModelLoadError, match=r"it has no tensor 'a.blk.0.conv_dw.weight'"):
        load(file)


def test_a_tensor_of_another_shape_is_an_error(tmp_path: Path) -> None:
    file = unpack_both("pixtral-vision", tmp_path)
    rewrite_encoder(file, lambda name, values: (values[:, :16], Type.F32) if name == "mm.1.weight" else None)
    with pytest.raises(ModelLoadError, match=r"does not have the tensors of its kind: Expected shape \(32, 32\)"):
        load(file)


@pytest.mark.parametrize(
    ("name", "setting", "value", "why"),
    [
        (
            "qwen25-vision",
            "block_count",
            1 << 30,
            "'clip.vision.block_count' is 1073741824, but there are tensors of 3",
        ),
        ("qwen25-vision", "embedding_length", 1 << 30, "is 1073741824, but patches have 32 numbers"),
        (
            "qwen25-vision",
            "attention.head_count",
            3,
            "attention.head_count', 3, does not divide 32",
        ),
        ("gemma4-12b-vision", "patch_size", 3, "192 numbers are not those of a square of patches of 3 pixels"),
        ("internvl-qwen2", "preproc_max_tiles", 1 << 30, "images of 1073741824 tiles are not supported, only 64"),
        ("smolvlm-vision", "image_size", 3, "images of 3 pixels have no patch of 7"),
        ("qwen25-vision", "n_wa_pattern", 0, "the metadata lacks 'clip.vision.n_wa_pattern', or it is 0"),
        ("mistral3-vision", "image_size", 1 << 20, "images of 1048576 pixels have more than 1024 patches of 7"),
        ("mistral3-vision", "spatial_merge_size", 1, "the metadata lacks 'clip.vision.spatial_merge_size', which"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error(name: str, setting: str, value: int, why: str, tmp_path: Path) -> None:
    file = unpack_both(name, tmp_path)
    rewrite_encoder(file, metadata={f"clip.vision.{setting}": value})
    with pytest.raises(ModelLoadError, match=rf"{re.escape(why)}.*\. Pass text_only=True to load the model without"):
        load(file)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("qwen25-vision", {"qwen2vl.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
        ("glm4v-moe", {"glm4moe.rope.dimension_sections": [2, 2, 1, 0]}, "which are not three parts of 4"),
        ("qwen3-vision", {"qwen3vl.n_deepstack_layers": 3}, "the language model reads those of 3"),
        ("smolvlm-vision", {"llama.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
        ("pixtral-vision", {"llama.rope.scaling.type": "yarn"}, "rope scaling is not supported with images"),
    ],
)
def test_a_language_model_that_cannot_read_images_is_an_error(
    name: str, change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    file = unpack_both(name, tmp_path)
    writing.rewrite(file, tmp_path / "new", lambda *_: None, metadata=change).replace(file)
    with pytest.raises(ModelLoadError, match=rf"{re.escape(why)}.*\. Pass text_only=True to load the model without"):
        load(file)
    assert type(load_model(str(file), LoadOptions(text_only=True))) is TextModel


def test_an_encoder_that_is_damaged_is_an_error(file: Path, tmp_path: Path) -> None:
    encoder = tmp_path / f"mmproj-{NAME}.gguf"
    encoder.write_bytes(encoder.read_bytes()[:-5000])
    with pytest.raises(ModelLoadError, match=r"mmproj-gemma3-vision.gguf' is damaged, or was not downloaded complete"):
        load(file)
    write_encoder(encoder, {})
    with pytest.raises(ModelLoadError, match=r"the metadata lacks 'clip.vision.block_count'"):
        load(file)
