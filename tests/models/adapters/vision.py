"""Adapters of models that see, as mlx-vlm trains and applies them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm.trainer.peft import get_peft_model
from mlx_vlm.trainer.peft.utils import save_adapter

from tests import inside
from tests.lora import SIZE
from tests.models.vision.seeing import load


def make_adapter(
    folder: Path, kind: str, *, seed: int, layers: Sequence[str] | None = None, rank: int = 4, legacy: bool = False
) -> Path:
    """Save random adapters for a tiny model that sees, with mlx-vlm's own code.

    Args:
        folder: where; made if it is not there.
        kind: the family.
        seed: of the numbers.
        layers: ends of names or whole ones; None: all products of the language model's blocks.
        rank: of the products.
        legacy: in the form that mlx-vlm wrote before.
    """
    model: Any = inside.network(load(kind))
    names = None if layers is None else list(layers)
    get_peft_model(model, names, rank=rank, alpha=2.0 * rank, dropout=0.0, verbose=False, legacy=legacy)
    mx.random.seed(seed)
    weights = {name: mx.random.normal(each.shape) * SIZE for name, each in tree_flatten(model.trainable_parameters())}
    model.load_weights([*weights.items()], strict=False)
    save_adapter(model, folder / "adapters.safetensors")
    return folder


def renamed(folder: Path, source: Path, old: str, new: str) -> Path:
    """The same adapters with other beginnings of the layers' names."""
    weights = mx.load(str(source / "adapters.safetensors"))
    assert isinstance(weights, dict)
    folder.mkdir(parents=True)
    named = {new + name.removeprefix(old): array for name, array in weights.items()}
    mx.save_safetensors(str(folder / "adapters.safetensors"), named)
    (folder / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    return folder
