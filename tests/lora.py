"""Folders of LoRA adapters, as mlx-lm and PEFT write them, and what mlx-lm answers with one of them alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

from localai_shim import LocalOpenAI
from localai_shim.models.adapters.bank import Bank
from localai_shim.models.adapters.folder import read_adapter
from localai_shim.types import Adapter

SIZE = 0.3  # of an adapter's numbers, which changes what a tiny model says
TOKENS = [[5, 9, 17, 33], [40, 3, 21, 8], [11, 12, 13, 14]]


def make_adapter(folder: Path, model: Path, *, seed: int = 0, rank: int = 4, keys: Sequence[str] = ()) -> Path:
    """Save random adapters for a model in mlx-lm's form, with its own classes; by default around all layers.

    Args:
        folder: where; made if it is not there.
        model: the folder of the model.
        seed: of the numbers.
        rank: of the products.
        keys: names of layers, within a block or whole; none: every one of the blocks'.
    """
    base, _ = mlx_lm.load(str(model), lazy=True)
    base.freeze()
    parameters: dict[str, Any] = {"rank": rank, "scale": 2.0, "dropout": 0.0}
    if keys:
        parameters["keys"] = list(keys)
    config = {"fine_tune_type": "lora", "num_layers": len(base.layers), "lora_parameters": parameters}
    linear_to_lora_layers(base, config["num_layers"], parameters)
    mx.random.seed(seed)
    weights = {name: mx.random.normal(each.shape) * SIZE for name, each in tree_flatten(base.trainable_parameters())}
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def as_peft(folder: Path, source: Path, **config: Any) -> Path:
    """Save an adapter of mlx-lm's form in PEFT's."""
    parameters = json.loads((source / "adapter_config.json").read_text())["lora_parameters"]
    rank, weights = parameters["rank"], mx.load(str(source / "adapters.safetensors"))
    assert isinstance(weights, dict)
    named = {}
    for name, array in weights.items():
        layer, _, part = name.rpartition(".")
        named[f"base_model.model.{layer}.lora_{part[-1].upper()}.weight"] = mx.contiguous(array.T)
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "adapter_model.safetensors"), named)
    targets = sorted({name.split(".")[-2] for name in weights})
    known = {"peft_type": "LORA", "r": rank, "lora_alpha": parameters["scale"] * rank, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps({**known, "bias": "none", **config}))
    return folder


def add(bank: Bank, folder: Path) -> Adapter:
    """Load a folder's adapter whole."""
    adapter, products = read_adapter(folder.name, str(folder))
    for _ in bank.add(adapter, products):
        pass
    return adapter


def remove(bank: Bank, adapter: Adapter) -> None:
    for _ in bank.remove(adapter):
        pass


@functools.cache
def alone(model: Path, adapter: Path | None, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
    """Tokens that mlx-lm generates with an adapter by itself."""
    loaded, tokenizer = _load(model, adapter)
    return [each.token for each in mlx_lm.stream_generate(loaded, tokenizer, list(prompt), max_tokens=max_tokens)]


@functools.cache
def _load(model: Path, adapter: Path | None) -> tuple[Any, Any]:
    loaded, tokenizer = mlx_lm.load(str(model))
    if adapter is not None:
        loaded = load_adapters(loaded, str(adapter)).eval()
    return loaded, tokenizer


def ids(client: LocalOpenAI, model: str, prompt: tuple[int, ...], max_tokens: int = 16, **more: Any) -> Any:
    """Tokens of a greedy completion."""
    extra = {"return_token_ids": True, **more.pop("extra_body", {})}
    answer = client.completions.create(
        model=model, prompt=list(prompt), max_tokens=max_tokens, temperature=0, extra_body=extra, **more
    )
    return answer.choices[0].token_ids  # type: ignore[attr-defined]


def logits(model: Any, tokens: list[list[int]]) -> Any:
    made = model(mx.array(tokens))
    return np.array(getattr(made, "logits", made).astype(mx.float32))


def assert_near(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-4 * np.abs(other).max())


def names_of(model: Any) -> list[str]:
    return [f"{name}: {type(module).__name__}" for name, module in model.named_modules()]
