"""Weights of a GGUF file in mlx-lm's model; quantized products stay packed, as MLX's quantized layers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Iterator
from functools import partial

import mlx.core as mx
from mlx import nn

from ...types import Json
from ..faults.table import corrected
from .architectures import (
    FACTORS,
    MTP_LAYER,
    ROPE_FACTORS,
    Architecture,
    architecture_of,
    head_name,
    layer_of,
    needless,
    weight_name,
)
from .header import Header
from .memory import compute
from .reading import Weight, log_rounding, read_numbers, read_tensors

_GATE_UP = ".gate_up_proj"


def read_model(header: Header, config: Json) -> nn.Module:
    """A file's model, by its config.

    Raises:
        ModelLoadError: the file has become shorter.
    """
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model: nn.Module = corrected(module.Model, config)(module.ModelArgs.from_dict(config))
    found, packings = read_arrays(header, config)
    nn.quantize(model, class_predicate=lambda path, _: packings.get(path, False))
    weights = model.sanitize(found) if hasattr(model, "sanitize") else found
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    if (factors := read_numbers(header, ROPE_FACTORS)) and architecture_of(header).rotates_pairs:
        _set_rope(model, config, factors)
    return model


def read_arrays(header: Header, config: Json) -> tuple[dict[str, mx.array], dict[str, Json]]:
    """Arrays by mlx-lm's names, in its order of rows, and how layers are packed.

    Raises:
        ModelLoadError: the file has become shorter.
    """

    log_rounding(header)
    architecture = architecture_of(header)
    named = partial(weight_name, architecture)
    skipped = {name for name in header.tensors if name in FACTORS or needless(header, name)}
    return _read(header, skipped, named, config.get("text_config", config))


def read_head(header: Header) -> dict[str, mx.array]:
    """Arrays of the first MTP layer by their names in it, with norms as factors; none if the file has no such layer.

    Raises:
        ModelLoadError: the file has become shorter.
        ValueError: it has tensors that are not known.
    """
    layers = {name: layer_of(name) or 0 for name in header.tensors if needless(header, name) == MTP_LAYER}
    named = partial(head_name, architecture_of(header))
    its = {name for name, layer in layers.items() if layer == min(layers.values())}
    if unknown := [name for name in its if named(name) is None]:
        raise ValueError(f"tensor '{unknown[0]}' is not known")
    return _read(header, header.tensors.keys() - its, named, {})[0]


def _read(
    header: Header, skipped: Container[str], named: Callable[[str], str | None], config: Json
) -> tuple[dict[str, mx.array], dict[str, Json]]:
    architecture, arrays, packings = architecture_of(header), dict[str, mx.array](), dict[str, Json]()
    for name, weight in read_tensors(header, skipped):
        known = named(name)
        assert known is not None, name  # the header's names were checked
        for path, part in _parts(architecture, known, weight, config):
            layer = path.rpartition(".")[0]
            if part.packing:
                packings[layer] = dict(part.packing)
            for kind, array in part.arrays.items():
                arrays[path if kind == "weight" else f"{layer}.{kind}"] = array
                compute(array)
    return arrays, packings


def _parts(architecture: Architecture, path: str, weight: Weight, config: Json) -> Iterator[tuple[str, Weight]]:
    """A file's tensor as mlx-lm has it: with its rows in order, and perhaps as two."""
    if architecture.norms_plus_one and path.endswith("norm.weight"):
        yield path, _changed(weight, lambda array: array - 1)
    elif architecture.rotates_pairs and (heads := _heads(path, config)):
        yield path, _changed(weight, lambda array: unpaired(array, heads))
    elif ".linear_attn." in path:
        yield from _linear_attention(architecture, path, weight, config)
    elif _GATE_UP in path and architecture.model_type == "gemma4_text":
        for i, half in enumerate((".gate_proj", ".up_proj")):
            yield path.replace(_GATE_UP, half), _changed(weight, partial(_half, which=i))
    elif path.endswith("shared_expert_gate.weight"):
        yield path, _changed(weight, lambda array: array.reshape(1, -1))
    else:
        yield path, weight


def _changed(weight: Weight, change: Callable[[mx.array], mx.array]) -> Weight:
    return weight._replace(arrays={kind: change(array) for kind, array in weight.arrays.items()})


def _heads(path: str, config: Json) -> int:
    """Number of heads whose rows are those of a weight; 0: its rows are not rotated."""
    kinds = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    return int(config.get(kinds.get(path.rsplit(".", 2)[-2], ""), 0))


def unpaired(array: mx.array, heads: int) -> mx.array:
    """Rows of q or k in the order of the original: all first halves of a head's pairs, then all second ones."""
    rows, *rest = array.shape
    return array.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(rows, *rest)


def _linear_attention(
    architecture: Architecture, path: str, weight: Weight, config: Json
) -> Iterator[tuple[str, Weight]]:
    """Parts of a gated delta net, with the value heads of a key head next to each other.

    Files of Qwen 3.5 have a value head of each key head in turn; those of Qwen3-Next have the original's order, but b
    and a in one tensor.
    """
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    rows_before = 2 * keys * config["linear_key_head_dim"]
    name = path.partition(".linear_attn.")[2].partition(".")[0]

    def grouped(array: mx.array) -> mx.array:
        size, *rest = array.shape
        if not architecture.tiles_heads:
            return array
        return array.reshape(values // keys, keys, size // values, *rest).swapaxes(0, 1).reshape(size, *rest)

    def behind(array: mx.array) -> mx.array:
        return mx.concatenate([array[:rows_before], grouped(array[rows_before:])])

    if name == "in_proj_ba":
        for i, letter in enumerate("ba"):
            part = _changed(weight, partial(_every_other, keys=keys, which=i))
            yield path.replace("in_proj_ba", f"in_proj_{letter}"), part
    elif name == "in_proj_qkv":
        yield path, _changed(weight, behind)
    elif name == "conv1d":
        yield path, _changed(weight, lambda array: behind(array)[..., None])
    elif name == "out_proj":
        yield path, _changed(weight, lambda array: grouped(array.T).T)
    elif name == "A_log":
        yield path, _changed(weight, lambda array: grouped(mx.log(-array)))
    elif name == "norm":
        yield path, weight
    else:
        yield path, _changed(weight, grouped)


def _half(array: mx.array, which: int) -> mx.array:
    """The first or the second half of the rows."""
    return array.split(2, -2)[which]


def _every_other(array: mx.array, keys: int, which: int) -> mx.array:
    """The first or the second half of the rows of each key head."""
    rows, *rest = array.shape
    return array.reshape(keys, 2, rows // keys // 2, *rest)[:, which].reshape(-1, *rest)


def _set_rope(model: nn.Module, config: Json, factors: list[float]) -> None:
    """Give every layer the wave lengths that the file's factors make, as Llama 3.1's."""
    size = config["head_dim"]
    for layer in model.layers:
        layer.self_attn.rope._freqs = config["rope_theta"] ** (mx.arange(0, size, 2) / size) * mx.array(factors)
