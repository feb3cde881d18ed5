"""LoRA adapters: found when the client is made, and applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

from localai_shim import AsyncLocalOpenAI, LocalOpenAI
from tests import inside
from tests.tiny import tiny

PROMPT = [101, 33]
LORA = {"num_layers": 2, "lora_parameters": {"rank": 4, "scale": 20.0, "dropout": 0.0}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with adapters in it, which change what the model says."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "adapters"
    folder.mkdir()
    model, _ = mlx_lm.load(str(tiny("qwen3")))
    model.freeze()
    linear_to_lora_layers(model, LORA["num_layers"], LORA["lora_parameters"])
    mx.random.seed(1)
    weights = {name: mx.random.normal(array.shape) * 0.3 for name, array in tree_flatten(model.trainable_parameters())}
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    (folder / "adapter_config.json").write_text(json.dumps({"fine_tune_type": "lora", **LORA}))
    return home


def said(client: LocalOpenAI) -> str:
    return client.completions.create(model="any", prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text


def test_adapters_in_the_home_folder_are_found_and_applied(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    model, tokenizer = mlx_lm.load(str(tiny("qwen3")), adapter_path=str(home / "adapters"))
    expected = mlx_lm.generate(model, tokenizer, PROMPT, max_tokens=12).replace(
        "<|im_start|>", ""
    )  # upstream writes it
    with LocalOpenAI(tiny("qwen3"), adapter_path="~/adapters") as client, LocalOpenAI(tiny("qwen3")) as plain:
        assert said(client) == expected != said(plain)
        with LocalOpenAI(tiny("qwen3"), adapter_path=home / "adapters") as same:
            assert inside.engine(same) is inside.engine(client)


@pytest.mark.parametrize("make", [LocalOpenAI, AsyncLocalOpenAI])
def test_adapters_that_are_not_there_are_said_when_the_client_is_made(make: Any, home: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`adapter_path`: there is no folder '.*nowhere'"):
        make(tiny("qwen3"), adapter_path=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"it has no adapter_config.json and no adapters.safetensors"):
        make(tiny("qwen3"), adapter_path=tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"it has no adapters.safetensors"):
        make(tiny("qwen3"), adapter_path=tmp_path)
