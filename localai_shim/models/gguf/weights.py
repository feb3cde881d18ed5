"""Weights of a GGUF file in mlx-lm's model; quantised products stay packed, as MLX's quantised layers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from ...types import Json
from .config import ARCHITECTURES, ROPE_FACTORS, Architecture, weight_name

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn


def read_model(file: Path, config: Json) -> nn.Module:
    """A file's model, by its config."""
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.utils import infer_quant_config

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model: nn.Module = module.Model(module.ModelArgs.from_dict(config))
    found: dict[str, mx.array] = mx.load(str(file), format="gguf")  # type: ignore[assignment]
    factors = found.pop(ROPE_FACTORS, None)
    weights = model.sanitize(_renamed(found, config))

    def packed(path: str, layer: nn.Module) -> bool | Json:
        how: Json = infer_quant_config(path, layer, weights) if f"{path}.scales" in weights else {}
        return how or False

    nn.quantize(model, class_predicate=packed)
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    if factors is not None:
        _set_rope(model, config, factors)
    return model


def _renamed(found: dict[str, mx.array], config: Json) -> dict[str, mx.array]:
    """Weights by mlx-lm's names, in its order of rows and in one type: float16 but where all are float32."""
    import mlx.core as mx

    [architecture] = [each for each in ARCHITECTURES.values() if each.model_type == config["model_type"]]
    dtype = mx.float16 if any(array.dtype == mx.float16 for array in found.values()) else mx.float32
    weights: dict[str, mx.array] = {}
    for name, array in found.items():
        if architecture.norms_plus_one and name.endswith("norm.weight"):
            array = array - 1
        if architecture.rotates_pairs and (heads := _heads(name, config)):
            array = _unpaired(array, heads)
        weights[_known(architecture, name)] = array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array
    return weights


def _known(architecture: Architecture, name: str) -> str:
    known = weight_name(architecture, name)
    assert known is not None, name  # the header's names were checked
    return known


def _heads(name: str, config: Json) -> int:
    """Number of heads whose rows are those of a weight; 0: its rows are not rotated."""
    kinds = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    return int(config.get(kinds.get(name.rsplit(".", 2)[-2], ""), 0))


def _unpaired(array: mx.array, heads: int) -> mx.array:
    """Rows of q or k in the order of the original: all first halves of a head's pairs, then all second ones."""
    rows, *rest = array.shape
    return array.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(rows, *rest)


def _set_rope(model: nn.Module, config: Json, factors: mx.array) -> None:
    """Give every layer the wave lengths that the file's factors make, as Llama 3.1's."""
    import mlx.core as mx

    size = config["head_dim"]
    for layer in model.layers:
        layer.self_attn.rope._freqs = config["rope_theta"] ** (mx.arange(0, size, 2) / size) * factors
