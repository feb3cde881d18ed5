"""Files that llama.cpp's own converter made: each architecture gives the logits of transformers for the original.

`originals.py` made what `converted/` has. `CONVERTED` names a folder with newer files.
"""

from __future__ import annotations

import logging
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from localai_shim import LocalOpenAI
from localai_shim.engine.ports import StepInput
from localai_shim.models.gguf.architectures import ARCHITECTURES
from localai_shim.models.gguf.header import read_header
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from localai_shim.types import ModelLoadError
from tests.models.gguf import writing
from tests.models.gguf.checkpoints import PLACES, PROMPT
from tests.models.gguf.converting import CONVERTED, unpack
from tests.models.gguf.originals import FAMILIES
from tests.models.gguf.writing import write
from tests.tiny import tiny

CHOOSING = ("ffn_gate_inp", "ffn_gate_inp_shexp")
"""Layers that choose experts, which llama-quantize leaves as they are."""


def logits(file: Path) -> np.ndarray:
    model = load_model(str(file), LoadOptions())
    assert isinstance(model, TextModel)
    return np.array(model.forward(StepInput(mx.array([PROMPT]), model.new_cache())).logits[0, PLACES])


def test_each_architecture_is_converted(tmp_path: Path) -> None:
    found = {read_header(unpack(name, tmp_path)).get("general.architecture", "") for name in FAMILIES}
    assert found == ARCHITECTURES.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_converted_file_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    expected = np.load(CONVERTED / "logits.npz")[name]
    assert np.abs(expected).max() > 0.5
    assert np.allclose(logits(unpack(name, tmp_path)), expected, atol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_rows_and_columns_are_put_in_order_like_numbers(name: str, tmp_path: Path) -> None:
    """Heads, halves of layers, and experts of a file in 8 bits are those of the same values in float32."""
    file = unpack(name, tmp_path)

    def packed(name: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        is_matrix = name.endswith(".weight") and values.ndim > 1 and values.shape[-1] % 32 == 0
        is_packed = is_matrix and name.split(".")[-2] not in CHOOSING
        return (gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0) if is_packed else None

    def unpacked(name: str, values: np.ndarray) -> tuple[np.ndarray, Type] | None:
        found = packed(name, values)
        return found and (gguf.quants.dequantize(*found), Type.F32)

    found, expected = (
        logits(writing.rewrite(file, tmp_path / f"{i}.gguf", change)) for i, change in enumerate((packed, unpacked))
    )
    off = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert np.median(off) < 0.02  # at some places, rounding makes a token choose other experts


def test_layers_that_draft_are_skipped_with_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        logits(unpack("qwen35", tmp_path))
    assert "tensors are skipped, which the model does not need (MTP layer)" in caplog.text


def test_tensors_of_an_encoder_are_skipped_with_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tiny("qwen3"), tmp_path / "a.gguf", more={"v.patch_embd.weight": np.ones((4, 4), np.float32)})
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert (logits(file) == logits(write(tiny("qwen3"), tmp_path / "b.gguf"))).all()
    assert "1 tensors are skipped, which the model does not need (vision or audio encoder)" in caplog.text


def test_an_encoder_in_another_file_is_not_used_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = gguf.GGUFWriter(tmp_path / "mmproj-model-f16.gguf", "clip")
    encoder.add_tensor("v.patch_embd.weight", np.ones((4, 4), np.float32))
    writing.close(encoder)
    with caplog.at_level(logging.INFO, "localai_shim"):
        logits(unpack("gemma3", tmp_path))
    assert "'gemma3.gguf' is loaded as a text model: the vision encoder in 'mmproj-model-f16.gguf' is" in caplog.text
    with pytest.raises(ModelLoadError, match=r"is only the vision encoder of a model \(mmproj\)"):
        logits(tmp_path / "mmproj-model-f16.gguf")


@pytest.mark.parametrize("name", ["qwen35moe", "gemma4-e2b", "gpt-oss", "mistral3"])
def test_clients_answer_with_converted_files(name: str, tmp_path: Path) -> None:
    """Several requests share the batch, and each says what it says alone."""
    with LocalOpenAI(model=unpack(name, tmp_path)) as client:

        def ask(prompts: list[list[int]]) -> list[str]:
            answer = client.completions.create(model="any", prompt=prompts, max_tokens=8, temperature=0)
            return [choice.text for choice in answer.choices]

        prompts = [PROMPT[:40], PROMPT[5:20], PROMPT[:3]]
        assert ask(prompts) == [ask([prompt])[0] for prompt in prompts]
