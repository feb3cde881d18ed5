"""MTP heads in GGUF files draft: llama.cpp's converter wrote the layer, and the model's own code computes it."""

from __future__ import annotations

import logging
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from localai_shim import LocalOpenAI
from localai_shim.engine.drafts.head import HeadDrafter
from tests.engine.guessing import speculate
from tests.models.gguf.checkpoints import PROMPT
from tests.models.gguf.converting import unpack
from tests.models.gguf.writing import rewrite
from tests.mtp import loaded

NAMES = ["qwen35", "qwen35moe", "qwen3next", "glm4moe"]
WIDTH, LAST = 32, 3
"""The head's layer has the weights of the model's last one, which is behind three others."""
AROUND = ("enorm", "hnorm", "eh_proj", "shared_head_norm")


def around() -> dict[str, np.ndarray]:
    """Values of what is around a head's layer."""
    numbers = np.random.default_rng(7)
    shapes = (WIDTH,), (WIDTH,), (WIDTH, 2 * WIDTH), (WIDTH,)
    drawn = [numbers.standard_normal(shape, np.float32) for shape in shapes]
    return {name: 0.1 * each + (each.ndim == 1) for name, each in zip(AROUND, drawn, strict=True)}


def with_head(name: str, folder: Path, *, packed: bool = False) -> Path:
    """A converted file with such a head; if it is packed, its matrices around the layer are in 8 bits."""
    file, values = unpack(name, folder), {f"blk.{LAST + 1}.nextn.{key}.weight": each for key, each in around().items()}
    more: dict[str, np.ndarray] = {}
    if name == "glm4moe":  # of which the converter has left the head away, as transformers has none
        layer = [each for each in gguf.GGUFReader(file).tensors if each.name.startswith(f"blk.{LAST}.")]
        more = {each.name.replace(f".{LAST}.", f".{LAST + 1}."): np.array(each.data) for each in layer}
        more |= values

    def change(name: str, array: np.ndarray) -> tuple[np.ndarray, Type] | None:
        array = values.get(name, array)
        if packed and "eh_proj" in name:
            return gguf.quants.quantize(array, Type.Q8_0), Type.Q8_0
        return (array, Type.F32) if name in values else None

    (folder / "made").mkdir()
    return rewrite(file, folder / "made" / f"{name}.gguf", change, more=more)


@pytest.mark.parametrize(("name", "packed"), [*((name, False) for name in NAMES), ("qwen35", True)])
def test_head_computes_what_the_models_last_layer_makes_of_its_inputs(name: str, packed: bool, tmp_path: Path) -> None:
    _, head = loaded(with_head(name, tmp_path, packed=packed))
    assert head is not None
    decoder, values = head._decoder(), around()

    def norm(states: mx.array, weight: np.ndarray) -> mx.array:
        return mx.fast.rms_norm(states, mx.array(weight), decoder.norm.eps)

    tokens, states = mx.array([PROMPT[:9]]), mx.random.normal((1, 9, WIDTH), key=mx.random.key(2))
    embedded = norm(decoder.embed_tokens(tokens), values["enorm"])
    joined = mx.concatenate([embedded, norm(states, values["hnorm"])], axis=-1) @ mx.array(values["eh_proj"]).T
    made = norm(decoder.layers[LAST](joined, "causal"), values["shared_head_norm"])[:, -1]
    found = head.forward(tokens, states, head.new_cache(), [8])
    assert found.hidden is not None
    tolerance = 0.1 if packed else 1e-4
    np.testing.assert_allclose(np.array(found.hidden), np.array(made), atol=tolerance)
    np.testing.assert_allclose(np.array(found.logits), np.array(head._logits(made)), atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_answers_with_drafts_of_a_files_head_are_those_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    speculate(monkeypatch)
    monkeypatch.setattr(HeadDrafter, "seconds", lambda self, rows, drafts, plain: 0.0)
    monkeypatch.setattr("localai_shim.engine.drafts.head.MIN_AGREEMENT", 0.0)
    file, answers = with_head(name, tmp_path), []
    for mode in ("off", "auto"):
        with (
            caplog.at_level(logging.INFO, "localai_shim"),
            LocalOpenAI(file, speculation=mode, keep_alive=0) as client,
        ):
            said = client.completions.create(
                model="any", prompt=[PROMPT[:20], PROMPT[:3]], max_tokens=40, temperature=0
            )
            answers.append([choice.text for choice in said.choices])
            assert bool(client.stats().drafts.get("mtp")) is (mode == "auto")
    assert answers[0] == answers[1]
    assert f"an MTP head drafts for '{file.name}': {file.name}" in caplog.text


def test_file_without_the_tensors_of_its_head_says_nothing_of_drafts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "localai_shim"):
        assert loaded(unpack("glm4moe", tmp_path))[1] is None
    assert "MTP head" not in caplog.text
