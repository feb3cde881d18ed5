"""Checkpoints of models that see with packed language models, as mlx-vlm converts them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlx.core as mx
import mlx_vlm.utils
from mlx import nn
from mlx.utils import tree_flatten

GROUP, BITS = 32, 4


def packed(folder: Path, made: Path) -> Path:
    """The checkpoint with the products of its language model's blocks in four bits."""
    shutil.copytree(folder, made)
    model = mlx_vlm.utils.load_model(folder)

    def fits(path: str, layer: nn.Module) -> bool:
        product = isinstance(layer, nn.Linear) and path.startswith("language_model.model.layers")
        return bool(product and layer.weight.shape[-1] % GROUP == 0)

    nn.quantize(model, GROUP, BITS, class_predicate=fits)
    mx.save_safetensors(str(made / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": GROUP, "bits": BITS}}))
    return made
