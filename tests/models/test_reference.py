"""The model that is made on the spot, and mlx-lm's answers to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.utils
import pytest
from mlx_lm.models.cache import make_prompt_cache

from localai_shim.backends.machine import has_gpu
from localai_shim.builtin import CHECKPOINT
from localai_shim.models.loading import load_model
from localai_shim.models.reference import HEAD_DIM, SMALL, UpstreamModel, save_random_model
from localai_shim.models.text import TextModel

PROMPT = [300 + 7 * i % 3_000 for i in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("random")
    save_random_model(made, CHECKPOINT, SMALL)
    return made


def test_random_model_has_4_bit_weights_and_heads_that_metal_has_kernels_for(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["head_dim"] == HEAD_DIM == 128
    loaded: Any = mx.load(str(folder / "model.safetensors"))
    query = "model.layers.0.self_attn.q_proj"
    assert loaded[f"{query}.weight"].dtype == mx.uint32
    assert loaded[f"{query}.weight"].shape[1] * 8 == SMALL.hidden
    assert loaded[f"{query}.scales"].dtype == (mx.bfloat16 if has_gpu() else mx.float32)


def test_random_model_is_always_the_same(folder: Path, tmp_path: Path) -> None:
    save_random_model(tmp_path, CHECKPOINT, SMALL)
    assert (tmp_path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_random_model_loads_with_its_chat_template(folder: Path) -> None:
    model = load_model(str(folder), {})
    assert isinstance(model, TextModel)
    assert model.text.apply_chat_template([{"role": "user", "content": "Hello"}], {})


def test_tokens_of_mlx_lm_are_the_likeliest_ones_of_its_model(folder: Path) -> None:
    found = UpstreamModel(folder).greedy(PROMPT, 5, 3)
    assert len(found) == 5
    model, _ = mlx_lm.utils.load(str(folder))[:2]
    cache, tokens = make_prompt_cache(model), PROMPT
    for token in found:
        logits = model(mx.array([tokens]), cache=cache)[0, -1].astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits)
        assert token.id == mx.argmax(logits).item()
        assert token.logprob == pytest.approx(logprobs[token.id].item(), abs=0.05)  # half precision on a GPU
        assert token.top[0] == (token.id, token.logprob)
        assert len(token.top) == 3 and token.top[1][1] <= token.top[0][1]
        tokens = [token.id]


def test_answer_does_not_end_early(folder: Path) -> None:
    assert len(UpstreamModel(folder).greedy(PROMPT[:3], 64, 0)) == 64
