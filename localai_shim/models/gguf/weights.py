"""Weights of a GGUF file in mlx-lm's model; quantised products stay packed, as MLX's quantised layers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ...types import Json
from .config import ARCHITECTURES, ROPE_FACTORS, Architecture, weight_name
from .header import Header
from .reading import log_rounding, read_tensors

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn


def read_model(header: Header, config: Json) -> nn.Module:
    """A file's model, by its config.

    Raises:
        ModelLoadError: the file has become shorter.
    """
    from mlx import nn

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model: nn.Module = module.Model(module.ModelArgs.from_dict(config))
    log_rounding(header)
    found, packings = _renamed(header, config)
    factors = found.pop(ROPE_FACTORS, None)
    nn.quantize(model, class_predicate=lambda path, _: packings.get(path, False))
    weights = model.sanitize(found)
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    if factors is not None:
        _set_rope(model, config, factors)
    return model


def _renamed(header: Header, config: Json) -> tuple[dict[str, mx.array], dict[str, Json]]:
    """Arrays by mlx-lm's names, in its order of rows, and how layers are packed."""
    import mlx.core as mx

    [architecture] = [each for each in ARCHITECTURES.values() if each.model_type == config["model_type"]]
    arrays: dict[str, mx.array] = {}
    packings: dict[str, Json] = {}
    for name, weight in read_tensors(header):
        known = ROPE_FACTORS if name == ROPE_FACTORS else _known(architecture, name)
        layer, _, ending = known.rpartition(".")
        if weight.packing:
            packings[layer] = dict(weight.packing)
        for kind, array in weight.arrays.items():
            if architecture.norms_plus_one and name.endswith("norm.weight"):
                array = array - 1
            if architecture.rotates_pairs and (heads := _heads(name, config)):
                array = _unpaired(array, heads)
            arrays[f"{layer}.{ending if kind == 'weight' else kind}"] = array
            mx.eval(array)  # what it was made of is freed
    return arrays, packings


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
