"""Logits of GGUF files: those of mlx-lm on the folder with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from mlx.utils import tree_flatten

from localai_shim.engine.ports import StepInput
from localai_shim.models.gguf.checkpoint import read_checkpoint
from localai_shim.models.loading import load_model
from localai_shim.models.text import LoadOptions, TextModel
from tests.models.gguf import writing
from tests.models.gguf.random_blocks import random_blocks
from tests.models.gguf.writing import WRITTEN, write
from tests.tiny import CONFIGS, make_model, make_weights, tiny

PROMPT = [5, 9, 13, 21, 8, 3, 77, 140]
_QWEN2 = {key: value for key, value in CONFIGS["llama"].items() if key != "model_type"}


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It has biases, and its head is its embedding."""
    folder = make_model(tmp_path_factory.mktemp("qwen2"), "llama")
    return make_weights(folder, {**_QWEN2, "model_type": "qwen2", "tie_word_embeddings": True, "eos_token_id": 1})


def logits(path: Path, prompt: list[int] = PROMPT) -> np.ndarray:
    model = load_model(str(path), LoadOptions())
    assert isinstance(model, TextModel)
    return np.array(model.forward(StepInput(mx.array([prompt]), model.new_cache())).logits[0])


def of_mlx_lm(folder: Path, prompt: list[int] = PROMPT) -> np.ndarray:
    model, _ = mlx_lm.load(str(folder))
    return np.array(model(mx.array([prompt]))[0])


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text"])
def test_a_file_gives_the_logits_of_its_original(kind: str, qwen2: Path, tmp_path: Path) -> None:
    folder = qwen2 if kind == "qwen2" else tiny(kind)
    assert np.allclose(logits(write(folder, tmp_path / "a.gguf")), of_mlx_lm(folder), atol=2e-4)


@pytest.mark.parametrize("type_", WRITTEN[1:], ids=lambda type_: type_.name)
def test_a_file_of_each_type_gives_the_logits_of_the_weights_that_it_holds(type_: Type, tmp_path: Path) -> None:
    expected = of_mlx_lm(writing.rounded(tiny("qwen3"), tmp_path / "rounded", type_))
    assert np.allclose(logits(write(tiny("qwen3"), tmp_path / "a.gguf", type_)), expected, atol=5e-2)
    assert np.abs(expected - of_mlx_lm(tiny("qwen3"))).max() > 1e-3, "the type makes a difference"


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe", "gemma3_text"])
def test_quantised_products_stay_packed(kind: str, tmp_path: Path) -> None:
    """Rows of packed q and k are put in order as they are; experts stay stacked."""
    model, _, _ = read_checkpoint(write(tiny(kind), tmp_path / "a.gguf", Type.Q8_0))
    arrays = dict(tree_flatten(model.parameters()))
    matrices = {name: array for name, array in arrays.items() if name.endswith("_proj.weight")}
    assert matrices and {str(array.dtype) for array in matrices.values()} == {"mlx.core.uint32"}
    expected = of_mlx_lm(writing.rounded(tiny(kind), tmp_path / "rounded", Type.Q8_0))
    found = np.array(model(mx.array([PROMPT]))[0].astype(mx.float32))
    assert np.allclose(found, expected, atol=0.02 * np.abs(expected).max())


MIXES = {
    "Q4_K_M": {"": Type.Q4_K, "v_proj": Type.Q6_K, "down_proj": Type.Q6_K, "lm_head": Type.Q6_K},
    "Q5_K_M": {"": Type.Q5_K, "v_proj": Type.Q6_K, "down_proj": Type.Q6_K, "lm_head": Type.Q6_K},
    "UD-Q4_K_XL": {
        "": Type.Q4_K,
        "k_proj": Type.Q5_K,
        "v_proj": Type.Q8_0,
        "up_proj": Type.IQ4_XS,
        "o_proj": Type.Q3_K,
    },
    "rows of other lengths": {"": Type.Q5_0, "v_proj": Type.Q5_1, "down_proj": Type.IQ4_NL, "lm_head": Type.Q8_0},
    "Q2_K": {"": Type.Q2_K, "v_proj": Type.Q4_K, "down_proj": Type.Q3_K, "lm_head": Type.Q6_K},
}
"""Types by layers, as llama-quantize mixes them."""
ROUNDED = {"UD-Q4_K_XL": 0.05}
"""Errors of mixes with more than the rounding of Q6_K."""


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_of_types_gives_the_logits_of_the_weights_that_it_holds(mix: str, kind: str, tmp_path: Path) -> None:
    """Rows of q and k are put in order as they are packed; experts stay stacked."""
    rest: dict[str, Any] = {}
    if kind == "qwen3_moe":  # all experts: a choice would leap where two are nearly as good
        rest = {"moe_intermediate_size": 256, "num_experts_per_tok": CONFIGS["qwen3_moe"]["num_experts"]}
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = make_model(tmp_path / "wide", kind, head_dim=64, **sizes, **rest)
    types = MIXES[mix]

    def packed(name: str, values: np.ndarray) -> tuple[np.ndarray, Type]:
        if name.endswith("mlp.gate.weight"):  # chooses experts, and is never quantized
            return values, Type.F32
        found = [type_ for layer, type_ in types.items() if layer in name and layer]
        type_ = (found or [types[""]])[0]
        return random_blocks(type_, values.shape, len(name), 0.2), type_

    file = write(folder, tmp_path / "a.gguf", packed=packed)
    expected = of_mlx_lm(writing.holding(folder, tmp_path / "held", packed))
    off = np.linalg.norm(logits(file) - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert np.median(off) < ROUNDED.get(mix, 0.02)  # after some tokens, rounding makes the next layer leap


def test_factors_of_the_rotation_are_those_of_llama_3(tmp_path: Path) -> None:
    """A file has a tensor where a config has four numbers: transformers' formula gives the one from the other."""
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    folder = make_model(tmp_path / "three", "llama", rope_scaling=scaling, rope_theta=500.0)
    model, _ = mlx_lm.load(str(folder))
    plain = 500.0 ** (np.arange(0, 16, 2) / 16)
    factors = np.array(model.layers[0].self_attn.rope._freqs) / plain
    assert len({round(float(factor), 3) for factor in factors}) > 2
    file = write(folder, tmp_path / "a.gguf", more={"rope_freqs.weight": factors.astype(np.float32)})
    long = [(7 * i) % 300 for i in range(90)]
    assert np.allclose(logits(file, long), of_mlx_lm(folder, long), atol=5e-4)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_scalings_of_the_rotation_are_read(kind: str, tmp_path: Path) -> None:
    scaling = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 64}
    folder = make_model(tmp_path / kind, "qwen3", rope_scaling=scaling)
    keys = {"type": kind, "factor": 4.0, "original_context_length": 64}
    rest = {f"qwen3.rope.scaling.{key}": value for key, value in keys.items()}
    long = [(7 * i) % 300 for i in range(90)]
    found = logits(write(folder, tmp_path / "a.gguf", rest=rest), long)
    assert np.allclose(found, of_mlx_lm(folder, long), atol=5e-4)
