"""Folders of LoRA adapters: those that mlx-lm and mlx-vlm train, and PEFT's."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...types import Adapter, Json, ModelLoadError
from ..checkpoint.completeness import IncompleteError, check_file
from ..checkpoint_files import check_files, read_json
from ..hub import fetch

if TYPE_CHECKING:
    import mlx.core as mx

CONFIG = "adapter_config.json"
MLX_WEIGHTS, PEFT_WEIGHTS = "adapters.safetensors", "adapter_model.safetensors"
_PEFT_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(embedding_)?([AB])(?:\.\w+)?(?:\.weight)?")
_EXPERT = re.compile(r"(.+)\.experts\.(\d+)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Product:
    """The change of one layer: `x @ a @ b`, times the scale."""

    a: mx.array
    """`[in, rank]`; of experts `[experts, in, rank]`; of an embedding `[tokens, rank]`."""
    b: mx.array
    """`[rank, out]`; of experts `[experts, rank, out]`."""
    scale: float


def read_adapter(name: str, path_or_id: str, progress: bool | None = None) -> Adapter:
    """Find an adapter's folder, fetching it if it is a hub id, and tell its contents from any other's.

    Args:
        name: by which requests name it.
        path_or_id: the folder or the hub id.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        ModelLoadError: there is no such folder, or it holds what cannot be done per row.
    """
    folder = fetch(path_or_id, progress)
    check_files(folder)
    try:
        config = read_json(folder / CONFIG)
        weights = folder / (PEFT_WEIGHTS if "peft_type" in config else MLX_WEIGHTS)
        _check(path_or_id, config, weights)
        check_file(weights)
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        with weights.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except (OSError, IncompleteError) as error:
        raise ModelLoadError(f"The adapter '{path_or_id}' could not be read: {error}") from error
    return Adapter(name, digest.hexdigest()[:16], str(folder))


def read_products(adapter: Adapter) -> dict[str, Product]:
    """The changes of an adapter's layers, by the layers' names. On the engine thread: MLX's arrays stay there.

    Raises:
        ModelLoadError: names the file and the tensor that is missing, or has another form.
    """
    import mlx.core as mx

    folder = Path(adapter.folder)
    config = read_json(folder / CONFIG)
    file = folder / (PEFT_WEIGHTS if "peft_type" in config else MLX_WEIGHTS)
    try:
        arrays: dict[str, mx.array] = dict(mx.load(str(file)))  # type: ignore[arg-type]
    except Exception as error:
        raise ModelLoadError(f"The adapter '{adapter.name}' could not be read: {file.name}: {error}") from error
    read = _read_peft if "peft_type" in config else _read_mlx

    def refuse(tensor: str, why: str) -> ModelLoadError:
        return ModelLoadError(f"The adapter '{adapter.name}' cannot be used: {file.name}: '{tensor}' {why}")

    return read(arrays, config, refuse)


Refuse = Callable[[str, str], ModelLoadError]


def _check(path: str, config: Json, weights: Path) -> None:
    """Refuse what cannot be done per row.

    Raises:
        ModelLoadError: says what it is.
    """
    what = None
    if not config:
        what = f"it has no {CONFIG} that is a JSON object"
    elif not weights.exists():
        what = f"it has no {weights.name}"
    elif "peft_type" in config:
        if config["peft_type"] != "LORA":
            what = f"its `peft_type` is {config['peft_type']!r}, and only 'LORA' can differ from row to row"
        elif config.get("use_dora"):
            what = "it is DoRA (`use_dora`), which changes the whole weight"
        elif config.get("modules_to_save"):
            what = f"it brings whole layers (`modules_to_save`: {', '.join(config['modules_to_save'])})"
        elif config.get("bias", "none") != "none":
            what = f"it brings biases (`bias`: {config['bias']!r})"
    elif (kind := config.get("fine_tune_type", "lora")) != "lora":
        what = f"its `fine_tune_type` is {kind!r}, which changes whole weights"
    elif _mlx_scale(config) is None:
        what = f"{CONFIG} has no `lora_parameters.scale`"
    if what is not None:
        more = "" if "has no" in what else ": load it as a model of its own, or fuse it into one"
        raise ModelLoadError(f"The adapter '{path}' cannot be used beside others: {what}{more}.")


def _read_mlx(arrays: Mapping[str, mx.array], config: Json, refuse: Refuse) -> dict[str, Product]:
    scale = _mlx_scale(config)
    assert scale is not None
    made: dict[str, Product] = {}
    for layer, (a, b) in _pairs(arrays, _mlx_name, refuse).items():
        if a.ndim == 3:  # [experts, rank, in], [experts, out, rank]
            a, b = a.swapaxes(1, 2), b.swapaxes(1, 2)
        made[layer] = Product(a, b, scale)
    return made


def _mlx_scale(config: Json) -> float | None:
    """The scale of mlx-lm's and mlx-vlm's form, or of that which mlx-vlm had before."""
    if "lora_parameters" not in config and {"alpha", "rank"} <= config.keys():
        return float(config["alpha"]) / float(config["rank"])
    scale = (config.get("lora_parameters") or {}).get("scale")
    return None if scale is None else float(scale)


def _mlx_name(name: str) -> tuple[str, str] | None:
    layer, _, part = name.rpartition(".")
    return (layer, part[-1].lower()) if part in ("lora_a", "lora_b", "A", "B") else None


def _read_peft(arrays: Mapping[str, mx.array], config: Json, refuse: Refuse) -> dict[str, Product]:
    import mlx.core as mx

    made: dict[str, Product] = {}
    experts: dict[str, dict[int, Product]] = {}
    embeddings = {match[1] for name in arrays if (match := _PEFT_NAME.fullmatch(name)) and match[2]}
    for layer, (a, b) in _pairs(arrays, _peft_name, refuse).items():
        rank = b.shape[1]
        alpha = _pattern(config, "alpha_pattern", layer, config.get("lora_alpha") or rank)
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        product = Product(a.T, b.T, scale)
        if layer in embeddings and a.shape[0] != rank:
            raise refuse(layer, f"has the shapes {a.shape} and {b.shape}")
        if (match := _EXPERT.fullmatch(layer)) is None:
            made[layer] = product
        else:
            experts.setdefault(f"{match[1]}.switch_mlp.{match[3]}", {})[int(match[2])] = product
    for layer, found in experts.items():
        some = next(iter(found.values()))
        count = max(found) + 1
        none = Product(mx.zeros_like(some.a), mx.zeros_like(some.b), some.scale)
        if {(each.a.shape, each.scale) for each in found.values()} != {(some.a.shape, some.scale)}:
            raise refuse(layer, "has experts of different ranks or scales")
        every = [found.get(i, none) for i in range(count)]
        made[layer] = Product(mx.stack([p.a for p in every]), mx.stack([p.b for p in every]), some.scale)
    return made


def _peft_name(name: str) -> tuple[str, str] | None:
    match = _PEFT_NAME.fullmatch(name)
    return None if match is None else (match[1], match[3].lower())


def _pattern(config: Json, field: str, layer: str, default: float) -> float:
    """A setting of one layer: PEFT's patterns are ends of its name, or regular expressions for these."""
    patterns: Mapping[str, Any] = config.get(field) or {}
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", layer):
            return float(value)
    return float(default)


def _pairs(
    arrays: Mapping[str, mx.array], parse: Callable[[str], tuple[str, str] | None], refuse: Refuse
) -> dict[str, tuple[mx.array, mx.array]]:
    """The two factors of each layer."""
    found: dict[str, dict[str, mx.array]] = {}
    for name, array in arrays.items():
        parsed = parse(name)
        if parsed is None:
            raise refuse(name, "is no factor of a low rank")
        found.setdefault(parsed[0], {})[parsed[1]] = array
    for layer, both in found.items():
        if both.keys() != {"a", "b"}:
            raise refuse(layer, f"has no `lora_{'b' if 'a' in both else 'a'}`")
        if both["a"].ndim != both["b"].ndim or both["a"].ndim not in (2, 3):
            raise refuse(layer, f"has factors of the shapes {both['a'].shape} and {both['b'].shape}")
    return {layer: (both["a"], both["b"]) for layer, both in found.items()}
